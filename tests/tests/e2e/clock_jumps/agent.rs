//! An agent that follows its plan, one thing a minute, and holds the service to what it was told.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tonic::{Code, Status};
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::rollback_request::Scope;
use undolog_proto::v1::{
    BeginRequest, CompleteRequest, ExecuteOutcome, FailSessionRequest, FailedEffect, GrantRef,
    HeartbeatRequest, HeartbeatResponse, InterceptRequest, RollbackRequest, SavepointRequest,
};
use undolog_tests::World;
use undolog_tests::world::Agent;
use uuid::Uuid;

use super::{Place, plan::Step};
use crate::humans::{approve, reject, waits};

/// A call that was granted.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) effect_id: String,
    pub(super) tool: &'static str,
    /// Whether the agent was told that it counts.
    pub(super) committed: bool,
    /// Whether it has to be undone by now, and by which of the session's rollbacks.
    pub(super) undo: Option<u32>,
}

/// What an agent is doing after a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Goes,
    /// It has ended well.
    Completed,
    /// A human has to decide what becomes of it.
    Halted,
    /// All of it has to be undone, soon.
    Undone,
    /// The same when its lease is noticed to be over.
    Dead,
    /// The same when people have had their time.
    DeadAsking,
}

/// What takes more than a minute.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few dozen of them, in one test")]
pub(super) enum Busy {
    Runs {
        grant: ExecuteOutcome,
        args: Value,
        minutes: u32,
    },
    Rests {
        minutes: u32,
    },
    /// `decision`: after so many minutes, yes or no.
    Waits {
        request: InterceptRequest,
        approval: String,
        tool: &'static str,
        decision: Option<(u32, bool)>,
    },
    GoesBack,
}

/// A statement that runs while the server's clock jumps ahead is cut, as if it had taken that long;
/// its caller hears that it may ask again.
async fn again<T, F>(call: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    for _ in 0..5 {
        match call().await {
            Err(status) if status.code() == Code::Unavailable => {}
            answer => return answer,
        }
    }
    call().await
}

/// One session's agent.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) place: usize,
    pub(super) agent: Agent,
    pub(super) who: Place,
    pub(super) told: Vec<Told>,
    pub(super) busy: Option<Busy>,
    number: u64,
    steps: VecDeque<Step>,
    /// The position that is gone back to, and how many calls lie below it.
    savepoint: (u32, usize),
    rollbacks: u32,
    completed: bool,
}

impl Actor {
    pub(super) async fn begin(
        world: &World,
        who: Place,
        place: usize,
        number: u64,
        plan: Vec<Step>,
    ) -> Self {
        let session = Uuid::new_v4();
        let begin = BeginRequest {
            session_id: session.to_string(),
            agent_name: format!("{number}"),
            ..BeginRequest::default()
        };
        let begun = again(async || who.agent.sessions().begin(begin.clone()).await).await;
        begun.expect("begun");
        let agent = Agent::of_session(who.agent.clone(), &world.witness, session);
        let (told, steps) = (Vec::new(), plan.into());
        Self {
            place,
            agent,
            who,
            told,
            busy: None,
            number,
            steps,
            savepoint: (0, 0),
            rollbacks: 0,
            completed: false,
        }
    }

    /// Does what a minute takes.
    pub(super) async fn act(mut self) -> (Self, Doing) {
        let doing = match self.busy.take() {
            Some(busy) => self.go_on(busy).await,
            None => {
                let step = self.steps.pop_front().expect("a plan leads to an end");
                self.step(step).await
            }
        };
        if matches!(doing, Doing::Undone | Doing::Dead | Doing::DeadAsking) {
            self.undo_from(0);
        }
        (self, doing)
    }

    async fn go_on(&mut self, busy: Busy) -> Doing {
        match busy {
            Busy::Runs { grant, args, minutes } => {
                self.beats(Some(&grant)).await;
                if minutes > 1 {
                    self.busy = Some(Busy::Runs { grant, args, minutes: minutes - 1 });
                } else {
                    self.run("charge", &grant, &args).await;
                }
                Doing::Goes
            }
            Busy::Rests { minutes } => {
                self.beats(None).await;
                self.busy = (minutes > 1).then(|| Busy::Rests { minutes: minutes - 1 });
                Doing::Goes
            }
            Busy::GoesBack => {
                match self.beat(None).await.state.as_str() {
                    "active" => {}
                    "compensating" => self.busy = Some(Busy::GoesBack),
                    other => panic!("{self:?}: {other} while it goes back"),
                }
                Doing::Goes
            }
            Busy::Waits { request, approval, tool, decision } => {
                self.wait(request, approval, tool, decision).await
            }
        }
    }

    async fn step(&mut self, step: Step) -> Doing {
        match step {
            Step::Call(tool) => {
                let args = self.args();
                let grant = self.granted(tool, &args).await;
                self.run(tool, &grant, &args).await;
            }
            Step::Long(minutes) => {
                let args = self.args();
                let grant = self.granted("charge", &args).await;
                self.busy = Some(Busy::Runs { grant, args, minutes });
            }
            Step::Look => {
                let request = self.request("look", &json!({}));
                let looked = self.ask_once(&request).await;
                let is_free =
                    matches!(&looked, Ok(Outcome::Execute(it)) if it.effect_id.is_empty());
                assert!(is_free, "SAFE calls are not kept: {looked:?}");
            }
            Step::Rest(minutes) => {
                self.beats(None).await;
                self.busy = Some(Busy::Rests { minutes });
            }
            Step::Ask { minutes, yes } => self.ask("wipe", Some((minutes, yes))).await,
            Step::Auto => self.ask("auto", None).await,
            Step::Left => self.ask("left", None).await,
            Step::Savepoint => self.take_savepoint().await,
            Step::Back => self.go_back().await,
            Step::Complete | Step::Undo | Step::FailCall { .. } | Step::FailSession => {
                return self.finish(step).await;
            }
            Step::Die | Step::DieGranted | Step::DieUnreported | Step::DieAsking { .. } => {
                return self.die(step).await;
            }
        }
        Doing::Goes
    }

    fn args(&mut self) -> Value {
        json!({"id": format!("{}-{}", self.number, self.told.len()), "agent": self.number})
    }

    async fn beat(&self, grant: Option<&ExecuteOutcome>) -> HeartbeatResponse {
        let grants = grant
            .map(|grant| GrantRef { effect_id: grant.effect_id.clone(), attempt: grant.attempt });
        let request = HeartbeatRequest {
            session_id: self.agent.session.to_string(),
            grants: grants.into_iter().collect(),
            ..HeartbeatRequest::default()
        };
        let sessions = || self.agent.client.sessions();
        let beat = again(async || sessions().heartbeat(request.clone()).await).await;
        beat.unwrap_or_else(|status| panic!("{self:?}: {status}")).into_inner()
    }

    /// Beats, and hears that all is well.
    async fn beats(&self, grant: Option<&ExecuteOutcome>) {
        let beat = self.beat(grant).await;
        let stopped = beat.stop || beat.grants.iter().any(|grant| grant.stop);
        assert!(!stopped && beat.state == "active", "a healthy agent heard {beat:?}: {self:?}");
    }

    /// A new step, under a token of its own.
    fn request(&mut self, tool: &str, args: &Value) -> InterceptRequest {
        let grant_token = Uuid::new_v4().to_string();
        InterceptRequest { grant_token, ..self.agent.request(tool, args) }
    }

    async fn ask_once(&self, request: &InterceptRequest) -> Result<Outcome, Status> {
        again(async || self.agent.ask(request.clone()).await).await
    }

    async fn approve(&self, approval: &str) {
        again(async || approve(&self.who.approver, approval).await).await.expect("approved");
    }

    async fn granted(&mut self, tool: &'static str, args: &Value) -> ExecuteOutcome {
        let request = self.request(tool, args);
        match self.ask_once(&request).await {
            Ok(Outcome::Execute(grant)) => {
                self.told(&grant, tool);
                grant
            }
            other => panic!("a healthy agent asked for {tool} and heard {other:?}: {self:?}"),
        }
    }

    fn told(&mut self, grant: &ExecuteOutcome, tool: &'static str) {
        let effect_id = grant.effect_id.clone();
        self.told.push(Told { effect_id, tool, committed: false, undo: None });
    }

    async fn run(&mut self, tool: &str, grant: &ExecuteOutcome, args: &Value) {
        let result = self.agent.execute(tool, &grant.effect_id, args).await;
        let committed = again(async || self.agent.commit(&grant.effect_id, &result).await).await;
        if let Err(status) = committed {
            panic!("a healthy agent committed and heard {status}: {self:?}");
        }
        let told = self.told.last_mut().expect("the grant");
        told.committed = true;
    }

    async fn ask(&mut self, tool: &'static str, decision: Option<(u32, bool)>) {
        let args = self.args();
        let request = self.request(tool, &args);
        let approval = waits(self.ask_once(&request).await).approval_id;
        self.busy = Some(Busy::Waits { request, approval, tool, decision });
        if tool == "left" && self.who.rejection_undoes {
            // It is undone before the agent hears that nobody decided.
            self.undo_from(0);
        }
    }

    /// Waits for people, or for the time that they have.
    async fn wait(
        &mut self,
        request: InterceptRequest,
        approval: String,
        tool: &'static str,
        decision: Option<(u32, bool)>,
    ) -> Doing {
        let mut left = decision;
        match decision {
            Some((0, true)) => {
                self.approve(&approval).await;
                left = None;
            }
            Some((0, false)) => {
                again(async || reject(&self.who.approver, &approval).await)
                    .await
                    .expect("rejected");
                left = None;
            }
            Some((minutes, yes)) => left = Some((minutes - 1, yes)),
            None => {}
        }
        let may_be_refused = tool == "left" || matches!(decision, Some((_, false)));
        match self.ask_once(&request).await {
            Ok(Outcome::Execute(grant)) if tool != "left" => {
                self.told(&grant, tool);
                let args = json!({"agent": self.number});
                self.run(tool, &grant, &args).await;
                Doing::Goes
            }
            Ok(Outcome::AwaitingApproval(_)) => {
                self.busy = Some(Busy::Waits { request, approval, tool, decision: left });
                Doing::Goes
            }
            Err(status) if may_be_refused => self.refused(&status).await,
            other => panic!("an agent waited for {tool} and heard {other:?}: {self:?}"),
        }
    }

    /// Nobody agreed: the session is halted, or rolled back where the organisation says so.
    async fn refused(&mut self, status: &Status) -> Doing {
        let reason = undolog_tests::world::reason_of(status);
        let known = ["APPROVAL_REJECTED", "APPROVAL_TIMED_OUT"].contains(&reason.as_str());
        assert!(known, "{status}: {self:?}");
        if self.who.rejection_undoes {
            return Doing::Undone;
        }
        match self.steps.pop_front() {
            Some(step) => self.step(step).await,
            None => Doing::Halted,
        }
    }

    async fn take_savepoint(&mut self) {
        let session_id = self.agent.session.to_string();
        let request = SavepointRequest { session_id, ..SavepointRequest::default() };
        let sessions = || self.agent.client.sessions();
        let taken = again(async || sessions().savepoint(request.clone()).await).await;
        let position = taken.unwrap_or_else(|status| panic!("{self:?}: {status}")).into_inner();
        self.savepoint = (position.position, self.told.len());
    }

    async fn go_back(&mut self) {
        let (position, below) = self.savepoint;
        self.undo_from(below);
        self.roll_back(Some(Scope::ToSavepoint(position))).await;
        self.busy = Some(Busy::GoesBack);
    }

    async fn roll_back(&self, scope: Option<Scope>) {
        let request = RollbackRequest {
            session_id: self.agent.session.to_string(),
            reason: "the plan says so".to_owned(),
            allow_residue: true,
            scope,
            ..RollbackRequest::default()
        };
        let sessions = || self.agent.client.sessions();
        let asked = again(async || sessions().rollback(request.clone()).await).await;
        asked.unwrap_or_else(|status| panic!("{self:?}: {status}"));
    }

    async fn finish(&mut self, step: Step) -> Doing {
        let session_id = self.agent.session.to_string();
        let sessions = || self.agent.client.sessions();
        match step {
            Step::Complete => {
                let request = CompleteRequest { session_id, ..CompleteRequest::default() };
                let done = again(async || sessions().complete(request.clone()).await).await;
                done.unwrap_or_else(|status| panic!("{self:?}: {status}"));
                self.completed = true;
                return if self.steps.is_empty() { Doing::Completed } else { Doing::Goes };
            }
            Step::FailCall { maybe } => {
                let args = self.args();
                let grant = self.granted("book", &args).await;
                let effect =
                    if maybe { FailedEffect::MaybeApplied } else { FailedEffect::NotApplied };
                let failed = again(async || self.agent.fail(&grant.effect_id, effect).await).await;
                failed.expect("failed");
                if !maybe {
                    self.told.pop();
                }
            }
            Step::FailSession => {
                let request = FailSessionRequest {
                    session_id,
                    rollback: true,
                    reason: "the plan says so".to_owned(),
                    ..FailSessionRequest::default()
                };
                let done = again(async || sessions().fail_session(request.clone()).await).await;
                done.unwrap_or_else(|status| panic!("{self:?}: {status}"));
            }
            _ => self.roll_back(None).await,
        }
        Doing::Undone
    }

    async fn die(&mut self, step: Step) -> Doing {
        match step {
            Step::DieGranted | Step::DieUnreported => {
                let args = self.args();
                let grant = self.granted("book", &args).await;
                if step == Step::DieUnreported {
                    self.agent.execute("book", &grant.effect_id, &args).await;
                }
                Doing::Dead
            }
            Step::DieAsking { approved } => {
                let args = self.args();
                let request = self.request(if approved { "wipe" } else { "left" }, &args);
                let waiting = waits(self.ask_once(&request).await);
                if approved {
                    self.approve(&waiting.approval_id).await;
                    return Doing::DeadAsking;
                }
                if self.who.rejection_undoes { Doing::DeadAsking } else { Doing::Halted }
            }
            _ => Doing::Dead,
        }
    }

    /// What lies at or above the savepoint, or all of it, has to be undone.
    fn undo_from(&mut self, from: usize) {
        self.rollbacks += 1;
        let can_be = |told: &&mut Told| !["wipe", "auto"].contains(&told.tool);
        for told in self.told[from..].iter_mut().filter(can_be) {
            told.undo = told.undo.or(Some(self.rollbacks));
        }
    }

    /// It has completed, and goes on.
    pub(super) fn is_completed(&self) -> bool {
        self.completed
    }
}
