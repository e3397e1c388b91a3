//! What must come of each session by what its agent did and heard, and what is seen of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use undolog_tests::witness::Call;
use uuid::Uuid;

use super::agent::{Actor, Busy, Doing, Told};

/// One session.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) session: Uuid,
    pub(super) told: Vec<Told>,
    doing: Doing,
    /// What it waits for, and since which minute.
    waits_for: &'static str,
    since: u64,
    state: String,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Book {
    stories: HashMap<Uuid, Story>,
    /// By effect: the session, and the key and numbers of the calls that undo it.
    effects: HashMap<String, Uuid>,
    /// By session: the effects that were undone, in that order.
    undone: HashMap<Uuid, Vec<String>>,
    calls: usize,
    wrong: Vec<String>,
}

impl Story {
    /// The state in which it is over.
    fn end(&self) -> Option<&'static str> {
        match self.doing {
            Doing::Goes => None,
            Doing::Completed => Some("completed"),
            Doing::Halted => Some("halted"),
            Doing::Undone | Doing::Dead | Doing::DeadAsking => Some("compensated"),
        }
    }

    fn is_over(&self) -> bool {
        self.end() == Some(&self.state)
    }

    /// Minutes until what it waits for must be over: since it waits, and since the last jump, from
    /// which leases and the time that people have count anew.
    fn limits(&self) -> Option<(u64, u64)> {
        match (self.doing, self.waits_for) {
            (Doing::Completed, _) => Some((0, 0)),
            // Retries, and the rest that a route gets.
            (Doing::Undone, _) | (Doing::Goes, "rollback") => Some((8, 8)),
            // The call's lease of four minutes and four more after it, the session's of five, and a
            // sweep in between.
            (Doing::Dead, _) => Some((20, 20)),
            // Its window of five minutes, and twice what the clock can be off.
            (Doing::Goes, "left") => Some((30, 4)),
            // The same, and the quarter of an hour that people have after an outage.
            (Doing::Goes, "auto") => Some((30, 20)),
            (Doing::Halted, _) => Some((30, 4)),
            // Approved: the time in which its agent may come back, and its lease.
            (Doing::DeadAsking, _) => Some((40, 20)),
            (Doing::Goes, _) => None,
        }
    }

    /// Whether its row may say this while it is not over.
    fn may_be(&self, state: &str) -> bool {
        match self.doing {
            Doing::Goes if self.waits_for == "completed" => state == "completed",
            Doing::Goes if self.waits_for == "rollback" => {
                ["compensating", "active"].contains(&state)
            }
            // Its agent hears of it in the next minute.
            Doing::Goes if self.waits_for == "left" => state != "completed",
            Doing::Goes if self.waits_for == "wipe" => state != "completed",
            Doing::Goes => ["active", "awaiting_approval"].contains(&state),
            Doing::Completed => state == "completed",
            Doing::Halted => ["active", "awaiting_approval", "halted"].contains(&state),
            Doing::Undone => ["failed", "compensating", "compensated"].contains(&state),
            Doing::Dead | Doing::DeadAsking => !["completed", "halted"].contains(&state),
        }
    }
}

impl Book {
    pub(super) fn begun(&mut self, actor: &Actor) {
        let session = actor.agent.session;
        let story = Story {
            session,
            told: Vec::new(),
            doing: Doing::Goes,
            waits_for: "",
            since: 0,
            state: "active".to_owned(),
        };
        self.stories.insert(session, story);
    }

    pub(super) fn acted(&mut self, actor: &Actor, doing: &Doing, now: u64) {
        let story = self.stories.get_mut(&actor.agent.session).expect("it was begun");
        let waits_for = match &actor.busy {
            Some(Busy::GoesBack) => "rollback",
            Some(Busy::Waits { tool, .. }) => tool,
            _ if actor.is_completed() => "completed",
            _ => "",
        };
        if (story.doing, story.waits_for) != (*doing, waits_for) {
            (story.doing, story.waits_for, story.since) = (*doing, waits_for, now);
        }
        story.told.clone_from(&actor.told);
        for told in &actor.told {
            self.effects.insert(told.effect_id.clone(), story.session);
        }
    }

    /// Every compensation call so far.
    pub(super) fn called(&mut self, calls: &[Call]) {
        self.calls = calls.len();
        self.undone.clear();
        let mut keys: HashMap<String, String> = HashMap::new();
        for call in calls {
            let (note, key) = (call.json()["note"].clone(), call.key().unwrap_or_default());
            let effect = note.as_str().and_then(|note| note.strip_prefix("undo of "));
            let Some((effect, session)) =
                effect.and_then(|effect| Some((effect, *self.effects.get(effect)?)))
            else {
                self.wrong.push(format!("undoes what nobody was granted: {}", call.line()));
                continue;
            };
            let story = &self.stories[&session];
            if !story.told.iter().any(|told| told.effect_id == effect && told.undo.is_some()) {
                self.wrong.push(format!("undoes healthy work: {}\n  {story:?}", call.line()));
            }
            let first = keys.entry(effect.to_owned()).or_insert_with(|| key.to_owned());
            if first != key {
                self.wrong.push(format!("a second key for one call: {}", call.line()));
            }
            // Where there is nothing to undo, that is an answer too.
            if call.applied || call.status == Some(404) {
                let undone = self.undone.entry(session).or_default();
                match undone.iter().any(|known| known == effect) {
                    true if call.applied => {
                        self.wrong.push(format!("undone twice: {}", call.line()));
                    }
                    true => {}
                    false => undone.push(effect.to_owned()),
                }
            }
        }
    }

    /// Compares the rows' states with what must be by now.
    pub(super) fn stand(&mut self, states: &HashMap<Uuid, String>, now: u64, jumped: u64) {
        for story in self.stories.values_mut() {
            let was_over = story.is_over();
            story.state.clone_from(&states[&story.session]);
            if !story.may_be(&story.state) || (was_over && !story.is_over()) {
                self.wrong.push(format!("this must not be: {story:?}"));
            }
            let Some((after_start, after_jump)) = story.limits().filter(|_| !story.is_over())
            else {
                continue;
            };
            if now > story.since + after_start && now > jumped + after_jump {
                self.wrong.push(format!("stuck since minute {}: {story:?}", story.since));
            }
        }
        let over = self.stories.values().filter(|story| story.is_over());
        let wrong = over.filter_map(|story| self.undone_wrong(story)).collect::<Vec<_>>();
        self.wrong.extend(wrong);
    }

    /// What has to be undone is, the last call first, and nothing else.
    fn undone_wrong(&self, story: &Story) -> Option<String> {
        let undone = self.undone.get(&story.session).map(Vec::as_slice).unwrap_or_default();
        let place = |effect: &String| story.told.iter().position(|told| told.effect_id == *effect);
        let places: Vec<usize> = undone.iter().filter_map(place).collect();
        let undo = |n: &usize| story.told[*n].undo;
        let mut wanted: Vec<usize> =
            (0..story.told.len()).rev().filter(|n| undo(n).is_some()).collect();
        // Its rollbacks follow each other.
        wanted.sort_by_key(undo);
        (places != wanted).then(|| format!("undone {places:?}, not {wanted:?}: {story:?}"))
    }

    pub(super) fn wrong(&mut self) -> String {
        std::mem::take(&mut self.wrong).join("\n")
    }

    pub(super) fn is_over(&self) -> bool {
        self.stories.values().all(Story::is_over)
    }

    pub(super) fn unfinished(&self) -> String {
        let open = self.stories.values().filter(|story| !story.is_over());
        open.map(|story| format!("{story:?}")).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = &Story> {
        self.stories.values()
    }
}

impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for story in self.stories.values() {
            *ends.entry(format!("{:?}", story.doing).to_lowercase()).or_default() += 1;
        }
        let told: usize = self.stories.values().map(|story| story.told.len()).sum();
        let (sessions, calls) = (self.stories.len(), self.calls);
        write!(f, "{sessions} sessions {ends:?}, {told} calls granted, {calls} to undo some")
    }
}
