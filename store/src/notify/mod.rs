//! Notifications: an outbox row stands in the same transaction as what it tells about, and workers
//! send it later. Nothing waits for a notification, and nothing is decided by one.

mod outbox;
mod send;
mod target;

pub(crate) use outbox::write;
pub use send::{Delivery, LEASE_MS, Outcome, claim, settle, wake};
pub(crate) use send::{delete_old, due_orgs, enqueue, old_orgs};
pub(crate) use target::check_target;
