//! Reading of archives that another database wrote.
//!
//! Descriptions are verified with the checksum in their object names, and files with the checksums in their
//! descriptions. Therefore a read returns the written data or an error that describes the damage.

use std::path::Path;
use std::sync::Arc;

use tideline_model::{SegmentId, TableName};

use crate::Archive;
use crate::copy::ArchiveCopy;
use crate::description::{self, DescribedFields, Description};
use crate::digest::sha256_hex;
use crate::error::{ArchiveError, Result};
use crate::layout::{self, DESCRIPTION_BYTES_MAX};
use crate::read::fields;
use crate::read::timelines::TimelinesFile;

impl Archive {
    /// Returns the sorted object names of the descriptions at a target: of one table, or of all tables if `table` is
    /// `None`. Costs one listing.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn descriptions(&self, target: &str, table: Option<&TableName>) -> Result<Vec<String>> {
        let under = table.map_or_else(String::new, layout::segments_prefix);
        let listed = self.target(target)?.list(&under)?;
        let keys = listed.into_iter().map(|object| object.key);
        let mut keys: Vec<String> = keys.filter(|key| layout::is_sidecar(key)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Reads the description with the given object name. Sets the target of its files to `target`.
    ///
    /// # Errors
    ///
    /// - [`ArchiveError::Damaged`] if the name, checksum or content is not valid, if the content belongs to another
    ///   table or segment, or if it lists objects outside its table folder;
    /// - other errors if the target fails.
    pub fn description(&self, target: &str, key: &str) -> Result<Description> {
        let opened = self.target(target)?;
        let damaged = |reason: String| opened.damaged(key, reason);
        let (_, segment, digits) =
            name_of(key).ok_or_else(|| damaged("its name is not a valid description name".into()))?;
        let content = opened.get(key, DESCRIPTION_BYTES_MAX)?;
        if !sha256_hex(&content).starts_with(digits) {
            return Err(damaged("its checksum does not match".into()));
        }
        let mut described = description::parse(&content).map_err(damaged)?;
        if !key.starts_with(&layout::segments_prefix(&described.table)) {
            return Err(damaged(format!("it belongs to table {}", described.table)));
        }
        let under = layout::table_prefix(described.table.as_str());
        let copy = &described.archive;
        let is_outside = |key: &&str| !key.starts_with(&under) || key.split('/').any(|part| part == "..");
        if let Some(outside) = copy.keys().find(is_outside) {
            return Err(damaged(format!("it lists {outside:?} outside its table folder")));
        }
        if described.segment["id"] != segment.0 {
            return Err(damaged("it belongs to another segment".into()));
        }
        described.archive = ArchiveCopy {
            target: target.to_owned(),
            sidecar: key.to_owned(),
            attached: None,
            ..described.archive
        };
        Ok(described)
    }

    /// Fetches the file of timelines of a segment to the local disk and verifies its checksum.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Damaged`] if the content differs from the written data; other errors if the target or the local
    /// disk fails.
    pub fn timelines(&self, copy: &Arc<ArchiveCopy>) -> Result<TimelinesFile> {
        let target = self.target(&copy.target)?;
        TimelinesFile::fetch(target, Arc::clone(copy), self.temporary()?)
    }

    /// Reads the fields of each measurement from the files of a segment; needed if the description has no fields. Reads
    /// the footer of each file of one measurement, and the rows of each shared file.
    ///
    /// # Errors
    ///
    /// Same as [`timelines`](Self::timelines).
    pub fn fields(&self, copy: &ArchiveCopy) -> Result<DescribedFields> {
        let target = self.target(&copy.target)?;
        fields::of(&target, &self.footers, copy, self.temporary()?)
    }

    fn temporary(&self) -> Result<&Path> {
        let directory = &self.settings.temporary;
        std::fs::create_dir_all(directory).map_err(ArchiveError::local("making"))?;
        Ok(directory)
    }
}

/// Returns the origin and the segment number in the object name of a description; `None` if the last path segment does
/// not have the form of a description name.
pub fn origin_of(key: &str) -> Option<(&str, SegmentId)> {
    name_of(key).map(|(origin, segment, _)| (origin, segment))
}

fn name_of(key: &str) -> Option<(&str, SegmentId, &str)> {
    let name = key.rsplit('/').next()?.strip_suffix(".json")?;
    let mut parts = name.rsplitn(3, '-');
    let (digits, segment, origin) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = layout::is_digits(digits) && !origin.is_empty();
    is_whole.then_some((origin, SegmentId(segment.parse().ok()?), digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_identifies_its_writer() {
        let digits = "0123456789abcdef0123456789abcdef";
        let key = format!("old/_segments/00aa-b-17-{digits}.json");
        assert_eq!(origin_of(&key), Some(("00aa-b", SegmentId(17))));
        for wrong in [
            "old/_segments/a-b.json",
            "old/_segments/-1-0.json",
            "x-1-00.json",
            "",
        ] {
            assert_eq!(origin_of(wrong), None, "{wrong}");
        }
    }
}
