//! Runs sequences, shrinks one that fails, and says what it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Mutex;

use crate::{act::Sequence, choose::Source, lane::Lane, model::Violation, session::Session};

/// Sequences that run at the same time, each on a server of its own.
const LANES: usize = 2;
/// Runs that shrinking one failure may take.
const SHRINK_RUNS_MAX: u32 = 100;
/// Failures of different kinds after which the run stops.
const FAILURES_MAX: usize = 10;

/// A sequence that broke a rule.
struct Failure {
    sequence: Sequence,
    violation: Violation,
    log: Vec<String>,
}

impl Failure {
    /// The rule, and what was done and heard when it broke.
    fn kind(&self) -> String {
        let last = self.log.last().map(String::as_str).unwrap_or_default();
        let words = last.split_whitespace().filter(|word| word.parse::<i64>().is_err()).take(3);
        format!("{} {}", self.violation.rule, words.collect::<Vec<_>>().join(" "))
    }

    fn text(&self, whence: &str) -> String {
        let Self { sequence, violation, log } = self;
        format!("{whence}: {violation}\n\n{sequence}\nas it went:\n  {}\n", log.join("\n  "))
    }
}

/// Runs the sequences that were kept.
pub(crate) async fn regressions(sequences: &[Sequence]) {
    if sequences.is_empty() {
        return;
    }
    let lane = Lane::start().await;
    let mut failures = Vec::new();
    for (number, sequence) in (1..).zip(sequences) {
        if let Err(failure) = replay(&lane, sequence).await {
            failures.push(failure.text(&format!("sequence {number}")));
        }
    }
    assert!(failures.is_empty(), "{} failed\n\n{}", failures.len(), failures.join("\n"));
}

/// What was found so far.
#[derive(Default)]
struct Found {
    kinds: BTreeSet<String>,
    texts: Vec<String>,
}

/// Draws and runs so many sequences.
pub(crate) async fn random(seed: u64, runs: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let counts = Arc::new(Counts::default());
    let found = Arc::new(Mutex::new(Found::default()));
    let lanes = (0..LANES).map(|_| {
        let (next, counts, found) = (next.clone(), counts.clone(), found.clone());
        tokio::spawn(async move {
            let lane = Lane::start().await;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= runs {
                    return;
                }
                if let Err(failure) = draw(&lane, seed, number, &counts).await {
                    tell(&lane, seed, number, failure, &found).await;
                }
                if found.lock().await.texts.len() >= FAILURES_MAX {
                    next.store(runs, Relaxed);
                }
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.expect("the driver itself does not panic");
    }
    eprintln!("seed {seed}: {counts}");
    let found = found.lock().await;
    assert!(found.texts.is_empty(), "{} failed\n\n{}", found.texts.len(), found.texts.join("\n"));
}

/// One failure of each kind is shrunk and kept.
async fn tell(lane: &Lane, seed: u64, number: u64, failure: Failure, found: &Mutex<Found>) {
    if !found.lock().await.kinds.insert(failure.kind()) {
        return;
    }
    let failure = shrink(lane, failure).await;
    let text = failure.text(&format!("seed {seed}, sequence {number}"));
    eprintln!("{text}");
    found.lock().await.texts.push(text);
}

async fn draw(lane: &Lane, seed: u64, number: u64, counts: &Counts) -> Result<(), Failure> {
    let mut source = Source::new(seed, number);
    let (mut sequence, length) = source.sequence();
    let mut session = Session::begin(lane, &sequence.plan).await;
    let mut judged = Ok(());
    for _ in 0..length {
        let act = source.next(&session);
        sequence.acts.push(act);
        judged = session.act(&act).await;
        if judged.is_err() {
            break;
        }
    }
    if judged.is_ok() {
        judged = session.end().await;
    }
    counts.add(&session);
    let log = std::mem::take(&mut session.log);
    judged.map_err(|violation| Failure { sequence, violation, log })
}

async fn replay(lane: &Lane, sequence: &Sequence) -> Result<(), Failure> {
    let mut session = Session::begin(lane, &sequence.plan).await;
    let mut judged = Ok(());
    for act in &sequence.acts {
        judged = session.act(act).await;
        if judged.is_err() {
            break;
        }
    }
    if judged.is_ok() {
        judged = session.end().await;
    }
    let log = std::mem::take(&mut session.log);
    judged.map_err(|violation| Failure { sequence: sequence.clone(), violation, log })
}

/// Removes commands as long as the same rule stays broken: first long stretches, then single ones.
async fn shrink(lane: &Lane, mut failure: Failure) -> Failure {
    let mut runs = 0;
    let mut size = failure.sequence.acts.len().div_ceil(2).max(1);
    loop {
        let (mut at, mut removed) = (0, false);
        while at < failure.sequence.acts.len() && runs < SHRINK_RUNS_MAX {
            let mut shorter = failure.sequence.clone();
            let end = (at + size).min(shorter.acts.len());
            shorter.acts.drain(at..end);
            runs += 1;
            match replay(lane, &shorter).await {
                Err(other) if other.violation.rule == failure.violation.rule => {
                    (failure, removed) = (other, true);
                }
                _ => at += size,
            }
        }
        if runs >= SHRINK_RUNS_MAX || (size == 1 && !removed) {
            return failure;
        }
        if size > 1 {
            size = size.div_ceil(2);
        }
    }
}

/// What the sequences did, so that a run that does nothing is seen.
#[derive(Default)]
struct Counts {
    sequences: AtomicU64,
    commands: AtomicU64,
    sent: AtomicU64,
    rollbacks: AtomicU64,
    killed: AtomicU64,
}

impl Counts {
    fn add(&self, session: &Session<'_>) {
        self.sequences.fetch_add(1, Relaxed);
        self.commands.fetch_add(session.step, Relaxed);
        self.sent.fetch_add(session.sent.len() as u64, Relaxed);
        self.rollbacks.fetch_add(session.rows.observed.rollbacks.len() as u64, Relaxed);
        let killed = session.log.iter().filter(|line| line.starts_with("kill_")).count();
        self.killed.fetch_add(killed as u64, Relaxed);
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sequences, commands, sent, rollbacks, killed } = self;
        write!(
            f,
            "{} sequences of {} commands: {} rollbacks, {} compensations, {} workers killed",
            sequences.load(Relaxed),
            commands.load(Relaxed),
            rollbacks.load(Relaxed),
            sent.load(Relaxed),
            killed.load(Relaxed),
        )
    }
}
