//! Names of objects at a target. `FORMAT.md` shows all of them.
//!
//! A name includes the first half of the checksum of its object, so objects are never replaced.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{SegmentId, TableName};

use crate::file::columns::NOTE_FORMAT;

/// Characters that are percent-encoded in paths.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// Maximum length of an encoded measurement in a path, in bytes. File systems and some object stores limit file names
/// to 255 bytes.
const MEASUREMENT_MAX: usize = 160;
/// Number of hexadecimal digits of a checksum in a name.
pub(crate) const DIGITS: usize = 32;

/// Maximum size of a description, in bytes. The description of a hundred thousand files takes a third of this size.
pub(crate) const DESCRIPTION_BYTES_MAX: u64 = 128 << 20;

/// Folder of descriptions and files of timelines.
const SEGMENTS: &str = "_segments";
/// Folder of files that small measurements share.
const SHARED: &str = "_shared";
/// Folder of table settings.
const SETTINGS: &str = "_settings";
/// Folder of descriptions of parts of wide tables.
const PARTS: &str = "_parts";
/// Prefix of the folder name of the files of a part of a wide table.
const PART: &str = "part=";
/// Folder of the streamed values of parts of wide tables.
const VALUES: &str = "_values";

/// Segment to be written, and its target.
#[derive(Debug, Clone)]
pub struct SegmentTarget {
    /// Digits that identify the writing database, because several databases may share a target.
    pub origin: String,
    /// Table of the segment.
    pub table: TableName,
    /// Number of the segment.
    pub segment: SegmentId,
    /// Name or address of the target.
    pub target: String,
}

impl SegmentTarget {
    /// Returns the metadata entries of every file of the segment.
    pub(crate) fn notes(&self) -> Vec<(String, String)> {
        vec![
            (NOTE_FORMAT.into(), crate::FORMAT.to_string()),
            ("tideline.table".into(), self.table.to_string()),
            ("tideline.segment".into(), self.segment.to_string()),
        ]
    }
}

/// Day, as the number of days since 1970-01-01; negative for earlier days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// Returns the day of a timestamp, which is given in nanoseconds since the epoch.
    pub fn of(instant: i64) -> Self {
        Self(instant.div_euclid(NANOS_PER_DAY))
    }

    /// Returns the first timestamp of the next day; `None` if it is out of range.
    pub fn end(self) -> Option<i64> {
        (self.0 + 1).checked_mul(NANOS_PER_DAY)
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let day: Option<DateTime<Utc>> = DateTime::from_timestamp(self.0 * 86_400, 0);
        match day {
            Some(day) => write!(f, "{}", day.format("%Y-%m-%d")),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Returns the name of a file of one measurement and day.
pub(crate) fn data_key(segment_target: &SegmentTarget, measurement: &str, day: Day, sha256: &str) -> String {
    let name = measurement_name(measurement);
    let (table, stem) = (&segment_target.table, stem(segment_target, sha256));
    format!("{table}/measurement={name}/day={day}/{stem}.parquet")
}

/// Returns the name of a shared file of one day or of a range of days.
pub(crate) fn shared_key(segment_target: &SegmentTarget, (first, last): (Day, Day), sha256: &str) -> String {
    let (table, stem) = (&segment_target.table, stem(segment_target, sha256));
    match first == last {
        true => format!("{table}/{SHARED}/day={first}/{stem}.parquet"),
        false => format!("{table}/{SHARED}/day={first}_{last}/{stem}.parquet"),
    }
}

/// Returns the name of the file of timelines of a segment.
pub(crate) fn timelines_key(segment_target: &SegmentTarget, sha256: &str) -> String {
    let (table, stem) = (&segment_target.table, stem(segment_target, sha256));
    format!("{table}/{SEGMENTS}/{stem}.timelines.parquet")
}

/// Returns the name of the description of a segment.
pub(crate) fn sidecar_key(segment_target: &SegmentTarget, sha256: &str) -> String {
    let (table, stem) = (&segment_target.table, stem(segment_target, sha256));
    format!("{table}/{SEGMENTS}/{stem}.json")
}

/// Returns the name of a file of rows of a part of a wide table.
pub(crate) fn rows_key(table: &TableName, part: &str, stem: &str) -> String {
    format!("{table}/{PART}{part}/{stem}.parquet")
}

/// Returns the name of a file of streamed values of a part of a wide table.
pub(crate) fn values_key(table: &TableName, stem: &str) -> String {
    format!("{table}/{VALUES}/{stem}.parquet")
}

/// Returns the name of the description of a part of a wide table.
pub(crate) fn part_description_key(table: &TableName, stem: &str) -> String {
    format!("{table}/{PARTS}/{stem}.json")
}

/// Returns true if an object is the description of a part of a wide table of this target.
pub(crate) fn is_part_description(key: &str) -> bool {
    parse_location(key).is_some_and(|(_, folder, name)| folder == PARTS && name.ends_with(".json"))
}

/// Returns the name of an object with settings of a table. `revision` increases with each write by the database.
pub(crate) fn settings_key(table: &str, origin: &str, revision: u64, sha256: &str) -> String {
    let digits = &sha256[..DIGITS];
    format!("{table}/{SETTINGS}/{origin}-{revision}-{digits}.json")
}

/// Returns the common prefix of the settings of a table.
pub(crate) fn settings_prefix(table: &str) -> String {
    format!("{table}/{SETTINGS}/")
}

/// Parsed name of an object at a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedObject<'a> {
    /// Folder of the table.
    pub table: &'a str,
    /// Kind of the content.
    pub content: ObjectContent,
    /// Origin of the database that wrote the object.
    pub origin: &'a str,
    /// Number of the segment, or revision of settings.
    pub number: u64,
    /// First half of the checksum of the content.
    pub(crate) digits: &'a str,
}

impl NamedObject<'_> {
    /// Returns the number and the first half of the checksum. Together they are unique among the objects of a database.
    /// Always `Some` for results of [`named`].
    pub fn identity(&self) -> Option<(u64, u128)> {
        let digits = u128::from_str_radix(self.digits, 16).ok()?;
        Some((self.number, digits))
    }
}

/// Kind of the content of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectContent {
    /// Rows of one measurement, or of several small ones.
    Points,
    /// Timelines of a segment.
    Timelines,
    /// Description of a segment.
    Description,
    /// Settings of a table.
    Settings,
    /// Rows of a part of a wide table.
    Rows,
    /// Streamed values of a part of a wide table.
    Values,
    /// Description of a part of a wide table.
    PartDescription,
}

impl ObjectContent {
    /// Returns true for the description of a segment or a part. Without the description, no database uses the other
    /// objects of the segment or part.
    pub fn is_description(self) -> bool {
        matches!(self, Self::Description | Self::PartDescription)
    }

    /// Returns the name used in requests and responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Points => "points",
            Self::Timelines => "timelines",
            Self::Description => "description",
            Self::Settings => "settings",
            Self::Rows => "rows",
            Self::Values => "values",
            Self::PartDescription => "part_description",
        }
    }
}

/// Parses the name of an object; `None` if the name does not have the form of an archive object of this target.
pub fn named(key: &str) -> Option<NamedObject<'_>> {
    let (table, folder, name) = parse_location(key)?;
    let (stem, content) = match folder {
        SEGMENTS => match name.strip_suffix(".timelines.parquet") {
            Some(stem) => (stem, ObjectContent::Timelines),
            None => (name.strip_suffix(".json")?, ObjectContent::Description),
        },
        SETTINGS => (name.strip_suffix(".json")?, ObjectContent::Settings),
        PARTS => (name.strip_suffix(".json")?, ObjectContent::PartDescription),
        VALUES => (name.strip_suffix(".parquet")?, ObjectContent::Values),
        _ if folder.starts_with(PART) => (name.strip_suffix(".parquet")?, ObjectContent::Rows),
        _ => (name.strip_suffix(".parquet")?, ObjectContent::Points),
    };
    let mut parts = stem.rsplitn(3, '-');
    let (digits, number, origin) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = is_digits(digits) && !origin.is_empty();
    is_whole.then_some(NamedObject {
        table,
        content,
        origin,
        number: number.parse().ok()?,
        digits,
    })
}

/// Returns true if a part of a name has the form of the first half of a checksum.
pub(crate) fn is_digits(part: &str) -> bool {
    part.len() == DIGITS && part.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Returns the common prefix of the descriptions of the parts of a table.
pub(crate) fn parts_prefix(table: &TableName) -> String {
    format!("{table}/{PARTS}/")
}

/// Returns true if an object has rows of a part of a wide table.
pub(crate) fn is_rows_of(key: &str, table: &str, part: &str) -> bool {
    let folder = parse_location(key).and_then(|(_, folder, _)| folder.strip_prefix(PART));
    folder == Some(part) && named(key).is_some_and(|object| object.table == table)
}

/// Returns true if an object has streamed values of a part of a wide table.
pub(crate) fn is_values_of(key: &str, table: &str) -> bool {
    named(key).is_some_and(|object| object.table == table && object.content == ObjectContent::Values)
}

/// Returns the common prefix of the descriptions of a table.
pub(crate) fn segments_prefix(table: &TableName) -> String {
    format!("{table}/{SEGMENTS}/")
}

/// Returns true if an object is a description of a table of this target. Deeper paths are objects of another target.
pub(crate) fn is_sidecar(key: &str) -> bool {
    parse_location(key).is_some_and(|(_, folder, name)| folder == SEGMENTS && name.ends_with(".json"))
}

/// Returns the table, the first folder below it, and the last path segment of an object of this target; `None` for
/// other names. Objects of another target below this one have similar names with additional leading folders.
fn parse_location(key: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        [table, SEGMENTS, name] => Some((table, SEGMENTS, name)),
        [table, SETTINGS, name] => Some((table, SETTINGS, name)),
        [table, PARTS, name] => Some((table, PARTS, name)),
        [table, VALUES, name] => Some((table, VALUES, name)),
        [table, folder, name] if folder.starts_with(PART) => Some((table, folder, name)),
        [table, folder, day, name] if is_folder_of_days(folder) && day.starts_with("day=") => {
            Some((table, folder, name))
        }
        _ => None,
    }
}

fn is_folder_of_days(folder: &str) -> bool {
    folder == SHARED || folder.starts_with("measurement=")
}

/// Returns true if a folder contains objects of a table.
pub(crate) fn is_folder_of_table(folder: &str) -> bool {
    let is_of_parts = folder == PARTS || folder == VALUES || folder.starts_with(PART);
    folder == SEGMENTS || folder == SETTINGS || is_of_parts || is_folder_of_days(folder)
}

/// Returns the base of an object name: origin, segment and checksum.
fn stem(segment_target: &SegmentTarget, sha256: &str) -> String {
    let SegmentTarget { origin, segment, .. } = segment_target;
    format!("{origin}-{segment}-{}", &sha256[..DIGITS])
}

/// Returns true if, according to its name, the database `origin` wrote the object `key` for a table of this target.
/// Other databases may use the same target, or a target below it.
pub fn is_of(key: &str, table: &str, origin: &str) -> bool {
    parse_location(key).is_some_and(|(of, _, name)| {
        of == table
            && name
                .strip_prefix(origin)
                .is_some_and(|rest| rest.starts_with('-'))
    })
}

/// Returns the part of an object name after the last slash. This part is unique across databases and targets, because
/// it contains the origin, the segment and the checksum.
pub fn file_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// Returns the common prefix of all objects of a table.
pub fn table_prefix(table: &str) -> String {
    format!("{table}/")
}

fn measurement_name(measurement: &str) -> String {
    let mut name: String = utf8_percent_encode(measurement, NAME).collect();
    if name.bytes().all(|byte| byte == b'.') {
        // "." and ".." have a special meaning in paths.
        name = name.replace('.', "%2E");
    }
    if name.len() > MEASUREMENT_MAX {
        let digest = crate::digest::sha256_hex(measurement.as_bytes());
        name.truncate(MEASUREMENT_MAX - 17);
        let _infallible = write!(name, "~{}", &digest[..16]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        let segment_target = SegmentTarget {
            origin: "0a1b".into(),
            table: TableName::new("default").expect("valid"),
            segment: SegmentId(7),
            target: String::new(),
        };
        let key = data_key(
            &segment_target,
            "a/b=c %ü",
            Day::of(-1),
            &"0123456789abcdef".repeat(4),
        );
        assert_eq!(
            key,
            "default/measurement=a%2Fb%3Dc%20%25%C3%BC/day=1969-12-31/0a1b-7-0123456789abcdef0123456789abcdef.parquet"
        );
        assert!(is_of(&key, "default", "0a1b") && !is_of(&key, "default", "0a1"));
        assert!(!is_of(&key, "other", "0a1b") && !is_of(&format!("default/{key}"), "default", "0a1b"));
        for (key, is_ours) in [
            ("t/_segments/0a1b-7-00.json", true),
            ("t/_settings/0a1b-7-00.json", true),
            ("t/_settings/_settings/0a1b-7-00.json", false),
            ("t/_shared/day=1970-01-01_1970-02-03/0a1b-7-00.parquet", true),
            ("t/_shared/day=1970-01-01/0a1b-7-00.parquet", true),
            ("t/_shared/_segments/0a1b-7-00.json", false),
            ("t/_segments/_segments/0a1b-7-00.json", false),
            ("t/_segments/_shared/day=1970-01-01/0a1b-7-00.parquet", false),
            ("t/0a1b-7-00.json", false),
        ] {
            assert_eq!(is_of(key, "t", "0a1b"), is_ours, "{key}");
        }
        let digits = "0123456789abcdef".repeat(2);
        for (key, content) in [
            (key.clone(), ObjectContent::Points),
            (
                shared_key(&segment_target, (Day(0), Day(9)), &digits),
                ObjectContent::Points,
            ),
            (timelines_key(&segment_target, &digits), ObjectContent::Timelines),
            (sidecar_key(&segment_target, &digits), ObjectContent::Description),
            (
                settings_key("default", "0a1b", 7, &digits),
                ObjectContent::Settings,
            ),
            (
                rows_key(&segment_target.table, "2026-11", &format!("0a1b-7-{digits}")),
                ObjectContent::Rows,
            ),
            (
                values_key(&segment_target.table, &format!("0a1b-7-{digits}")),
                ObjectContent::Values,
            ),
            (
                part_description_key(&segment_target.table, &format!("0a1b-7-{digits}")),
                ObjectContent::PartDescription,
            ),
        ] {
            let named = named(&key).expect("it is a name");
            assert_eq!(
                (named.table, named.content, named.origin, named.number),
                ("default", content, "0a1b", 7)
            );
        }
        for wrong in ["default/_segments/0a1b-7-00.json", "default/notes.txt", "x"] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
        assert!(measurement_name("..").starts_with("%2E"));
        let long = measurement_name(&"é".repeat(400));
        assert!(long.len() <= MEASUREMENT_MAX && long.contains('~'));
        assert_eq!(Day::of(i64::MAX - 1).end(), None);
    }
}
