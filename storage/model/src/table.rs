//! User settings of tables: model, durability, accepted timestamps, and life cycle of points.
//!
//! Settings are stored in serialized form, so a new field needs a default for settings that were stored without it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::feed::FeedSpec;
use crate::time::NANOS_PER_DAY;
use crate::wide::{SearchAnalyzer, WideSpec};

/// Table name: `[a-z0-9_-]{1,64}`, so that it is safe in paths, object keys and URLs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName(Box<str>);

/// Error of an invalid table name. Holds the first 80 characters of the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a table: 1 to 64 characters of a-z, 0-9, _ and - are allowed")]
pub struct TableNameError(pub String);

impl TableName {
    /// Name of the table that exists from the first start and that root-level routes use.
    pub const DEFAULT: &'static str = "default";

    /// Validates a table name.
    ///
    /// # Errors
    ///
    /// Returns [`TableNameError`] if the name is empty, longer than 64 bytes, or has a character other than `a-z`,
    /// `0-9`, `_` and `-`.
    pub fn new(name: &str) -> Result<Self, TableNameError> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
        if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.into()))
        } else {
            let shown: String = name.chars().take(80).collect();
            Err(TableNameError(shown))
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TableName {
    type Error = TableNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.0.into()
    }
}

/// Model of a table: the shape of its keys and rows. Fixed when the table is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableModel {
    /// Points of timelines: typed fields per timestamp.
    #[default]
    Series,
    /// Rows with one to eight typed key columns and any number of other columns.
    Wide,
    /// Messages of timelines, in the order of their sequence numbers.
    Feed,
}

impl TableModel {
    /// All models.
    pub const ALL: [Self; 3] = [Self::Series, Self::Wide, Self::Feed];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Wide => "wide",
            Self::Feed => "feed",
        }
    }

    /// Returns true if tables of this model store rows: their settings have [`TableSpec::wide`].
    pub const fn has_rows(self) -> bool {
        matches!(self, Self::Wide | Self::Feed)
    }

    /// Returns true if tables of this model have timelines in the catalog.
    pub const fn has_timelines(self) -> bool {
        matches!(self, Self::Series | Self::Feed)
    }

    /// Returns true for the default model, which stored settings omit.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for TableModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Guarantee given by the acknowledgement of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The points are on stable storage.
    #[default]
    Synced,
    /// The points are in the caches of the operating system: they survive a killed process, but not always a power
    /// failure.
    Buffered,
}

/// Storage tier. Points of series tables and parts of wide tables move through the tiers as they age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Recent data. Points are in small windows, encoded by the fastest codecs.
    #[default]
    Hot,
    /// Old data. Points are in large windows, encoded by the codecs with the best compression, and have summaries.
    Cold,
    /// Oldest data, in files on an object store. The database stores the locations of the data in the files, and the
    /// summaries of points.
    Archive,
}

impl Tier {
    /// All tiers, in the order in which data moves through them.
    pub const ALL: [Self; 3] = [Self::Hot, Self::Cold, Self::Archive];
    /// Tiers that a backend stores, in the same order.
    pub const KEPT: [Self; 2] = [Self::Hot, Self::Cold];

    /// Returns the name used in requests and responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
            Self::Archive => "archive",
        }
    }

    /// Returns the backend tier that stores the data of this tier. For `Archive`, this is `Cold`, which stores the
    /// references to archived rows.
    #[must_use]
    pub const fn kept_in(self) -> Self {
        match self {
            Self::Hot => Self::Hot,
            Self::Cold | Self::Archive => Self::Cold,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Times at which jobs of one kind may start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Start as soon as there is work.
    #[default]
    Continuous,
    /// Start at the times of a cron expression, and once later if times were missed, for example while the server was
    /// stopped.
    Cron {
        /// Five fields (minute, hour, day of month, month, day of week), or six with a leading seconds field.
        expression: String,
        /// Name in the IANA time zone database, such as `Europe/Berlin`.
        time_zone: String,
    },
}

impl Schedule {
    /// Returns true if jobs start as soon as there is work.
    pub const fn is_continuous(&self) -> bool {
        matches!(self, Self::Continuous)
    }
}

/// Archive of a table: the target of archived points, the age at which they are archived, and the schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivePolicy {
    /// Target: a name from the server configuration, or a URL such as `s3://bucket/prefix`.
    pub target: String,
    /// Age in nanoseconds at which points are archived; above `hot_ttl`.
    pub after: i64,
    /// Start times of archiving.
    #[serde(default)]
    pub schedule: Schedule,
    /// Time in nanoseconds, counted from `after`, during which points stay in the cold tier in addition to their files.
    /// Queries read the cold tier during this time. `None` = points leave the cold tier when they are archived.
    #[serde(default)]
    pub keep_cold: Option<i64>,
    /// Age in nanoseconds at which archived points expire, together with all other points of that age; above `after`.
    /// `None` = only `retention` applies.
    #[serde(default)]
    pub keep: Option<i64>,
}

/// Life cycle of the points of a series table. Ages are in nanoseconds before the current time. `None` = no limit,
/// except for `timelines_per_minute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Age at which points move from the hot to the cold tier; `None` = never. Default: 7 days.
    pub hot_ttl: Option<i64>,
    /// Age at which points expire and are removed from the cold tier; above `hot_ttl`. Not set for a table with an
    /// archive.
    pub cold_ttl: Option<i64>,
    /// Age at which points expire in every tier: they are hidden immediately, and their bytes are freed later.
    pub retention: Option<i64>,
    /// Archive that points move to from the cold tier.
    pub archive: Option<ArchivePolicy>,
    /// Time without writes after which a timeline is removed with all its points.
    pub timeline_ttl: Option<i64>,
    /// Start times of moves from the hot to the cold tier.
    pub migrate: Schedule,
    /// Start times of the removal of expired points and timelines.
    pub expire: Schedule,
    /// Maximum bytes per second that background jobs of this table read.
    pub move_bytes_per_second: Option<u64>,
    /// Maximum number of timelines that writes may add per minute; `None` = the limit in the settings of the server.
    pub timelines_per_minute: Option<u64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            hot_ttl: Some(7 * NANOS_PER_DAY),
            cold_ttl: None,
            retention: None,
            archive: None,
            timeline_ttl: None,
            migrate: Schedule::Continuous,
            expire: Schedule::Continuous,
            move_bytes_per_second: None,
            timelines_per_minute: None,
        }
    }
}

impl Policy {
    /// Returns the age above which points are hidden in every tier; `None` if points never expire.
    pub fn visible_age(&self) -> Option<i64> {
        let end = match &self.archive {
            Some(archive) => archive.keep,
            None => self.cold_ttl,
        };
        [end, self.retention].into_iter().flatten().min()
    }
}

/// All user settings of a table. Durations are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Model of the table. Stored settings omit it for series tables, and older stored settings have no such field.
    #[serde(default, skip_serializing_if = "TableModel::is_default")]
    pub model: TableModel,
    /// Tag keys that identify the machine; the first tag that is present is used. Fixed once the table has a timeline.
    pub source_tags: Vec<String>,
    /// Durability of writes whose request does not set one.
    pub durability: Durability,
    /// Maximum age of a point when it is written; `None` = unlimited.
    pub write_past: Option<i64>,
    /// Maximum time by which a written point may be ahead of the current time; `None` = unlimited.
    pub write_future: Option<i64>,
    /// Life cycle of the points.
    #[serde(default)]
    pub policy: Policy,
    /// Analyzers of text attributes of timelines, by attribute key. Attributes that are not listed have the analyzer
    /// [`SearchAnalyzer::Words`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attribute_analyzers: BTreeMap<String, SearchAnalyzer>,
    /// Settings of the rows of a wide table or of a feed table; `None` for series tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<Box<WideSpec>>,
    /// Feed table whose users are the rows of this wide table; `None` for other tables. Only requests for feeds write
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_of: Option<TableName>,
    /// Further settings of a feed table; `None` for other models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedSpec>,
    /// True for a table that holds state of the server. Requests neither read nor change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_system: bool,
}

impl Default for TableSpec {
    fn default() -> Self {
        let source_tags = ["host", "hostname", "instance", "machine", "device"];
        Self {
            model: TableModel::Series,
            source_tags: source_tags.map(str::to_owned).to_vec(),
            durability: Durability::Synced,
            write_past: None,
            write_future: Some(365 * NANOS_PER_DAY),
            policy: Policy::default(),
            attribute_analyzers: BTreeMap::new(),
            wide: None,
            users_of: None,
            feed: None,
            is_system: false,
        }
    }
}
