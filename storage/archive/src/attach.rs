//! What an archive says to a database that did not write it.
//!
//! Everything is checked against the name of the description, which has the checksum of its content, and the checksums in
//! it: what is read here is what was written, or an error says why not.

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
    /// The names of the descriptions at a target, of one table or of all. Costs a list of what is there.
    ///
    /// # Errors
    ///
    /// Where the target cannot be asked.
    pub fn descriptions(&self, target: &str, table: Option<&TableName>) -> Result<Vec<String>> {
        let under = table.map_or_else(String::new, layout::segments_prefix);
        let listed = self.target(target)?.list(&under)?;
        let keys = listed.into_iter().map(|object| object.key);
        let mut keys: Vec<String> = keys.filter(|key| layout::is_sidecar(key)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Reads the description of this name. Its files are as it says, but for the target, which is the one that is asked.
    ///
    /// # Errors
    ///
    /// Where the target fails, and where it is not what was written under this name.
    pub fn description(&self, target: &str, key: &str) -> Result<Description> {
        let opened = self.target(target)?;
        let damaged = |reason: String| opened.damaged(key, reason);
        let (_, segment, digits) =
            name_of(key).ok_or_else(|| damaged("its name is not that of a description".into()))?;
        let content = opened.get(key, DESCRIPTION_BYTES_MAX)?;
        if !sha256_hex(&content).starts_with(digits) {
            return Err(damaged("its checksum is another one".into()));
        }
        let mut described = description::parse(&content).map_err(damaged)?;
        if !key.starts_with(&layout::segments_prefix(&described.table)) {
            return Err(damaged(format!("it is of table {}", described.table)));
        }
        let under = layout::table_prefix(described.table.as_str());
        let copy = &described.archive;
        let is_outside = |key: &&str| !key.starts_with(&under) || key.split('/').any(|part| part == "..");
        if let Some(outside) = copy.keys().find(is_outside) {
            return Err(damaged(format!("it names {outside:?}, which is not the table's")));
        }
        if described.segment["id"] != segment.0 {
            return Err(damaged("it is of another segment".into()));
        }
        described.archive = ArchiveCopy {
            target: target.to_owned(),
            sidecar: key.to_owned(),
            attached: None,
            ..described.archive
        };
        Ok(described)
    }

    /// Fetches the file of timelines of a segment onto the local disk and compares it with what is known of it.
    ///
    /// # Errors
    ///
    /// Where the target or the disk fails, and where it is not what was written.
    pub fn timelines(&self, copy: &Arc<ArchiveCopy>) -> Result<TimelinesFile> {
        let target = self.target(&copy.target)?;
        TimelinesFile::fetch(target, Arc::clone(copy), self.temporary()?)
    }

    /// The fields of the measurements of a segment, as its files say them: for descriptions that do not. Reads the footers,
    /// and of files that measurements share the rows.
    ///
    /// # Errors
    ///
    /// As [`timelines`](Self::timelines).
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

/// Which database wrote a description, and as which of its segments; `None` of what is named otherwise.
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
    fn a_name_tells_who_wrote_it() {
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
