//! The resolver of outgoing calls: names are resolved here, every address is judged here, and only
//! those that pass are handed to the connector. So the address that was checked is the one that is
//! called, and a name that changes its mind between check and call gains nothing.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::guard;
use super::{
    address::refusal,
    allow::AllowList,
    error::{DnsFailed, Refused},
};

/// Which addresses a client may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Public ones, and those of allowed networks.
    Public,
    /// Those of allowed networks only: plain HTTP, and ports other than 443.
    AllowedNets,
    /// Any: the service itself is listed.
    Listed,
}

impl Reach {
    /// Judges one address.
    pub(crate) fn check(self, address: IpAddr, allow: &AllowList) -> Result<(), Refused> {
        if self == Self::Listed || allow.has_address(address) || !guard("egress.address") {
            return Ok(());
        }
        match (self, refusal(address)) {
            (_, Some(what)) => Err(Refused::Address { address, what }),
            (Self::AllowedNets, None) => Err(Refused::NotListed),
            (Self::Public | Self::Listed, None) => Ok(()),
        }
    }
}

/// Where names are looked up.
#[derive(Debug, Clone)]
pub(crate) enum Names {
    /// As the machine does it.
    System,
    /// Every name has these addresses.
    #[cfg(test)]
    Fixed(Vec<IpAddr>),
}

impl Names {
    async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, DnsFailed> {
        match self {
            Self::System => {
                Ok(tokio::net::lookup_host((name, 0)).await.map_err(DnsFailed)?.collect())
            }
            #[cfg(test)]
            Self::Fixed(addresses) => {
                Ok(addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect())
            }
        }
    }
}

/// The resolver of one client.
#[derive(Debug, Clone)]
pub(crate) struct Resolver {
    pub(crate) reach: Reach,
    pub(crate) allow: Arc<AllowList>,
    pub(crate) names: Names,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found = this.names.look_up(name.as_str()).await?;
            let passed = this.passed(&found)?;
            Ok(Box::new(passed.into_iter()) as Addrs)
        })
    }
}

impl Resolver {
    /// The addresses that may be called, or why none may.
    fn passed(&self, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Refused> {
        let mut passed = Vec::with_capacity(found.len());
        let mut refused = Refused::NoAddress;
        for address in found {
            match self.reach.check(address.ip(), &self.allow) {
                Ok(()) => passed.push(*address),
                Err(why) => refused = why,
            }
        }
        if passed.is_empty() { Err(refused) } else { Ok(passed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Allowed;

    fn resolver(reach: Reach, allowed: &[&str]) -> Resolver {
        let entries: Vec<Allowed> = allowed.iter().map(|t| t.parse().expect("an entry")).collect();
        Resolver { reach, allow: Arc::new(AllowList::of(None, &entries)), names: Names::System }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|t| SocketAddr::new(t.parse().expect("an address"), 0)).collect()
    }

    #[test]
    fn each_address_of_a_name_is_judged() {
        let found = addresses(&["8.8.8.8", "127.0.0.1", "::1"]);
        let public = resolver(Reach::Public, &[]);
        assert_eq!(public.passed(&found), Ok(addresses(&["8.8.8.8"])));
        let loopback = public.passed(&addresses(&["::ffff:127.0.0.1"]));
        assert!(matches!(loopback, Err(Refused::Address { what: "loopback", .. })));
        let allowed = resolver(Reach::AllowedNets, &["127.0.0.0/8"]);
        assert_eq!(allowed.passed(&found), Ok(addresses(&["127.0.0.1"])));
        assert_eq!(allowed.passed(&addresses(&["8.8.8.8"])), Err(Refused::NotListed));
        assert_eq!(resolver(Reach::Listed, &[]).passed(&found), Ok(found));
        assert_eq!(public.passed(&[]), Err(Refused::NoAddress));
    }
}
