//! Hand-written stories over a small world of rows that a test sets itself.

use super::*;

mod late;
mod other;

/// The oracle and the rows that it is shown.
#[derive(Clone)]
struct World {
    oracle: Oracle,
    rows: Observed,
}

impl World {
    fn new(config: Config) -> World {
        World { oracle: Oracle::new(config), rows: Observed::default() }
    }

    /// A session whose tool failures are only recorded.
    fn recording() -> World {
        World::new(Config { on_tool_failure: OnToolFailure::Continue, ..Config::default() })
    }

    #[track_caller]
    fn hear(&mut self, command: Command, answer: Answer) {
        if let Err(violation) = self.oracle.apply(command, &answer) {
            panic!("{violation}");
        }
    }

    #[track_caller]
    fn refuses(&self, command: Command, answer: Answer) -> &'static str {
        match self.oracle.clone().apply(command, &answer) {
            Ok(()) => panic!("{command:?} hearing {answer:?} was accepted"),
            Err(violation) => violation.rule,
        }
    }

    #[track_caller]
    fn see(&mut self) {
        if let Err(violation) = self.oracle.check(&self.rows, false) {
            panic!("{violation}");
        }
    }

    #[track_caller]
    fn rest(&mut self) {
        if let Err(violation) = self.oracle.check(&self.rows, true) {
            panic!("{violation}");
        }
    }

    /// The rows as changed by `wrong` must be refused.
    #[track_caller]
    fn wrong(&self, quiescent: bool, wrong: impl FnOnce(&mut World)) -> Violation {
        let mut other = self.clone();
        wrong(&mut other);
        match other.oracle.check(&other.rows, quiescent) {
            Ok(()) => panic!("accepted: {:#?}", other.rows),
            Err(violation) => violation,
        }
    }

    fn effect(&mut self, call: Call) -> &mut EffectRow {
        self.rows.effects.iter_mut().find(|e| e.call == call).expect("an effect")
    }

    fn next(&mut self) -> Position {
        self.rows.last_position += 1;
        self.rows.last_position
    }

    /// Adds an entry on top; its undo id is its position.
    fn push(&mut self, call: Call, attempt: u32) -> UndoId {
        let position = self.next();
        let undo_id = position.unsigned_abs();
        self.rows.entries.push(EntryRow {
            undo_id,
            call,
            attempt,
            position,
            state: EntryState::Pending,
            skip_reason: None,
        });
        self.effect(call).position = Some(position);
        undo_id
    }

    fn intercept(call: Call, tool: Tool) -> Command {
        Command::Intercept { call, step: i64::from(call), tool, token: 0 }
    }

    /// A compensable call is granted.
    #[track_caller]
    fn grant(&mut self, call: Call, tool: Tool, attempt: u32) {
        self.hear(World::intercept(call, tool), Answer::Execute { attempt });
        if self.rows.effect(call).is_none() {
            self.rows.effects.push(EffectRow {
                call,
                state: EffectState::Executing,
                tier: Tier::Compensable,
                position: None,
                asked_position: None,
                attempt,
                results: vec![],
                live_grant: true,
            });
        }
        self.push(call, attempt);
        let effect = self.effect(call);
        (effect.state, effect.attempt, effect.live_grant) = (EffectState::Executing, attempt, true);
        self.see();
    }

    /// An irreversible call is asked, approved and granted.
    #[track_caller]
    fn approved(&mut self, call: Call) {
        let command = World::intercept(call, Tool::IRREVERSIBLE);
        self.hear(command, Answer::AwaitingApproval);
        let asked = self.next();
        self.rows.effects.push(EffectRow {
            call,
            state: EffectState::Pending,
            tier: Tier::Irreversible,
            position: None,
            asked_position: Some(asked),
            attempt: 1,
            results: vec![],
            live_grant: false,
        });
        self.rows.session = SessionState::AwaitingApproval;
        self.see();
        self.hear(Command::Approve { call }, Answer::Ok);
        self.effect(call).state = EffectState::Approved;
        self.rows.session = SessionState::Active;
        self.see();
        self.hear(command, Answer::Execute { attempt: 1 });
        let position = self.next();
        let effect = self.effect(call);
        (effect.position, effect.live_grant) = (Some(position), true);
        self.see();
    }

    /// A Commit is accepted; the effect row becomes committed.
    #[track_caller]
    fn commit(&mut self, call: Call, value: Value) {
        self.hear(Command::Commit { call, attempt: 0, value }, Answer::Ok);
        let effect = self.effect(call);
        (effect.state, effect.live_grant) = (EffectState::Committed, false);
        effect.results.push((effect.attempt, value));
    }

    /// A grant is lost.
    #[track_caller]
    fn lose(&mut self, call: Call) {
        self.hear(Command::GrantLeaseExpires { call }, Answer::Ok);
        let effect = self.effect(call);
        (effect.state, effect.live_grant) = (EffectState::Unknown, false);
        self.see();
    }

    /// A Fail(NOT_APPLIED) is only recorded.
    #[track_caller]
    fn not_applied(&mut self, call: Call) {
        let effect = FailEffect::NotApplied;
        self.hear(Command::Fail { call, attempt: 0, effect }, Answer::Ok);
        self.skip_top(call);
        let effect = self.effect(call);
        (effect.state, effect.live_grant) = (EffectState::FailedNotApplied, false);
    }

    fn skip_top(&mut self, call: Call) {
        if let Some(entry) = self.rows.entries.iter_mut().rfind(|e| e.call == call) {
            entry.state = EntryState::Skipped;
            entry.skip_reason = Some("not_applied".to_owned());
        }
    }

    /// A live rollback appears.
    fn start(&mut self, kind: RollbackKind, from: Position, state: RollbackState) {
        let id = self.rows.rollbacks.len() as RollbackId + 1;
        let row = RollbackRow { id, kind, state, from, until: None, live: true };
        self.rows.rollbacks.push(row);
        self.rows.session = SessionState::Compensating;
    }

    fn rollback(&mut self) -> &mut RollbackRow {
        self.rows.rollbacks.last_mut().expect("a rollback")
    }

    /// The live rollback ends; the session becomes this.
    fn end(&mut self, session: SessionState) {
        let last = self.rows.last_position;
        let row = self.rollback();
        (row.state, row.live, row.until) = (RollbackState::Ended, false, Some(last));
        self.rows.session = session;
    }

    /// A compensation is sent and done.
    fn send(&mut self, undo_id: UndoId) {
        let tries = self.rows.sent.iter().filter(|s| s.undo_id == undo_id).count() as u32;
        let row = self.rows.entries.iter_mut().find(|e| e.undo_id == undo_id).expect("an entry");
        row.state = EntryState::Compensated;
        let (call, position) = (row.call, row.position);
        self.rows.sent.push(SentRow {
            undo_id,
            call,
            attempt: tries + 1,
            position,
            step: 0,
            applied: true,
        });
        self.effect(call).state = EffectState::Compensated;
    }

    fn letter(&mut self, id: LetterId, call: Call, undo_id: Option<UndoId>, reason: &str) {
        self.rows.letters.push(LetterRow { id, call, undo_id, reason: reason.to_owned() });
    }

    /// The worker runs.
    fn work(&mut self) {
        self.hear(Command::Worker(WorkerStep::Any), Answer::Ok);
    }

    /// A partial rollback from position 1 is asked for, done, and over.
    #[track_caller]
    fn undo_first(&mut self, undo: Option<UndoId>) {
        let command = Command::RollbackPartial { to: 1, allow_residue: false };
        self.hear(command, Answer::Ok);
        self.start(RollbackKind::Partial, 1, RollbackState::Draining);
        self.see();
        self.work();
        if let Some(undo_id) = undo {
            self.send(undo_id);
        }
        self.end(SessionState::Active);
        self.rest();
    }
}
