//! The names of objects: what lies where in a target. `FORMAT.md` shows the whole tree.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{SegmentId, TableName};

use crate::file::columns::NOTE_FORMAT;

/// What a path may hold as it is.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// Longest encoded measurement in a path: names of files end at 255 bytes, and so do some stores' patience.
const MEASUREMENT_MAX: usize = 160;
/// Hexadecimal digits of a checksum in a name.
pub(crate) const DIGITS: usize = 32;

/// Largest description: one of a hundred thousand files has a third of this.
pub(crate) const DESCRIPTION_BYTES_MAX: u64 = 128 << 20;

/// The folder of what describes segments.
const SEGMENTS: &str = "_segments";
/// The folder of files that small measurements share.
const SHARED: &str = "_shared";
/// The folder of what the settings of tables are.
const SETTINGS: &str = "_settings";

/// Which segment is written.
#[derive(Debug, Clone)]
pub struct SegmentPlace {
    /// Which database writes it: some digits that no other one has, since several may share a target.
    pub origin: String,
    /// The table.
    pub table: TableName,
    /// The segment.
    pub segment: SegmentId,
    /// The target, as the table's policy names it.
    pub target: String,
}

impl SegmentPlace {
    /// The notes that every file of the segment has.
    pub(crate) fn notes(&self) -> Vec<(String, String)> {
        vec![
            (NOTE_FORMAT.into(), crate::FORMAT.to_string()),
            ("tideline.table".into(), self.table.to_string()),
            ("tideline.segment".into(), self.segment.to_string()),
        ]
    }
}

/// A day: days since 1970-01-01, negative before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// The day of an instant, nanoseconds since the epoch.
    pub fn of(instant: i64) -> Self {
        Self(instant.div_euclid(NANOS_PER_DAY))
    }

    /// The first instant of the next day; `None` behind the last day.
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

/// The name of a file of one measurement and day.
pub(crate) fn data_key(place: &SegmentPlace, measurement: &str, day: Day, sha256: &str) -> String {
    let name = measurement_name(measurement);
    let (table, stem) = (&place.table, stem(place, sha256));
    format!("{table}/measurement={name}/day={day}/{stem}.parquet")
}

/// The name of a file that small measurements share, of a day or from one day to another.
pub(crate) fn shared_key(place: &SegmentPlace, (first, last): (Day, Day), sha256: &str) -> String {
    let (table, stem) = (&place.table, stem(place, sha256));
    match first == last {
        true => format!("{table}/{SHARED}/day={first}/{stem}.parquet"),
        false => format!("{table}/{SHARED}/day={first}_{last}/{stem}.parquet"),
    }
}

/// The name of the file that says where each timeline of a segment is, and what it is.
pub(crate) fn timelines_key(place: &SegmentPlace, sha256: &str) -> String {
    let (table, stem) = (&place.table, stem(place, sha256));
    format!("{table}/{SEGMENTS}/{stem}.timelines.parquet")
}

/// The name of the description of a segment.
pub(crate) fn sidecar_key(place: &SegmentPlace, sha256: &str) -> String {
    let (table, stem) = (&place.table, stem(place, sha256));
    format!("{table}/{SEGMENTS}/{stem}.json")
}

/// The name of the object that holds settings of a table: `revision` counts what the database has written of them.
pub(crate) fn settings_key(table: &str, origin: &str, revision: u64, sha256: &str) -> String {
    let digits = &sha256[..DIGITS];
    format!("{table}/{SETTINGS}/{origin}-{revision}-{digits}.json")
}

/// Under what the settings of a table lie.
pub(crate) fn settings_prefix(table: &str) -> String {
    format!("{table}/{SETTINGS}/")
}

/// An object of a target, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedObject<'a> {
    /// The table's folder.
    pub table: &'a str,
    /// Kind of its content.
    pub content: ObjectContent,
    /// The database that wrote it.
    pub origin: &'a str,
    /// The segment that it was written for; of settings their revision.
    pub number: u64,
    /// The first half of the checksum of its content.
    pub(crate) digits: &'a str,
}

impl NamedObject<'_> {
    /// The number and the checksum as numbers: no two objects of a database have both in common.
    pub fn identity(&self) -> Option<(u64, u128)> {
        let digits = u128::from_str_radix(self.digits, 16).ok()?;
        Some((self.number, digits))
    }
}

/// Content of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectContent {
    /// Rows of one measurement, or of small ones.
    Points,
    /// The timelines of a segment.
    Timelines,
    /// The description of a segment.
    Description,
    /// Settings of a table.
    Settings,
}

impl ObjectContent {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Points => "points",
            Self::Timelines => "timelines",
            Self::Description => "description",
            Self::Settings => "settings",
        }
    }
}

/// Parses the name of an object; `None` of what no archive has written at this place.
pub fn named(key: &str) -> Option<NamedObject<'_>> {
    let (table, folder, name) = place_of(key)?;
    let (stem, content) = match folder {
        SEGMENTS => match name.strip_suffix(".timelines.parquet") {
            Some(stem) => (stem, ObjectContent::Timelines),
            None => (name.strip_suffix(".json")?, ObjectContent::Description),
        },
        SETTINGS => (name.strip_suffix(".json")?, ObjectContent::Settings),
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

/// Whether a part of a name is the first half of a checksum.
pub(crate) fn is_digits(part: &str) -> bool {
    part.len() == DIGITS && part.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Under what the descriptions of a table lie.
pub(crate) fn segments_prefix(table: &TableName) -> String {
    format!("{table}/{SEGMENTS}/")
}

/// Whether an object describes a segment of a table of this place. What lies deeper belongs to another target.
pub(crate) fn is_sidecar(key: &str) -> bool {
    place_of(key).is_some_and(|(_, folder, name)| folder == SEGMENTS && name.ends_with(".json"))
}

/// The table of an object, the first folder below it, and the last part of the name: of what has a name that this
/// place gives. Another target may lie below this one, and have names that look alike but for where they begin.
fn place_of(key: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        [table, SEGMENTS, name] => Some((table, SEGMENTS, name)),
        [table, SETTINGS, name] => Some((table, SETTINGS, name)),
        [table, folder, day, name] if is_folder_of_days(folder) && day.starts_with("day=") => {
            Some((table, folder, name))
        }
        _ => None,
    }
}

fn is_folder_of_days(folder: &str) -> bool {
    folder == SHARED || folder.starts_with("measurement=")
}

/// Whether a folder is one of those that the objects of a table lie in.
pub(crate) fn is_folder_of_table(folder: &str) -> bool {
    folder == SEGMENTS || folder == SETTINGS || is_folder_of_days(folder)
}

/// Who wrote an object, for which segment, and what is in it.
fn stem(place: &SegmentPlace, sha256: &str) -> String {
    let SegmentPlace { origin, segment, .. } = place;
    format!("{origin}-{segment}-{}", &sha256[..DIGITS])
}

/// Whether an object was written for a table by a database: others may keep theirs in the same place, or below it.
pub fn is_of(key: &str, table: &str, origin: &str) -> bool {
    place_of(key).is_some_and(|(of, _, name)| {
        of == table
            && name
                .strip_prefix(origin)
                .is_some_and(|rest| rest.starts_with('-'))
    })
}

/// The last part of the name of an object: it says whose it is, of which segment and content, and so no two databases
/// and no two places have the same.
pub fn file_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// Under what all objects of a table lie.
pub fn table_prefix(table: &str) -> String {
    format!("{table}/")
}

fn measurement_name(measurement: &str) -> String {
    let mut name: String = utf8_percent_encode(measurement, NAME).collect();
    if name.bytes().all(|byte| byte == b'.') {
        // "." and ".." mean something else in a path.
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
        let place = SegmentPlace {
            origin: "0a1b".into(),
            table: TableName::new("default").expect("valid"),
            segment: SegmentId(7),
            target: String::new(),
        };
        let key = data_key(&place, "a/b=c %ü", Day::of(-1), &"0123456789abcdef".repeat(4));
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
                shared_key(&place, (Day(0), Day(9)), &digits),
                ObjectContent::Points,
            ),
            (timelines_key(&place, &digits), ObjectContent::Timelines),
            (sidecar_key(&place, &digits), ObjectContent::Description),
            (
                settings_key("default", "0a1b", 7, &digits),
                ObjectContent::Settings,
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
