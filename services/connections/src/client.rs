//! Client of a request: the address of the connection, the user of a local process, or the address named by a trusted
//! proxy.
//!
//! Behind a proxy all connections have the proxy's address. If `http.trusted_proxies` contains that address, the client
//! is read from the header `Forwarded` (RFC 7239) or `X-Forwarded-For`; if both are present, they must name the same
//! client. The list in the header is read from its end: entries that are trusted proxies are skipped, and the first
//! other address is the client. For connections from other addresses these headers are ignored, because any client can
//! send them. The entry `unix` in the setting means all processes that connect by the Unix socket.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::{Extensions, HeaderMap, HeaderName, header};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Number of leading bits of an IPv6 address that identify the network of a client. A host chooses the other bits
/// freely.
const IPV6_CLIENT_BITS: u8 = 64;

/// Client to which fair shares apply: an IPv4 address, a /64 IPv6 network, a user of this machine, or a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Peer(Peer<IpAddr>),
    Tenant(u32),
}

/// Other end of a connection. `A` is the address of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer<A = SocketAddr> {
    /// Address of a TCP connection.
    Address(A),
    /// User id of a process that connected by the Unix socket.
    User(u32),
}

impl Client {
    /// Client of requests without a known address.
    pub const UNKNOWN: Self = Self(Kind::Peer(Peer::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED))));

    /// Returns the client of all requests that act for the tenant with this number.
    pub fn of_tenant(number: u32) -> Self {
        Self(Kind::Tenant(number))
    }

    pub(crate) fn is_tenant(&self) -> bool {
        matches!(self.0, Kind::Tenant(_))
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        Self(Kind::Peer(Peer::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(masked_v6(address, IPV6_CLIENT_BITS)),
            v4 => v4,
        })))
    }
}

impl From<Peer> for Client {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Address(address) => Self::from(address.ip()),
            Peer::User(user) => Self(Kind::Peer(Peer::User(user))),
        }
    }
}

/// Hashes the address as one number, because every request hashes its client several times.
impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Kind::Peer(Peer::Address(IpAddr::V4(address))) => state.write_u32(address.to_bits()),
            Kind::Peer(Peer::Address(IpAddr::V6(address))) => state.write_u128(address.to_bits()),
            Kind::Peer(Peer::User(number)) | Kind::Tenant(number) => state.write_u64(number.into()),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Peer(Peer::Address(IpAddr::V6(address))) => write!(f, "{address}/{IPV6_CLIENT_BITS}"),
            Kind::Peer(peer) => peer.fmt(f),
            Kind::Tenant(_) => f.write_str("the tenant of the request"),
        }
    }
}

/// Formats the address, or `unix:` and the user id.
impl<A: fmt::Display> fmt::Display for Peer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(user) => write!(f, "unix:{user}"),
        }
    }
}

/// Origin of a request, stored as a request extension.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Other end of the connection.
    peer: Peer,
    /// Client named by a trusted proxy.
    forwarded: Option<IpAddr>,
}

impl Origin {
    /// Determines the origin of a request received from `peer`. `proxies` lists the trusted proxies.
    pub fn find(peer: Peer, headers: &HeaderMap, proxies: &[TrustedProxy]) -> Self {
        let is_trusted = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
        let is_proxy = match peer {
            Peer::Address(address) => is_trusted(address.ip()),
            Peer::User(_) => proxies.contains(&TrustedProxy::UnixSocket),
        };
        let forwarded = is_proxy.then(|| forwarded_client(headers, &is_trusted));
        Self {
            peer,
            forwarded: forwarded.flatten(),
        }
    }

    /// Returns the origin of a request, or `None` if no origin was stored with it.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// Returns the client to which fair shares apply.
    pub fn client(&self) -> Client {
        self.forwarded
            .map_or_else(|| Client::from(self.peer), Client::from)
    }

    /// Returns the other end of the connection.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the client that a trusted proxy named.
    pub fn forwarded(&self) -> Option<IpAddr> {
        self.forwarded
    }

    /// Returns the proxy, if a trusted proxy named the client.
    pub fn proxy(&self) -> Option<Peer> {
        self.forwarded.map(|_| self.peer)
    }
}

/// Formats the origin for logs: the client's address if a trusted proxy named it, otherwise address and port of
/// the connection.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.forwarded {
            Some(client) => client.fmt(f),
            None => self.peer.fmt(f),
        }
    }
}

/// Reads the client from the headers of a trusted proxy.
///
/// Returns `None` if they contain no client, or if `Forwarded` and `X-Forwarded-For` disagree: the client can
/// forge the header that the proxy does not write.
fn forwarded_client(headers: &HeaderMap, is_trusted: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let forwarded = list(headers, &header::FORWARDED);
    let forwarded = forwarded.map(|text| nearest(split(&text, ',').map(forwarded_for), is_trusted));
    let x_forwarded = list(headers, &X_FORWARDED_FOR);
    let x_forwarded = x_forwarded.map(|text| nearest(split(&text, ',').map(node), is_trusted));
    match (forwarded, x_forwarded) {
        (Some(one), Some(other)) => one.filter(|_| one == other),
        (one, other) => one.or(other).flatten(),
    }
}

/// Joins all lines of a header into one list; `None` if the list is empty.
fn list(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines = headers
        .get_all(name)
        .iter()
        .map(|line| line.to_str().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join(",");
    (!text.is_empty()).then_some(text)
}

/// Reads the entries from the end and returns the first address that is not a trusted proxy. Returns the first
/// entry of the list if all entries are trusted proxies. Returns `None` for an empty list, or if an entry that
/// is read is not an address.
fn nearest(
    entries: impl DoubleEndedIterator<Item = Option<IpAddr>>,
    is_trusted: &dyn Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut last = None;
    for entry in entries.rev() {
        last = Some(entry?.to_canonical());
        if !last.is_some_and(is_trusted) {
            break;
        }
    }
    last
}

/// Splits at a separator outside of quotes, and trims the parts.
fn split(text: &str, separator: char) -> std::vec::IntoIter<&str> {
    let mut quoted = false;
    let parts = text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    });
    parts.map(str::trim).collect::<Vec<_>>().into_iter()
}

/// Returns the address of parameter `for` in an element of `Forwarded`; `None` if it is missing or not an address.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    split(element, ';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let is_for = name.trim().eq_ignore_ascii_case("for");
        is_for.then(|| node(value.trim().trim_matches('"'))).flatten()
    })
}

/// Parses an address with an optional port. Returns `None` for other texts, such as `unknown` and obfuscated names.
fn node(text: &str) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    parsed.or_else(with_port).or_else(in_brackets)
}

/// Proxies whose headers about the client are trusted: a network, or `unix` for the processes that connect by the Unix
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustedProxy {
    /// Proxies with an address in this network.
    Network(Network),
    /// Processes that connect by the Unix socket.
    UnixSocket,
}

impl TrustedProxy {
    const UNIX: &str = "unix";

    fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Network(network) => network.contains(address),
            Self::UnixSocket => false,
        }
    }
}

impl FromStr for TrustedProxy {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        match text {
            Self::UNIX => Ok(Self::UnixSocket),
            _ => text.parse().map(Self::Network),
        }
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::UnixSocket => f.write_str(Self::UNIX),
        }
    }
}

/// IP network such as `10.0.0.0/8` or `fd00::/8`. A single address is a network of one address.
///
/// # Examples
///
/// ```
/// use tideline_connections::Network;
///
/// let network: Network = "10.0.0.7/8".parse()?;
/// assert_eq!(network.to_string(), "10.0.0.0/8");
/// assert!(network.contains("10.1.2.3".parse()?));
/// assert!(network.contains("::ffff:10.1.2.3".parse()?), "a mapped IPv4 address");
/// assert!("10.0.0.0/33".parse::<Network>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Error of a text that is not an address or network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address or network, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8")]
pub struct NotANetwork(String);

impl Network {
    /// Returns true if the network contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => masked_v4(address, self.bits) == network,
            (IpAddr::V6(network), IpAddr::V6(address)) => masked_v6(address, self.bits) == network,
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let error = || NotANetwork(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| error()))?;
        if bits > bits_max {
            return Err(error());
        }
        let address = match address {
            IpAddr::V4(address) => IpAddr::V4(masked_v4(address, bits)),
            IpAddr::V6(address) => IpAddr::V6(masked_v6(address, bits)),
        };
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits_max = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == bits_max {
            return self.address.fmt(f);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn masked_v4(address: Ipv4Addr, bits: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn masked_v6(address: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(peer: &str, headers: &[(&'static str, &str)]) -> String {
        let proxies = ["10.0.0.0/8", "fd00::1"].map(|proxy| proxy.parse().expect("a proxy"));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        let peer = SocketAddr::new(peer.parse().expect("an address"), 7);
        Origin::find(Peer::Address(peer), &map, &proxies)
            .client()
            .to_string()
    }

    #[test]
    fn a_forwarded_client_counts_only_behind_a_trusted_proxy() {
        const FORWARDED: &str = "forwarded";
        const X_FORWARDED: &str = "x-forwarded-for";
        for (peer, headers, client) in [
            ("10.0.0.1", &[][..], "10.0.0.1"),
            ("::ffff:10.0.0.1", &[(FORWARDED, "for=192.0.2.1")], "192.0.2.1"),
            ("10.0.0.1", &[(FORWARDED, "for=192.0.2.1")], "192.0.2.1"),
            ("192.0.2.9", &[(FORWARDED, "for=192.0.2.1")], "192.0.2.9"),
            ("192.0.2.9", &[(X_FORWARDED, "192.0.2.1")], "192.0.2.9"),
            ("10.0.0.1", &[(X_FORWARDED, "192.0.2.1, 10.3.3.3")], "192.0.2.1"),
            // Entries sent by the client are left of the entry that the proxy has appended.
            ("10.0.0.1", &[(X_FORWARDED, "1.1.1.1, 192.0.2.1")], "192.0.2.1"),
            (
                "10.0.0.1",
                &[(FORWARDED, "for=1.1.1.1"), (FORWARDED, "for=192.0.2.1")],
                "192.0.2.1",
            ),
            (
                "fd00::1",
                &[(FORWARDED, "proto=http;For=\"[2001:db8:1:2:3::4]:80\"")],
                "2001:db8:1:2::/64",
            ),
            (
                "10.0.0.1",
                &[(FORWARDED, "for=192.0.2.1;by=\"a,b;c\", for=10.9.9.9")],
                "192.0.2.1",
            ),
            ("10.0.0.1", &[(FORWARDED, "for=unknown")], "10.0.0.1"),
            (
                "10.0.0.1",
                &[(FORWARDED, "for=192.0.2.1, for=_hidden")],
                "10.0.0.1",
            ),
            // One of the two headers was sent by the client.
            (
                "10.0.0.1",
                &[(FORWARDED, "for=1.1.1.1"), (X_FORWARDED, "192.0.2.1")],
                "10.0.0.1",
            ),
            (
                "10.0.0.1",
                &[(FORWARDED, "for=192.0.2.1"), (X_FORWARDED, "192.0.2.1")],
                "192.0.2.1",
            ),
        ] {
            assert_eq!(shown(peer, headers), client, "{peer} {headers:?}");
        }
    }

    #[test]
    fn a_process_on_the_unix_socket_is_a_proxy_only_if_the_list_says_so() {
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", "1.1.1.1, 10.0.0.9".parse().expect("a value"));
        let peer = Peer::User(33);
        for (proxies, client, proxy) in [
            (&["10.0.0.0/8"][..], "unix:33", None),
            (&["unix"], "10.0.0.9", Some(peer)),
            (&["unix", "10.0.0.0/8"], "1.1.1.1", Some(peer)),
        ] {
            let proxies = proxies
                .iter()
                .map(|proxy| proxy.parse::<TrustedProxy>().expect("a proxy"));
            let proxies = proxies.collect::<Vec<_>>();
            let origin = Origin::find(peer, &headers, &proxies);
            assert_eq!(
                (origin.client().to_string().as_str(), origin.proxy()),
                (client, proxy)
            );
            assert_eq!(origin.to_string(), client);
        }
        assert_eq!(TrustedProxy::UnixSocket.to_string(), "unix");
    }

    #[test]
    fn networks_are_read_and_contain_their_addresses() {
        for (text, shown, inside, outside) in [
            ("10.1.2.3/8", "10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::5/8", "fd00::/8", "fdff::1", "fe00::1"),
        ] {
            let network: Network = text.parse().expect("a network");
            assert_eq!(network.to_string(), shown);
            assert!(network.contains(inside.parse().expect("an address")), "{text}");
            assert!(!network.contains(outside.parse().expect("an address")), "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "host", "::/129", "10.0.0.1/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
