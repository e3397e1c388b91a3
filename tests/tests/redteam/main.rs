//! What an agent that was talked into something tries with its key, over real gRPC and a real
//! Postgres: nothing of it changes what an administrator or another principal decided, and nothing
//! makes another organisation wait.

#[path = "../engine/bench.rs"]
#[expect(dead_code, reason = "the engine's tests use more of it")]
mod bench;
mod names;
mod reports;
mod rollbacks;
mod schemas;
mod undos;
