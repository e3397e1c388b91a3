//! What an agent is going to do, drawn from a seed.

use proptest::prelude::{Rng, RngCore};
use proptest::test_runner::{RngAlgorithm, TestRng};

/// A source of numbers that are the same for the same seed.
pub(crate) struct Dice(pub(super) TestRng);

impl Dice {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.0.next_u32().is_multiple_of(count)
    }
}

/// One thing that an agent does; it may take more than a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Asks, runs and reports within one minute.
    Call(&'static str),
    /// The call takes so many minutes, with heartbeats.
    Long(u32),
    /// A SAFE call.
    Look,
    /// Heartbeats only.
    Rest(u32),
    /// Asks for `wipe`, which somebody decides about after so many minutes.
    Ask {
        minutes: u32,
        yes: bool,
    },
    /// Asks for `auto`, and waits for the policy.
    Auto,
    /// Asks for `left`, about which nobody decides.
    Left,
    Savepoint,
    /// Back to the savepoint, and on from there.
    Back,
    Complete,
    /// The rollback of what it has completed, or of what was halted.
    Undo,
    /// A call fails: it may have been applied, or was not.
    FailCall {
        maybe: bool,
    },
    FailSession,
    /// It is never heard of again.
    Die,
    /// The same with a call that it was granted.
    DieGranted,
    /// The same with a call that it ran and did not report.
    DieUnreported,
    /// The same while people are asked, who approve or let it time out.
    DieAsking {
        approved: bool,
    },
}

/// A session from its beginning to its end.
pub(super) fn plan(dice: &mut Dice) -> Vec<Step> {
    let mut steps = some(dice);
    if dice.one_in(5) {
        steps.push(Step::Savepoint);
        steps.extend(some(dice));
        steps.push(Step::Back);
        steps.extend(some(dice));
    }
    match dice.0.random_range(0..20) {
        0..=6 => steps.push(Step::Complete),
        7 => steps.extend([Step::Complete, Step::Undo]),
        8 => steps.push(Step::FailCall { maybe: true }),
        9 => steps.push(Step::FailCall { maybe: false }),
        10 => steps.push(Step::FailSession),
        11 => steps.push(Step::Undo),
        12 => steps.extend([Step::Ask { minutes: 2, yes: false }, Step::Undo]),
        13 => steps.extend([Step::Left, Step::Undo]),
        14 => steps.push(Step::Left),
        15 => steps.push(Step::Die),
        16 => steps.push(Step::DieGranted),
        17 => steps.push(Step::DieUnreported),
        18 => steps.push(Step::DieAsking { approved: dice.one_in(2) }),
        _ => steps.extend([Step::Auto, Step::Complete]),
    }
    steps
}

/// A session whose undo is tried again.
pub(super) fn fails_at_once() -> Vec<Step> {
    vec![Step::Call("charge"), Step::Call("flaky"), Step::FailSession]
}

fn some(dice: &mut Dice) -> Vec<Step> {
    let count = dice.0.random_range(1..6);
    (0..count)
        .map(|_| match dice.0.random_range(0..12) {
            0..=2 => Step::Call("charge"),
            3..=5 => Step::Call("flaky"),
            6 => Step::Call("book"),
            7 => Step::Long(dice.0.random_range(1..5)),
            8 => Step::Look,
            9 => Step::Rest(dice.0.random_range(1..8)),
            10 => Step::Ask { minutes: dice.0.random_range(0..4), yes: true },
            _ => Step::Call("charge"),
        })
        .collect()
}
