//! How many connections there are, and of whom.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Resource, getrlimit};

use crate::counts::{count, less};

/// Connections of one listener.
const CONNECTIONS_MAX: usize = 8_192;
/// And at least so many, however few descriptors a process may have.
const CONNECTIONS_MIN: usize = 512;
/// The part of the process's file descriptors that one listener may use: the rest is for the
/// database, for calls to endpoints and for other listeners.
const OF_DESCRIPTORS: u64 = 2;
/// The part of all connections that one address may have. Many callers can stand behind one
/// address, such as that of a load balancer.
const OF_ADDRESS: usize = 2;

/// Counts the connections of one listener.
#[derive(Debug)]
pub struct Connections {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One counted connection. It is free again when this is dropped.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Default for Connections {
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / OF_DESCRIPTORS).unwrap_or(CONNECTIONS_MAX);
        Self::new(most.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX))
    }
}

impl Connections {
    /// At most so many, of one address half as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing that holds it can panic halfway through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection; `None`: there are too many, in total or from its address.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let address = address.to_canonical();
        let mut open = self.open();
        let of_address = count(&open.by_address, address);
        if open.all >= self.most || of_address >= (self.most / OF_ADDRESS).max(1) {
            return None;
        }
        open.all += 1;
        open.by_address.insert(address, of_address + 1);
        drop(open);
        Some(Connection { connections: Arc::clone(self), address })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.all -= 1;
        less(&mut open.by_address, self.address, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_can_have_all_connections() {
        let connections = Arc::new(Connections::new(4));
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let first = [1, 1].map(|n| connections.take(address(n)).expect("room"));
        assert!(connections.take(address(1)).is_none(), "an address has its share");
        let mapped = "::ffff:10.0.0.1".parse().expect("an address");
        assert!(connections.take(mapped).is_none(), "it is the same address");
        let others = [2, 3].map(|n| connections.take(address(n)).expect("room"));
        assert!(connections.take(address(4)).is_none(), "the listener is full");
        drop((first, others));
        let open = connections.open();
        assert!(open.all == 0 && open.by_address.is_empty());
    }
}
