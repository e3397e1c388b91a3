//! Networks that an operator names: whose word about addresses is believed, what may be reached.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// One network, such as `10.1.0.0/16`, `fd00::/8` or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// A text that names no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network, such as 10.0.0.0/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NetworkError(text.to_owned());
        let (first, prefix) = match text.trim().split_once('/') {
            Some((first, prefix)) => (first, Some(prefix)),
            None => (text.trim(), None),
        };
        let first: IpAddr = first.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
        if prefix <= bits { Ok(Self { first, prefix }) } else { Err(wrong()) }
    }
}

impl Network {
    /// This machine.
    pub const LOOPBACK: [Self; 2] = [
        Self { first: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
        Self { first: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
    ];

    /// Whether an address lies in it; an IPv4 address is not looked for behind an IPv6 one.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.checked_shr(32 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.checked_shr(128 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Networks together; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// These networks.
    #[must_use]
    pub const fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// This machine, for development.
    #[must_use]
    pub fn loopback() -> Self {
        Self(Network::LOOPBACK.to_vec())
    }

    /// Whether an address lies in one of them; an IPv4 address written as IPv6 is itself.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Who asked, as far as it can be believed: the sender of the connection, or whom senders that
    /// are believed name, from the last one back. `forwarded` is what `x-forwarded-for` says.
    #[must_use]
    pub fn client(&self, peer: IpAddr, forwarded: &str) -> IpAddr {
        let mut client = peer.to_canonical();
        for named in forwarded.rsplit(',') {
            if !self.contains(client) {
                break;
            }
            // Past what is no address nothing can be believed.
            let Ok(named) = named.trim().parse::<IpAddr>() else { break };
            client = named.to_canonical();
        }
        client
    }
}

/// Whose requests are counted together, of clients without a key: an address, of IPv6 the network
/// that one client is given.
#[must_use]
pub fn client_network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        Networks(texts.iter().map(|text| text.parse().expect("a network")).collect())
    }

    #[test]
    fn an_address_lies_in_a_network_or_not() {
        let named = networks(&["10.1.0.0/16", "192.0.2.7", "fd00::/8", "0.0.0.0/32"]);
        for inside in ["10.1.255.9", "192.0.2.7", "fd12::1", "::ffff:10.1.2.3", "0.0.0.0"] {
            assert!(named.contains(inside.parse().expect("an address")), "{inside}");
        }
        for outside in ["10.2.0.1", "192.0.2.8", "fe80::1", "::1", "255.255.255.255"] {
            assert!(!named.contains(outside.parse().expect("an address")), "{outside}");
        }
        assert!(networks(&["0.0.0.0/0"]).contains("8.8.8.8".parse().expect("an address")));
        assert!(Networks::loopback().contains("127.9.9.9".parse().expect("an address")));
        for bad in ["", "10.0.0.0/33", "::/129", "localhost", "10.0.0.0/", "1.2.3.4/-1"] {
            bad.parse::<Network>().expect_err(bad);
        }
    }

    #[test]
    fn only_believed_senders_name_their_clients() {
        let named = networks(&["10.0.0.0/8"]);
        let client = |peer: &str, forwarded: &str| {
            named.client(peer.parse().expect("an address"), forwarded).to_string()
        };
        assert_eq!(client("192.0.2.1", "198.51.100.7"), "192.0.2.1", "a stranger's word");
        assert_eq!(client("10.0.0.1", ""), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "198.51.100.7"), "198.51.100.7");
        assert_eq!(client("10.0.0.1", "203.0.113.5, 198.51.100.7, 10.0.0.9"), "198.51.100.7");
        assert_eq!(client("10.0.0.1", "203.0.113.5, unknown"), "10.0.0.1");
    }
}
