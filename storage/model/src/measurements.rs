//! The measurement of each row of a group.

/// The measurement of each row of a group.
///
/// Usually all rows have the same. A request of Prometheus has hundreds, with one field each: in one group their rows
/// are judged, journalled and applied together, where groups of a few rows each would cost more than the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurements {
    /// Never empty; each has a row, unless there are no rows.
    names: Vec<Box<str>>,
    /// For each row the place of its measurement in `names`; empty where there is only one.
    of_rows: Vec<u32>,
}

impl Measurements {
    /// Measurements of which each row has one, by its place in `names`.
    ///
    /// # Panics
    ///
    /// When there is no name, or a place is that of none.
    pub fn of_rows(names: Vec<Box<str>>, of_rows: Vec<u32>) -> Self {
        assert!(
            !names.is_empty() && of_rows.iter().all(|place| (*place as usize) < names.len()),
            "each row has a measurement"
        );
        let of_rows = if names.len() == 1 { Vec::new() } else { of_rows };
        Self { names, of_rows }
    }

    /// Each measurement once.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// For each row the place of its measurement among the [`names`](Self::names); empty where all rows have the first.
    pub fn places(&self) -> &[u32] {
        &self.of_rows
    }

    /// The place of a row's measurement among the [`names`](Self::names).
    pub fn place(&self, row: usize) -> usize {
        self.of_rows.get(row).map_or(0, |place| *place as usize)
    }

    /// The measurement of a row.
    pub fn of(&self, row: usize) -> &str {
        &self.names[self.place(row)]
    }

    /// Whether all rows have this one.
    pub fn are(&self, name: &str) -> bool {
        matches!(&*self.names, [only] if **only == *name)
    }

    /// Drops the rows for which `keep` is false, and the measurements that have no row then.
    pub fn retain(&mut self, keep: &[bool]) {
        if self.of_rows.is_empty() {
            return;
        }
        let mut kept = keep.iter();
        self.of_rows.retain(|_| kept.next().copied().unwrap_or(false));
        let mut places = vec![None; self.names.len()];
        let mut names = Vec::new();
        for place in &mut self.of_rows {
            let old = *place as usize;
            *place = *places[old].get_or_insert_with(|| {
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
    /// One measurement of all rows.
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
        assert!(some.are("b") && some.places().is_empty());
        assert_eq!(of(&some, 2), ["b", "b"]);
        some.retain(&[false, false]);
        assert_eq!(some, "b".into());
        let mut none = all;
        none.retain(&[false; 4]);
        assert_eq!((none.names().len(), none.places().len()), (1, 0));
    }
}
