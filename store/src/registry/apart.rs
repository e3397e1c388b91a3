//! Work on schemas that no transaction waits for: compiling them, and checking what is large.
//!
//! A step that needs it ends with [`StepError::Apart`] and writes nothing. Its runner does the work
//! on a thread of its own, with room for deep recursion, keeps the outcome and runs the step again,
//! which finds the outcome there. A registration that changed meanwhile has another text, so the
//! step asks again.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    thread,
};

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use undolog_core::{
    json::{Node, from_stored, to_serde},
    reason::Reason,
    tool_schema::input_schema,
};
use uuid::Uuid;

use super::{cache::Digest, schema::Schema};
use crate::{error::StepError, pool::Store, tenant::Tenant};

/// The stack of a thread that compiles, checks or takes down a schema.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Steps of one organisation that may wait for such a thread.
const WAITING_MAX: usize = 64;

/// What a schema's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A schema that somebody wants to register.
    New,
    /// A stored schema.
    Stored,
    /// A stored MCP tool object, whose input schema is meant.
    StoredTool,
}

/// How often one step may ask for work: it needs a few schemas and one check, and the registry can
/// change meanwhile.
const ASKED_MAX: u32 = 16;

/// What a step wants done outside its transaction.
#[derive(Debug)]
pub struct Apart(Kind);

/// How often a step has asked already.
#[derive(Debug, Default)]
pub(crate) struct Asked(u32);

impl Asked {
    /// Does the work, after which the step is run again.
    ///
    /// # Errors
    /// The step asks without end, or the work cannot be done now.
    pub(crate) async fn serve(
        &mut self,
        work: Apart,
        store: &Store,
        org_id: Uuid,
    ) -> Result<(), StepError> {
        if self.0 == ASKED_MAX {
            return Err(StepError::Apart(work));
        }
        self.0 += 1;
        work.run(store, org_id).await
    }
}

#[derive(Debug)]
enum Kind {
    Compile { key: Digest, form: Form, text: String },
    Check { key: Digest, schema: Arc<Schema>, value: Box<Value> },
}

/// The schema of this text, compiled. The inner error is for whoever wrote the schema.
pub(super) fn compiled(
    tx: &Tenant,
    form: Form,
    text: &str,
) -> Result<Result<Arc<Schema>, String>, StepError> {
    let key = Digest::of(&[&[form as u8], text.as_bytes()]);
    if let Some(kept) = tx.store().registry().schema(&key) {
        return Ok(kept);
    }
    Err(StepError::Apart(Apart(Kind::Compile { key, form, text: text.to_owned() })))
}

/// Checks a value against a schema. The inner error names the place and the broken rule, never a
/// value.
pub(super) fn check(
    tx: &Tenant,
    schema: &Arc<Schema>,
    value: &Node,
) -> Result<Result<(), String>, StepError> {
    let value = to_serde(value);
    if let Some(outcome) = schema.check_small(&value) {
        return Ok(outcome);
    }
    let key = key_of(schema, &value);
    if let Some(kept) = tx.store().registry().outcome(&key) {
        return Ok(kept);
    }
    let schema = Arc::clone(schema);
    Err(StepError::Apart(Apart(Kind::Check { key, schema, value: Box::new(value) })))
}

/// A schema and a value.
fn key_of(schema: &Schema, value: &Value) -> Digest {
    // Every object of `serde_json` is printed in one order, so equal values have one text.
    Digest::of(&[&schema.id().to_le_bytes(), value.to_string().as_bytes()])
}

impl Apart {
    /// Does the work for a step of this organisation, and keeps the outcome.
    ///
    /// # Errors
    /// Too many steps of the organisation wait for such work, or the machine has no thread left.
    async fn run(self, store: &Store, org_id: Uuid) -> Result<(), StepError> {
        let _place = place(org_id).await?;
        let store = store.clone();
        let done = on_large_stack(move || match self.0 {
            Kind::Compile { key, form, text } => {
                let compiled = compile(form, &text).map(Arc::new);
                store.registry().keep_schema(key, text.len(), compiled);
            }
            Kind::Check { key, schema, value } => {
                store.registry().keep_outcome(key, schema.check_large(&value));
            }
        });
        let done = done.map_err(|error| {
            tracing::error!(%error, "no thread can be started to check a schema");
            StepError::refuse(Reason::Unavailable, "schemas cannot be checked now")
        })?;
        done.await.map_err(|_| StepError::Interrupted)
    }
}

fn compile(form: Form, text: &str) -> Result<Schema, String> {
    let node = from_stored(text, None).map_err(|error| error.to_string())?;
    match form {
        Form::New => Schema::compile(&to_serde(&node)),
        Form::Stored => Schema::compile_stored(&to_serde(&node)),
        Form::StoredTool => Schema::compile_stored(&to_serde(input_schema(&node))),
    }
}

/// Takes something down that recurses while it is dropped.
pub(super) fn drop_on_large_stack<T: Send + 'static>(large: T) {
    let shared = Arc::new(Mutex::new(Some(large)));
    let theirs = Arc::clone(&shared);
    let taken = move || drop(theirs.lock().unwrap_or_else(PoisonError::into_inner).take());
    if let Err(error) = thread::Builder::new().stack_size(STACK_BYTES).spawn(taken) {
        tracing::warn!(%error, "no thread can be started to free a schema; its memory is kept");
        // Freeing it here could end the process.
        std::mem::forget(shared);
    }
}

fn on_large_stack(run: impl FnOnce() + Send + 'static) -> Result<oneshot::Receiver<()>, io::Error> {
    let (done, hears) = oneshot::channel();
    let named = thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
    named.spawn(move || {
        run();
        // Whoever asked may be gone.
        let _ = done.send(());
    })?;
    Ok(hears)
}

/// A thread for every second core, so that the other calls always have one.
static THREADS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    Arc::new(Semaphore::new((cores / 2).max(1)))
});

/// Of each organisation, one piece of work is done at a time: another one's waits for that at most.
static TURNS: LazyLock<Mutex<HashMap<Uuid, Weak<Turns>>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Turns {
    waiting: Arc<Semaphore>,
    working: Arc<Semaphore>,
}

/// Held while a piece of work is done.
struct Place {
    _waits: OwnedSemaphorePermit,
    _works: OwnedSemaphorePermit,
    _thread: OwnedSemaphorePermit,
    /// The organisation's turns live as long as somebody has one.
    _turns: Arc<Turns>,
}

async fn place(org_id: Uuid) -> Result<Place, StepError> {
    let turns = turns_of(org_id);
    let waits = Arc::clone(&turns.waiting).try_acquire_owned().map_err(|_| {
        let why = "too many calls of this organisation wait for a large check of their arguments";
        StepError::refuse(Reason::RateLimited, why)
    })?;
    let closed = |_| StepError::Interrupted;
    let works = Arc::clone(&turns.working).acquire_owned().await.map_err(closed)?;
    let thread = Arc::clone(&THREADS).acquire_owned().await.map_err(closed)?;
    Ok(Place { _waits: waits, _works: works, _thread: thread, _turns: turns })
}

fn turns_of(org_id: Uuid) -> Arc<Turns> {
    let mut all = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(turns) = all.get(&org_id).and_then(Weak::upgrade) {
        return turns;
    }
    all.retain(|_, turns| turns.strong_count() > 0);
    let turns = Arc::new(Turns {
        waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        working: Arc::new(Semaphore::new(1)),
    });
    all.insert(org_id, Arc::downgrade(&turns));
    turns
}
