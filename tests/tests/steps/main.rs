//! The engine's steps against a real Postgres, without a server in between: each row of the
//! design's tables, with `fold(events) == rows` after every scenario.

mod after_the_wait;
mod approvals;
mod bench;
mod calls;
mod gate_registry;
mod intercept;
mod limits;
mod lists;
mod notify;
mod operate_bulk;
mod operate_dead_letters;
mod operate_kit;
mod operate_queue;
mod operate_unknown;
mod partitions;
mod plans;
mod replay;
mod reports;
mod rollbacks;
mod scope;
mod sessions;
mod statements;
mod volume;
mod walk_reads;
#[path = "../walk/walker.rs"]
mod walker;
mod windows;
