//! Measurements of the rows of a group.
//!
//! Measurements are stored as a list of names and, for each row, an index into the list. Most groups have only one name
//! and omit the indexes.

/// Measurement of each row of a group.
///
/// Usually all rows have the same measurement. A Prometheus request has hundreds of measurements, with one field each.
/// The rows of these measurements share one group. Otherwise the work per group (validating, journaling, applying)
/// would cost more than the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurements {
    /// Distinct names; never empty.
    names: Vec<Box<str>>,
    /// Index in `names` of each row's measurement; empty if there is only one name.
    of_rows: Vec<u32>,
}

impl Measurements {
    /// Creates measurements from `names` and the index in `names` of each row.
    ///
    /// # Panics
    ///
    /// Panics if `names` is empty or an index is out of range.
    pub fn of_rows(names: Vec<Box<str>>, of_rows: Vec<u32>) -> Self {
        assert!(
            !names.is_empty()
                && of_rows
                    .iter()
                    .all(|name_index| (*name_index as usize) < names.len()),
            "each row has a measurement"
        );
        let of_rows = if names.len() == 1 { Vec::new() } else { of_rows };
        Self { names, of_rows }
    }

    /// Returns each measurement once.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Returns each row's index in [`names`](Self::names); empty if there is only one name.
    pub fn name_indexes(&self) -> &[u32] {
        &self.of_rows
    }

    /// Returns the index in [`names`](Self::names) of a row's measurement.
    pub fn name_index(&self, row: usize) -> usize {
        self.of_rows.get(row).map_or(0, |name_index| *name_index as usize)
    }

    /// Returns the measurement of a row.
    pub fn of(&self, row: usize) -> &str {
        &self.names[self.name_index(row)]
    }

    /// Returns true if `name` is the only measurement.
    pub fn are(&self, name: &str) -> bool {
        matches!(&*self.names, [only] if **only == *name)
    }

    /// Drops the rows for which `keep` is false, and measurements without rows. Keeps at least one measurement.
    pub fn retain(&mut self, keep: &[bool]) {
        if self.of_rows.is_empty() {
            return;
        }
        let mut kept = keep.iter();
        self.of_rows.retain(|_| kept.next().copied().unwrap_or(false));
        let mut name_indexes = vec![None; self.names.len()];
        let mut names = Vec::new();
        for name_index in &mut self.of_rows {
            let old = *name_index as usize;
            *name_index = *name_indexes[old].get_or_insert_with(|| {
                names.push(std::mem::take(&mut self.names[old]));
                names.len() as u32 - 1
            });
        }
        if names.is_empty() {
            self.names.truncate(1);
        } else {
            self.names = names;
        }
        if self.names.len() == 1 {
            self.of_rows.clear();
        }
    }
}

impl<T: Into<Box<str>>> From<T> for Measurements {
    /// Returns one measurement for all rows.
    fn from(name: T) -> Self {
        Self {
            names: vec![name.into()],
            of_rows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_measurement_when_others_go() {
        let names = ["a", "b", "c"].map(Box::from).to_vec();
        let all = Measurements::of_rows(names, vec![0, 1, 2, 1]);
        let of = |measurements: &Measurements, rows: usize| -> Vec<String> {
            (0..rows).map(|row| measurements.of(row).to_owned()).collect()
        };
        assert_eq!(of(&all, 4), ["a", "b", "c", "b"]);
        let mut some = all.clone();
        some.retain(&[false, true, true, true]);
        assert_eq!(
            (of(&some, 3), some.names().len()),
            (vec!["b".into(), "c".into(), "b".into()], 2)
        );
        some.retain(&[true, false, true]);
        assert!(some.are("b") && some.name_indexes().is_empty());
        assert_eq!(of(&some, 2), ["b", "b"]);
        some.retain(&[false, false]);
        assert_eq!(some, "b".into());
        let mut none = all;
        none.retain(&[false; 4]);
        assert_eq!((none.names().len(), none.name_indexes().len()), (1, 0));
    }
}
