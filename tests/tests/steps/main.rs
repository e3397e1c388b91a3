//! The engine's steps against a real Postgres, without a server in between: each row of the design's
//! tables, with `fold(events) == rows` after every scenario.

mod approvals;
mod bench;
mod calls;
mod intercept;
mod notify;
mod reports;
mod rollbacks;
mod sessions;
mod statements;
