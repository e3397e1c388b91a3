//! End to end: the program under test as processes of its own, a real Postgres, a real HTTP
//! service. One file per promise of `ARCHITECTURE.md`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod approvals;
mod bytes;
mod cancel;
mod clock_jumps;
mod crash;
mod depth;
mod endpoints;
mod gates;
mod grants;
mod held;
mod humans;
mod late_commit;
mod months;
mod notifications;
mod once;
mod operators;
mod outage;
mod probes;
mod python;
mod python_sdk;
mod readiness;
mod rollback;
mod signatures;
mod strangers;
mod tenants;
mod unknown;
mod waiting;
