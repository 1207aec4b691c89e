//! Filter of IP addresses: public addresses, and the networks that the operator lists.
//!
//! IPv4 addresses are public unless they belong to a block of the IANA registry of special-purpose addresses that is
//! not globally reachable. IPv6 addresses are public only inside 2000::/3, without the special-purpose blocks there.
//! An IPv6 address that contains an IPv4 address is judged by the IPv4 address (mapped, NAT64) or refused
//! (compatible, translated, 6to4, Teredo), because a gateway could deliver it to an internal IPv4 host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Network;

/// IPv4 blocks that are not public, with their number of leading bits.
const RESERVED_V4: [(Ipv4Addr, u32); 16] = [
    // "This network"; Linux connects 0.0.0.0 to itself.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // Private.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Carrier-grade NAT.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with most metadata services of clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Private.
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // Protocol assignments.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Documentation.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // Former relays of 6to4.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    // Private.
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Benchmarks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Documentation.
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved, and broadcast.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // Platform services of Azure, on a public address.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// Global unicast addresses of IPv6.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// IPv6 blocks inside [`GLOBAL_V6`] that are not public.
const RESERVED_V6: [(Ipv6Addr, u32); 5] = [
    // Protocol assignments: Teredo, benchmarks, ORCHID.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    // 6to4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    // Former 6bone.
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Prefix of NAT64 (RFC 6052). The last 32 bits are an IPv4 address.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Metadata and credential services of clouds. They are refused even inside a listed network, because they return
/// credentials of the machine to every request.
const METADATA: [IpAddr; 9] = [
    // Most clouds.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // AWS: containers and pods.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    // Alibaba Cloud.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle Cloud.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS: machines and pods.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // Google Cloud.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Decides which addresses the server may connect to.
///
/// # Examples
///
/// ```
/// use tideline_webhooks::AddressFilter;
///
/// let filter = AddressFilter::new(vec!["10.1.0.0/16".parse()?]);
/// assert!(filter.allows("8.8.8.8".parse()?));
/// assert!(filter.allows("10.1.2.3".parse()?));
/// assert!(!filter.allows("10.2.2.3".parse()?));
/// assert!(!filter.allows("::ffff:127.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct AddressFilter {
    networks: Vec<Network>,
}

impl AddressFilter {
    /// Returns a filter that allows public addresses and those in `networks`.
    pub fn new(networks: Vec<Network>) -> Self {
        Self { networks }
    }

    /// Returns true if the address is public or in a listed network.
    pub fn allows(&self, address: IpAddr) -> bool {
        is_public(address) || self.lists(address)
    }

    /// Returns true if a listed network contains the address, and it is not a metadata service of a cloud.
    pub fn lists(&self, address: IpAddr) -> bool {
        !is_metadata(address) && self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns true if no network is listed.
    pub fn lists_nothing(&self) -> bool {
        self.networks.is_empty()
    }
}

/// Returns true if the address is public.
pub fn is_public(address: IpAddr) -> bool {
    match unwrapped(address) {
        IpAddr::V4(address) => !RESERVED_V4.iter().any(|block| is_in_v4(address, *block)),
        IpAddr::V6(address) => {
            is_in_v6(address, GLOBAL_V6) && !RESERVED_V6.iter().any(|block| is_in_v6(address, *block))
        }
    }
}

fn is_metadata(address: IpAddr) -> bool {
    METADATA.contains(&unwrapped(address))
}

/// Returns the IPv4 address inside a mapped or NAT64 address, and every other address unchanged.
fn unwrapped(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if is_in_v6(v6, NAT64) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        canonical => canonical,
    }
}

fn is_in_v4(address: Ipv4Addr, (block, bits): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits
}

fn is_in_v6(address: Ipv6Addr, (block, bits): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits
}
