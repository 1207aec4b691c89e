//! Columns of the files of archived rows: names and types.
//!
//! A schema is written once, into the description of its part; every group has all of its columns.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use serde::{Deserialize, Serialize};

use crate::error::{ArchiveError, Result};
use crate::file::columns::{NOTE_FORMAT, Names};

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowColumnKind {
    /// UTF-8 text.
    Text,
    /// JSON text.
    Json,
    /// Bytes.
    Bytes,
    /// Sorted byte strings. Each is stored without the prefix that it shares with the previous one.
    Sorted,
    /// Double.
    Float,
    /// Signed 64-bit integer.
    Signed,
    /// Unsigned 64-bit integer, stored by its bits.
    Unsigned,
    /// Boolean.
    Boolean,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    Time,
}

/// Column of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowColumn {
    /// Name, unique without regard to case.
    pub name: String,
    /// Type.
    pub kind: RowColumnKind,
    /// True if every row has a value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// Columns of the files of a part.
#[derive(Debug, Clone)]
pub struct RowSchema {
    columns: Vec<RowColumn>,
    parquet: TypePtr,
    leaves: Arc<SchemaDescriptor>,
}

impl RowSchema {
    /// Creates a schema. A name that is empty, or equal to an earlier one without regard to case, gets the prefix
    /// `column.`, and if necessary a number as suffix.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Format`] if Parquet does not support a column.
    pub fn new(mut columns: Vec<RowColumn>) -> Result<Self> {
        let mut names = Names::default();
        for column in &mut columns {
            column.name = names.take(&column.name, "column.");
        }
        let failed = |error: ParquetError| ArchiveError::format("the columns of a part", error);
        let leaves = columns.iter().map(leaf);
        let leaves = leaves
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(failed)?;
        let root = Type::group_type_builder("rows").with_fields(leaves).build();
        let parquet = Arc::new(root.map_err(failed)?);
        Ok(Self {
            leaves: Arc::new(SchemaDescriptor::new(Arc::clone(&parquet))),
            columns,
            parquet,
        })
    }

    /// Returns the columns, with their final names.
    pub fn columns(&self) -> &[RowColumn] {
        &self.columns
    }

    pub(super) fn parquet(&self) -> &TypePtr {
        &self.parquet
    }

    pub(super) fn leaves(&self) -> &SchemaDescriptor {
        &self.leaves
    }

    /// Returns the properties of a file. Its columns are encoded by [`encode`](super::encode).
    pub(super) fn properties(notes: Vec<(String, String)>) -> WriterProperties {
        let format = (NOTE_FORMAT.to_owned(), crate::FORMAT.to_string());
        let notes = std::iter::once(format).chain(notes);
        let notes = notes.map(|(key, value)| KeyValue::new(key, value)).collect();
        WriterProperties::builder()
            .set_created_by(format!("tideline {}", env!("CARGO_PKG_VERSION")))
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(notes))
            .build()
    }
}

fn leaf(column: &RowColumn) -> std::result::Result<TypePtr, ParquetError> {
    let (physical, logical) = match column.kind {
        RowColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        RowColumnKind::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
        RowColumnKind::Bytes | RowColumnKind::Sorted => (Physical::BYTE_ARRAY, None),
        RowColumnKind::Float => (Physical::DOUBLE, None),
        RowColumnKind::Signed => (Physical::INT64, None),
        RowColumnKind::Unsigned => (Physical::INT64, Some(LogicalType::integer(64, false))),
        RowColumnKind::Boolean => (Physical::BOOLEAN, None),
        RowColumnKind::Time => (
            Physical::INT64,
            Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
        ),
    };
    let repetition = match column.required {
        true => Repetition::REQUIRED,
        false => Repetition::OPTIONAL,
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
        .map(Arc::new)
}
