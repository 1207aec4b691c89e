//! Column roles that a Parquet file declares in its metadata. Query results and archive files declare them.
//!
//! Such files can be read without options for tags and fields.

use parquet::file::metadata::{FileMetaData, ParquetMetaData};
use serde::Deserialize;

use super::{Kind, Role};

/// Type name of columns of native histograms.
const HISTOGRAM: &str = "histogram";

/// Role of a column as declared by the file. A column that is neither tag nor field is skipped, except time and
/// measurement.
#[derive(Deserialize)]
struct Note {
    column: String,
    tag: Option<String>,
    field: Option<String>,
    #[serde(rename = "type")]
    of: Option<String>,
}

/// Roles of all columns of a file.
pub(super) struct Described {
    /// Role per column. Columns of histograms are skipped.
    pub(super) roles: Vec<Role>,
    /// Measurement of all rows, if it is not in a column.
    pub(super) measurement: Option<String>,
    /// Indexes of columns of native histograms, which no write format supports.
    pub(super) histograms: Vec<usize>,
}

/// Returns the declared roles of the columns, or `None` if the file does not declare all of them.
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

/// Counts the values of some columns from the file's statistics. If null counts are missing, all rows are counted.
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
