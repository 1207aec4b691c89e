//! Files that say what their columns are: answers of a query, and files of an archive. So they are read back without
//! being told which columns are tags.

use parquet::file::metadata::{FileMetaData, ParquetMetaData};
use serde::Deserialize;

use super::{Kind, Role};

/// The type of columns of native histograms.
const HISTOGRAM: &str = "histogram";

/// What a column holds, as a file says it. A column of neither is passed over.
#[derive(Deserialize)]
struct Note {
    column: String,
    tag: Option<String>,
    field: Option<String>,
    #[serde(rename = "type")]
    of: Option<String>,
}

/// What a file says of its columns.
pub(super) struct Described {
    /// What each is. Those of histograms are nothing.
    pub(super) roles: Vec<Role>,
    /// The measurement of all rows, where no column holds it.
    pub(super) measurement: Option<String>,
    /// The places of columns of native histograms, as texts or as they are stored: no form of a write holds them.
    pub(super) histograms: Vec<usize>,
}

/// What the columns of these names are; `None` = the file does not say it of all.
pub(super) fn described(file: &FileMetaData, names: &[String]) -> Option<Described> {
    let said = |key: &str| {
        let mut notes = file.key_value_metadata()?.iter();
        notes.find(|note| note.key == key)?.value.as_deref()
    };
    let notes: Vec<Note> = serde_json::from_str(said("tideline.columns")?).ok()?;
    let measurement = said("tideline.measurement").map(str::to_owned);
    let note = |name: &String| notes.iter().find(|note| note.column == *name);
    let is_histogram = |name: &String| note(name).is_some_and(|note| note.of.as_deref() == Some(HISTOGRAM));
    let role = |name: &String| {
        let note = note(name)?;
        Some(match (&note.tag, &note.field) {
            (Some(tag), _) => Role::Tag(tag.clone()),
            (None, Some(_)) if is_histogram(name) => Role::Nothing,
            (None, Some(field)) => Role::Field(field.clone(), kind(note.of.as_deref())),
            (None, None) if name == "time" => Role::Time,
            (None, None) if name == "measurement" && measurement.is_none() => Role::Measurement,
            (None, None) => Role::Nothing,
        })
    };
    let roles: Vec<Role> = names.iter().map(role).collect::<Option<_>>()?;
    let histograms = (0..names.len()).filter(|at| is_histogram(&names[*at])).collect();
    Some(Described {
        roles,
        measurement,
        histograms,
    })
}

/// The values of some columns, by the counts in the file; where it does not count what is missing, its rows.
pub(super) fn count(file: &ParquetMetaData, columns: &[usize]) -> u64 {
    let schema = file.file_metadata().schema_descr();
    let is_wanted = |leaf: &usize| columns.contains(&schema.get_column_root_idx(*leaf));
    let leaves: Vec<usize> = (0..schema.num_columns()).filter(is_wanted).collect();
    let groups = file.row_groups().iter();
    let counts = groups.flat_map(|group| leaves.iter().map(|leaf| group.column(*leaf)));
    let counts = counts.map(|column| {
        let missing = column.statistics().and_then(|of| of.null_count_opt());
        let rows = u64::try_from(column.num_values()).unwrap_or(0);
        rows.saturating_sub(missing.unwrap_or(0))
    });
    counts.sum()
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
