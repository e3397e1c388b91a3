//! Each statement file with the values that it is run with, and what it may read at most.

/// The organisation with nine tenths of everything.
pub(crate) const LARGE: &str = "00000000-0000-7000-8000-000000000101";
/// One with a two-hundredth.
const SMALL_ORG: &str = "00000000-0000-7000-8000-000000000105";

/// One way to run a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) file: &'static str,
    /// What is asked, for people.
    pub(crate) what: &'static str,
    pub(crate) role: &'static str,
    /// Whose transaction it is; empty: the large organisation's.
    pub(crate) org: &'static str,
    /// The parameters; `@org`, and `@active.session` and the like for rows of the load.
    pub(crate) values: &'static str,
    pub(crate) rows_max: u64,
    pub(crate) buffers_max: u64,
}

const APP: &str = "undolog_app";
const WORKER: &str = "undolog_worker";

const fn case(
    file: &'static str,
    what: &'static str,
    role: &'static str,
    values: &'static str,
    rows_max: u64,
    buffers_max: u64,
) -> Case {
    Case { file, what, role, org: "", values, rows_max, buffers_max }
}

const fn of_small(case: Case) -> Case {
    Case { org: SMALL_ORG, ..case }
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    [LISTS, OPERATORS, ONE_SESSION, SWEEPS].concat()
}

const LISTS: &[Case] = &[
    case(
        "session_list.sql",
        "a rare state",
        APP,
        "@org, NULL, '{halted}', NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        400,
        1_500,
    ),
    case(
        "session_list.sql",
        "every state",
        APP,
        "@org, NULL, NULL, NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        800,
        2_000,
    ),
    case(
        "session_list.sql",
        "a principal's",
        APP,
        "@org, 'principal-7', NULL, NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        800,
        2_000,
    ),
    case(
        "session_list.sql",
        "a principal's in a rare state",
        APP,
        "@org, 'principal-7', '{halted}', NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        400,
        1_500,
    ),
    case(
        "session_list.sql",
        "an external run's",
        APP,
        "@org, NULL, NULL, 'run-6', NULL, NULL, 51, 3145728, NULL, NULL",
        800,
        2_000,
    ),
    case(
        "session_list.sql",
        "a principal's of an external run",
        APP,
        "@org, 'nobody', NULL, 'run-6', NULL, NULL, 51, 3145728, NULL, NULL",
        800,
        2_000,
    ),
    case(
        "session_list_until.sql",
        "of every state",
        APP,
        "@org, NULL, 'run-6', NULL, NULL, 125",
        1_100,
        2_000,
    ),
    case(
        "session_list.sql",
        "far behind the newest",
        APP,
        "@org, NULL, '{completed}', NULL, now() - interval '100 days', @done.session, 51, 3145728, \
         NULL, NULL",
        400,
        1_500,
    ),
    of_small(case(
        "session_list.sql",
        "of a small organisation, a state that none has",
        APP,
        "@org, NULL, '{halted}', NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        400,
        1_500,
    )),
    case(
        "effect_list.sql",
        "one of many large ones",
        APP,
        "@org, @large.session, now() - interval '4 hours', -1, \
         '00000000-0000-0000-0000-000000000000', 2, 3145728, now()",
        300,
        900,
    ),
    case(
        "effect_list.sql",
        "as many large ones as fit",
        APP,
        "@org, @large.session, now() - interval '4 hours', -1, \
         '00000000-0000-0000-0000-000000000000', 501, 3145728, now()",
        200,
        2_500,
    ),
    case(
        "effect_list.sql",
        "of an ordinary session",
        APP,
        "@org, @done.session, @done.began, -1, '00000000-0000-0000-0000-000000000000', 501, \
         3145728, now()",
        50,
        200,
    ),
    case(
        "replay_effects.sql",
        "as many large ones as fit",
        APP,
        "@org, @large.session, date_trunc('month', now() AT TIME ZONE 'UTC')::date, \
         @large.effects, now() - interval '4 hours', now(), 3145728",
        300,
        2_500,
    ),
    case(
        "session_undo.sql",
        "a long stack of large arguments",
        APP,
        "@org, @large.session, NULL, 501, 3145728, 3145728",
        300,
        2_500,
    ),
    case(
        "approval_list.sql",
        "what waits",
        APP,
        "@org, NULL, '{pending}', NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        500,
        2_500,
    ),
    case(
        "approval_list.sql",
        "a rare decision",
        APP,
        "@org, NULL, '{rejected}', NULL, NULL, NULL, 51, 3145728, NULL, NULL",
        500,
        2_500,
    ),
    case(
        "approval_list.sql",
        "all that was decided",
        APP,
        "@org, NULL, '{approved,rejected,timed_out,auto_approved}', NULL, \
         now() - interval '9 days', @done.session, 51, 3145728, NULL, NULL",
        800,
        2_500,
    ),
    case(
        "approval_list.sql",
        "a principal's that has none",
        APP,
        "@org, 'nobody', '{approved}', NULL, NULL, NULL, 51, 3145728, @approved.until",
        3_500,
        6_000,
    ),
    case(
        "approval_list_until.sql",
        "of every state",
        APP,
        "@org, '{pending,approved,rejected,timed_out,auto_approved}', NULL, NULL, 200",
        1_100,
        2_500,
    ),
    case(
        "approval_list.sql",
        "a session's",
        APP,
        "@org, NULL, '{pending,approved}', @waiting.session, NULL, NULL, 51, 3145728, NULL, NULL",
        50,
        200,
    ),
    case(
        "approval_events.sql",
        "of a request",
        APP,
        "@waiting.session, @org, NULL, NULL, 51, 3145728, 3145728",
        20,
        100,
    ),
    case("registry_tools.sql", "from the first", APP, "@org, '', '', 101, 3145728", 200, 200),
    case(
        "registry_compensations.sql",
        "from the first",
        APP,
        "@org, '', '', 101, 3145728",
        200,
        200,
    ),
];

const OPERATORS: &[Case] = &[
    case(
        "operate_unknown.sql",
        "the longest unknown, behind many of a settled session",
        APP,
        "@org, NULL, NULL, NULL, NULL, 51, 3145728, NULL, @unknown.until",
        3_000,
        6_000,
    ),
    case(
        "operate_unknown.sql",
        "of a rare tool",
        APP,
        "@org, NULL, 'none', NULL, NULL, 51, 3145728, NULL, @unknown.until",
        3_000,
        6_000,
    ),
    case(
        "operate_unknown_until.sql",
        "the longest unknown",
        APP,
        "@org, NULL, NULL, 1000",
        1_100,
        1_500,
    ),
    case(
        "operate_unknown.sql",
        "a session's",
        APP,
        "@org, @halted.session, NULL, NULL, NULL, 51, 3145728, NULL, NULL, NULL",
        50,
        400,
    ),
    case(
        "operate_unknown.sql",
        "a named one",
        APP,
        "@org, NULL, NULL, NULL, NULL, 51, 3145728, @halted.effect, NULL, NULL",
        50,
        400,
    ),
    case(
        "operate_dead_letters.sql",
        "open ones, behind many of a settled session",
        APP,
        "@org, NULL, NULL, NULL, NULL, NULL, 0, false, false, @newest, 51, 3145728, NULL, \
         @open.until",
        2_500,
        6_000,
    ),
    case(
        "operate_dead_letters.sql",
        "open ones of a rare tool",
        APP,
        "@org, NULL, NULL, 'none', NULL, NULL, 0, false, false, @newest, 51, 3145728, NULL, \
         @open.until",
        2_500,
        6_000,
    ),
    case(
        "operate_dead_letters.sql",
        "closed ones of a rare function",
        APP,
        "@org, NULL, NULL, NULL, 'none', NULL, 0, false, true, @newest, 51, 3145728, NULL, \
         @closed.until",
        6_000,
        20_000,
    ),
    case(
        "operate_dead_letters_until.sql",
        "open ones",
        APP,
        "@org, false, 0, @newest, 1000, NULL",
        1_100,
        1_500,
    ),
    case(
        "operate_dead_letters_until.sql",
        "closed ones",
        APP,
        "@org, true, 0, @newest, 1000, NULL",
        1_100,
        1_500,
    ),
    case(
        "operate_bulk.sql",
        "of a rare function, among as many as are read at once",
        APP,
        "@org, NULL, @bulk.sessions, NULL, 'none', NULL, 0, false, false, 501, now()",
        5_500,
        20_000,
    ),
    case("operate_bulk_next.sql", "from the first", APP, "@org, now(), NULL, 1000", 1_100, 1_500),
    case("operate_queue.sql", "a long one", APP, "@org, 1000", 8_000, 20_000),
    case(
        "operate_dead_letters.sql",
        "closed ones",
        APP,
        "@org, NULL, NULL, NULL, NULL, NULL, 0, false, true, @newest, 51, 3145728, NULL, \
         @closed.until",
        600,
        3_000,
    ),
    case(
        "operate_dead_letters.sql",
        "a session's",
        APP,
        "@org, NULL, @halted.session, NULL, NULL, NULL, 0, true, NULL, @newest, 51, 3145728, NULL, \
         @oldest",
        50,
        300,
    ),
    case(
        "operate_attempts.sql",
        "of an entry",
        APP,
        "@org, @halted.undo, 100, 21, 3145728",
        20,
        50,
    ),
    case("operate_pauses.sql", "from the first", APP, "@org, NULL, 51, 3145728", 20, 50),
    case(
        "notify_list.sql",
        "what was given up",
        APP,
        "@org, '{failed}', now(), @org, 51",
        100,
        300,
    ),
    case(
        "notify_list.sql",
        "all of them",
        APP,
        "@org, '{pending,sent,failed}', now(), @org, 51",
        300,
        600,
    ),
];

const ONE_SESSION: &[Case] = &[
    case(
        "session_dead_letters.sql",
        "of a session",
        APP,
        "@org, @halted.session, NULL, NULL, NULL, 51, 3145728",
        20,
        100,
    ),
    case(
        "session_rollbacks.sql",
        "of a session",
        APP,
        "@org, @halted.session, NULL, NULL, 51, 3145728",
        20,
        100,
    ),
    case(
        "watch_session.sql",
        "from the start",
        APP,
        "@org, @done.session, @done.month, 0, 501, 3145728",
        20,
        100,
    ),
    case(
        "watch_org.sql",
        "from the start",
        APP,
        "@org, 0, '0', '00000000-0000-0000-0000-000000000000', 0, 501, 3145728, true, NULL",
        1_000,
        1_500,
    ),
    case("watch_held.sql", "what is held back", APP, "@org", 20, 200),
    case(
        "replay_changed.sql",
        "from the start",
        APP,
        "@done.month, @done.session, @org, 0",
        20,
        100,
    ),
    case("snapshot_list.sql", "of a session", APP, "@done.session, @org", 20, 100),
];

const SWEEPS: &[Case] = &[
    case("backlog.sql", "the oldest thousand", WORKER, "1000", 1_100, 1_500),
    case("reaper_due.sql", "the oldest thousand", WORKER, "1000", 1_200, 2_500),
    case("sweep_approvals.sql", "none is due", WORKER, "@org, 1000", 50, 400),
    case("sweep_lapses.sql", "none is due", WORKER, "@org, 1000", 50, 400),
    case(
        "walk_due_of_others.sql",
        "beside the backlog of a large one",
        WORKER,
        "'{00000000-0000-7000-8000-000000000101}', 64, '00000000-0000-0000-0000-000000000000'",
        1_000,
        2_000,
    ),
    case(
        "walk_due_of_others.sql",
        "of anybody",
        WORKER,
        "'{}', 64, '00000000-0000-7000-8000-000000000105'",
        1_000,
        2_000,
    ),
    case("notify_due_orgs.sql", "of everybody", WORKER, "", 200, 500),
    case("notify_old_orgs.sql", "of everybody", WORKER, "", 200, 500),
    case("notify_claim.sql", "the next one", WORKER, "@org, 30000, 4, false", 50, 200),
    case("notify_delete_old.sql", "none is old", WORKER, "@org, 1000", 50, 200),
    of_small(case(
        "notify_delete_old.sql",
        "of a small organisation",
        WORKER,
        "@org, 1000",
        50,
        200,
    )),
    case(
        "cleanup_tickets.sql",
        "the next thousand",
        WORKER,
        "'{undolog:rollback,undolog:snapshot}', 1000",
        4_200,
        20_000,
    ),
];

/// Statements that are known to read more, each with what has to be done.
pub(crate) const OPEN: &[(&str, &str)] = &[
    ("probe_claim.sql", "reads an organisation's unknown calls"),
    ("probe_open.sql", "reads an organisation's unknown calls"),
    ("sweep_due_orgs.sql", "reads all that is due"),
    ("sweep_grants.sql", "reads an organisation's live grants"),
    ("sweep_idle.sql", "reads an organisation's idle sessions"),
    ("sweep_sessions.sql", "reads an organisation's live sessions"),
];

/// Statements that are not measured, each with the reason why they read little.
pub(crate) const SMALL: &[(&str, &str)] = include!("small.rs");

/// A statement without its header.
pub(crate) fn text(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/sql").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n").trim_end().trim_end_matches(';').to_owned()
}
