//! Compression of single columns: the columns of a table that have a separate compression setting.
//!
//! The setting applies to texts, bytes and JSON documents. Blocks store the values of such a column apart from their
//! other streams ([`crate::block`]). Large values are compressed piece by piece according to the setting
//! ([`crate::large`]). A change of the setting applies to blocks and pieces that are written later.

use std::collections::BTreeMap;

use tideline_model::{ColumnCompression, WideSpec};

use crate::mutation::ColumnName;

/// Level of zstd for columns with the compression `zstd`.
pub(crate) const ZSTD_LEVEL: i32 = 6;

/// Columns of a table with a separate compression setting.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnCodecs {
    declared: BTreeMap<u32, ColumnCompression>,
    named: BTreeMap<String, ColumnCompression>,
    /// Beginnings of names, in the order of their declaration.
    prefixes: Vec<(String, ColumnCompression)>,
}

impl ColumnCodecs {
    /// Compiles the settings of a table.
    pub(crate) fn new(spec: &WideSpec) -> Self {
        let mut codecs = Self::default();
        if spec.columns.iter().all(|column| column.compression.is_auto()) {
            return codecs;
        }
        for column in &spec.columns {
            match column.prefix() {
                Some(prefix) => codecs.prefixes.push((prefix.to_owned(), column.compression)),
                None if column.is_pattern() => {}
                None if column.number > 0 => {
                    codecs.declared.insert(column.number, column.compression);
                }
                None => {
                    codecs.named.insert(column.name.clone(), column.compression);
                }
            }
        }
        codecs
    }

    /// Returns true if all columns are compressed together.
    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty() && self.named.is_empty() && self.prefixes.is_empty()
    }

    /// Returns the compression of a column: that of its declaration, otherwise that of the first pattern for its name.
    pub(crate) fn of(&self, name: &ColumnName<'_>) -> ColumnCompression {
        let found = match name {
            ColumnName::Declared(number) => self.declared.get(number).copied(),
            ColumnName::Named(name) => self.named.get(&**name).copied().or_else(|| {
                let mut prefixes = self.prefixes.iter();
                let found = prefixes.find(|(prefix, _)| name.starts_with(prefix.as_str()));
                found.map(|(_, compression)| *compression)
            }),
        };
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_precedes_patterns() {
        let spec = serde_json::json!({
            "key": [{"name": "id", "type": "string"}],
            "columns": [
                {"name": "text", "type": "string", "number": 1, "compression": "zstd"},
                {"name": "price", "type": "i64", "number": 2},
                {"name": "picture_small", "type": "binary"},
                {"name": "picture_*", "type": "binary", "compression": "none"},
                {"name": "*", "type": "string", "compression": "lz4"},
            ],
        });
        let codecs = ColumnCodecs::new(&serde_json::from_value(spec).expect("valid settings"));
        let named = |name: &'static str| codecs.of(&ColumnName::Named(name.into()));
        assert_eq!(codecs.of(&ColumnName::Declared(1)), ColumnCompression::Zstd);
        assert_eq!(codecs.of(&ColumnName::Declared(2)), ColumnCompression::Auto);
        assert_eq!(codecs.of(&ColumnName::Declared(3)), ColumnCompression::Auto);
        assert_eq!(named("picture_small"), ColumnCompression::Auto);
        assert_eq!(named("picture_1"), ColumnCompression::None);
        assert_eq!(named("note"), ColumnCompression::Lz4);
    }
}
