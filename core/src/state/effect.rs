//! An effect's states and moves.

use crate::Tier;
use crate::names::named_enum;

named_enum! {
    /// The documented states of an effect, and the two that migration 0002 adds.
    pub enum EffectState {
        /// Recorded, not granted yet.
        Pending => "pending",
        /// A compensable call holds a grant.
        Executing => "executing",
        /// The call succeeded; its result is stored.
        Committed => "committed",
        /// Its compensation runs.
        Compensating => "compensating",
        /// Its compensation succeeded.
        Compensated => "compensated",
        /// Its compensation failed for good; a human settles it.
        CompensationFailed => "compensation_failed",
        /// A human approved it; with a grant it may run.
        Approved => "approved",
        /// It will never run.
        Rejected => "rejected",
        /// A documented name that no row takes: a replay is an event.
        Replayed => "replayed",
        /// Its caller reported a failure.
        Failed => "failed",
        /// Nobody knows whether it happened.
        Unknown => "unknown",
    }
}

named_enum! {
    /// What is known about a failed call's effect on the world.
    pub enum Outcome {
        /// The caller knows that nothing happened.
        NotApplied => "not_applied",
        /// It may have happened.
        MaybeApplied => "maybe_applied",
    }
}

named_enum! {
    /// What a Fail says about the call's effect.
    pub enum FailedEffect {
        /// It may have happened: the default.
        MaybeApplied => "maybe_applied",
        /// Nothing happened.
        NotApplied => "not_applied",
        /// The caller cannot know: a timeout, a cancellation, a lost connection.
        Unknown => "unknown",
    }
}

named_enum! {
    /// Who said that a call happened.
    pub enum ResultBy {
        /// Who made it.
        Caller => "caller",
        /// The proxy that made it.
        Executor => "executor",
        /// A probe that asked the service.
        Probe => "probe",
        /// An operator.
        Operator => "operator",
    }
}

named_enum! {
    /// Whose word a compensation takes for a call's result.
    pub enum ResultFrom {
        /// Everybody's who may report it.
        Any => "any",
        /// Only what a proxy saw itself, or a probe found.
        Executor => "executor",
    }
}

impl ResultFrom {
    /// Whether a result by this one may be filled in. Rows from before do not say whose it is.
    #[must_use]
    pub const fn takes(self, by: Option<ResultBy>) -> bool {
        matches!(self, Self::Any) || matches!(by, Some(ResultBy::Executor | ResultBy::Probe))
    }
}

named_enum! {
    /// What happens to an effect. The names are `undolog_effect_events.kind`.
    pub enum EffectEvent {
        /// A new call was recorded.
        Intercepted => "intercepted",
        /// Its caller may run it now.
        Granted => "granted",
        /// A human approved it.
        Approved => "approved",
        /// Policy approved it at the timeout.
        AutoApproved => "auto_approved",
        /// A human rejected it.
        Rejected => "rejected",
        /// Its approval timed out.
        TimedOut => "timed_out",
        /// The start of a rollback took its approval away.
        Voided => "voided",
        /// An ungranted approval lapsed.
        Lapsed => "lapsed",
        /// An ungranted approval was revoked.
        Revoked => "revoked",
        /// Its caller committed it, possibly late.
        Committed => "committed",
        /// Its caller reported that nothing happened.
        FailedNotApplied => "failed_not_applied",
        /// Its caller reported a failure that may have had an effect.
        FailedMaybeApplied => "failed_maybe_applied",
        /// Its grant's lease ran out with no report.
        LeaseLost => "lease_lost",
        /// Its caller reported that it cannot know.
        ReportedUnknown => "reported_unknown",
        /// A heartbeat of the current attempt brought an unknown one back.
        GrantResumed => "grant_resumed",
        /// The same call again: a new attempt.
        Retried => "retried",
        /// The walk began its compensation.
        CompensationStarted => "compensation_started",
        /// Its compensation succeeded.
        Compensated => "compensated",
        /// Its compensation failed for good.
        CompensationFailed => "compensation_failed",
        /// An operator or a late result put its compensation to work again.
        CompensationRetried => "compensation_retried",
        /// An operator found that its compensation had not undone it.
        CompensationReopened => "compensation_reopened",
        /// A compensation call that had been given up turned out to have succeeded.
        LateSuccess => "late_success",
        /// An operator settled its compensation by hand.
        ResolvedCompensated => "resolved_compensated",
        /// An operator or a probe found that it happened.
        ResolvedCommitted => "resolved_committed",
        /// The stored result of another attempt became the call's result.
        ResultStands => "result_stands",
        /// An operator or a probe found that it did not happen.
        ResolvedNotApplied => "resolved_not_applied",
        /// A stored result was served.
        Replayed => "replayed",
        /// A report of an older attempt, or one that came too late to matter.
        StaleReport => "stale_report",
        /// A second report named another outcome than the stored one.
        ResultConflict => "result_conflict",
        /// A late Commit's result was stored; the undo state stays.
        LateResult => "late_result",
        /// A late Commit contradicts an operator who said that it was not applied.
        Contradicted => "contradicted",
    }
}

/// The effect's table. `from` is `None` for a call that is not recorded yet. The tier decides
/// where a grant lives: a compensable call is `executing`, an irreversible one stays `approved`.
#[must_use]
pub fn transition(
    from: Option<EffectState>,
    event: EffectEvent,
    tier: Tier,
) -> Option<EffectState> {
    use EffectEvent as E;
    use EffectState as S;
    let compensable = match tier {
        Tier::Safe => return None,
        Tier::Compensable => true,
        Tier::Irreversible => false,
    };
    let Some(from) = from else {
        return (event == E::Intercepted).then_some(S::Pending);
    };
    let granted = if compensable { S::Executing } else { S::Approved };
    match (event, from) {
        (E::Intercepted, _) => None,
        (E::Granted, S::Pending) if compensable => Some(S::Executing),
        (E::Granted, S::Approved) if !compensable => Some(S::Approved),
        (E::Approved | E::AutoApproved, S::Pending) if !compensable => Some(S::Approved),
        (E::Rejected | E::TimedOut, S::Pending) if !compensable => Some(S::Rejected),
        (E::Voided, S::Pending | S::Approved) if !compensable => Some(S::Rejected),
        (E::Lapsed | E::Revoked, S::Approved) if !compensable => Some(S::Rejected),
        (E::Committed, s) if s == granted => Some(S::Committed),
        (E::Committed | E::ResolvedCommitted, S::Unknown | S::Failed) => Some(S::Committed),
        // An earlier attempt is known to have succeeded: its result is the call's.
        (E::ResultStands, S::Unknown | S::Failed | S::Rejected) => Some(S::Committed),
        (E::FailedNotApplied | E::FailedMaybeApplied, s) if s == granted => Some(S::Failed),
        (E::FailedNotApplied, S::Unknown) => Some(S::Failed),
        (E::ResolvedNotApplied, S::Unknown | S::Failed) => Some(S::Failed),
        (E::LeaseLost | E::ReportedUnknown, s) if s == granted => Some(S::Unknown),
        (E::GrantResumed, S::Unknown) => Some(granted),
        (E::Retried, S::Failed | S::Unknown) => {
            Some(if compensable { S::Executing } else { S::Pending })
        }
        (E::CompensationStarted, S::Committed | S::Unknown | S::Failed) if compensable => {
            Some(S::Compensating)
        }
        (E::Compensated, S::Compensating) if compensable => Some(S::Compensated),
        (E::CompensationFailed, S::Compensating) if compensable => Some(S::CompensationFailed),
        (E::CompensationRetried, S::CompensationFailed) if compensable => Some(S::Compensating),
        (E::CompensationReopened, S::Compensated) if compensable => Some(S::Compensating),
        (E::LateSuccess, S::Compensating | S::CompensationFailed) if compensable => {
            Some(S::Compensated)
        }
        // A human has undone it: after the walk gave it up, or before the walk came to it.
        (E::ResolvedCompensated, S::Compensating | S::CompensationFailed) if compensable => {
            Some(S::Compensated)
        }
        (E::Replayed, S::Committed) => Some(from),
        (E::StaleReport | E::ResultConflict | E::Contradicted, s) if s != S::Replayed => Some(from),
        (E::LateResult, S::Compensating | S::Compensated | S::CompensationFailed)
            if compensable =>
        {
            Some(from)
        }
        _ => None,
    }
}
