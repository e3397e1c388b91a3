//! Which indexes are built, and which constraints checked, after the migrations ran.
//!
//! A migration runs in one transaction. A plain `CREATE INDEX` in it would stop every write to its
//! table until it is built, so an index on a table that exists already stands here instead, and
//! [`super::indexes`] builds it while everybody goes on writing. Each migration has a list of its
//! own below, so that it is clear which columns exist by then.
//!
//! The definition of a name never changes: an index that has to differ gets another name, and the
//! old name goes to [`RETIRED`]. Old processes run beside new ones, so an index is retired only
//! when the statements of the release before no longer need it.

/// One index of a table of ours or of the queue's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Index {
    /// Its name, at most 54 characters; a partition's index adds `_YYYY_MM`.
    pub(crate) name: &'static str,
    /// The table, as the search path of a migration finds it: `undolog_…` or `apalis.jobs`. Every
    /// partition of a partitioned table gets the index.
    pub(crate) table: &'static str,
    /// What follows `ON <table>`: `(org_id, state) WHERE …`, or `USING gin (…)`.
    pub(crate) definition: &'static str,
}

/// Shorthand for the lists.
const fn index(name: &'static str, table: &'static str, definition: &'static str) -> Index {
    Index { name, table, definition }
}

// 0009 --------------------------------------------------------------------------------------------
const SINCE_0009: &[Index] = &[];

// 0010 --------------------------------------------------------------------------------------------
const SINCE_0010: &[Index] = &[];

// 0011 --------------------------------------------------------------------------------------------
const SINCE_0011: &[Index] = &[
    // What a breaker counts: the newest calls of a compensation at a host.
    index(
        "idx_undolog_undo_attempts_route",
        "undolog_undo_attempts",
        "(org_id, compensation_fn, host, finished_at) WHERE finished_at IS NOT NULL",
    ),
    // What each poll of the queue looks for, and what is deleted.
    index("idx_undolog_jobs_due", "apalis.jobs", "(job_type, status, run_at)"),
];

// 0012 --------------------------------------------------------------------------------------------
const SINCE_0012: &[Index] = &[
    // What the brake of a mass expiry counts. Neither column changes while a session is renewed.
    index(
        "idx_undolog_sessions_live",
        "undolog_sessions",
        "(org_id, lease_ms) WHERE state IN ('active', 'awaiting_approval')",
    ),
    index(
        "idx_undolog_sessions_lost",
        "undolog_sessions",
        "(org_id, lease_failed_at) WHERE lease_failed_at IS NOT NULL",
    ),
];

// 0013 --------------------------------------------------------------------------------------------
const SINCE_0013: &[Index] = &[
    // Whether another call was asked for at a step.
    index(
        "idx_undolog_signatures_step",
        "undolog_signatures",
        "(session_month, session_id, step_index)",
    ),
    // What can stop a walk, which is asked at each of its steps.
    index(
        "idx_undolog_dead_letters_blocking",
        "undolog_dead_letters",
        "(session_id) WHERE closed_at IS NULL AND reason <> 'MISSING_RESULT'",
    ),
    // A session that is deleted takes its notifications along.
    index("idx_undolog_notifications_session", "undolog_notifications", "(session_id)"),
];

// 0014 --------------------------------------------------------------------------------------------
const SINCE_0014: &[Index] = &[
    // Sessions, the newest first, state by state: of an organisation, of a principal, of a run. The
    // documented index on started_at holds those of all organisations.
    index(
        "idx_undolog_sessions_listed",
        "undolog_sessions",
        "(org_id, state, started_at DESC, session_id DESC) WHERE settled_at IS NULL",
    ),
    index(
        "idx_undolog_sessions_own",
        "undolog_sessions",
        "(org_id, principal, state, started_at DESC, session_id DESC) WHERE settled_at IS NULL",
    ),
    index(
        "idx_undolog_sessions_of_run",
        "undolog_sessions",
        "(org_id, external_run_id, state, started_at DESC, session_id DESC)
         WHERE external_run_id IS NOT NULL AND settled_at IS NULL",
    ),
    // Due rollbacks of one organisation, past the backlog of another.
    index(
        "idx_undolog_rollbacks_due_of_org",
        "undolog_rollbacks",
        "(org_id, due_at) WHERE state IN ('draining', 'walking')",
    ),
    // Dead letters that are closed; the open ones have an index already.
    index(
        "idx_undolog_dead_letters_closed",
        "undolog_dead_letters",
        "(org_id, created_at DESC, dead_letter_id DESC) WHERE closed_at IS NOT NULL",
    ),
    // Notifications: those on their way, and those that are over.
    index(
        "idx_undolog_notifications_leased",
        "undolog_notifications",
        "(org_id, lease_expires_at) WHERE state = 'pending' AND lease_expires_at IS NOT NULL",
    ),
    index(
        "idx_undolog_notifications_finished",
        "undolog_notifications",
        "(org_id, finished_at) WHERE state <> 'pending'",
    ),
    // Tickets that are over.
    index(
        "idx_undolog_jobs_over",
        "apalis.jobs",
        "(done_at) WHERE status IN ('Done', 'Killed', 'Failed')",
    ),
];

// 0015 --------------------------------------------------------------------------------------------
const SINCE_0015: &[Index] = &[];

// 0017 --------------------------------------------------------------------------------------------
const SINCE_0017: &[Index] = &[
    // Open dead letters, session by session: what a bulk verb works through. They are few beside
    // the calls, and each is written twice.
    index(
        "idx_undolog_dead_letters_sessions",
        "undolog_dead_letters",
        "(org_id, session_id, created_at) WHERE closed_at IS NULL",
    ),
];

/// Every index that is built here, in the order in which they are built.
pub(crate) fn indexes() -> impl Iterator<Item = &'static Index> {
    [SINCE_0009, SINCE_0010, SINCE_0011, SINCE_0012, SINCE_0013, SINCE_0014, SINCE_0015, SINCE_0017]
        .into_iter()
        .flatten()
}

/// Indexes that no statement needs any more; they are dropped once all of the above are built.
/// None of the documented ones may stand here.
pub(crate) const RETIRED: &[&str] = &[
    // Since 0014 by organisation: idx_undolog_notifications_finished.
    "idx_undolog_notifications_old",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{RETIRED, indexes};

    /// Postgres cuts names at 63 bytes; eight are needed for a partition's month.
    const NAME_CHARS_MAX: usize = 54;

    #[test]
    fn names_are_unique_short_and_not_retired() {
        let mut seen = BTreeSet::new();
        for index in indexes() {
            assert!(index.name.len() <= NAME_CHARS_MAX, "{} is too long", index.name);
            assert!(index.name.starts_with("idx_undolog_"), "{}", index.name);
            assert!(seen.insert(index.name), "{} stands here twice", index.name);
            assert!(!RETIRED.contains(&index.name), "{} is built and dropped", index.name);
        }
    }
}
