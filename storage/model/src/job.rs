//! Kinds of background jobs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of background job: one list for the scheduler, the API, the metrics and the command line, for tables of every
/// model.
///
/// The scheduler stores some kinds under shorter names, see its module `stored_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Moves every unsealed point into segments. The store seals by size and age; a job does it at once.
    Seal,
    /// Makes one segment of several that hold the same time, in the same tier.
    Fold,
    /// Moves the points of a window from the hot to the cold tier.
    Migrate,
    /// Moves the points of a window from the cold tier into files on an object store.
    Archive,
    /// Removes cold segments whose points have been in files for as long as the policy keeps both.
    Evict,
    /// Brings archived points back into the cold tier for a limited time.
    Restore,
    /// Drops segments whose points have all expired.
    Expire,
    /// Frees the bytes of deleted points.
    Purge,
    /// Removes timelines without points, and those that were silent for too long, from the catalog.
    CleanCatalog,
    /// Sets and removes attributes of many timelines.
    SetAttributes,
    /// Makes tables of the files that another database has archived.
    AttachArchive,
    /// Removes files that a crash or a failure has left at the target of an archive.
    SweepArchive,
    /// Writes changed settings of a table to the targets that hold files of it.
    WriteSettings,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
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
    ];

    /// Name in requests, answers and metrics.
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
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True if only a request with parameters of its own begins it, so that its kind alone does not start a job.
    pub const fn needs_parameters(self) -> bool {
        matches!(self, Self::Restore | Self::SetAttributes | Self::AttachArchive)
    }

    /// True if the planner schedules this kind and retries it.
    pub const fn is_planned(self) -> bool {
        !matches!(self, Self::Restore | Self::SetAttributes)
    }

    /// True if a job of this kind usually finds nothing to do: it is recorded only when it has done something.
    pub const fn is_round(self) -> bool {
        matches!(
            self,
            Self::CleanCatalog | Self::SweepArchive | Self::WriteSettings
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
