//! Sequences as data: what a session is like, and what is done in it, one command a line.

use std::fmt;
use std::str::FromStr;

use crate::model::{Config, OnDeadLetter, OnRejection, OnToolFailure, Tier, Tool};

macro_rules! verbs {
    ( $( $variant:ident $text:literal, )+ ) => {
        /// What is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Verb { $( $variant, )+ }

        impl Verb {
            const ALL: &[(Verb, &str)] = &[ $( (Verb::$variant, $text), )+ ];
        }
    };
}

verbs! {
    // Call, token: 0 none, 1 the last one of the call, 2 a new one.
    Intercept "intercept",
    // Call, attempt (0: newest), another value.
    Commit "commit",
    // Call, attempt (0: newest), what it says: 0 not applied, 1 maybe applied, 2 unknown.
    Fail "fail",
    // Call, attempt.
    Heartbeat "heartbeat",
    Savepoint "savepoint",
    // Number of the savepoint, allow residue.
    RollbackTo "rollback_to",
    // Step, allow residue.
    RollbackToStep "rollback_to_step",
    RollbackWhole "rollback_whole",
    // Call.
    Approve "approve",
    Reject "reject",
    ApprovalTimeout "approval_timeout",
    Revoke "revoke",
    ApprovalLapses "approval_lapses",
    GrantLeaseExpires "grant_lease_expires",
    SessionLeaseLost "session_lease_lost",
    // Accept unknown outcomes.
    Complete "complete",
    // Roll back as well.
    FailSession "fail_session",
    // A worker claims the live rollback.
    Claim "claim",
    // Its step: reports the last call, and makes the next: 0 done, 1 retry, 2 permanent.
    Step "step",
    // Its step, but it dies with the next call not made.
    KillBeforeCall "kill_before_call",
    // It dies with the last call made and not reported.
    KillAfterCall "kill_after_call",
    // Back-off, settling times and waits are over.
    TimePasses "time_passes",
    // Number of a report whose worker was given up.
    LateReport "late_report",
    // Number of an open letter, under a fresh key.
    Retry "retry",
    // Number of an open letter.
    Skip "skip",
    Resolve "resolve",
    // Call, it was applied.
    ResolveUnknown "resolve_unknown",
    Settle "settle",
    // Minutes.
    Clock "clock",
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) verb: Verb,
    pub(crate) args: [i64; 3],
}

impl Act {
    pub(crate) const fn new(verb: Verb, args: [i64; 3]) -> Act {
        Act { verb, args }
    }

    /// The first argument as the number of a call.
    pub(crate) fn call(&self) -> u32 {
        u32::try_from(self.args[0]).unwrap_or_default()
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Verb::ALL.iter().find(|(verb, _)| *verb == self.verb).map_or("?", |v| v.1);
        let used = self.args.iter().rposition(|a| *a != 0).map_or(0, |last| last + 1);
        f.write_str(name)?;
        self.args[..used].iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

impl FromStr for Act {
    type Err = String;

    fn from_str(line: &str) -> Result<Act, String> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("an empty line")?;
        let verb = Verb::ALL.iter().find(|(_, text)| *text == name);
        let (verb, _) = verb.ok_or_else(|| format!("there is no command {name}"))?;
        let mut args = [0; 3];
        for (place, word) in args.iter_mut().zip(words) {
            *place = word.parse().map_err(|_| format!("{line}: {word} must be a number"))?;
        }
        Ok(Act::new(*verb, args))
    }
}

/// The tools that every organisation of the driver has.
pub(crate) const TOOLS: [(&str, Tool); 6] = [
    ("pay", Tool::COMPENSABLE),
    ("again", Tool::REPEATABLE),
    ("put", Tool { tier: Tier::Compensable, idempotent: true, repeatable: false }),
    ("need", Tool::COMPENSABLE),
    ("wipe", Tool::IRREVERSIBLE),
    ("auto", Tool::IRREVERSIBLE),
];

/// What a session is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The tool of each call, as a place in [`TOOLS`]; calls count from 1.
    pub(crate) tools: Vec<usize>,
    /// The step of each call.
    pub(crate) steps: Vec<u32>,
    pub(crate) config: Config,
}

impl Plan {
    pub(crate) fn tool(&self, call: u32) -> Option<(&'static str, Tool, u32)> {
        let at = usize::try_from(call).ok()?.checked_sub(1)?;
        let (name, tool) = TOOLS[*self.tools.get(at)?];
        Some((name, tool, *self.steps.get(at)?))
    }

    pub(crate) fn calls(&self) -> std::ops::RangeInclusive<u32> {
        1..=u32::try_from(self.tools.len()).unwrap_or_default()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tools.iter().map(|at| TOOLS[*at].0).collect();
        let steps: Vec<String> = self.steps.iter().map(u32::to_string).collect();
        write!(f, "session {} steps {}", names.join(","), steps.join(","))?;
        let Config { on_tool_failure, on_dead_letter, on_rejection, auto_approve, .. } =
            self.config;
        for (is, word) in [
            (on_tool_failure == OnToolFailure::Continue, "failures_continue"),
            (on_dead_letter == OnDeadLetter::Continue, "dead_letters_continue"),
            (on_rejection == OnRejection::Rollback, "rejection_rolls_back"),
            (auto_approve, "auto_approve"),
        ] {
            if is {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(line: &str) -> Result<Plan, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, tools, _, steps, flags @ ..] = words.as_slice() else {
            return Err(format!("{line}: must be session <tools> steps <numbers> [policies]"));
        };
        let place = |name| TOOLS.iter().position(|tool| tool.0 == name);
        let tools: Option<Vec<usize>> = tools.split(',').map(place).collect();
        let steps: Result<Vec<u32>, _> = steps.split(',').map(str::parse).collect();
        let has = |word| flags.contains(&word);
        let mut config = Config { auto_approve: has("auto_approve"), ..Config::default() };
        if has("failures_continue") {
            config.on_tool_failure = OnToolFailure::Continue;
        }
        if has("dead_letters_continue") {
            config.on_dead_letter = OnDeadLetter::Continue;
        }
        if has("rejection_rolls_back") {
            config.on_rejection = OnRejection::Rollback;
        }
        let tools = tools.ok_or_else(|| format!("{line}: an unknown tool"))?;
        Ok(Plan { tools, steps: steps.map_err(|e| format!("{line}: {e}"))?, config })
    }
}

/// A session and what is done in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) plan: Plan,
    pub(crate) acts: Vec<Act>,
}

impl Sequence {
    /// Sequences are parted by empty lines; a line that begins with `#` is for people.
    pub(crate) fn parse_all(text: &str) -> Vec<Sequence> {
        let mut all: Vec<Sequence> = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("session ") {
                let plan = line.parse().unwrap_or_else(|error| panic!("{error}"));
                all.push(Sequence { plan, acts: Vec::new() });
            } else {
                let last = all.last_mut().expect("a sequence begins with a line `session …`");
                last.acts.push(line.parse().unwrap_or_else(|error| panic!("{error}")));
            }
        }
        all
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan)?;
        self.acts.iter().try_for_each(|act| writeln!(f, "{act}"))
    }
}

#[test]
fn sequences_are_read_as_they_are_written() {
    let text = "session pay,wipe steps 1,2 failures_continue\nintercept 1 1\nclock -30\nsettle\n";
    let all = Sequence::parse_all(text);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].to_string(), text);
}
