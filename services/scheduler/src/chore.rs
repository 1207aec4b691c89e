//! The kinds of background work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chore {
    /// Head → hot segments. The store does it by itself; here it can be asked for.
    Seal,
    /// Several segments of a window, or of neighbours, become one of the same tier.
    Fold,
    /// The hot segments of a window become one cold segment.
    Migrate,
    /// The cold segments of a window become files on an object store.
    Archive,
    /// Cold segments whose points have been in files for long enough leave the cold tier.
    Evict,
    /// Archived points come back into the cold tier for a while, as somebody asked.
    Restore,
    /// Deletes are applied to the segment that holds the deleted points.
    Purge,
    /// Segments whose points have all expired are dropped.
    Expire,
    /// Timelines without points are taken out of the catalog.
    Catalog,
    /// Attributes of many timelines are set and removed, as somebody asked.
    Attributes,
    /// What another database has archived becomes tables here, as somebody asked.
    Attach,
    /// Files that a crash or a failure has left at an archive's target are removed.
    Sweep,
    /// Settings of a table are written to the targets that hold files of it.
    Settings,
}

impl Chore {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Seal,
        Self::Fold,
        Self::Migrate,
        Self::Archive,
        Self::Evict,
        Self::Restore,
        Self::Purge,
        Self::Expire,
        Self::Catalog,
        Self::Attributes,
        Self::Attach,
        Self::Sweep,
        Self::Settings,
    ];

    /// Whether it mostly finds nothing to do: then it is not worth a row.
    pub(crate) const fn is_round(self) -> bool {
        matches!(self, Self::Catalog | Self::Sweep | Self::Settings)
    }

    /// Whether plans have it by themselves, and have it again when it did not end well.
    pub(crate) const fn is_planned(self) -> bool {
        !matches!(self, Self::Attributes | Self::Restore)
    }

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Fold => "fold",
            Self::Migrate => "migrate",
            Self::Archive => "archive",
            Self::Evict => "evict",
            Self::Restore => "restore",
            Self::Purge => "purge",
            Self::Expire => "expire",
            Self::Catalog => "catalog",
            Self::Attributes => "attributes",
            Self::Attach => "attach",
            Self::Sweep => "sweep",
            Self::Settings => "settings",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chore| chore.name() == name)
    }
}

impl fmt::Display for Chore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
