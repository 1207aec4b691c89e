//! Typed reference to one value of a [`Config`](super::Config), with its conversion from and to text.
//!
//! The variant determines how the text is parsed, validated and formatted.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tideline_engine::archive::{ArchiveError, TargetPrefix};
use tideline_engine::backend::Acknowledged;
use tideline_engine::model::time::{format_duration, parse_duration};
use tideline_http::{DeltaTemporality, Network, NotANetwork, TranslationStrategy, TrustedProxy};
use tracing_subscriber::EnvFilter;

use super::cluster::{StorageEngine, acknowledged_of_name};
use super::secret::Secret;
use super::tls::ClearText;

/// Mutable reference to a value.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    Address(&'a mut SocketAddr),
    Path(&'a mut PathBuf),
    /// Optional path; an empty text unsets it.
    OptionalPath(&'a mut Option<PathBuf>),
    Text(&'a mut String),
    /// Optional text; an empty text unsets it.
    OptionalText(&'a mut Option<String>),
    /// Optional host name or address with a port; an empty text unsets it.
    OptionalHostPort(&'a mut Option<String>),
    /// Host names and addresses, separated by commas; an empty text is an empty list.
    Hosts(&'a mut Vec<String>),
    /// Addresses and networks, separated by commas; an empty text is an empty list.
    Networks(&'a mut Vec<Network>),
    /// Addresses and networks of proxies, and `unix`, separated by commas; an empty text is an empty list.
    Proxies(&'a mut Vec<TrustedProxy>),
    /// Names, separated by commas; an empty text is an empty list.
    Names(&'a mut Vec<String>),
    /// Nodes of a cluster, with or without a port, separated by commas; an empty text is an empty list.
    Nodes(&'a mut Vec<String>),
    /// Archive addresses, separated by commas; an empty text is an empty list.
    Targets(&'a mut Vec<TargetPrefix>),
    Switch(&'a mut bool),
    /// Number of bytes.
    Bytes(&'a mut usize),
    /// Number of bytes, in 64 bits.
    Bytes64(&'a mut u64),
    Count(&'a mut usize),
    Count64(&'a mut u64),
    /// Optional number; an empty text unsets it.
    OptionalCount(&'a mut Option<usize>),
    /// Optional number of bytes; an empty text unsets it.
    OptionalBytes64(&'a mut Option<u64>),
    Duration(&'a mut Duration),
    Secret(&'a mut Option<Secret>),
    StorageEngine(&'a mut StorageEngine),
    /// Optional reason for clear text; an empty text unsets it.
    ClearText(&'a mut Option<ClearText>),
    Acknowledged(&'a mut Acknowledged),
    LogFormat(&'a mut LogFormat),
    LogFilter(&'a mut String),
    TranslationStrategy(&'a mut TranslationStrategy),
    DeltaTemporality(&'a mut DeltaTemporality),
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Accepted range: bytes, counts or milliseconds, depending on the slot.
pub(crate) type Range = RangeInclusive<u64>;

/// Port of a node of a cluster that is given without a port.
const NODE_PORT: u16 = 9_042;
/// Units of sizes, largest first.
const BYTE_UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl Slot<'_> {
    /// Parses `text` into the value. On error, the value is unchanged, and the message describes the problem.
    pub(crate) fn read(self, text: &str, range: Range) -> Result<(), String> {
        match self {
            Self::Address(setting) => {
                *setting = text.parse().map_err(|_| {
                    format!("{text:?} is not an address with a port, such as 127.0.0.1:8490 or [::1]:8490")
                })?;
            }
            Self::Path(_) if text.is_empty() => return Err("the path is empty".to_owned()),
            Self::Path(setting) => *setting = PathBuf::from(text),
            Self::OptionalPath(setting) => *setting = (!text.is_empty()).then(|| PathBuf::from(text)),
            Self::Text(setting) => text.clone_into(setting),
            Self::OptionalText(setting) => *setting = (!text.is_empty()).then(|| text.to_owned()),
            Self::OptionalHostPort(setting) if text.is_empty() => *setting = None,
            Self::OptionalHostPort(setting) => *setting = Some(read_host_port(text)?),
            Self::Hosts(setting) => *setting = read_hosts(text)?,
            Self::Networks(setting) => *setting = read_networks(text)?,
            Self::Proxies(setting) => *setting = read_networks(text)?,
            Self::Names(setting) => *setting = read_names(text)?,
            Self::Nodes(setting) => *setting = read_nodes(text)?,
            Self::Targets(setting) => *setting = read_targets(text)?,
            Self::TranslationStrategy(setting) => *setting = text.parse()?,
            Self::DeltaTemporality(setting) => *setting = text.parse()?,
            Self::Switch(setting) => {
                *setting = text
                    .parse()
                    .map_err(|_| format!("{text:?} is neither true nor false"))?;
            }
            Self::Bytes(setting) => *setting = whole(read_bytes(text, &range)?)?,
            Self::Bytes64(setting) => *setting = read_bytes(text, &range)?,
            Self::Count(setting) => *setting = whole(read_count(text, &range)?)?,
            Self::Count64(setting) => *setting = read_count(text, &range)?,
            Self::OptionalCount(setting) if text.is_empty() => *setting = None,
            Self::OptionalCount(setting) => *setting = Some(whole(read_count(text, &range)?)?),
            Self::OptionalBytes64(setting) if text.is_empty() => *setting = None,
            Self::OptionalBytes64(setting) => *setting = Some(read_bytes(text, &range)?),
            Self::Duration(setting) => *setting = Duration::from_nanos(read_nanos(text, &range)?),
            Self::Secret(setting) => *setting = Some(Secret::new(text)?),
            Self::StorageEngine(setting) => *setting = text.parse()?,
            Self::ClearText(setting) if text.is_empty() => *setting = None,
            Self::ClearText(setting) => *setting = Some(text.parse()?),
            Self::Acknowledged(setting) => *setting = acknowledged_of_name(text)?,
            Self::LogFormat(setting) => {
                *setting = match text {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    _ => return Err(format!("{text:?} is neither text nor json")),
                };
            }
            Self::LogFilter(setting) => {
                EnvFilter::builder()
                    .parse(text)
                    .map_err(|error| format!("{text:?} is not a valid log filter: {error}"))?;
                text.clone_into(setting);
            }
        }
        Ok(())
    }

    /// Formats the value as TOML. A secret is masked. Returns `None` if the value is not set.
    pub(crate) fn show(self) -> Option<String> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        Some(match self {
            Self::Address(setting) => quoted(&setting.to_string()),
            Self::Path(setting) => quoted(&setting.to_string_lossy()),
            Self::OptionalPath(setting) => quoted(&setting.as_ref()?.to_string_lossy()),
            Self::Text(setting) => quoted(setting),
            Self::OptionalText(setting) | Self::OptionalHostPort(setting) => quoted(setting.as_ref()?),
            Self::Hosts(setting) | Self::Names(setting) | Self::Nodes(setting) => quoted(&joined(setting)?),
            Self::Networks(setting) => quoted(&joined(setting)?),
            Self::Proxies(setting) => quoted(&joined(setting)?),
            Self::Targets(setting) => quoted(&joined(setting)?),
            Self::Switch(setting) => setting.to_string(),
            Self::Bytes(setting) => quoted(&format_bytes(*setting as u64)),
            Self::Bytes64(setting) => quoted(&format_bytes(*setting)),
            Self::Count(setting) => setting.to_string(),
            Self::Count64(setting) => setting.to_string(),
            Self::OptionalCount(setting) => setting.as_ref()?.to_string(),
            Self::OptionalBytes64(setting) => quoted(&format_bytes(*setting.as_ref()?)),
            Self::Duration(setting) => quoted(&format_duration(
                i64::try_from(setting.as_nanos()).unwrap_or(i64::MAX),
            )),
            Self::Secret(setting) => quoted(&format!("{:?}", setting.as_ref()?)),
            Self::StorageEngine(setting) => quoted(setting.name()),
            Self::ClearText(setting) => quoted(setting.as_ref()?.name()),
            Self::Acknowledged(setting) => quoted(setting.name()),
            Self::LogFormat(LogFormat::Text) => quoted("text"),
            Self::LogFormat(LogFormat::Json) => quoted("json"),
            Self::LogFilter(setting) => quoted(setting),
            Self::TranslationStrategy(setting) => quoted(&setting.to_string()),
            Self::DeltaTemporality(setting) => quoted(&setting.to_string()),
        })
    }

    /// Returns true if the value is a list. Its text has commas between the entries.
    pub(crate) fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Hosts(_)
                | Self::Networks(_)
                | Self::Proxies(_)
                | Self::Names(_)
                | Self::Nodes(_)
                | Self::Targets(_)
        )
    }

    /// Returns the type and unit of the value, for the reference.
    pub(crate) fn unit(&self) -> &'static str {
        match self {
            Self::Address(_) | Self::OptionalHostPort(_) => "address:port",
            Self::Path(_) | Self::OptionalPath(_) => "path",
            Self::Text(_) | Self::OptionalText(_) => "text",
            Self::Hosts(_) | Self::Names(_) | Self::Nodes(_) => {
                "names, as a list of texts or one text with commas"
            }
            Self::TranslationStrategy(_) => "name of a strategy",
            Self::DeltaTemporality(_) => "refuse or store",
            Self::Networks(_) => "addresses and networks, as a list of texts or one text with commas",
            Self::Proxies(_) => "addresses, networks and unix, as a list of texts or one text with commas",
            Self::Targets(_) => "addresses, as a list of texts or one text with commas",
            Self::Switch(_) => "true or false",
            Self::Bytes(_) | Self::Bytes64(_) | Self::OptionalBytes64(_) => "bytes, such as 64MiB",
            Self::Count(_) | Self::Count64(_) | Self::OptionalCount(_) => "a number",
            Self::Duration(_) => "duration, such as 10s or 2h",
            Self::Secret(_) => "text",
            Self::StorageEngine(_) => "fjall or cassandra",
            Self::ClearText(_) => "proxy or off",
            Self::Acknowledged(_) => "synced or replicated",
            Self::LogFormat(_) => "text or json",
            Self::LogFilter(_) => {
                "error, warn, info, debug, trace, or a list such as info,tideline_http=debug"
            }
        }
    }
}

/// Parses host names and addresses, separated by commas.
fn read_hosts(text: &str) -> Result<Vec<String>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = |entry: &str| {
        let host = entry.trim_start_matches('[').trim_end_matches(']');
        let is_host = host == "*" || is_host_name(host) || host.parse::<Ipv6Addr>().is_ok();
        match is_host {
            true => Ok(host.to_ascii_lowercase()),
            false => Err(format!(
                "{entry:?} is not a host name or address; omit scheme and port"
            )),
        }
    };
    entries.map(read).collect()
}

/// Returns true if the text can be a host name or an IPv4 address.
fn is_host_name(host: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
    !host.is_empty() && host.bytes().all(is_allowed)
}

/// Returns true if the text is a host and a port, such as `db-1:8490` or `[fd00::1]:8490`.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    // A number may have a sign.
    let is_port = !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_host = match in_brackets(host) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => is_host_name(host),
    };
    is_port && is_host
}

fn in_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

/// Checks a host with a port.
fn read_host_port(text: &str) -> Result<String, String> {
    match is_host_port(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not an address with a port from 1 to 65535, such as db-1:8490 or [fd00::1]:8490"
        )),
    }
}

/// Parses nodes of a cluster, separated by commas. Repeated nodes are refused.
fn read_nodes(text: &str) -> Result<Vec<String>, String> {
    let nodes = read_names(text)?;
    nodes.iter().map(|node| read_node(node)).collect()
}

/// Checks a node of a cluster. An IPv6 address without a port gets the default port, because the driver would use the
/// end of the address as the port.
fn read_node(text: &str) -> Result<String, String> {
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    let bare = in_brackets(text).unwrap_or(text);
    if is_address(bare) {
        let may_end_with_port =
            bare == text && text.rsplit_once(':').is_some_and(|(host, _)| is_address(host));
        return match may_end_with_port {
            true => Err(format!(
                "{text:?} may end with a port: put the IPv6 address in brackets, such as [fd00::1]:{NODE_PORT}"
            )),
            false => Ok(format!("[{bare}]:{NODE_PORT}")),
        };
    }
    match is_host_name(text) || is_host_port(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not a host with or without a port from 1 to 65535, such as host1, host1:{NODE_PORT} or \
             [fd00::1]:{NODE_PORT}"
        )),
    }
}

/// Parses names, separated by commas. Repeated names are refused.
fn read_names(text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if names.iter().any(|known| known == name) {
            return Err(format!("{name:?} is listed twice"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Formats a list with commas; `None` for an empty list.
fn joined(list: &[impl ToString]) -> Option<String> {
    let shown: Vec<_> = list.iter().map(ToString::to_string).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Parses addresses and networks, separated by commas.
fn read_networks<T: FromStr<Err = NotANetwork>>(text: &str) -> Result<Vec<T>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = |entry: &str| {
        let address = entry.trim_start_matches('[').trim_end_matches(']');
        address.parse().map_err(|error: NotANetwork| error.to_string())
    };
    entries.map(read).collect()
}

/// Parses archive addresses, separated by commas.
fn read_targets(text: &str) -> Result<Vec<TargetPrefix>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = |entry: &str| entry.parse().map_err(|error: ArchiveError| error.to_string());
    entries.map(read).collect()
}

/// Parses `64MiB`, `1GiB`, or a plain number of bytes.
fn read_bytes(text: &str, range: &Range) -> Result<u64, String> {
    let bytes = tideline_cli::bytes(text)
        .map_err(|_| format!("{text:?} is not a size: expected bytes, such as 64MiB or 1048576"))?;
    within(bytes, range, format_bytes)
}

pub(crate) fn format_bytes(bytes: u64) -> String {
    let unit = BYTE_UNITS
        .iter()
        .find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(
        || "0".to_owned(),
        |(name, size)| format!("{}{name}", bytes / size),
    )
}

fn read_count(text: &str, range: &Range) -> Result<u64, String> {
    let count = text
        .parse()
        .map_err(|_| format!("{text:?} is not a whole number from 0"))?;
    within(count, range, |count| count.to_string())
}

/// Parses a duration. The range is in milliseconds.
fn read_nanos(text: &str, range: &Range) -> Result<u64, String> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.ok_or_else(|| format!("{text:?} is not a duration, such as 500ms, 10s or 2h"))?;
    let format = |millis: u64| format_duration(whole(millis.saturating_mul(1_000_000)).unwrap_or(i64::MAX));
    within(nanos.div_ceil(1_000_000), range, format)?;
    Ok(nanos)
}

fn within(number: u64, range: &Range, format: impl Fn(u64) -> String) -> Result<u64, String> {
    let (least, most) = (*range.start(), *range.end());
    match number {
        _ if number < least => Err(format!("{} is less than {}", format(number), format(least))),
        _ if number > most => Err(format!("{} is more than {}", format(number), format(most))),
        _ => Ok(number),
    }
}

fn whole<T: TryFrom<u64>>(number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_every_unit_and_write_back() {
        let all = 0..=u64::MAX;
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("4KiB", 4_096),
            ("96 MiB", 96 << 20),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(read_bytes(text, &all), Ok(bytes), "{text}");
            assert_eq!(read_bytes(&format_bytes(bytes), &all), Ok(bytes));
        }
        for text in ["", "MiB", "-1", "1.5GiB", "1MB", "20000000TiB", "1 2"] {
            assert!(read_bytes(text, &all).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_read_without_scheme_and_port() {
        assert_eq!(read_hosts(""), Ok(Vec::new()));
        let hosts = ["db.example", "10.0.0.7", "fd00::1", "*"].map(str::to_owned);
        assert_eq!(read_hosts("DB.example, 10.0.0.7,[fd00::1],*"), Ok(hosts.to_vec()));
        for text in ["http://db.example", "db.example:8490", "a b"] {
            assert!(read_hosts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_read_with_and_without_a_port() {
        assert_eq!(read_nodes(""), Ok(Vec::new()));
        for node in [
            "host1",
            "host_1.example:9042",
            "10.0.0.7",
            "10.0.0.7:1",
            "[fd00::1]:65535",
        ] {
            assert_eq!(read_nodes(node), Ok(vec![node.to_owned()]));
        }
        // The driver would look for the port 1 of the host `fd00:`.
        for address in ["fd00::1", "[fd00::1]"] {
            assert_eq!(read_nodes(address), Ok(vec!["[fd00::1]:9042".to_owned()]));
        }
        for wrong in [
            "host1:",
            "host1:abc",
            "host1:0",
            "host1:+1",
            "host1:65536",
            ":9042",
            "http://host1:9042",
            "host1/",
            "a b",
            "[host1]:9042",
            "[fd00::1",
            "fd00::1:9042",
        ] {
            let refused = read_nodes(&format!("10.0.0.7,{wrong}")).expect_err(wrong);
            assert!(refused.contains(wrong), "{refused}");
        }
    }

    #[test]
    fn an_address_for_other_processes_has_a_port() {
        for address in ["db-1:8490", "10.0.0.7:8490", "[fd00::1]:8490"] {
            assert_eq!(read_host_port(address), Ok(address.to_owned()));
        }
        for wrong in [
            "db-1",
            "db-1:0",
            "db-1:99999",
            ":8490",
            "fd00::1",
            "http://db-1:8490",
            "db-1:8490/",
        ] {
            let refused = read_host_port(wrong).expect_err(wrong);
            assert!(refused.contains(wrong), "{refused}");
        }
    }

    #[test]
    fn a_value_out_of_range_names_the_bound() {
        assert_eq!(
            read_bytes("1KiB", &(1 << 20..=u64::MAX)),
            Err("1KiB is less than 1MiB".to_owned())
        );
        assert_eq!(
            read_nanos("2h", &(0..=60_000)),
            Err("2h is more than 1m".to_owned())
        );
        assert_eq!(read_count("7", &(0..=5)), Err("7 is more than 5".to_owned()));
        assert_eq!(read_nanos("1ns", &(1..=5)), Ok(1));
    }
}
