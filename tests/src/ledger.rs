//! Ledger of sent and acknowledged points, kept outside the server that will be killed.
//!
//! The values of a point are computed from the seed, the machine and the timestamp. The ledger therefore
//! stores no values and can still check every point that is read.
//!
//! | fate | meaning | after a restart |
//! |---|---|---|
//! | acknowledged | the write succeeded | the point is stored once, with its value |
//! | unknown | no response, or an error that does not exclude a write | it is absent, or stored with its value |
//! | refused | the response reported that nothing was written | it is absent |

use std::collections::BTreeMap;

use tideline_fleet::Random;
use tideline_model::Value;

use crate::reading::{Fields, Row};

/// Measurement of all points in a ledger.
pub const MEASUREMENT: &str = "load";

/// Fate of every point that was sent.
#[derive(Debug, Clone)]
pub struct Ledger {
    seed: u64,
    fates: BTreeMap<PointKey, Fate>,
}

/// Key of a point: machine and timestamp in nanoseconds.
pub type PointKey = (String, i64);

/// Outcome of the write of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The response reported that nothing was written.
    Refused,
    /// No response was received, or the response does not exclude that the point was written.
    Unknown,
    /// The write was acknowledged.
    Acknowledged,
}

impl Ledger {
    /// Creates an empty ledger.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            fates: BTreeMap::new(),
        }
    }

    /// Returns the line protocol of a point, with fields of five types.
    pub fn line(&self, (host, time): &PointKey) -> String {
        let mut line = format!("{MEASUREMENT},host={host},dc=fra ");
        for (index, (name, value)) in self.fields(host, *time).into_iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            line.push_str(&name);
            line.push('=');
            line.push_str(&match value {
                Value::Float(value) => value.to_string(),
                Value::Signed(value) => format!("{value}i"),
                Value::Unsigned(value) => format!("{value}u"),
                Value::Boolean(value) => value.to_string(),
                Value::String(value) => format!("\"{value}\""),
                Value::Histogram(_) => unreachable!("a ledger has no histograms"),
            });
        }
        line.push_str(&format!(" {time}"));
        line
    }

    /// Returns the values of a point.
    pub fn fields(&self, host: &str, time: i64) -> Fields {
        let start = host.bytes().fold(self.seed, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Random::new(start ^ time.unsigned_abs());
        let text = format!("t-{:x}", random.bits() >> 40);
        [
            ("b", Value::Boolean(random.bits() & 1 == 0)),
            // The fraction .5 keeps the number from being an integer, so that no format can decode it as one.
            ("f", Value::Float((random.bits() >> 20) as f64 + 0.5)),
            ("i", Value::Signed(random.bits().cast_signed() >> 2)),
            ("s", Value::String(text.into())),
            ("u", Value::Unsigned(random.bits() | 1 << 63)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Records the fate of points. An acknowledged point stays acknowledged, even if it is sent again with another
    /// outcome.
    pub fn note(&mut self, keys: &[PointKey], fate: Fate) {
        for key in keys {
            let known = self.fates.entry(key.clone()).or_insert(fate);
            if *known != Fate::Acknowledged {
                *known = fate;
            }
        }
    }

    /// Returns the points with this fate.
    pub fn keys(&self, fate: Fate) -> Vec<PointKey> {
        self.fates
            .iter()
            .filter(|(_, known)| **known == fate)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Returns the machines that have a point with this fate.
    pub fn hosts(&self, fate: Fate) -> Vec<String> {
        let mut hosts: Vec<String> = self.keys(fate).into_iter().map(|(host, _)| host).collect();
        hosts.dedup();
        hosts
    }

    /// Returns the part of the ledger for one machine.
    pub fn of_host(&self, host: &str) -> Self {
        let fates = self.fates.iter().filter(|((known, _), _)| known == host);
        Self {
            seed: self.seed,
            fates: fates.map(|(key, fate)| (key.clone(), *fate)).collect(),
        }
    }

    /// Compares the points read from the server with the ledger; returns up to 20 contradictions.
    ///
    /// `rows` must be all points of the measurement. While writers are running, copy the ledger before
    /// reading and set `is_running`: points that are not in the copy are then allowed.
    pub fn contradictions(&self, rows: &[Row], is_running: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen: BTreeMap<PointKey, u32> = BTreeMap::new();
        for row in rows {
            let host = row.tags.get("host").cloned().unwrap_or_default();
            let key = (host, row.time);
            match self.fates.get(&key) {
                None if !is_running => found.push(format!("never sent, but stored: {key:?}")),
                Some(Fate::Refused) => found.push(format!("refused, but stored: {key:?}")),
                _ if row.fields != self.fields(&key.0, key.1) => {
                    found.push(format!("wrong values at {key:?}: {:?}", row.fields));
                }
                _ => {}
            }
            *seen.entry(key).or_default() += 1;
        }
        found.extend(
            seen.iter()
                .filter(|(_, count)| **count > 1)
                .map(|(key, count)| format!("stored {count} times: {key:?}")),
        );
        found.extend(
            self.keys(Fate::Acknowledged)
                .iter()
                .filter(|key| !seen.contains_key(*key))
                .map(|key| format!("acknowledged, but lost: {key:?}")),
        );
        found.truncate(20);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_contradiction_is_found() {
        let mut ledger = Ledger::new(7);
        let key = |time: i64| ("a".to_owned(), time);
        ledger.note(&[key(1), key(2)], Fate::Acknowledged);
        ledger.note(&[key(3)], Fate::Unknown);
        ledger.note(&[key(4)], Fate::Refused);
        ledger.note(&[key(1)], Fate::Unknown);
        let row = |time: i64| Row {
            measurement: MEASUREMENT.to_owned(),
            tags: [("host".to_owned(), "a".to_owned())].into(),
            time,
            fields: ledger.fields("a", time),
        };
        let contradictions = |times: &[i64]| {
            let rows: Vec<Row> = times.iter().map(|time| row(*time)).collect();
            ledger.contradictions(&rows, false)
        };
        assert!(contradictions(&[1, 2]).is_empty());
        assert!(contradictions(&[2, 3, 1]).is_empty());
        for (times, said) in [
            (&[1][..], "lost"),
            (&[1, 2, 2], "2 times"),
            (&[1, 2, 4], "refused"),
            (&[1, 2, 5], "never sent"),
        ] {
            let found = contradictions(times);
            assert!(
                found.len() == 1 && found[0].contains(said),
                "{times:?}: {found:?}"
            );
        }
        let mut wrong = row(2);
        wrong.fields.insert("f".to_owned(), Value::Float(0.0));
        let found = ledger.contradictions(&[row(1), wrong], false);
        assert!(found.len() == 1 && found[0].contains("wrong values"), "{found:?}");
    }
}
