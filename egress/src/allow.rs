//! What an operator allows beyond public addresses: networks, and single services by host and port.

use std::{net::IpAddr, str::FromStr};

use undolog_core::networks::Network;

use super::address::canonical;

/// One entry of `--allow-egress`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Allowed {
    /// Every address of a network: `10.1.0.0/16`, `fd00::/8`, `127.0.0.1`.
    Net(Network),
    /// One service, at whatever address its name resolves to: `billing.internal:8080`.
    Service {
        /// Host as URLs name it, in lower case; an IPv6 literal without its brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// A text that is neither a network nor `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a network (10.0.0.0/8) nor a service (host:port)")]
pub struct AllowedError(String);

impl FromStr for Allowed {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || AllowedError(text.to_owned());
        let text_trimmed = text.trim();
        if let Ok(network) = text_trimmed.parse() {
            return Ok(Self::Net(network));
        }
        let (host, port) = text_trimmed.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Self::Service { host, port })
    }
}

/// All entries together.
#[derive(Debug, Clone, Default)]
pub struct AllowList(Vec<Allowed>);

impl AllowList {
    /// A list of these entries.
    #[must_use]
    pub const fn new(entries: Vec<Allowed>) -> Self {
        Self(entries)
    }

    /// Loopback only: what `undolog dev`, `undolog demo` and tests add.
    #[must_use]
    pub fn loopback() -> Vec<Allowed> {
        Network::LOOPBACK.map(Allowed::Net).to_vec()
    }

    /// Whether an address lies in an allowed network.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        self.0.iter().any(|entry| match entry {
            Allowed::Net(network) => network.contains(address),
            Allowed::Service { .. } => false,
        })
    }

    /// Whether this very service is listed.
    pub(crate) fn has_service(&self, host: &str, port: u16) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.0.iter().any(|entry| match entry {
            Allowed::Service { host: h, port: p } => *p == port && h.eq_ignore_ascii_case(host),
            Allowed::Net(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn entries_are_networks_or_services() {
        let list = |texts: &[&str]| {
            AllowList::new(texts.iter().map(|t| t.parse().expect("an entry")).collect())
        };
        let nets = list(&["10.1.0.0/16", "fd00::/8", "127.0.0.1"]);
        for (text, inside) in [
            ("10.1.2.3", true),
            ("10.2.0.0", false),
            ("::ffff:10.1.0.9", true),
            ("fd01::1", true),
            ("fc00::1", false),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
        ] {
            assert_eq!(nets.has_address(text.parse().expect(text)), inside, "{text}");
        }
        assert!(list(&["0.0.0.0/0"]).has_address(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1))));
        let services = list(&["Billing.internal:8080", "[::1]:9000"]);
        assert!(services.has_service("billing.internal", 8080));
        assert!(!services.has_service("billing.internal", 8081));
        assert!(services.has_service("[::1]", 9000));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "host", "10.0.0.0/33", "fd00::/129", "host:99999", "a b:80", "x/8"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }
}
