//! Key columns of wide tables, with their modifiers.
//!
//! The modifier of a column is a member, so that a column with a misspelt modifier, or with two, is refused.

use serde::{Deserialize, Deserializer, Serialize};
use tideline_model::wide::{self, KeySource};
use tideline_model::{ColumnType, KeyColumnSpec, KeyOrder};
use utoipa::ToSchema;

use super::{ColumnTypeSchema, KeyOrderSchema};

/// Key column: a name and exactly one of `type`, `generated`, `hash_prefix`, `bucket`, `reverse`, `splice`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "spread", "hash_prefix": {"of": ["customer"], "hex": 4}}))]
pub struct KeyColumn {
    /// Name: a letter or `_`, then letters, digits and `_`; at most 255 bytes.
    pub name: String,
    /// Type of a column that stores its values unchanged: any type except `f64` and `json`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ColumnTypeSchema>)]
    pub column_type: Option<ColumnType>,
    /// Column of type `i64` with strictly rising ids. The server assigns an id to each row that is written without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<KeyGenerated>,
    /// Computed column that spreads load: the first hexadecimal digits of the MD5 of other key columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_prefix: Option<KeyHashPrefix>,
    /// Computed column that spreads load: a number chosen by the hash of other key columns. Scans merge the buckets in
    /// the order of the other key columns. Only for the first key column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<KeyBucket>,
    /// Column whose values are stored as text with the characters in reverse order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<KeyReverse>,
    /// Column that stores several columns as one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splice: Option<KeySplice>,
    /// Order of the values in a forward scan. Default `asc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<KeyOrderSchema>)]
    pub order: Option<KeyOrder>,
}

/// Marker of a generated column; it has no members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyGenerated {}

/// Parameters of a hash prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyHashPrefix {
    /// Names of the key columns that are hashed.
    pub of: Vec<String>,
    /// Number of hexadecimal digits, 1 to 8.
    pub hex: u8,
}

/// Parameters of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyBucket {
    /// Names of the key columns that are hashed.
    pub of: Vec<String>,
    /// Number of buckets, 2 to 256.
    pub count: u16,
}

/// Parameters of a reversed column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyReverse {
    /// The column that users write and read.
    pub of: ReversedColumn,
}

/// Column that is stored in reverse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReversedColumn {
    /// Name.
    pub name: String,
    /// Type: `string`, `i64` or `u64`. Negative numbers are refused.
    #[serde(rename = "type")]
    #[schema(value_type = ColumnTypeSchema)]
    pub column_type: ColumnType,
}

/// Parameters of a splice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeySplice {
    /// The columns that users write and read, 2 to 8.
    pub columns: Vec<SplicedColumn>,
    /// ASCII character between the texts; texts must not contain it or a character that sorts before it. If the splice has
    /// integers, it must sort before `0`. Default `,`.
    #[serde(default = "default_delimiter", deserialize_with = "one_character")]
    #[schema(value_type = String)]
    pub delimiter: char,
}

fn default_delimiter() -> char {
    ','
}

fn one_character<'de, D: Deserializer<'de>>(deserializer: D) -> Result<char, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(serde::de::Error::custom(format_args!(
            "expected one character, found the text {text:?}"
        ))),
    }
}

/// Column of a splice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SplicedColumn {
    /// Name.
    pub name: String,
    /// Type: `string`, `i64` or `u64`.
    #[serde(rename = "type")]
    #[schema(value_type = ColumnTypeSchema)]
    pub column_type: ColumnType,
    /// Number of digits of an integer, 1 to 20, filled with zeros. Required for integers; negative and longer numbers
    /// are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u8>,
}

impl KeyColumn {
    /// Returns true if the column has neither a type nor a modifier.
    pub(crate) fn has_no_form(&self) -> bool {
        *self
            == Self {
                name: self.name.clone(),
                order: self.order,
                ..Self::default()
            }
    }

    /// Converts the column to a [`KeyColumnSpec`].
    ///
    /// # Errors
    ///
    /// Returns a message unless the column has exactly one of `type` and the modifiers.
    pub(crate) fn into_spec(self) -> Result<KeyColumnSpec, String> {
        let generated = self.generated.map(|KeyGenerated {}| wide::Generated {});
        let hash_prefix = self
            .hash_prefix
            .map(|KeyHashPrefix { of, hex }| wide::HashPrefix { of, hex });
        let bucket = self
            .bucket
            .map(|KeyBucket { of, count }| wide::Bucket { of, count });
        let reverse = self.reverse.map(|KeyReverse { of }| wide::Reverse {
            of: wide::LogicalColumn {
                name: of.name,
                column_type: of.column_type,
            },
        });
        let splice = self.splice.map(|splice| wide::Splice {
            columns: splice.columns.into_iter().map(SplicedColumn::into_spec).collect(),
            delimiter: splice.delimiter,
        });
        let sources = [
            self.column_type.map(KeySource::Type),
            generated.map(KeySource::Generated),
            hash_prefix.map(KeySource::HashPrefix),
            bucket.map(KeySource::Bucket),
            reverse.map(KeySource::Reverse),
            splice.map(KeySource::Splice),
        ];
        let mut given = sources.into_iter().flatten();
        let (Some(source), None) = (given.next(), given.next()) else {
            return Err(format!(
                "wide.key: column {:?} needs exactly one of type, generated, hash_prefix, bucket, reverse, splice",
                self.name
            ));
        };
        Ok(KeyColumnSpec {
            name: self.name,
            source,
            order: self.order.unwrap_or_default(),
        })
    }
}

impl From<&KeyColumnSpec> for KeyColumn {
    fn from(spec: &KeyColumnSpec) -> Self {
        let mut column = Self {
            name: spec.name.clone(),
            order: (spec.order != KeyOrder::default()).then_some(spec.order),
            ..Self::default()
        };
        match spec.source.clone() {
            KeySource::Type(column_type) => column.column_type = Some(column_type),
            KeySource::Generated(wide::Generated {}) => column.generated = Some(KeyGenerated {}),
            KeySource::HashPrefix(wide::HashPrefix { of, hex }) => {
                column.hash_prefix = Some(KeyHashPrefix { of, hex });
            }
            KeySource::Bucket(wide::Bucket { of, count }) => column.bucket = Some(KeyBucket { of, count }),
            KeySource::Reverse(wide::Reverse { of }) => {
                let of = ReversedColumn {
                    name: of.name,
                    column_type: of.column_type,
                };
                column.reverse = Some(KeyReverse { of });
            }
            KeySource::Splice(wide::Splice { columns, delimiter }) => {
                let columns = columns.into_iter().map(|column| SplicedColumn {
                    name: column.name,
                    column_type: column.column_type,
                    pad: column.pad,
                });
                column.splice = Some(KeySplice {
                    columns: columns.collect(),
                    delimiter,
                });
            }
        }
        column
    }
}

impl SplicedColumn {
    fn into_spec(self) -> wide::SplicedColumn {
        wide::SplicedColumn {
            name: self.name,
            column_type: self.column_type,
            pad: self.pad,
        }
    }
}
