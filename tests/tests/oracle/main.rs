//! Random sequences of what callers, operators, workers and clocks do, run against a real Postgres
//! and judged after every step by an oracle that was written from the design alone.
//!
//! `model` is the oracle: it shares no code with the product and knows nothing of it (a style test
//! holds that). The other files are the driver: they run each command on the store's steps, read
//! the rows with SQL of their own, and show both to the oracle.
//!
//! Environment: `UNDOLOG_ORACLE_RUNS` (how many sequences), `UNDOLOG_ORACLE_SEED` (a number), and
//! `UNDOLOG_ORACLE_FILE` (a file of sequences to run instead of the regressions).
//! `scripts/oracle.sh` does the long run.

mod act;
mod choose;
mod lane;
mod model;
mod rows;
mod run;
mod session;
mod verbs;
mod worker;

use act::Sequence;

const REGRESSIONS: &str = include_str!("regressions.txt");

#[tokio::test]
async fn sequences_that_once_failed_are_judged_right() {
    let file = std::env::var("UNDOLOG_ORACLE_FILE").ok();
    let text = file.map(|path| std::fs::read_to_string(path).expect("read the sequences"));
    run::regressions(&Sequence::parse_all(text.as_deref().unwrap_or(REGRESSIONS))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_are_judged_right() {
    run::random(number("UNDOLOG_ORACLE_SEED", 8), number("UNDOLOG_ORACLE_RUNS", 300)).await;
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} must be a number: {text}")),
        Err(_) => default,
    }
}
