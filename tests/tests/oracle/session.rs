//! One session: what has been done in it, what was heard, and what the oracle says.

use std::collections::HashMap;

use undolog_core::role::Role;
use undolog_store::{Caller, StepError, sessions::Begin};
use uuid::Uuid;

use crate::{
    act::{Act, Plan, Verb},
    lane::{Lane, caller},
    model::{
        Answer, Command, OnDeadLetter, OnRejection, OnToolFailure, Oracle, Position, RollbackState,
        Violation, WorkerStep,
    },
    rows::{Ids, Rows, Sent},
    worker::{Holder, Orphan},
};

/// Steps of the walk that the end of a sequence waits for.
const WALK_STEPS_MAX: u32 = 120;

/// A session under test.
pub(crate) struct Session<'a> {
    pub(crate) lane: &'a Lane,
    pub(crate) plan: Plan,
    pub(crate) id: Uuid,
    pub(crate) org: Uuid,
    pub(crate) rows: Rows,
    pub(crate) ids: Ids,
    pub(crate) sent: Vec<Sent>,
    pub(crate) savepoints: Vec<Position>,
    /// By call: the newest attempt that was granted.
    pub(crate) granted: HashMap<u32, u32>,
    /// By call: its last token.
    pub(crate) tokens: HashMap<u32, u64>,
    pub(crate) tokens_made: u64,
    pub(crate) holder: Option<Holder>,
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) workers_made: u32,
    pub(crate) step: u64,
    /// What an unexpected error said.
    pub(crate) trouble: Option<String>,
    oracle: Oracle,
    /// What was done and heard, for people.
    pub(crate) log: Vec<String>,
}

impl<'a> Session<'a> {
    pub(crate) async fn begin(lane: &'a Lane, plan: &Plan) -> Session<'a> {
        lane.reset().await;
        let config = plan.config;
        let org = lane.orgs[usize::from(config.on_dead_letter == OnDeadLetter::Continue)];
        let mut session = Session {
            lane,
            plan: plan.clone(),
            id: Uuid::new_v4(),
            org,
            rows: Rows::default(),
            ids: Ids::default(),
            sent: Vec::new(),
            savepoints: Vec::new(),
            granted: HashMap::new(),
            tokens: HashMap::new(),
            tokens_made: 0,
            holder: None,
            orphans: Vec::new(),
            workers_made: 0,
            step: 0,
            trouble: None,
            oracle: Oracle::new(config),
            log: Vec::new(),
        };
        let step = Begin {
            caller: session.agent(),
            session_id: Some(session.id),
            agent_name: "oracle".into(),
            external_run_id: String::new(),
            project: String::new(),
            metadata: Vec::new(),
            lease_seconds: 0,
            on_tool_failure: match config.on_tool_failure {
                OnToolFailure::Continue => "continue".into(),
                OnToolFailure::Rollback => "rollback".into(),
            },
            on_rejection: match config.on_rejection {
                OnRejection::Halt => "halt".into(),
                OnRejection::Rollback => "rollback".into(),
            },
            on_unknown: String::new(),
        };
        lane.engine.run(step).await.expect("begin");
        session.read().await;
        session
    }

    pub(crate) fn agent(&self) -> Caller {
        caller(self.org, Role::Agent, "agent")
    }

    pub(crate) fn operator(&self) -> Caller {
        caller(self.org, Role::Operator, "olga")
    }

    pub(crate) async fn read(&mut self) {
        self.rows = Rows::read(self.lane.pool(), self.id, &mut self.ids, &self.sent).await;
    }

    /// Runs a statement about this session, `$1`.
    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::query(sql).bind(self.id).execute(self.lane.pool()).await.expect(sql);
    }

    /// Does one thing and has it judged.
    pub(crate) async fn act(&mut self, act: &Act) -> Result<(), Violation> {
        self.step += 1;
        let Some((command, answer)) = self.run(act).await else {
            self.log.push(format!("{act}  (not possible)"));
            return Ok(());
        };
        let line = format!("{act}  → {}", shown(&answer));
        let judged = self.oracle.apply(command, &answer);
        if judged.is_ok() {
            self.read().await;
        }
        let state = self.rows.observed.session;
        let trouble = self.trouble.take().map(|why| format!(" ({why})")).unwrap_or_default();
        self.log.push(format!("{line}{trouble}; {state:?}"));
        judged?;
        self.oracle.check(&self.rows.observed, false)
    }

    /// Lets everything that is due happen, and has the end judged.
    pub(crate) async fn end(&mut self) -> Result<(), Violation> {
        let mut idle = 0;
        for _ in 0..WALK_STEPS_MAX {
            let live = self.rows.observed.live_rollback().map(|live| live.state);
            let runs = matches!(live, Some(RollbackState::Draining | RollbackState::Walking));
            if !runs || idle > 2 {
                break;
            }
            if let Some(call) = self.granted_in_scope() {
                self.act(&Act::new(Verb::GrantLeaseExpires, [call.into(), 0, 0])).await?;
            }
            let verb = if self.holder.is_some() { Verb::Step } else { Verb::Claim };
            if verb == Verb::Claim {
                self.act(&Act::new(Verb::TimePasses, [0; 3])).await?;
            }
            let before = self.rows.observed.clone();
            self.act(&Act::new(verb, [0; 3])).await?;
            let moved = before != self.rows.observed || self.holder.is_some();
            idle = if moved { 0 } else { idle + 1 };
        }
        self.log.push("(everything is at rest)".to_owned());
        // The last command may have been judged as something that only it may do.
        self.oracle.apply(Command::Worker(WorkerStep::Any), &Answer::Ok)?;
        self.read().await;
        self.oracle.check(&self.rows.observed, true)?;
        self.folded().await
    }

    fn granted_in_scope(&self) -> Option<u32> {
        let rows = &self.rows.observed;
        rows.granted_from(rows.live_rollback()?.from).map(|effect| effect.call)
    }

    /// The events must lead to the rows.
    async fn folded(&self) -> Result<(), Violation> {
        let (pool, id) = (self.lane.pool().clone(), self.id);
        let task = tokio::spawn(async move { undolog_tests::check::fold_check(&pool, id).await });
        task.await.map_err(|error| {
            let why = error.try_into_panic().ok().and_then(|why| why.downcast::<String>().ok());
            let text = why.map_or_else(|| "the fold failed".to_owned(), |why| *why);
            Violation { rule: "§5 the events lead to the rows", text }
        })
    }

    /// What the caller of a step hears.
    pub(crate) fn heard<T>(
        &mut self,
        outcome: Result<T, StepError>,
        answer: impl FnOnce(T) -> Answer,
    ) -> Answer {
        match outcome {
            Ok(reply) => answer(reply),
            Err(StepError::Refused(refusal)) => Answer::Refused {
                reason: refusal.reason.to_string(),
                retry: refusal.retry_after_ms.is_some(),
            },
            Err(other) => {
                self.trouble = Some(other.to_string());
                Answer::refused("INTERNAL")
            }
        }
    }

    /// A yes or a no to something that the driver does itself.
    pub(crate) fn done(&mut self, outcome: Result<bool, StepError>) -> Answer {
        self.heard(outcome, |done| if done { Answer::Ok } else { Answer::refused("NOTHING_DUE") })
    }
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Ok => "ok".to_owned(),
        Answer::Refused { reason, .. } => reason.clone(),
        other => format!("{other:?}"),
    }
}
