//! What is said of a segment beside its files: everything that another database needs to make it one of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tideline_model::{TableName, TableSpec, ValueType};

use crate::copy::ArchiveCopy;
use crate::file::columns::ShapeField;
use crate::known::Fields;

/// The fields of measurements, by measurement, in the order in which they were first used.
pub type DescribedFields = BTreeMap<String, Vec<DescribedField>>;

/// A field of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedField {
    /// Its name.
    pub name: String,
    /// The types of its values, first used first, in the words of line protocol.
    pub types: Vec<String>,
}

/// The description of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// The table that it is of.
    pub table: TableName,
    /// What the table's settings were. Earlier builds did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<TableSpec>,
    /// The fields of its measurements. Earlier builds did not say; then the files do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<DescribedFields>,
    /// The segment, in the words of the store.
    pub segment: serde_json::Value,
    /// Its files.
    pub archive: ArchiveCopy,
}

impl DescribedField {
    /// The types of its values; `None` where there is one that is not known.
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

/// The fields of some measurements.
pub(crate) fn described(measurements: BTreeSet<String>, fields: &dyn Fields) -> DescribedFields {
    let fields_of = |name: String| {
        let of_measurement = fields.of_measurement(&name).into_iter();
        let of_measurement = of_measurement.map(DescribedField::from).collect();
        (name, of_measurement)
    };
    measurements.into_iter().map(fields_of).collect()
}

/// Takes note of a field with a type.
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

/// Reads a description; in words why it is none.
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
