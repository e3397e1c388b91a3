//! The undo walk and the sweeps against a real Postgres, driven step by step as a worker would, and
//! the worker process itself with a real endpoint; `fold(events) == rows` after every scenario.

mod backlog;
#[path = "../steps/bench.rs"]
#[expect(dead_code, reason = "the bench serves two test programs")]
mod bench;
mod brakes;
mod claims;
mod clocks;
mod drains;
mod endings;
mod fair;
mod gates;
mod interruptions;
mod keys;
mod lanes;
mod late;
mod outages;
mod probes;
mod process;
mod queue;
mod reopen;
mod results;
mod retries;
mod services;
mod suspects;
mod sweeps;
mod walker;
