//! Detection of times near 1970, which usually result from integers in another unit than the configured one.
//!
//! A forgotten `--precision` would store all points in 1970, so a warning suggests the likely unit.

use serde::Deserialize;
use serde_json::Value;
use tideline_openapi::model::Precision;
use tideline_openapi::model::time::NANOS_PER_DAY;

use super::csv::likely_unit;
use super::record::Framing;

/// Integers that are current times in microseconds. As nanoseconds they are times from 1970 to 1973.
const MICROS: std::ops::Range<u64> = 1_000_000_000_000_000..100_000_000_000_000_000;

/// Returns the likely unit if more than half of the integer times of `records` are near 1970, otherwise `None`.
/// `unit` is the configured unit of integers.
pub(super) fn likely_unit_of(records: &[u8], framing: Framing, unit: &str) -> Option<&'static str> {
    let (mut times, mut near, mut largest) = (0u64, 0u64, 0u64);
    let mut at = 0;
    while at < records.len() {
        let end = framing.end(records, at).unwrap_or(records.len());
        if let Some(time) = time_of(&records[at..end], framing) {
            times += 1;
            if is_near_1970(time, unit) {
                near += 1;
                largest = largest.max(time.unsigned_abs());
            }
        }
        at = end;
    }
    (near > times / 2).then(|| likely_unit(largest))
}

/// Returns true if an integer of a unit is a time less than a day from 1970-01-01. For nanoseconds, also returns true
/// if the integer would be a current time in microseconds.
pub(super) fn is_near_1970(time: i64, unit: &str) -> bool {
    let nanos = Precision::parse(unit).unwrap_or_default().nanos();
    let size = time.unsigned_abs();
    size.saturating_mul(nanos.unsigned_abs()) < NANOS_PER_DAY.unsigned_abs()
        || (nanos == 1 && MICROS.contains(&size))
}

/// Returns the time of a record if it is an integer, otherwise `None`. Always `None` for CSV.
fn time_of(record: &[u8], framing: Framing) -> Option<i64> {
    #[derive(Deserialize)]
    struct Record {
        time: Value,
    }
    match framing {
        Framing::Lines => {
            let record = std::str::from_utf8(record).ok()?.trim();
            let (_, time) = record.rsplit_once(' ')?;
            time.parse().ok().filter(|_| !record.starts_with('#'))
        }
        Framing::Ndjson => match serde_json::from_slice::<Record>(record).ok()?.time {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        },
        // Times of CSV are checked by the scan of their column.
        Framing::Csv { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_that_was_forgotten_is_named() {
        let lines = |times: &[&str]| -> String {
            times
                .iter()
                .map(|time| format!("m,h=a v=\"x 1\" {time}\n"))
                .collect()
        };
        for (times, unit, likely) in [
            (&["1700000000", "1700000001"][..], "ns", Some("s")),
            (&["1700000000000"], "ns", Some("ms")),
            (&["1700000000000000"], "ns", Some("us")),
            (
                &["1700000000000000000", "1700000000", "1700000000000000001"],
                "ns",
                None,
            ),
            (&["1700000000"], "s", None),
            (&["1700000000000000000"], "ns", None),
            (&[""], "ns", None),
        ] {
            let found = likely_unit_of(lines(times).as_bytes(), Framing::Lines, unit);
            assert_eq!(found, likely, "{times:?} {unit}");
        }
        let json = b"{\"measurement\":\"m\",\"time\":1700000000,\"fields\":{}}\n{\"time\":\"1700000001\"}";
        assert_eq!(likely_unit_of(json, Framing::Ndjson, "ns"), Some("s"));
    }
}
