//! Description of a segment, stored with its files. It has all data that another database needs to attach the segment.
//!
//! Members added in later builds are optional, so that descriptions that earlier builds wrote can be read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tideline_model::{TableName, TableSpec, ValueType};

use crate::copy::ArchiveCopy;
use crate::file::columns::ShapeField;
use crate::timeline_metadata::Fields;

/// Fields by measurement; the fields of each measurement are in order of first use.
pub type DescribedFields = BTreeMap<String, Vec<DescribedField>>;

/// Field of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedField {
    /// Name of the field.
    pub name: String,
    /// Names of the types of its values ([`ValueType::name`]) in order of first use.
    pub types: Vec<String>,
}

/// Description of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// Format number; must be [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// Table of the segment.
    pub table: TableName,
    /// Settings of the table when the files were written. Missing if an earlier build wrote the description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<TableSpec>,
    /// Fields of the measurements. Missing if an earlier build wrote the description; the fields are then read from the
    /// files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<DescribedFields>,
    /// Segment record of the store, serialized as JSON.
    pub segment: serde_json::Value,
    /// Files of the segment.
    pub archive: ArchiveCopy,
}

impl DescribedField {
    /// Returns the types of the values; `None` if this build does not support one of the types.
    pub fn known_types(&self) -> Option<Vec<ValueType>> {
        let known = |name: &String| ValueType::ALL.into_iter().find(|of| of.name() == name);
        self.types.iter().map(known).collect()
    }
}

impl From<ShapeField> for DescribedField {
    fn from(field: ShapeField) -> Self {
        Self {
            name: field.name,
            types: field.types.iter().map(|of| of.name().to_owned()).collect(),
        }
    }
}

/// Returns the fields of the given measurements.
pub(crate) fn described(measurements: BTreeSet<String>, fields: &dyn Fields) -> DescribedFields {
    let fields_of = |name: String| {
        let of_measurement = fields.of_measurement(&name).into_iter();
        let of_measurement = of_measurement.map(DescribedField::from).collect();
        (name, of_measurement)
    };
    measurements.into_iter().map(fields_of).collect()
}

/// Adds a field of a measurement and a type of its values, unless they are present.
pub(crate) fn note(fields: &mut DescribedFields, measurement: &str, name: &str, of: ValueType) {
    if !fields.contains_key(measurement) {
        fields.insert(measurement.to_owned(), Vec::new());
    }
    let of_measurement = fields.get_mut(measurement).expect("it was just put there");
    let types = match of_measurement.iter_mut().find(|field| field.name == name) {
        Some(field) => &mut field.types,
        None => {
            of_measurement.push(DescribedField {
                name: name.to_owned(),
                types: Vec::new(),
            });
            &mut of_measurement.last_mut().expect("it was just put there").types
        }
    };
    if !types.iter().any(|known| known == of.name()) {
        types.push(of.name().to_owned());
    }
}

/// Parses a description; on error, returns a human-readable reason.
pub(crate) fn parse(content: &[u8]) -> Result<Description, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if version.format != crate::FORMAT {
        return Err(format!("format {} is not known to this build", version.format));
    }
    serde_json::from_slice(content).map_err(|error| error.to_string())
}
