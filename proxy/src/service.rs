//! What every request of a proxy shares. None of it matters when the process ends.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::HeaderMap;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use undolog_core::networks::Networks;
use undolog_egress::Egress;
use undolog_listen::Places;
use uuid::Uuid;

use crate::{
    call::{Caller, EngineChannel},
    keys::Keys,
    options::{ProxyError, ProxyOptions},
    rate::Rates,
};

/// Requests that one proxy works on at once, those that wait included. Of these and of the others
/// an organisation can have half, and a key half of that.
const IN_FLIGHT_MAX: usize = 4_096;
/// Calls that wait for a decision at once.
const WAITS_MAX: usize = 2_048;
/// Event streams that one proxy serves at once.
const STREAMS_MAX: usize = 256;
/// Replays that one proxy serves at once.
const REPLAYS_MAX: usize = 256;
/// Bodies that one proxy holds in memory at once, in KiB; those of reports apart from the others.
const BODIES_KIB_MAX: usize = 256 * 1024;
/// How often one address may read the document, a second and in a row.
const DOCUMENTS: (u32, u32) = (10, 50);

/// A proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) channel: EngineChannel,
    pub(crate) egress: Egress,
    pub(crate) rates: Option<Rates>,
    pub(crate) keys: Keys,
    /// Readings of the document, by address.
    pub(crate) documents: Rates,
    pub(crate) in_flight: Arc<Places>,
    pub(crate) waits: Arc<Places>,
    pub(crate) streams: Arc<Places>,
    pub(crate) replays: Arc<Places>,
    pub(crate) bodies: Arc<Places>,
    pub(crate) report_bodies: Arc<Places>,
    /// Work that goes on when its caller has gone.
    pub(crate) tasks: TaskTracker,
    /// No new work.
    pub(crate) stop: CancellationToken,
    /// Calls in flight are given up.
    pub(crate) give_up: CancellationToken,
    /// Something was approved through this proxy.
    pub(crate) approved: Notify,
    /// Drawn at the start: how the engine knows that a call comes through this proxy.
    pub(crate) id: Uuid,
    /// The proxy itself, once for each organisation that gave it a key.
    pub(crate) executors: Vec<Caller>,
    pub(crate) answers: AtomicBool,
    trusted_forwarders: Networks,
}

impl Proxy {
    pub(crate) fn new(
        options: &ProxyOptions,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, ProxyError> {
        let id = Uuid::new_v4();
        let keys = options.executor_keys.iter();
        let mut executors =
            keys.map(|key| Caller::executor(key, id)).collect::<Result<Vec<_>, _>>()?;
        if options.dev && executors.is_empty() {
            executors.push(Caller::dev(id));
        }
        Ok(Arc::new(Self {
            channel: EngineChannel::new(&options.engine_url)?,
            egress: Egress::new(&options.egress)?,
            rates: Rates::new(options.rate_per_second, options.rate_burst),
            keys: Keys::new(),
            documents: Rates::of(DOCUMENTS.0, DOCUMENTS.1),
            in_flight: Places::new("requests under way", IN_FLIGHT_MAX),
            waits: Places::new("waiting calls", WAITS_MAX),
            streams: Places::new("event streams", STREAMS_MAX),
            replays: Places::new("replays under way", REPLAYS_MAX),
            bodies: Places::new("KiB of bodies", BODIES_KIB_MAX),
            report_bodies: Places::new("KiB of reports", BODIES_KIB_MAX),
            tasks: TaskTracker::new(),
            stop,
            give_up: CancellationToken::new(),
            approved: Notify::new(),
            id,
            executors,
            answers: AtomicBool::new(false),
            trusted_forwarders: options.trusted_forwarders.clone(),
        }))
    }

    /// Our number, if the journal hears that this proxy runs. Only then may it count a session as
    /// one that waits for proxies.
    pub(crate) fn via(&self) -> Option<Uuid> {
        (!self.executors.is_empty()).then_some(self.id)
    }

    /// Who asked, as far as it can be believed.
    pub(crate) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let named = headers.get_all("x-forwarded-for").iter();
        let named: Vec<&str> = named.map(|value| value.to_str().unwrap_or("?")).collect();
        self.trusted_forwarders.client(peer, &named.join(","))
    }

    /// Whether the engine answered a short while ago.
    pub(crate) fn is_ready(&self) -> bool {
        self.answers.load(Ordering::Relaxed) && !self.stop.is_cancelled()
    }
}
