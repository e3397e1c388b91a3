//! One admitted call: its caller, its message and its deadline; and what every handler shares.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, metadata::MetadataMap};
use undolog_core::{
    reason::{Reason, Refusal},
    role::Role,
};
use undolog_listen::{Place, Places, Who};
use undolog_store::{Caller, Step, StepError, Store, guard, owner::Owner, service};
use uuid::Uuid;

use crate::{
    bell::Bells,
    convert::NamesOrg,
    gate::{Admitted, Presented},
    hub::Hub,
    options::DevMode,
    status,
    together::Gathered,
};

/// Who acts in development without a key.
const DEV_PRINCIPAL: &str = "dev";
/// A proxy says with this metadata that it passes another caller's request on. It is believed of an
/// executor, and of whoever knows the number of a proxy that ticks for the organisation.
const VIA: &str = "x-undolog-via";
/// The header of the documented HTTP face that names the session.
const SESSION_HEADER: &str = "x-undolog-session-id";
/// Proxies that one engine remembers.
const PROXIES_MAX: usize = 65_536;
/// Event streams that one engine serves at once.
const STREAMS_MAX: usize = 256;
/// Replays that one engine serves at once. Each holds one part of its answer in memory.
const REPLAYS_MAX: usize = 256;
/// Callers that one engine lets watch approval requests at once. They cost memory and nothing else.
const WATCHERS_MAX: usize = 4_096;

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Store,
    pub(crate) hub: Arc<Hub>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) gathered: Arc<Gathered>,
    pub(crate) stop: CancellationToken,
    pub(crate) streams: Arc<Places>,
    pub(crate) replays: Arc<Places>,
    pub(crate) watchers: Arc<Places>,
    dev: Option<DevMode>,
    dev_orgs: Mutex<HashMap<String, Uuid>>,
    proxies: Mutex<HashSet<(Uuid, Uuid)>>,
}

/// An admitted call.
#[derive(Debug)]
pub(crate) struct Call<T> {
    pub(crate) caller: Caller,
    pub(crate) message: T,
    pub(crate) deadline: Instant,
    /// The client's address, when a proxy says it whose word is believed.
    pub(crate) client_ip: Option<IpAddr>,
    /// Whose share of the engine it takes; `None`: nobody's, in development mode.
    pub(crate) who: Option<Who>,
}

/// Whether a text names this organisation: by uuid, by slug, or not at all.
pub(crate) fn names(named: &str, org_id: Uuid, slug: &str) -> bool {
    !guard!("gate.org")
        || named.is_empty()
        || named == slug
        || Uuid::parse_str(named).is_ok_and(|id| id == org_id)
}

/// Takes a place, or says who has how many.
pub(crate) fn take(places: &Arc<Places>, who: Option<Who>) -> Result<Place, Status> {
    places.take(who.filter(|_| guard!("places.share"))).map_err(|refusal| {
        metrics::counter!("undolog_places_refused_total", "reason" => refusal.reason.as_str())
            .increment(1);
        status::of_refusal(&refusal)
    })
}

impl Engine {
    pub(crate) fn new(store: Store, dev: Option<DevMode>, stop: CancellationToken) -> Self {
        Self {
            store,
            hub: Arc::default(),
            bells: Arc::default(),
            gathered: Arc::default(),
            stop,
            streams: Places::new("event streams", STREAMS_MAX),
            replays: Places::new("replays under way", REPLAYS_MAX),
            watchers: Places::new("watchers of approvals", WATCHERS_MAX),
            dev,
            dev_orgs: Mutex::default(),
            proxies: Mutex::default(),
        }
    }

    /// In development mode agents may register what administrators may.
    pub(crate) fn is_dev(&self) -> bool {
        self.dev.is_some()
    }

    /// Takes a request in: who calls, in which organisation, and that the request names no other.
    pub(crate) async fn accept<T: NamesOrg>(&self, request: Request<T>) -> Result<Call<T>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        // Without the gate's word nothing is served, whatever else was mounted.
        let Some(admitted) = extensions.get::<Admitted>() else {
            return Err(status::of_reason(Reason::Unauthenticated));
        };
        check_session(&metadata, message.session())?;
        let via = metadata.get(VIA).and_then(|value| value.to_str().ok());
        let via = via.and_then(|proxy| Uuid::parse_str(proxy).ok());
        let caller = match &admitted.presented {
            Presented::Key(identity) => {
                if !names(message.org(), identity.org_id, &identity.org_slug) {
                    return Err(status::of_reason(Reason::OrgMismatch));
                }
                Caller {
                    org_id: identity.org_id,
                    principal: identity.principal.clone(),
                    role: identity.role,
                    via_proxy: identity.role == Role::Executor
                        || self.comes_through(identity.org_id, via).await?,
                }
            }
            Presented::Dev => {
                let org_id = self.dev_org(dev_org_named(&metadata, message.org())?).await?;
                Caller {
                    org_id,
                    principal: DEV_PRINCIPAL.to_owned(),
                    role: Role::Admin,
                    via_proxy: self.comes_through(org_id, via).await?,
                }
            }
        };
        let (deadline, client_ip) = (admitted.deadline, admitted.client_ip);
        let who = admitted.presented.who();
        Ok(Call { caller, message, deadline, client_ip, who })
    }

    /// Whether a call comes through a proxy of its organisation. What is known stays known: a proxy
    /// that is gone begins nothing.
    async fn comes_through(&self, org_id: Uuid, proxy: Option<Uuid>) -> Result<bool, Status> {
        let Some(proxy) = proxy else { return Ok(false) };
        let known = || self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&(org_id, proxy)) {
            return Ok(true);
        }
        let store = self.store.clone();
        let is_proxy = async move { service::is_proxy(&store, org_id, proxy).await };
        if !self.read(is_proxy).await? {
            return Ok(false);
        }
        let mut known = known();
        if known.len() >= PROXIES_MAX {
            known.clear();
        }
        known.insert((org_id, proxy));
        Ok(true)
    }

    /// The organisation that a caller without a key names; a new slug makes one.
    async fn dev_org(&self, named: &str) -> Result<Uuid, Status> {
        let Some(dev) = &self.dev else {
            return Err(status::of_reason(Reason::Unauthenticated));
        };
        let named = if named.is_empty() { dev.default_org.as_str() } else { named };
        let known =
            self.dev_orgs.lock().unwrap_or_else(PoisonError::into_inner).get(named).copied();
        if let Some(org_id) = known {
            return Ok(org_id);
        }
        let org_id = make_dev_org(dev, named).await.map_err(|error| status::of_error(&error))?;
        let mut orgs = self.dev_orgs.lock().unwrap_or_else(PoisonError::into_inner);
        orgs.insert(named.to_owned(), org_id);
        Ok(org_id)
    }

    /// Runs a step to its end and answers what it decided.
    pub(crate) async fn run<S: Step>(&self, step: S) -> Result<S::Reply, Status> {
        self.store.run(step).await.map_err(|error| status::of_error(&error))
    }

    /// Reads in a task of its own, in its turn: a caller that goes away must not cost a connection.
    pub(crate) async fn read<F, T>(&self, reading: F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, StepError>> + Send + 'static,
        T: Send + 'static,
    {
        let turn = self.store.reading_turn().await.map_err(|error| status::of_error(&error))?;
        let (reading, store) = (Box::pin(reading), self.store.clone());
        self.detached(async move {
            let answered = store.note(reading.await);
            turn.end(!answered.as_ref().is_err_and(StepError::is_unavailable));
            answered
        })
        .await
    }

    /// Does what takes many steps in a task of its own: a caller that goes away stops nothing.
    pub(crate) async fn detached<F, T>(&self, work: F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, StepError>> + Send + 'static,
        T: Send + 'static,
    {
        let answered = tokio::spawn(work).await.unwrap_or(Err(StepError::Interrupted));
        answered.map_err(|error| status::of_error(&error))
    }
}

async fn make_dev_org(dev: &DevMode, named: &str) -> Result<Uuid, StepError> {
    let mut owner = Owner::connect(&dev.owner_url).await?;
    let org = match Uuid::parse_str(named) {
        Ok(_) => owner.org(named).await,
        Err(_) => owner.ensure_org(named).await,
    };
    owner.close().await?;
    Ok(org?.org_id)
}

fn dev_org_named<'a>(metadata: &'a MetadataMap, in_body: &'a str) -> Result<&'a str, Status> {
    let in_header = metadata.get("x-undolog-org-id").and_then(|value| value.to_str().ok());
    match in_header.map(str::trim).filter(|named| !named.is_empty()) {
        None => Ok(in_body),
        Some(named) if in_body.is_empty() || in_body == named => Ok(named),
        Some(_) => Err(status::of_reason(Reason::OrgMismatch)),
    }
}

fn check_session(metadata: &MetadataMap, in_body: &str) -> Result<(), Status> {
    let Some(value) = metadata.get(SESSION_HEADER) else { return Ok(()) };
    let named = value.to_str().unwrap_or("\u{fffd}").trim();
    if named.is_empty() || in_body.is_empty() || named.eq_ignore_ascii_case(in_body) {
        return Ok(());
    }
    let message = "the session of the header is not the session of the request";
    Err(status::of_refusal(&Refusal::because(Reason::InvalidArgument, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organisation_is_named_by_uuid_or_slug_or_not_at_all() {
        let id = Uuid::from_u128(5);
        for good in ["", "acme", &id.to_string(), &id.simple().to_string()] {
            assert!(names(good, id, "acme"), "{good}");
        }
        for bad in ["other", "ACME", &Uuid::from_u128(6).to_string(), " "] {
            assert!(!names(bad, id, "acme"), "{bad}");
        }
    }
}
