//! Kinds of background jobs.
//!
//! One enum defines their names for the scheduler, API, metrics and command line.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a background job. The scheduler, API, metrics and command line use this one list for tables of all models.
///
/// The scheduler stores some kinds under shorter names; see its module `stored_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Move of all unsealed points into segments. The store also seals by size and age; a job seals immediately.
    Seal,
    /// Merge of several segments of one tier, in one window or in neighboring windows, into one segment.
    Fold,
    /// Move of the points of a time window, or of a part of a wide table, from the hot to the cold tier.
    Migrate,
    /// Move of the points of a time window from the cold tier, or of a part of a wide table, into files on an object
    /// store.
    Archive,
    /// Removal of cold segments whose points are also in archive files, once the policy no longer keeps both copies.
    Evict,
    /// Copy of archived points, or of archived parts of a wide table, into the cold tier for a limited time. Also the
    /// copy of the points of one table into another table.
    Restore,
    /// Removal of segments whose points have all expired.
    Expire,
    /// Release of the storage of deleted points.
    Purge,
    /// Removal of timelines from the catalog: those that have neither visible points nor attributes, and those without
    /// writes for too long.
    CleanCatalog,
    /// Change of the attributes of many timelines.
    SetAttributes,
    /// Creation of tables from the files that another database has archived.
    AttachArchive,
    /// Removal of the files at an archive target to which no segment or part refers, for example after a crash.
    SweepArchive,
    /// Update of the table settings stored at the targets that hold files of the table.
    WriteSettings,
    /// Addition of the rows of a wide table to an index that was created after the rows.
    BuildIndex,
    /// Removal of expired rows and cells, of old parts, and of large values without a row, in a wide table.
    RemoveExpired,
    /// Copy of the rows of a wide table into a table with another key.
    Rekey,
    /// Statistics of the stored rows of a wide table, and packing of key ranges with many delete markers.
    SurveyRows,
    /// Write of the messages of feeds with many members to the inboxes of the members.
    FanOut,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 18] = [
        Self::Seal,
        Self::Fold,
        Self::Migrate,
        Self::Archive,
        Self::Evict,
        Self::Restore,
        Self::Expire,
        Self::Purge,
        Self::CleanCatalog,
        Self::SetAttributes,
        Self::AttachArchive,
        Self::SweepArchive,
        Self::WriteSettings,
        Self::BuildIndex,
        Self::RemoveExpired,
        Self::Rekey,
        Self::SurveyRows,
        Self::FanOut,
    ];

    /// Returns the name used in requests, responses and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Fold => "fold",
            Self::Migrate => "migrate",
            Self::Archive => "archive",
            Self::Evict => "evict",
            Self::Restore => "restore",
            Self::Expire => "expire",
            Self::Purge => "purge",
            Self::CleanCatalog => "clean_catalog",
            Self::SetAttributes => "set_attributes",
            Self::AttachArchive => "attach_archive",
            Self::SweepArchive => "sweep_archive",
            Self::WriteSettings => "write_settings",
            Self::BuildIndex => "build_index",
            Self::RemoveExpired => "remove_expired",
            Self::Rekey => "rekey",
            Self::SurveyRows => "survey_rows",
            Self::FanOut => "fan_out",
        }
    }

    /// Returns the kind with this name; `None` for other names.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns true if a job of this kind needs parameters from a request and therefore cannot be started from its kind
    /// alone.
    pub const fn needs_parameters(self) -> bool {
        matches!(
            self,
            Self::Restore | Self::SetAttributes | Self::AttachArchive | Self::Rekey
        )
    }

    /// Returns true if the planner schedules this kind and retries it. Also true for [`Self::AttachArchive`], which is
    /// started only by a request and never queued.
    pub const fn is_planned(self) -> bool {
        !matches!(self, Self::Restore | Self::SetAttributes | Self::Rekey)
    }

    /// Returns true if jobs of this kind usually find nothing to do. Planned jobs of these kinds are recorded only if
    /// they did some work or did not succeed. Requested jobs are always recorded.
    pub const fn is_round(self) -> bool {
        matches!(
            self,
            Self::CleanCatalog
                | Self::SweepArchive
                | Self::WriteSettings
                | Self::RemoveExpired
                | Self::SurveyRows
                | Self::FanOut
        )
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_are_those_of_serde() {
        for (at, kind) in JobKind::ALL.into_iter().enumerate() {
            assert_eq!(JobKind::ALL.iter().position(|other| *other == kind), Some(at));
            assert_eq!(JobKind::parse(kind.name()), Some(kind));
            let read = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(kind.name());
            assert_eq!(JobKind::deserialize(read), Ok(kind));
        }
        assert_eq!(JobKind::parse("catalog"), None);
    }
}
