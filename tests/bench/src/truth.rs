//! Expected results, computed directly from the generated values.

use std::ops::Range;

use tideline_fleet::{FIELDS, Host};

use crate::set::Set;

/// All values of a set in memory, one byte each, because all are percentages.
#[derive(Debug)]
pub(crate) struct Truth {
    hosts: Vec<Host>,
    /// Values in the order `[step][host][field]`, flat.
    values: Vec<u8>,
}

impl Truth {
    /// Runs the generator of a set again and stores its values.
    pub(crate) fn of(set: &Set) -> Self {
        let mut fleet = set.fleet();
        let mut values = Vec::with_capacity(usize::try_from(set.values()).unwrap_or(0));
        for _ in 0..set.rows() {
            values.extend(fleet.next_row().values.map(|value| value as u8));
        }
        Self {
            hosts: fleet.hosts().to_vec(),
            values,
        }
    }

    /// Returns the machines by number.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns one value; `step` counts from the start of the set, `field` is an index into [`FIELDS`].
    pub(crate) fn value(&self, step: usize, host: usize, field: usize) -> u8 {
        self.values[(step * self.hosts.len() + host) * FIELDS.len() + field]
    }

    /// Returns the mean of a field over some machines and steps.
    pub(crate) fn mean(&self, steps: Range<usize>, hosts: Range<usize>, field: usize) -> f64 {
        let count = steps.len() * hosts.len();
        let sum: u64 = steps
            .flat_map(|step| hosts.clone().map(move |host| (step, host)))
            .map(|(step, host)| u64::from(self.value(step, host, field)))
            .sum();
        sum as f64 / count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{Kind, Scale};

    #[test]
    fn values_are_those_that_the_generator_writes() {
        let mut set = Set::new(Kind::S, Scale::Quick, 1_790_000_000_000_000_000);
        set.hosts = 3;
        set.steps = 4;
        let truth = Truth::of(&set);
        let mut text = Vec::new();
        set.fleet().write_rows(12, &mut text);
        let text = String::from_utf8(text).expect("rows are ASCII");
        let line = text.lines().nth(2 * 3 + 1).expect("there are twelve rows");
        assert!(
            line.contains(&format!(",usage_idle={}i,", truth.value(2, 1, 2))),
            "{line}"
        );
        let mean = (f64::from(truth.value(0, 1, 5)) + f64::from(truth.value(1, 1, 5))) / 2.0;
        assert!((truth.mean(0..2, 1..2, 5) - mean).abs() < 1e-12);
    }
}
