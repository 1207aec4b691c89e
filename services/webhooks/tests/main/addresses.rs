//! The address filter: examples of each block, and properties over random addresses.
//!
//! The properties compare the filter with classifications that do not share code with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tideline_webhooks::AddressFilter;
use tideline_webhooks::address::is_public;

/// Metadata services of clouds, which no listed network allows.
const METADATA: [&str; 6] = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
];

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn addresses_of_special_blocks_are_refused_and_their_neighbors_allowed() {
    for (refused, neighbors) in [
        (&["0.0.0.0", "0.255.255.255"][..], &["1.0.0.0"][..]),
        (&["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0"]),
        (
            &["100.64.0.0", "100.127.255.255"],
            &["100.63.255.255", "100.128.0.0"],
        ),
        (
            &["127.0.0.1", "127.255.255.255"],
            &["126.255.255.255", "128.0.0.0"],
        ),
        (
            &["169.254.0.0", "169.254.169.254"],
            &["169.253.255.255", "169.255.0.0"],
        ),
        (
            &["172.16.0.0", "172.31.255.255"],
            &["172.15.255.255", "172.32.0.0"],
        ),
        (
            &["192.0.0.0", "192.0.0.255", "192.0.2.7"],
            &["192.0.1.0", "192.0.3.0"],
        ),
        (&["192.88.99.1"], &["192.88.98.1", "192.88.100.1"]),
        (
            &["192.168.0.0", "192.168.255.255"],
            &["192.167.255.255", "192.169.0.0"],
        ),
        (
            &["198.18.0.0", "198.19.255.255"],
            &["198.17.255.255", "198.20.0.0"],
        ),
        (&["198.51.100.1", "203.0.113.1"], &["198.51.101.1", "203.0.112.1"]),
        (&["224.0.0.1", "239.255.255.255"], &["223.255.255.255"]),
        (&["240.0.0.0", "255.255.255.255"], &[]),
        (&["168.63.129.16"], &["168.63.129.15", "168.63.129.17"]),
        (&["::", "::1", "::8.8.8.8", "::ffff:0:8.8.8.8"], &[]),
        (
            &["::ffff:10.0.0.1", "::ffff:169.254.169.254"],
            &["::ffff:8.8.8.8"],
        ),
        (
            &["64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1"],
            &["64:ff9b::8.8.8.8"],
        ),
        (&["64:ff9b:1::8.8.8.8", "100::1", "5f00::1"], &[]),
        (&["1fff::1", "4000::1"], &["2600::1", "3ffd::1", "2a00::1"]),
        (&["2001::1", "2001:1ff::1"], &["2001:200::1", "2000::1"]),
        (
            &["2001:db8::1", "3fff::1", "3fff:fff::1"],
            &["2001:db9::1", "3fff:1000::1"],
        ),
        (&["2002:a00:1::", "2002:808:808::"], &["2003::1"]),
        (&["fc00::1", "fdff::1", "fd00:ec2::254"], &[]),
        (&["fe80::1", "fec0::1", "ff02::1"], &[]),
    ] {
        for text in refused {
            assert!(!is_public(address(text)), "{text} is refused");
        }
        for text in neighbors {
            assert!(is_public(address(text)), "{text} is allowed");
        }
    }
}

#[test]
fn listed_networks_are_allowed_except_for_metadata_services() {
    let listed = ["10.1.0.0/16", "169.254.0.0/16", "fd00::/8", "64:ff9b::/96"];
    let filter = AddressFilter::new(listed.map(|text| text.parse().expect("a network")).to_vec());
    for text in [
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "169.254.0.1",
        "fd00::1",
        "64:ff9b::10.2.0.1",
        "8.8.8.8",
    ] {
        assert!(filter.allows(address(text)), "{text}");
    }
    for text in [
        "10.2.0.1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
    ] {
        assert!(!filter.allows(address(text)), "{text}");
    }
    assert!(!filter.allows(address("64:ff9b::169.254.169.254")));
    let everything = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
    let filter = AddressFilter::new(everything.to_vec());
    for text in METADATA {
        assert!(!filter.allows(address(text)), "{text}");
    }
    let filter = AddressFilter::new(vec!["10.1.0.0/16".parse().expect("a network")]);
    assert!(
        !filter.lists(address("8.8.8.8")),
        "a public address is not a listed one"
    );
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(4000))]

    #[test]
    fn no_ipv4_address_that_the_standard_library_calls_special_is_public(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        let is_special = v4.is_private()
            || v4.is_loopback()
            || v4.is_link_local()
            || v4.is_multicast()
            || v4.is_broadcast()
            || v4.is_unspecified()
            || v4.is_documentation();
        prop_assert!(!(is_special && is_public(v4.into())), "{v4}");
    }

    #[test]
    fn all_ipv6_forms_of_an_ipv4_address_are_as_strict_as_the_address(special in special_v4()) {
        let [a, b, c, d] = special.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let forms = [
            special.to_ipv6_mapped(),
            special.to_ipv6_compatible(),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            // Teredo: the server, and the client with inverted bits.
            Ipv6Addr::new(0x2001, 0, high, low, 0, 0, 0, 0),
            Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
        ];
        prop_assert!(!is_public(special.into()));
        let filter = AddressFilter::default();
        for form in forms {
            prop_assert!(!filter.allows(form.into()), "{form}");
        }
    }

    #[test]
    fn ipv6_addresses_outside_of_global_unicast_are_not_public(bits: u128) {
        let v6 = Ipv6Addr::from_bits(bits);
        let is_global_unicast = bits >> 125 == 1;
        let has_ipv4 = v6.to_ipv4_mapped().is_some() || bits >> 32 == 0x0064_ff9b_u128 << 64;
        prop_assert!(is_global_unicast || has_ipv4 || !is_public(v6.into()), "{v6}");
    }

    #[test]
    fn a_listed_network_adds_exactly_its_addresses(random: u32, base: u32, length in 1_u32..=32) {
        let network = format!("{}/{length}", Ipv4Addr::from_bits(base)).parse().expect("a network");
        let filter = AddressFilter::new(vec![network]);
        let mask = u32::MAX << (32 - length);
        for bits in [random, (base & mask) | (random & !mask)] {
            let v4 = Ipv4Addr::from_bits(bits);
            let is_listed = bits & mask == base & mask && !METADATA.contains(&v4.to_string().as_str());
            prop_assert_eq!(filter.lists(v4.into()), is_listed);
            prop_assert_eq!(filter.allows(v4.into()), is_listed || is_public(v4.into()));
        }
    }
}

/// Returns addresses of the blocks that are never public.
fn special_v4() -> impl Strategy<Value = Ipv4Addr> {
    let blocks = prop_oneof![
        Just((0x0000_0000, 8)),
        Just((0x0a00_0000, 8)),
        Just((0x6440_0000, 10)),
        Just((0x7f00_0000, 8)),
        Just((0xa9fe_0000, 16)),
        Just((0xac10_0000, 12)),
        Just((0xc0a8_0000, 16)),
        Just((0xc612_0000, 15)),
        Just((0xe000_0000, 3)),
    ];
    (blocks, any::<u32>())
        .prop_map(|((block, bits), random)| Ipv4Addr::from_bits(block | (random & (u32::MAX >> bits))))
}
