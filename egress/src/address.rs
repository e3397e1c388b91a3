//! Which addresses no compensation may reach, whatever its URL says: everything that is not a
//! public unicast address of the internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 ranges that are not public: first address, prefix length, what it is.
const V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// IPv6 ranges that are not public, by name. What lies outside of 2000::/3 is refused anyway.
const V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 128, "unspecified"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 1), 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, "IPv4-compatible"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "NAT64"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard-only"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "Teredo"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "benchmarking"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignments"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "SRv6"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "unique local"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// An IPv4-mapped IPv6 address reaches the IPv4 host, so it is judged as that one.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Why an address must not be called; `None` for a public one.
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match canonical(address) {
        IpAddr::V4(v4) => V4
            .iter()
            .find(|(net, prefix, _)| (net.to_bits() ^ v4.to_bits()) >> (32 - prefix) == 0)
            .map(|&(_, _, what)| what),
        IpAddr::V6(v6) => {
            let named = V6
                .iter()
                .find(|(net, prefix, _)| (net.to_bits() ^ v6.to_bits()) >> (128 - prefix) == 0);
            let global_unicast = v6.segments()[0] >> 13 == 1;
            match named {
                Some(&(_, _, what)) => Some(what),
                None if global_unicast => None,
                None => Some("not global unicast"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address, expected refusal.
    const TABLE: &[(&str, Option<&str>)] = &[
        ("0.0.0.0", Some("this network")),
        ("0.1.2.3", Some("this network")),
        ("9.255.255.255", None),
        ("10.0.0.1", Some("private")),
        ("11.0.0.0", None),
        ("100.63.255.255", None),
        ("100.64.0.1", Some("carrier-grade NAT")),
        ("100.127.255.255", Some("carrier-grade NAT")),
        ("100.128.0.0", None),
        ("127.0.0.1", Some("loopback")),
        ("127.255.255.254", Some("loopback")),
        ("169.254.169.254", Some("link-local")),
        ("172.15.255.255", None),
        ("172.16.0.1", Some("private")),
        ("172.31.255.255", Some("private")),
        ("172.32.0.0", None),
        ("192.0.0.8", Some("protocol assignments")),
        ("192.0.2.1", Some("documentation")),
        ("192.88.99.1", Some("6to4 relay")),
        ("192.168.1.1", Some("private")),
        ("198.18.0.1", Some("benchmarking")),
        ("198.19.255.255", Some("benchmarking")),
        ("198.20.0.0", None),
        ("198.51.100.7", Some("documentation")),
        ("203.0.113.7", Some("documentation")),
        ("224.0.0.1", Some("multicast")),
        ("239.255.255.255", Some("multicast")),
        ("240.0.0.1", Some("reserved")),
        ("255.255.255.255", Some("reserved")),
        ("8.8.8.8", None),
        ("1.1.1.1", None),
        ("::", Some("unspecified")),
        ("::1", Some("loopback")),
        ("::127.0.0.1", Some("IPv4-compatible")),
        ("::8.8.8.8", Some("IPv4-compatible")),
        ("::ffff:127.0.0.1", Some("loopback")),
        ("::ffff:169.254.169.254", Some("link-local")),
        ("::ffff:100.64.0.1", Some("carrier-grade NAT")),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::7f00:1", Some("NAT64")),
        ("64:ff9b:1::1", Some("NAT64")),
        ("100::1", Some("discard-only")),
        ("2001::1", Some("Teredo")),
        ("2001:2::1", Some("benchmarking")),
        ("2001:20::1", Some("protocol assignments")),
        ("2001:db8::1", Some("documentation")),
        ("2002:7f00:1::", Some("6to4")),
        ("3fff:fff::1", Some("documentation")),
        ("5f00::1", Some("SRv6")),
        ("fc00::1", Some("unique local")),
        ("fd12:3456::1", Some("unique local")),
        ("fe80::1", Some("link-local")),
        ("fec0::1", Some("site-local")),
        ("ff02::1", Some("multicast")),
        ("4000::1", Some("not global unicast")),
        ("1::1", Some("not global unicast")),
        ("2606:4700:4700::1111", None),
        ("2a00:1450:4001::1", None),
    ];

    #[test]
    fn only_public_addresses_pass() {
        for (text, expected) in TABLE {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(refusal(address), *expected, "{text}");
        }
    }
}
