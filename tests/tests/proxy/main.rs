//! The HTTP face end to end: engine, worker and proxy as processes of their own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod events;
mod malformed;
mod openapi;
mod pypi;
mod repeats;
mod replay;
mod restart;
mod sessions;
mod sizes;
mod strangers;
mod ticks;
mod upstream;
mod wire;
