//! Conversion of conditions by column name to the order of the key.

use std::collections::HashMap;

use super::compile::names_text;
use super::{KeyLayout, LayoutError};
use crate::tuple::KeyValue;

impl KeyLayout {
    /// Sorts values that are given by column name into the order of the key. The result is the prefix of a scan.
    /// `bounded` is the column that the bounds restrict; `None` without bounds.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::UnknownColumn`] and [`LayoutError::ColumnTwice`] for unknown and repeated names;
    /// - [`LayoutError::MissingColumn`] if a column without a value precedes one that is given or bounded.
    pub fn arrange<'v>(
        &self,
        values: impl IntoIterator<Item = (impl AsRef<str>, KeyValue<'v>)>,
        bounded: Option<&str>,
    ) -> Result<Vec<KeyValue<'v>>, LayoutError> {
        let mut given = HashMap::new();
        for (name, value) in values {
            let number = self.logical_number(name.as_ref())?;
            if given.insert(number, value).is_some() {
                return Err(self.given_twice(number));
            }
        }
        let bounded = bounded.map(|name| self.logical_number(name)).transpose()?;
        if let Some(number) = bounded.filter(|number| given.contains_key(number)) {
            return Err(self.given_twice(number));
        }
        let mut prefix = Vec::with_capacity(given.len());
        for number in 0..self.logical.len() {
            match given.remove(&number) {
                Some(value) => prefix.push(value),
                None => break,
            }
        }
        // The remaining values and the bounds must not apply to a column after the first column without a value.
        let after_gap = given
            .into_keys()
            .chain(bounded)
            .filter(|number| *number > prefix.len());
        match after_gap.min() {
            Some(number) => Err(LayoutError::MissingColumn {
                column: self.logical[number].name.clone(),
                missing: self.logical[prefix.len()].name.clone(),
            }),
            None => Ok(prefix),
        }
    }

    /// Returns true if the key has a logical column with this name. Costs no allocation, unlike the error of
    /// [`logical_number`](Self::logical_number).
    pub fn has_column(&self, name: &str) -> bool {
        self.logical.iter().any(|column| column.name == name)
    }

    /// Returns the number of the logical column with this name.
    ///
    /// # Errors
    ///
    /// [`LayoutError::UnknownColumn`] if the key has no logical column with the name.
    pub fn logical_number(&self, name: &str) -> Result<usize, LayoutError> {
        let number = self.logical.iter().position(|column| column.name == name);
        number.ok_or_else(|| LayoutError::UnknownColumn {
            column: name.to_owned(),
            known: names_text(&self.logical),
        })
    }

    fn given_twice(&self, number: usize) -> LayoutError {
        LayoutError::ColumnTwice {
            column: self.logical[number].name.clone(),
        }
    }
}
