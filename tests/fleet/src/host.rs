//! Tags of a simulated host: its name, location, hardware and service.
//!
//! Keys and values equal those of the Time Series Benchmark Suite, so that cardinalities are comparable with published
//! figures.

use crate::random::Random;

/// Simulated host. Its ten tags are derived from its number and the drawn choices below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    number: u32,
    region: u8,
    datacenter: u8,
    rack: u8,
    os: u8,
    arch: u8,
    team: u8,
    service: u8,
    service_version: u8,
    service_environment: u8,
}

/// Tag keys, in the order in which they are written.
pub const TAGS: [&str; 10] = [
    "hostname",
    "region",
    "datacenter",
    "rack",
    "os",
    "arch",
    "team",
    "service",
    "service_version",
    "service_environment",
];

/// Region names and the suffixes of their data centers.
const REGIONS: [(&str, &[&str]); 9] = [
    ("us-east-1", &["a", "b", "c", "e"]),
    ("us-west-1", &["a", "b"]),
    ("us-west-2", &["a", "b", "c"]),
    ("eu-west-1", &["a", "b", "c"]),
    ("eu-central-1", &["a", "b"]),
    ("ap-southeast-1", &["a", "b"]),
    ("ap-southeast-2", &["a", "b"]),
    ("ap-northeast-1", &["a", "c"]),
    ("sa-east-1", &["a", "b", "c"]),
];
/// Exclusive upper bound of rack numbers.
const RACKS: usize = 100;
const OPERATING_SYSTEMS: [&str; 3] = ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"];
const ARCHITECTURES: [&str; 2] = ["x64", "x86"];
const TEAMS: [&str; 4] = ["SF", "NYC", "LON", "CHI"];
/// Exclusive upper bound of service numbers.
const SERVICES: usize = 20;
/// Exclusive upper bound of service version numbers.
const SERVICE_VERSIONS: usize = 2;
const ENVIRONMENTS: [&str; 3] = ["production", "staging", "test"];

impl Host {
    /// Draws the host with this number.
    pub fn draw(number: u32, random: &mut Random) -> Self {
        let mut choose = |len: usize| random.index(len) as u8;
        let region = choose(REGIONS.len());
        Self {
            number,
            region,
            datacenter: choose(REGIONS[usize::from(region)].1.len()),
            rack: choose(RACKS),
            os: choose(OPERATING_SYSTEMS.len()),
            arch: choose(ARCHITECTURES.len()),
            team: choose(TEAMS.len()),
            service: choose(SERVICES),
            service_version: choose(SERVICE_VERSIONS),
            service_environment: choose(ENVIRONMENTS.len()),
        }
    }

    /// Returns keys and values of the tags, in the order of [`TAGS`].
    pub fn tags(&self) -> [(&'static str, String); 10] {
        let (region, datacenters) = REGIONS[usize::from(self.region)];
        let values = [
            format!("host_{}", self.number),
            region.to_owned(),
            format!("{region}{}", datacenters[usize::from(self.datacenter)]),
            self.rack.to_string(),
            OPERATING_SYSTEMS[usize::from(self.os)].to_owned(),
            ARCHITECTURES[usize::from(self.arch)].to_owned(),
            TEAMS[usize::from(self.team)].to_owned(),
            self.service.to_string(),
            self.service_version.to_string(),
            ENVIRONMENTS[usize::from(self.service_environment)].to_owned(),
        ];
        let mut keys = TAGS.into_iter();
        values.map(|value| (keys.next().unwrap_or_default(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_their_keys_and_known_values() {
        let mut random = Random::new(3);
        for number in 0..1_000 {
            let tags = Host::draw(number, &mut random).tags();
            assert_eq!(tags.clone().map(|(key, _)| key), TAGS);
            assert_eq!(tags[0].1, format!("host_{number}"));
            assert!(
                tags[2].1.starts_with(&tags[1].1),
                "a data center belongs to its region"
            );
            assert!(tags[3].1.parse::<usize>().expect("a rack is a number") < RACKS);
            assert!(ENVIRONMENTS.contains(&tags[9].1.as_str()));
        }
    }
}
