//! Sets of integer fields in which every value is a function of host, field and step.
//!
//! Points can therefore be written in any order and checked without storing them.

use serde_json::{Value, json};
use tideline_fleet::Random;

use crate::queries::{CheckedRequest, QUERY, cells, checked_request};
use crate::set::DEFAULT_TABLE;

/// Fields of many machines, with one point per step.
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    pub(crate) hosts: u64,
    /// Number of values per point.
    pub(crate) fields: u64,
    /// Number of points per machine.
    pub(crate) steps: u64,
    /// First timestamp in nanoseconds; the start of a window.
    pub(crate) start: i64,
    /// Nanoseconds between two points.
    pub(crate) step: i64,
    /// Number of steps per window of a query.
    pub(crate) window: u64,
    /// Number of windows per query.
    pub(crate) windows: u64,
}

/// First field, which the queries select; the other fields are numbered.
const FIELD: &str = "usage";
/// Number of regions over which the machines are spread.
const REGIONS: u64 = 9;
/// The first field rises and falls by `WAVE_HEIGHT` over `WAVE_STEPS` steps above a base level of its
/// machine, plus noise.
const WAVE_HEIGHT: u64 = 40;
const WAVE_STEPS: u64 = 1_440;
const LEVELS: u64 = 50;
const NOISE: u64 = 4;

impl Plain {
    /// Returns the number of points in the set.
    pub(crate) const fn points(&self) -> u64 {
        self.hosts * self.steps
    }

    /// Returns the number of values in the set.
    pub(crate) const fn values(&self) -> u64 {
        self.points() * self.fields
    }

    /// Returns the value of a machine's first field at a step.
    pub(crate) const fn value(&self, host: u64, step: u64) -> u64 {
        let level = Random::new(host).bits() % LEVELS;
        let phase = (step + host * 37) % WAVE_STEPS;
        let half = WAVE_STEPS / 2;
        let height = if phase < half { phase } else { WAVE_STEPS - phase };
        let noise = Random::new(host * self.steps + step).bits() % NOISE;
        level + height * WAVE_HEIGHT / half + noise
    }

    /// Returns the value of a field, computed like the first field of a separate machine.
    const fn value_of(&self, host: u64, field: u64, step: u64) -> u64 {
        self.value(host + field * self.hosts, step)
    }

    /// Appends a point as line protocol; returns the value of its first field.
    pub(crate) fn write(&self, host: u64, step: u64, out: &mut Vec<u8>) -> u64 {
        let value = self.value(host, step);
        out.extend_from_slice(b"cpu,host=h");
        push_number(out, host);
        out.extend_from_slice(b",region=r");
        push_number(out, host % REGIONS);
        out.extend_from_slice(b" usage=");
        push_number(out, value);
        for field in 1..self.fields {
            out.extend_from_slice(b"i,usage_");
            push_number(out, field);
            out.push(b'=');
            push_number(out, self.value_of(host, field, step));
        }
        out.extend_from_slice(b"i ");
        push_number(out, self.instant(step).unsigned_abs());
        out.push(b'\n');
        value
    }

    /// Returns a query that counts all points.
    pub(crate) fn count(&self) -> CheckedRequest<'static> {
        self.total("count", self.points())
    }

    /// Returns a query that sums all values of the first field.
    pub(crate) fn sum(&self, expected: u64) -> CheckedRequest<'static> {
        self.total("sum", expected)
    }

    /// Returns a query for consecutive windows of a random machine.
    pub(crate) fn one_host(&self, random: &mut Random) -> CheckedRequest<'_> {
        let host = random.index(self.hosts as usize) as u64;
        let begin = self.steps / self.window - self.windows;
        let first = random.index(begin as usize + 1) as u64 * self.window;
        let end = first + self.windows * self.window;
        let seconds = self.window as i64 * self.step / 1_000_000_000;
        let body = json!({
            "timelines": {"where": {"tag": "host", "equals": format!("h{host}")}},
            "fields": [FIELD],
            "range": {"start": self.instant(first), "end": self.instant(end)},
            "aggregate": {"functions": ["sum"], "window": format!("{seconds}s")},
        });
        checked_request(DEFAULT_TABLE, QUERY, &body, move |response| {
            let found: Vec<f64> = cells(response, None, &[FIELD])?.into_values().flatten().collect();
            let starts = (first..end).step_by(self.window as usize);
            let sum = |start| {
                (start..start + self.window)
                    .map(|step| self.value(host, step))
                    .sum::<u64>()
            };
            let expected: Vec<f64> = starts.map(|start| sum(start) as f64).collect();
            match found == expected {
                true => Ok(()),
                false => Err(format!("{expected:?} expected, {found:?} found")),
            }
        })
    }

    fn total(&self, function: &str, expected: u64) -> CheckedRequest<'static> {
        let body = json!({
            "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
            "fields": [FIELD],
            "range": {"start": self.start, "end": self.instant(self.steps)},
            "aggregate": {"functions": [function]},
        });
        checked_request(DEFAULT_TABLE, QUERY, &body, move |response: &Value| {
            let cells = cells(response, None, &[FIELD])?;
            match cells.values().next() {
                Some(row) if cells.len() == 1 && row == &[expected as f64] => Ok(()),
                _ => Err(format!("{expected} expected, {cells:?} found")),
            }
        })
    }

    fn instant(&self, step: u64) -> i64 {
        self.start + step as i64 * self.step
    }
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Plain = Plain {
        hosts: 12,
        fields: 1,
        steps: 100,
        start: 1_790_000_000_000_000_000,
        step: 60_000_000_000,
        window: 10,
        windows: 2,
    };

    #[test]
    fn a_line_says_the_values_and_the_instant() {
        let mut line = Vec::new();
        let value = PLAIN.write(11, 7, &mut line);
        let expected = format!("cpu,host=h11,region=r2 usage={value}i 1790000420000000000\n");
        assert_eq!(String::from_utf8_lossy(&line), expected);
        assert!(value < LEVELS + WAVE_HEIGHT + NOISE);

        let two = Plain { fields: 2, ..PLAIN };
        line.clear();
        two.write(11, 7, &mut line);
        let other = two.value_of(11, 1, 7);
        let expected =
            format!("cpu,host=h11,region=r2 usage={value}i,usage_1={other}i 1790000420000000000\n");
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 305, u64::MAX] {
            let mut text = Vec::new();
            push_number(&mut text, number);
            assert_eq!(String::from_utf8_lossy(&text), number.to_string());
        }
    }
}
