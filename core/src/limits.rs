//! Every limit and default of the system, with its reason. Units come last in the names.

/// Arguments of one call, in bytes: large enough for a document, small enough for one row.
pub const ARGS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A result (its `output`), in bytes: the same bound as the arguments, so that both replay.
pub const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Nesting of JSON arrays and objects: recursion over untrusted input needs a bound.
pub const JSON_DEPTH_MAX: usize = 128;
/// Nesting of what is stored: callers' values lie inside templates' values inside our own objects,
/// and what was taken in has to be read back. Its recursion must fit into a thread's stack.
pub const STORED_DEPTH_MAX: usize = 4 * JSON_DEPTH_MAX;
/// A tool, compensation or actor name, in bytes: it is an index key and a metrics label.
pub const TOOL_NAME_BYTES_MAX: usize = 256;
/// A framework's own call id (`step_key`), in bytes: it is an index key.
pub const STEP_KEY_BYTES_MAX: usize = 256;
/// A caller's `grant_token`, in bytes: a uuid or a digest with room to spare.
pub const GRANT_TOKEN_BYTES_MAX: usize = 128;
/// A free text such as an error or a note, in bytes: it is shown, not processed.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Effects of one session: its positions are `int`, and a rollback of it must end some day.
pub const EFFECTS_PER_SESSION_MAX: u32 = 100_000;
/// What the values of one rendering add: the call's arguments, its result and a compensation's own
/// arguments at their largest, and room to spare. More is a template that repeats them.
pub const RENDERED_BYTES_MAX: usize = 4 * ARGS_BYTES_MAX;
/// Calls after the first one of a compensation: the documented default is 3.
pub const RETRIES_MAX: u32 = 100;
/// One backoff delay: longer waits look like a hang to an operator.
pub const BACKOFF_MS_MAX: u64 = 3_600_000;
/// Rows of one page of any list.
pub const PAGE_MAX: u32 = 500;
/// Rows that are read for one page of a list whose filter no index serves. What does not fit the
/// filter counts too, so such a page can be short; the next one goes on from there.
pub const LIST_READ_MAX: u32 = 1_000;
/// Rows that are counted for one number of a queue: what is more needs no exact number.
pub const COUNTED_MAX: u32 = 10_000;
/// Rows of a page when the request names no size.
pub const PAGE_DEFAULT: u32 = 100;
/// Every request but a stream ends by then: a client must never wait for ever.
pub const REQUEST_DEADLINE_MS: u64 = 30_000;
/// One compensation call: longer work belongs behind an endpoint that answers early.
pub const COMPENSATION_CALL_MS_MAX: u64 = 600_000;
/// One compensation call when its registration names no timeout.
pub const COMPENSATION_CALL_MS_DEFAULT: u64 = 10_000;
/// What a resume wakes up becomes due one by one, so far apart: an endpoint that was given a rest
/// must not be asked everything at once.
pub const RESUME_STEP_MS: f64 = 20.0;
/// … and closer when there are many, so that the last one waits no longer than this.
pub const RESUME_WINDOW_MS: f64 = 60_000.0;
/// Bytes kept of an endpoint's answer: enough to read an error, never a download.
pub const KEPT_RESPONSE_BYTES: usize = 64 * 1024;
/// The caller's context of an approval, in bytes: a human reads it.
pub const AGENT_CONTEXT_BYTES_MAX: usize = 64 * 1024;
/// The schema of a tool that an agent registers, in bytes: what a program generates for one
/// function.
pub const AGENT_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Versions of tools that one agent may have registered: each is kept for ever.
pub const AGENT_TOOL_VERSIONS_MAX: i64 = 2_000;
/// Versions of one tool that one agent may have registered: they are read together.
pub const AGENT_VERSIONS_PER_TOOL_MAX: i64 = 100;
/// Schemas that one agent may have registered, in bytes.
pub const AGENT_TOOL_BYTES_MAX: i64 = 16 * 1024 * 1024;
/// Changes of the registry by one agent: each makes every process read it anew, and a service that
/// starts registers all its tools.
pub const AGENT_CHANGES_PER_MINUTE_MAX: i64 = 300;
/// The shortest pause before a compensation is tried again: an endpoint that fails is not to be hit
/// without any.
pub const BACKOFF_MS_MIN: u64 = 100;
/// The calls that the engine itself adds to an approval's context.
pub const AGENT_CONTEXT_CALLS: u32 = 10;
/// The longest wait inside one Intercept: it must end before common proxy timeouts of 30 s.
pub const WAIT_MS_MAX: u64 = 25_000;
/// What a waiting Intercept leaves of its deadline to answer in time.
pub const WAIT_MARGIN_MS: u64 = 1_000;
/// Step indexes are `int` in the database.
pub const STEP_INDEX_MAX: u32 = i32::MAX as u32;
/// The shortest session lease: a restart of the agent's process must fit into it.
pub const SESSION_LEASE_SECONDS_MIN: u32 = 300;
/// The longest session lease (a week): a lost session must be noticed some day.
pub const SESSION_LEASE_SECONDS_MAX: u32 = 604_800;
/// A grant's lease when its caller sends no heartbeats: most tools end within 15 minutes.
pub const GRANT_LEASE_MS: u64 = 900_000;
/// A grant's lease when its caller heartbeats: a crash is noticed after a minute.
pub const GRANT_LEASE_HEARTBEATS_MS: u64 = 60_000;
/// The longest execution that heartbeats may stretch a grant to, by default.
pub const EXECUTION_MS_MAX: u64 = 3_600_000;
/// A worker's claim on a rollback: long enough for one slice, short enough for a takeover.
pub const ROLLBACK_LEASE_MS: u64 = 30_000;
/// A service tick this late means that the outage was ours, not the agents'.
pub const TICK_LATE_MS: u64 = 15_000;
/// How often each engine ticks: three ticks fit into `TICK_LATE_MS`.
pub const TICK_MS: u64 = 5_000;
/// Proxies of an organisation that did not tick for so long, while engines ran, are gone and not
/// out: what was begun through them expires again.
pub const PROXIES_GONE_SECONDS: u32 = 3_600;
/// One row of any list, with all its fields; what is more is left out of it and read by itself.
pub const ROW_BYTES_MAX: usize = 8 * 1024 * 1024;
/// One part of a value that is read by itself: it fits into gRPC's own default of 4 MiB.
pub const VALUE_PART_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Versions that one change of a registration names.
pub const VERSIONS_NAMED_MAX: usize = 1_000;
/// One gRPC message: arguments and a result of 4 MiB each, with room for the envelope.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Calls of an entry in a row that ended a process of their own, before it counts as poison.
pub const INTERRUPTIONS_MAX: u32 = 3;
/// One deferral that an endpoint asked for with Retry-After.
pub const DEFERRAL_MS_MAX: u64 = 3_600_000;
/// A deferral when the endpoint answered 429 without saying for how long.
pub const DEFERRAL_MS_DEFAULT: u64 = 30_000;
/// The shortest deferral: Retry-After: 0 must not make a hot loop.
pub const DEFERRAL_MS_MIN: u64 = 1_000;
/// All deferrals of one entry: after a day a human should look at it.
pub const DEFERRAL_TOTAL_MS_MAX: u64 = 86_400_000;
/// The documented default of `max_retries`.
pub const DEFAULT_MAX_RETRIES: u32 = 3;
/// The documented default of `retry_backoff_ms`.
pub const DEFAULT_RETRY_BACKOFF_MS: u64 = 1_000;
/// Jitter added to a backoff, in percent: it spreads retries and never shortens one.
pub const JITTER_PERCENT_MAX: u64 = 50;
/// The documented default of an organisation's approval timeout.
pub const APPROVAL_TIMEOUT_SECONDS_DEFAULT: u32 = 3_600;
/// An approval that nobody used lapses after a day: the world has moved on since.
pub const APPROVAL_LAPSE_SECONDS: u32 = 86_400;
/// How long after an outage of ours an auto-approval waits, so that humans come first.
pub const AUTO_APPROVE_GRACE_SECONDS: u32 = 900;
/// Silence of an implicit session with a lost grant before it counts as gone.
pub const IMPLICIT_SILENCE_SECONDS: u32 = 900;
/// Idle time after which an implicit session with nothing open is completed.
pub const IDLE_SESSION_SECONDS: u32 = 86_400;
/// How long a session's lease stays suspended after its last approval was decided.
pub const RESUME_WINDOW_SECONDS: u32 = 86_400;
/// How long a finished session can still be undone or replayed (30 days).
pub const UNDO_WINDOW_SECONDS: u32 = 2_592_000;
/// Lost sessions that never trip the brake: below it a share says nothing.
pub const BRAKE_MIN: u32 = 20;
/// Share of live sessions, in percent, above which a mass expiry trips the brake.
pub const BRAKE_PERCENT: u32 = 10;
/// How long an Intercept tries the documented advisory lock before it answers `IN_PROGRESS`.
pub const ADVISORY_LOCK_WAIT_MS: u64 = 100;
/// What a caller that met `IN_PROGRESS` should wait before it asks again.
pub const RETRY_AFTER_MS: u64 = 1_000;
/// Exponents beyond this are shown as text: Postgres writes them out digit by digit, so that a few
/// bytes of arguments could become megabytes. The original is kept beside it anyway.
pub const NUMBER_EXPONENT_MAX: u64 = 64;
/// Number texts longer than this are shown as text, for the same reason.
pub const NUMBER_BYTES_MAX: usize = 1_000;
/// Committed effects of one snapshot, as documented: a replay reads its results from there.
pub const SNAPSHOT_EVERY: i32 = 50;
