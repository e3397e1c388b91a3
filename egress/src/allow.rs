//! What an operator allows beyond public addresses: networks, and single services by host and port.

use std::{net::IpAddr, str::FromStr};

use undolog_core::networks::Network;

use super::address::canonical;

/// One entry of `--allow-egress`: what may be reached, by whom.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Allowed {
    /// The slug of the only organisation that the entry is for; `None`: it is for all of them.
    pub org: Option<String>,
    /// What may be reached.
    pub target: Target,
}

/// What an entry allows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Target {
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

/// A text that is neither a network nor `host:port`, with or without an organisation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} must be a network (10.0.0.0/8) or a service (host:port), with `<organisation>=` before \
     it if it is for one organisation only"
)]
pub struct AllowedError(String);

impl FromStr for Allowed {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || AllowedError(text.to_owned());
        let Some((org, rest)) = text.split_once('=') else {
            return Ok(Self { org: None, target: target(text).ok_or_else(wrong)? });
        };
        let org = org.trim();
        let is_slug =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        if org.is_empty() || !org.chars().all(is_slug) {
            return Err(wrong());
        }
        Ok(Self { org: Some(org.to_owned()), target: target(rest).ok_or_else(wrong)? })
    }
}

fn target(text: &str) -> Option<Target> {
    let text = text.trim();
    if let Ok(network) = text.parse() {
        return Some(Target::Net(network));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (!host.is_empty() && host.chars().all(plain)).then_some(Target::Service { host, port })
}

/// What one organisation may reach beyond public addresses.
#[derive(Debug, Clone, Default)]
pub struct AllowList(Vec<Target>);

impl AllowList {
    /// What of these entries is for an organisation; `None`: for one that no entry names.
    pub(crate) fn of(org: Option<&str>, entries: &[Allowed]) -> Self {
        let is_for = |entry: &&Allowed| entry.org.is_none() || entry.org.as_deref() == org;
        Self(entries.iter().filter(is_for).map(|entry| entry.target.clone()).collect())
    }

    /// Loopback only: what `undolog dev`, `undolog demo` and tests add.
    #[must_use]
    pub fn loopback() -> Vec<Allowed> {
        let entry = |network| Allowed { org: None, target: Target::Net(network) };
        Network::LOOPBACK.map(entry).to_vec()
    }

    /// Whether an address lies in an allowed network.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        self.0.iter().any(|target| match target {
            Target::Net(network) => network.contains(address),
            Target::Service { .. } => false,
        })
    }

    /// Whether this very service is listed.
    pub(crate) fn has_service(&self, host: &str, port: u16) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.0.iter().any(|target| match target {
            Target::Service { host: h, port: p } => *p == port && h.eq_ignore_ascii_case(host),
            Target::Net(_) => false,
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
            let entries: Vec<Allowed> =
                texts.iter().map(|text| text.parse().expect("an entry")).collect();
            AllowList::of(None, &entries)
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
    fn an_entry_can_be_for_one_organisation() {
        let entries = ["10.1.0.0/16", "acme=10.2.0.0/16", "acme=billing.internal:8080"];
        let entries = entries.map(|text| text.parse::<Allowed>().expect("an entry"));
        let in_second = "10.2.0.1".parse().expect("an address");
        for (org, has) in [(Some("acme"), true), (Some("other"), false), (None, false)] {
            let list = AllowList::of(org, &entries);
            assert_eq!(list.has_address(in_second), has, "{org:?}");
            assert_eq!(list.has_service("billing.internal", 8080), has, "{org:?}");
            assert!(list.has_address("10.1.0.1".parse().expect("an address")), "{org:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "=10.0.0.0/8",
            "acme=",
            "Acme=10.0.0.0/8",
            "a=b=10.0.0.0/8",
            "",
            "host",
            "10.0.0.0/33",
            "fd00::/129",
            "host:99999",
            "a b:80",
            "x/8",
        ] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }
}
