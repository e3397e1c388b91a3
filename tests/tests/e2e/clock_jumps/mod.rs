//! Hours of the database's clock, in which it jumps by ten minutes in either direction, while
//! agents of several organisations work: nothing healthy is undone, and nothing waits longer than
//! it meant to.
//!
//! Minutes are counted by the test (`clock`), since the database's clock lies. In each of them
//! every agent does one thing (`agent`), and the workers do whatever is due. What must come of a
//! session is known from what its agent did and heard alone (`book`), and is compared with the
//! calls that really arrived.

mod agent;
mod book;
mod clock;
mod end;
mod plan;

use proptest::prelude::Rng;
use tokio::task::JoinSet;
use undolog_tests::pg::PrivateCluster;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::{Client, Database, Org, ToolSpec};
use undolog_tests::{World, size};

use agent::{Actor, Doing};
use book::Book;
use clock::{Clock, Event};
use plan::Dice;

/// Minutes without a jump after which everything has ended: an approval's window and two of its
/// delays by a step back, the time that people have after an outage, a session's lease, its drain.
const SETTLING: u64 = 75;
/// A round waits for the sweeps every so many minutes.
const SWEPT_EVERY: u64 = 4;

/// One organisation, its agents' client, its approver's, and what rejections do.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) agent: Client,
    pub(crate) approver: Client,
    pub(crate) rejection_undoes: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_of_a_clock_that_jumps_undo_nothing_healthy_and_stop_nothing() {
    let minutes = size("UNDOLOG_TEST_CLOCK_MINUTES", 40) as u64;
    let seed = size("UNDOLOG_TEST_CLOCK_SEED", 8) as u64;
    let width = size("UNDOLOG_TEST_CLOCK_AGENTS", 4);
    let world = world().await;
    let places = places(&world).await;
    let mut run = Run {
        clock: Clock::new(seed),
        dice: Dice::new(seed, 0),
        book: Book::default(),
        agents: Vec::new(),
        begun: 0,
        world,
        places,
    };
    while run.clock.minutes() < minutes {
        run.new_agents(width).await;
        run.minute(true).await;
    }
    run.step_back_while_retries_wait().await;
    let jumped = run.clock.minutes();
    while !run.agents.is_empty() || !run.book.is_over() {
        assert!(run.clock.minutes() < jumped + SETTLING, "not over:\n{}", run.unfinished().await);
        run.minute(false).await;
    }
    end::check(&run.world, &run.book).await;
    eprintln!("seed {seed}, {} minutes: {}; {}", run.clock.minutes(), run.clock, run.book);
}

/// Two engines and two workers over a server whose clock the test moves.
async fn world() -> World {
    let database = Database::Private(Box::new(PrivateCluster::start().await));
    let mut world = World::on(database).await;
    for _ in 0..2 {
        world.add_engine(EngineOptions::default()).await;
        let environment =
            vec![("UNDOLOG_SHARED_SECRET_HOOK".to_owned(), format!("whsec_{}", "QUJD".repeat(11)))];
        world.add_worker(WorkerOptions { environment, ..WorkerOptions::default() }).await;
    }
    world
}

/// Three organisations: one is told of its approvals by a webhook, in one a rejection rolls back.
async fn places(world: &World) -> Vec<Place> {
    let mut places = Vec::new();
    for (n, slug) in ["north", "east", "south"].into_iter().enumerate() {
        let org = Org::create(world.pool(), slug).await;
        let rejection_undoes = n == 2;
        org.set(world.pool(), "resume_window_seconds", "300").await;
        if rejection_undoes {
            org.set(world.pool(), "on_rejection", "rollback").await;
        }
        if n == 0 {
            org.set(world.pool(), "webhook_secret", "HOOK").await;
            org.set(world.pool(), "webhook_url", &world.witness.url("/do/hook")).await;
        }
        let engine = world.engines[n % world.engines.len()].grpc_url();
        let client = async |role: &str, principal: &str| {
            let key = org.key(world.pool(), role, principal).await;
            Client::new(&engine, Some(&key))
        };
        tools(&mut client("admin", "root").await, world).await;
        places.push(Place {
            agent: client("agent", "agent").await,
            approver: client("approver", "boss").await,
            rejection_undoes,
        });
    }
    places
}

async fn tools(admin: &mut Client, world: &World) {
    let lease = |tool: &mut ToolSpec| tool.grant_lease_ms = 240_000;
    let specs = [
        ToolSpec::compensable("charge").with(lease),
        ToolSpec::compensable("flaky").with(lease).retries(12, 2_000),
        // Its undo needs no result, and does nothing where there is nothing to undo.
        ToolSpec::compensable("book")
            .with(lease)
            .body("endpoint", serde_json::json!("/undo/book/{args.id}"))
            .body("done_statuses", serde_json::json!([404])),
        ToolSpec::safe("look"),
    ];
    for spec in specs {
        spec.register(admin, &world.witness).await;
    }
    // People decide about `wipe`, nobody does about `left`, and the policy about `auto`.
    for (name, window_seconds, auto) in
        [("wipe", 86_400, false), ("left", 300, false), ("auto", 300, true)]
    {
        let tool = undolog_proto::v1::Tool {
            tool_name: name.to_owned(),
            tier: "irreversible".to_owned(),
            irreversibility_reason: "it cannot be undone".to_owned(),
            tool_schema: br#"{"type":"object"}"#.to_vec(),
            is_active: true,
            grant_lease_ms: 240_000,
            approval_timeout_seconds: window_seconds,
            auto_approve_on_timeout: Some(auto),
            ..undolog_proto::v1::Tool::default()
        };
        let request =
            undolog_proto::v1::RegisterToolRequest { org_id: String::new(), tool: Some(tool) };
        admin.registry().register_tool(request).await.unwrap();
    }
}

/// The test as it goes. Agents hold no process; the world is dropped last.
struct Run {
    clock: Clock,
    dice: Dice,
    book: Book,
    agents: Vec<Actor>,
    begun: u64,
    places: Vec<Place>,
    world: World,
}

impl Run {
    /// As many agents at a time in each organisation.
    async fn new_agents(&mut self, width: usize) {
        for at in 0..self.places.len() {
            while self.agents.iter().filter(|agent| agent.place == at).count() < width {
                self.begun += 1;
                let plan = plan::plan(&mut Dice::new(self.clock.seed, self.begun));
                let place = self.places[at].clone();
                let actor = Actor::begin(&self.world, place, at, self.begun, plan).await;
                self.book.begun(&actor);
                self.agents.push(actor);
            }
        }
    }

    /// One minute: every agent does one thing, the clock goes on, and jumps when `jumps` says so.
    async fn minute(&mut self, jumps: bool) {
        let mut doing = JoinSet::new();
        let now = self.clock.minutes();
        let agents = std::mem::take(&mut self.agents);
        let mut events = self.clock.events(agents.len(), jumps);
        if self.dice.one_in(4) {
            self.misbehave();
        }
        for agent in agents {
            doing.spawn(agent.act());
        }
        let mut done = 0;
        while let Some(acted) = doing.join_next().await {
            let (agent, what) = acted.expect("an agent's own faults are told by its panic");
            self.book.acted(&agent, &what, now);
            if what == Doing::Goes {
                self.agents.push(agent);
            }
            done += 1;
            while let Some(event) = events.pop_if(|(at, _)| *at <= done) {
                self.clock.happen(&self.world, event.1).await;
            }
        }
        for (_, event) in events.into_iter().rev() {
            self.clock.happen(&self.world, event).await;
        }
        clock::idle(&self.world).await;
        if self.clock.minutes().is_multiple_of(SWEPT_EVERY) {
            clock::swept(&self.world).await;
            clock::idle(&self.world).await;
        }
        self.judge().await;
    }

    /// Some compensations fail, and receivers of webhooks too.
    fn misbehave(&mut self) {
        let act = match self.dice.0.random_range(0..3) {
            0 => Act::Status(500),
            1 => Act::RetryAfter(429, 3),
            _ => Act::AppliedThenClose,
        };
        let times = self.dice.0.random_range(1..3);
        self.world.witness.script(Script::times("/undo/flaky/", times, act));
        self.world.witness.script(Script::once("/do/hook", Act::Status(500)));
    }

    async fn judge(&mut self) {
        let states = end::states(self.world.pool()).await;
        self.book.called(&self.world.witness.calls_to("/undo/"));
        let (now, jumped) = (self.clock.minutes(), self.clock.jumped_at);
        self.book.stand(&states, now, jumped);
        let wrong = self.book.wrong();
        assert!(
            wrong.is_empty(),
            "minute {now} (seed {}, {}):\n{wrong}",
            self.clock.seed,
            self.clock
        );
    }

    /// The last jump goes back while calls wait to be tried again.
    async fn step_back_while_retries_wait(&mut self) {
        self.world.witness.behave();
        self.world.witness.script(Script::times("/undo/flaky/", 3, Act::Status(500)));
        let calls = self.world.witness.calls_to("/undo/flaky/");
        let before = calls.iter().filter(|call| call.status.is_some()).count();
        for at in 0..self.places.len() {
            self.begun += 1;
            let place = self.places[at].clone();
            let plan = plan::fails_at_once();
            let mut actor = Actor::begin(&self.world, place, at, self.begun, plan).await;
            self.book.begun(&actor);
            let now = self.clock.minutes();
            loop {
                let (acted, what) = actor.act().await;
                actor = acted;
                self.book.acted(&actor, &what, now);
                if what != Doing::Goes {
                    break;
                }
            }
        }
        let seen = before + 3;
        self.world.witness.wait_for_answers("/undo/flaky/", seen, undolog_tests::SOON).await;
        clock::idle(&self.world).await;
        self.clock.happen(&self.world, Event::Jump(-10)).await;
    }

    async fn unfinished(&self) -> String {
        let agents: Vec<String> = self.agents.iter().map(|agent| format!("{agent:?}")).collect();
        let book = self.book.unfinished();
        format!("{}\n{book}\n{}", agents.join("\n"), end::open(self.world.pool()).await)
    }
}
