//! What may be registered: form, and who may change what.

use std::str::FromStr as _;

use semver::Version;
use undolog_core::{
    Tier,
    json::{Node, parse_strict, to_jsonb},
    limits::{NUMBER_BYTES_MAX, TEXT_BYTES_MAX, TOOL_NAME_BYTES_MAX},
    reason::Reason,
};

use super::{policy::Policy, schema::SCHEMA_BYTES_MAX};
use crate::error::StepError;

/// Tags and listed names of one registration: more than a human reads.
const NAMES_MAX: usize = 64;

/// What the rules for agents need to know of a name's versions that stand.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) version: String,
    pub(super) tier: Tier,
    pub(super) compensation_ref: Option<String>,
    pub(super) allowed_compensations: Vec<String>,
    pub(super) idempotent: bool,
    pub(super) is_active: bool,
    pub(super) registered_by: String,
    pub(super) policy: Policy,
}

/// A refusal of the request itself.
pub(super) fn invalid(message: impl Into<String>) -> StepError {
    StepError::refuse(Reason::InvalidArgument, message)
}

/// A name is an index key, so it has a bound and no NUL, and it is not blank.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), StepError> {
    if name.trim().is_empty() {
        return Err(invalid(format!("{what} is missing")));
    }
    if name.len() > TOOL_NAME_BYTES_MAX {
        return Err(StepError::refuse(
            Reason::LimitExceeded,
            format!("{what} is longer than {TOOL_NAME_BYTES_MAX} bytes"),
        ));
    }
    if name.contains('\0') {
        return Err(invalid(format!("{what} holds NUL")));
    }
    Ok(())
}

/// Names in a list, each a name and none twice.
pub(super) fn check_names(what: &str, names: &[String]) -> Result<(), StepError> {
    if names.len() > NAMES_MAX {
        return Err(StepError::refuse(
            Reason::LimitExceeded,
            format!("{what} has more than {NAMES_MAX} entries"),
        ));
    }
    names.iter().try_for_each(|name| check_name(what, name))
}

/// A free text without NUL and of bounded length.
pub(super) fn check_text(what: &str, text: &str) -> Result<(), StepError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(StepError::refuse(
            Reason::LimitExceeded,
            format!("{what} is longer than {TEXT_BYTES_MAX} bytes"),
        ));
    }
    if text.contains('\0') {
        return Err(invalid(format!("{what} holds NUL")));
    }
    Ok(())
}

/// A strict semantic version; nothing at all is the documented default.
pub(super) fn version_or_default(version: &str) -> Result<String, StepError> {
    if version.is_empty() {
        return Ok(undolog_core::version::DEFAULT_VERSION.to_owned());
    }
    if version.len() > TOOL_NAME_BYTES_MAX || Version::parse(version).is_err() {
        return Err(invalid("the version is no semantic version, such as 1.0.0"));
    }
    Ok(version.to_owned())
}

/// The tier by its name.
pub fn tier(name: &str) -> Result<Tier, StepError> {
    Tier::from_str(name)
        .map_err(|_| invalid("the tier is none of safe, compensable and irreversible"))
}

/// Parses a schema or body of a registration; nothing at all is `None`.
pub(super) fn parse_json(what: &str, given: &[u8]) -> Result<Option<Node>, StepError> {
    if given.is_empty() {
        return Ok(None);
    }
    if given.len() > SCHEMA_BYTES_MAX {
        return Err(StepError::refuse(
            Reason::LimitExceeded,
            format!("{what} is longer than {SCHEMA_BYTES_MAX} bytes"),
        ));
    }
    let node = parse_strict(given).map_err(|error| invalid(format!("{what}: {error}")))?;
    Ok(Some(node))
}

/// A registration's jsonb text. There is no second column for what jsonb cannot hold, so that is
/// refused; how a number was written does not matter here.
pub(super) fn jsonb_text(what: &str, node: &Node) -> Result<String, StepError> {
    if !fits_jsonb(node) {
        return Err(invalid(format!("{what} holds NUL, or a number that is out of reach")));
    }
    Ok(to_jsonb(node, &[]).jsonb_text)
}

fn fits_jsonb(node: &Node) -> bool {
    match node {
        Node::Null | Node::Bool(_) => true,
        Node::Number(number) => {
            let is_finite = number.as_f64().is_some_and(f64::is_finite);
            let text = number.as_text();
            let exponent = text.split(['e', 'E']).nth(1).unwrap_or("0");
            is_finite
                && text.len() < NUMBER_BYTES_MAX
                && exponent.trim_matches(['+', '-']).len() < 4
        }
        Node::String(text) => !text.as_str().contains('\0'),
        Node::Array(items) => items.iter().all(fits_jsonb),
        Node::Object(members) => {
            members.iter().all(|(key, value)| !key.as_str().contains('\0') && fits_jsonb(value))
        }
    }
}

/// What an agent wants to register, as far as its rules look at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) version: &'a str,
    pub(super) tier: Tier,
    pub(super) compensation_ref: Option<&'a str>,
    pub(super) allowed_compensations: &'a [String],
    pub(super) idempotent: bool,
}

/// The rules for callers that may not weaken the registry: they can add protection and change what
/// they registered themselves, nothing else. Whether the compensation is open is asked elsewhere.
pub(super) fn check_agent(
    principal: &str,
    wanted: &Wanted<'_>,
    standing: &[Standing],
) -> Result<(), StepError> {
    let highest = standing.iter().filter(|row| row.is_active).map(|row| row.tier).max();
    if crate::guard!("registry.tier") && highest.is_some_and(|highest| wanted.tier < highest) {
        return Err(StepError::refuse(
            Reason::TierLowered,
            "another version of this tool has a higher tier",
        ));
    }
    let same = standing.iter().find(|row| row.version == wanted.version);
    if crate::guard!("registry.owner")
        && same.is_some_and(|row| row.registered_by != principal || !row.is_active)
    {
        return Err(StepError::refuse(
            Reason::RegistrationConflict,
            "this version is registered with other contents by somebody else, or was deactivated",
        ));
    }
    check_agent_compensation(principal, wanted, standing)?;
    let was_idempotent = same.is_some_and(|row| row.idempotent);
    if crate::guard!("registry.idempotent") && wanted.idempotent && !was_idempotent {
        return Err(StepError::refuse(
            Reason::PermissionDenied,
            "only an administrator may say that a tool is idempotent",
        ));
    }
    Ok(())
}

fn check_agent_compensation(
    principal: &str,
    wanted: &Wanted<'_>,
    standing: &[Standing],
) -> Result<(), StepError> {
    let refuse = |message: &str| Err(StepError::refuse(Reason::CompensationRefused, message));
    let same = standing.iter().find(|row| row.version == wanted.version);
    let listed = same.map(|row| row.allowed_compensations.as_slice()).unwrap_or_default();
    let adds = wanted.allowed_compensations.iter().any(|name| !listed.contains(name));
    if crate::guard!("registry.allowed") && adds {
        return refuse("only an administrator may list other compensations for a tool");
    }
    let others = standing.iter().filter(|row| row.is_active && row.registered_by != principal);
    let bound: Vec<&Standing> = others.filter(|row| row.compensation_ref.is_some()).collect();
    let is_known = |name: &str| {
        bound.iter().any(|row| {
            row.compensation_ref.as_deref() == Some(name)
                || row.allowed_compensations.iter().any(|allowed| allowed == name)
        })
    };
    let rebinds = wanted.compensation_ref.is_some_and(|name| !bound.is_empty() && !is_known(name));
    if crate::guard!("registry.rebind") && rebinds {
        return refuse("another version of this tool is bound to another compensation");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(version: &str, tier: Tier, by: &str) -> Standing {
        Standing {
            version: version.to_owned(),
            tier,
            compensation_ref: (tier == Tier::Compensable).then(|| "refund".to_owned()),
            allowed_compensations: vec!["void".to_owned()],
            idempotent: false,
            is_active: true,
            registered_by: by.to_owned(),
            policy: Policy::default(),
        }
    }

    fn wanted(version: &str, tier: Tier) -> Wanted<'_> {
        Wanted {
            version,
            tier,
            compensation_ref: (tier == Tier::Compensable).then_some("refund"),
            allowed_compensations: &[],
            idempotent: false,
        }
    }

    fn reason(result: Result<(), StepError>) -> Option<Reason> {
        match result {
            Ok(()) => None,
            Err(StepError::Refused(refusal)) => Some(refusal.reason),
            Err(other) => panic!("not a refusal: {other}"),
        }
    }

    #[test]
    fn a_tier_is_raised_and_never_lowered() {
        let rows = [standing("1.0.0", Tier::Compensable, "admin")];
        let check = |tier| reason(check_agent("me", &wanted("2.0.0", tier), &rows));
        assert_eq!(check(Tier::Safe), Some(Reason::TierLowered));
        assert_eq!(check(Tier::Compensable), None);
        assert_eq!(check(Tier::Irreversible), None);
        let mut inactive = rows.clone();
        inactive[0].is_active = false;
        assert_eq!(reason(check_agent("me", &wanted("2.0.0", Tier::Safe), &inactive)), None);
    }

    #[test]
    fn others_rows_and_deactivated_rows_stay_as_they_are() {
        let mut rows = [standing("1.0.0", Tier::Compensable, "me")];
        let want = wanted("1.0.0", Tier::Compensable);
        assert_eq!(reason(check_agent("me", &want, &rows)), None);
        assert_eq!(reason(check_agent("you", &want, &rows)), Some(Reason::RegistrationConflict));
        rows[0].is_active = false;
        assert_eq!(reason(check_agent("me", &want, &rows)), Some(Reason::RegistrationConflict));
    }

    #[test]
    fn bindings_of_others_are_kept() {
        let rows = [standing("1.0.0", Tier::Compensable, "admin")];
        let with =
            |name| Wanted { compensation_ref: Some(name), ..wanted("2.0.0", Tier::Compensable) };
        assert_eq!(reason(check_agent("me", &with("refund"), &rows)), None);
        assert_eq!(reason(check_agent("me", &with("void"), &rows)), None);
        let refused = Some(Reason::CompensationRefused);
        assert_eq!(reason(check_agent("me", &with("noop"), &rows)), refused);
        assert_eq!(reason(check_agent("me", &with("noop"), &[])), None);
        let listed = ["noop".to_owned()];
        let adds = Wanted { allowed_compensations: &listed, ..wanted("2.0.0", Tier::Compensable) };
        assert_eq!(reason(check_agent("me", &adds, &rows)), refused);
    }

    #[test]
    fn idempotent_is_for_administrators() {
        let want = Wanted { idempotent: true, ..wanted("1.0.0", Tier::Compensable) };
        assert_eq!(reason(check_agent("me", &want, &[])), Some(Reason::PermissionDenied));
        let mut rows = [standing("1.0.0", Tier::Compensable, "me")];
        rows[0].idempotent = true;
        assert_eq!(reason(check_agent("me", &want, &rows)), None);
    }

    #[test]
    fn names_and_versions_have_a_form() {
        check_name("the name", "send_email").unwrap();
        for bad in ["", "  ", "a\0b", &"x".repeat(TOOL_NAME_BYTES_MAX + 1)] {
            check_name("the name", bad).unwrap_err();
        }
        assert_eq!(version_or_default("").unwrap(), "1.0.0");
        assert_eq!(version_or_default("1.2.3-rc.1+b").unwrap(), "1.2.3-rc.1+b");
        for bad in ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0 "] {
            version_or_default(bad).unwrap_err();
        }
    }
}
