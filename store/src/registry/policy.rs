//! What a tool says about its approvals, its probe and its endpoint, and who may say it.

use sqlx::FromRow;
use undolog_core::{
    Reason,
    json::{canonical_value_eq, from_stored},
    probe::Probe,
    upstream::Upstream,
};

use super::{
    register_tool::ToolInput,
    rules::{self, Standing, invalid},
};
use crate::error::StepError;

/// The longest window of an approval: a leap year.
const TIMEOUT_SECONDS_MAX: u32 = 31_622_400;
/// More people than decide about one call.
const QUORUM_MAX: u32 = 20;

/// The policy of one version; `None`: inherited from the project or the organisation.
#[derive(Debug, Clone, Default, PartialEq, FromRow)]
pub(super) struct Policy {
    pub(super) approval_timeout_seconds: Option<i32>,
    pub(super) auto_approve_on_timeout: Option<bool>,
    pub(super) approval_quorum: Option<i32>,
    pub(super) requester_may_approve: Option<bool>,
    pub(super) probe: Option<String>,
    pub(super) upstream: Option<String>,
    /// Means something with an endpoint only.
    pub(super) execute_on_approval: bool,
}

impl Policy {
    /// Reads and checks what a registration says.
    pub(super) fn of(tool: &ToolInput) -> Result<Self, StepError> {
        let probe = rules::parse_json("probe", &tool.probe)?;
        if let Some(probe) = &probe {
            Probe::parse(probe).map_err(|error| invalid(format!("probe: {error}")))?;
        }
        let upstream = rules::parse_json("upstream", &tool.upstream)?;
        if let Some(upstream) = &upstream {
            Upstream::parse(upstream).map_err(|error| invalid(format!("upstream: {error}")))?;
        }
        Ok(Self {
            approval_timeout_seconds: bounded(
                "approval_timeout_seconds",
                tool.approval_timeout_seconds,
                TIMEOUT_SECONDS_MAX,
            )?,
            auto_approve_on_timeout: tool.auto_approve_on_timeout,
            approval_quorum: bounded("approval_quorum", tool.approval_quorum, QUORUM_MAX)?,
            requester_may_approve: tool.requester_may_approve,
            probe: probe.map(|probe| rules::jsonb_text("probe", &probe)).transpose()?,
            upstream: upstream.map(|node| rules::jsonb_text("upstream", &node)).transpose()?,
            execute_on_approval: tool.execute_on_approval.unwrap_or(true),
        })
    }

    /// The rules for callers that may not weaken the registry: a decision must not become easier,
    /// and what decides by itself (auto-approval, a probe) stays as an administrator left it.
    pub(super) fn check_agent(
        &self,
        version: &str,
        standing: &[Standing],
    ) -> Result<(), StepError> {
        if !crate::guard!("registry.policy") {
            return Ok(());
        }
        let refuse = |what: &str| {
            let why = format!("only an administrator may make {what} weaker than it stands");
            Err(StepError::refuse(Reason::PermissionDenied, why))
        };
        let inherited = Self::default();
        let same = standing.iter().find(|row| row.version == version);
        let same = same.map_or(&inherited, |row| &row.policy);
        let active: Vec<&Self> =
            standing.iter().filter(|row| row.is_active).map(|row| &row.policy).collect();
        let forbids = |of: fn(&Self) -> Option<bool>| active.iter().any(|p| of(p) == Some(false));
        let is_weaker = |wanted: Option<bool>, same: Option<bool>, forbidden: bool| match wanted {
            Some(false) => false,
            Some(true) => forbidden || same != Some(true),
            None => forbidden || same == Some(false),
        };
        let auto = |policy: &Self| policy.auto_approve_on_timeout;
        if is_weaker(self.auto_approve_on_timeout, auto(same), forbids(auto)) {
            return refuse("auto-approval");
        }
        let requester = |policy: &Self| policy.requester_may_approve;
        if is_weaker(self.requester_may_approve, requester(same), forbids(requester)) {
            return refuse("who may approve");
        }
        let quorum = active.iter().filter_map(|policy| policy.approval_quorum).max();
        if quorum.is_some_and(|most| self.approval_quorum.unwrap_or(1) < most) {
            return refuse("the quorum");
        }
        // A short window is an early auto-approval.
        let window = self.approval_timeout_seconds;
        let is_known = window == same.approval_timeout_seconds
            || (window.is_some() && active.iter().any(|p| p.approval_timeout_seconds == window));
        if !is_known {
            return refuse("the window of approvals");
        }
        // A probe is sent with secrets, and its answer settles what happened.
        if !is_same_json(self.probe.as_deref(), same.probe.as_deref()) {
            return refuse("the probe");
        }
        // An endpoint is called with secrets, by somebody else than the agent.
        let is_same_endpoint = is_same_json(self.upstream.as_deref(), same.upstream.as_deref())
            && (self.upstream.is_none() || self.execute_on_approval == same.execute_on_approval);
        if !is_same_endpoint {
            return refuse("the upstream endpoint");
        }
        Ok(())
    }
}

fn is_same_json(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (None, None) => true,
        // What cannot be compared is not the same.
        (Some(a), Some(b)) => from_stored(a, None)
            .is_ok_and(|a| from_stored(b, None).is_ok_and(|b| canonical_value_eq(&a, &b))),
        _ => false,
    }
}

fn bounded(what: &str, given: u32, most: u32) -> Result<Option<i32>, StepError> {
    if given > most {
        return Err(invalid(format!("{what} is larger than {most}")));
    }
    Ok(i32::try_from(given).ok().filter(|given| *given > 0))
}

#[cfg(test)]
mod tests {
    use undolog_core::Tier;

    use super::*;

    fn standing(version: &str, policy: Policy) -> Standing {
        Standing {
            version: version.to_owned(),
            tier: Tier::Irreversible,
            compensation_ref: None,
            allowed_compensations: Vec::new(),
            idempotent: false,
            is_active: true,
            registered_by: "me".to_owned(),
            policy,
        }
    }

    fn strict() -> Policy {
        Policy {
            approval_timeout_seconds: Some(3600),
            auto_approve_on_timeout: Some(false),
            approval_quorum: Some(2),
            requester_may_approve: Some(false),
            probe: Some(r#"{"a": 1}"#.to_owned()),
            ..Policy::default()
        }
    }

    #[test]
    fn agents_add_protection_and_never_take_any() {
        let ok = |wanted: &Policy, version: &str, rows: &[Standing]| {
            wanted.check_agent(version, rows).is_ok()
        };
        let none = Policy::default();
        assert!(ok(&none, "1.0.0", &[]));
        for weak in [
            Policy { auto_approve_on_timeout: Some(true), ..none.clone() },
            Policy { requester_may_approve: Some(true), ..none.clone() },
            Policy { approval_timeout_seconds: Some(1), ..none.clone() },
            Policy { probe: Some("{}".to_owned()), ..none.clone() },
            Policy { upstream: Some("{}".to_owned()), ..none.clone() },
        ] {
            assert!(!ok(&weak, "1.0.0", &[]), "{weak:?}");
            let rows = [standing("1.0.0", weak.clone())];
            assert!(ok(&weak, "1.0.0", &rows), "unchanged: {weak:?}");
        }
        let harder = Policy {
            auto_approve_on_timeout: Some(false),
            approval_quorum: Some(3),
            requester_may_approve: Some(false),
            ..none.clone()
        };
        assert!(ok(&harder, "1.0.0", &[]));
        let rows = [standing("1.0.0", strict())];
        assert!(ok(&strict(), "1.0.0", &rows));
        assert!(ok(&Policy { approval_quorum: Some(5), ..strict() }, "1.0.0", &rows));
        let no_probe = Policy { probe: None, ..strict() };
        assert!(ok(&no_probe, "2.0.0", &rows), "a new version has no probe");
        for weak in [
            Policy { approval_quorum: Some(1), ..strict() },
            Policy { approval_quorum: None, ..strict() },
            Policy { auto_approve_on_timeout: None, ..strict() },
            Policy { requester_may_approve: None, ..strict() },
            Policy { approval_timeout_seconds: Some(60), ..strict() },
            no_probe,
        ] {
            assert!(!ok(&weak, "1.0.0", &rows), "{weak:?}");
            let new = Policy { probe: None, ..weak.clone() };
            let differs = new != Policy { probe: None, ..strict() };
            assert!(!differs || !ok(&new, "2.0.0", &rows), "{weak:?}");
        }
    }
}
