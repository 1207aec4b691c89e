//! Files that say what their columns are: answers of a query, and files of an archive. So they are read back without
//! being told which columns are tags.

use parquet::file::metadata::FileMetaData;
use serde::Deserialize;

use super::{Kind, Role};

/// What a column holds, as a file says it. A column of neither is passed over.
#[derive(Deserialize)]
struct Note {
    column: String,
    tag: Option<String>,
    field: Option<String>,
    #[serde(rename = "type")]
    of: Option<String>,
}

/// What the columns of these names are, and the measurement of all rows where no column holds it; `None` = the file does
/// not say it of all.
pub(super) fn roles(file: &FileMetaData, names: &[String]) -> Option<(Vec<Role>, Option<String>)> {
    let said = |key: &str| {
        let mut notes = file.key_value_metadata()?.iter();
        notes.find(|note| note.key == key)?.value.as_deref()
    };
    let notes: Vec<Note> = serde_json::from_str(said("tideline.columns")?).ok()?;
    let measurement = said("tideline.measurement").map(str::to_owned);
    let role = |name: &String| {
        let note = notes.iter().find(|note| note.column == *name)?;
        Some(match (&note.tag, &note.field) {
            (Some(tag), _) => Role::Tag(tag.clone()),
            (None, Some(field)) => Role::Field(field.clone(), kind(note.of.as_deref())),
            (None, None) if name == "time" => Role::Time,
            (None, None) if name == "measurement" && measurement.is_none() => Role::Measurement,
            (None, None) => Role::Nothing,
        })
    };
    let roles: Vec<Role> = names.iter().map(role).collect::<Option<_>>()?;
    Some((roles, measurement))
}

fn kind(of: Option<&str>) -> Kind {
    match of {
        Some("float") => Kind::Float,
        Some("integer") => Kind::Int,
        Some("unsigned") => Kind::Uint,
        Some("boolean") => Kind::Bool,
        Some("string") => Kind::String,
        _ => Kind::Auto,
    }
}
