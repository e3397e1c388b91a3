//! A call that may have ended its worker is made again in a process of its own. When that process
//! dies, it was this call and no other; the worker sees it, and nothing else dies with it.

mod child;

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
};
use undolog_core::{limits::COMPENSATION_CALL_MS_MAX, retry::CallOutcome};
use undolog_store::walk::Outcome;

pub use child::make_one_call;

use crate::{
    call::Made,
    egress::{Answer, Call, EgressOptions, SecretSource},
};

/// What the process may take beside the call itself.
const START: Duration = Duration::from_secs(20);
/// After so long it is tried again to start a process.
const AGAIN_MS: u64 = 10_000;
/// Variables that say where libraries lie and how names are looked up.
const KEPT: &[&str] = &[
    "LD_LIBRARY_PATH",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "SystemRoot",
    #[cfg(feature = "testkit")]
    "UNDOLOG_GUARDS_OFF",
];
/// The command of `undolog` that makes one call.
pub const COMMAND: &str = "compensation-call";

/// How a process is started that makes one call: see [`make_one_call`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneCall {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Default for OneCall {
    /// This program, told to make one call.
    fn default() -> Self {
        // On Linux this path leads to the running program, also after its file was replaced.
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("undolog"));
        let linux = PathBuf::from("/proc/self/exe");
        let program = if linux.exists() { linux } else { own };
        Self { program, arguments: vec![COMMAND.into()] }
    }
}

/// What the process is told, on one line of its standard input.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    options: EgressOptions,
    call: Call,
}

/// What it answers: two lines of its standard output.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// The call begins.
    Begun,
    /// It has ended.
    Ended(Answer),
}

/// Makes a call in a process of its own. Dropped, it ends the process.
pub(crate) async fn call(one: &OneCall, options: &EgressOptions, call: Call) -> Made {
    let limit =
        START + Duration::from_millis(call.rendered.timeout_ms.clamp(1, COMPENSATION_CALL_MS_MAX));
    let mut begun = false;
    let made = tokio::time::timeout(limit, attend(one, options, call, &mut begun)).await;
    match made {
        Ok(Ok(Some(answer))) => answer.into(),
        Ok(Ok(None)) => Made::without_answer(Outcome::Died, DIED.to_owned()),
        Ok(Err(why)) if begun => Made::without_answer(Outcome::Died, format!("{DIED}: {why}")),
        // Nothing was sent, and nothing is known about the call.
        Ok(Err(why)) => {
            let outcome = Outcome::Ended(CallOutcome::Defer { after_ms: AGAIN_MS });
            Made::without_answer(outcome, format!("no process of its own was started: {why}"))
        }
        Err(_) => Made::without_answer(
            Outcome::Ended(CallOutcome::Retry),
            "the process that made the call did not answer in time".to_owned(),
        ),
    }
}

const DIED: &str = "the process that made this call and nothing else ended without an answer";

/// Starts the process, tells it the call, and reads what it says.
async fn attend(
    one: &OneCall,
    options: &EgressOptions,
    call: Call,
    begun: &mut bool,
) -> Result<Option<Answer>, String> {
    let environment = environment(&call);
    let job = Job { options: options.clone(), call };
    let mut job = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
    job.push(b'\n');
    let mut child =
        start(one, environment).map_err(|error| format!("{}: {error}", one.program.display()))?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("it has no standard input or output".to_owned());
    };
    // A process that is gone already says so below. The input stays open: its end would tell the
    // process that nobody waits for it any more.
    if let Err(error) = input.write_all(&job).await {
        tracing::debug!(%error, "the call was not told");
    }
    let mut lines = BufReader::new(output).lines();
    loop {
        let line = lines.next_line().await.map_err(|error| error.to_string())?;
        let Some(line) = line else { return Err(ended(&mut child).await) };
        match serde_json::from_str(&line) {
            Ok(Line::Begun) => *begun = true,
            Ok(Line::Ended(answer)) => return Ok(Some(answer)),
            Err(error) => return Err(format!("it cannot be understood: {error}")),
        }
    }
}

/// What the process inherits: what a program needs to run at all, and the secrets that its call
/// names. Whatever a call may do to its process, it finds no password of the database there, no key
/// and no secret of another organisation.
fn environment(call: &Call) -> Vec<(String, OsString)> {
    let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
    kept.chain(SecretSource::environment_of(&call.org_slug, &call.rendered)).collect()
}

fn start(one: &OneCall, environment: Vec<(String, OsString)>) -> std::io::Result<Child> {
    Command::new(&one.program)
        .args(&one.arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

async fn ended(child: &mut Child) -> String {
    match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}
