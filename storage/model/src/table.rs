//! What a user sets about a table.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::NANOS_PER_DAY;

/// The name of a table: `[a-z0-9_-]{1,64}`, so that it is safe in paths, object keys and URLs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName(Box<str>);

/// The text cannot name a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a table: 1 to 64 characters of a-z, 0-9, _ and - are allowed")]
pub struct TableNameError(pub String);

impl TableName {
    /// The table that exists from the first start and that root-level routes mean.
    pub const DEFAULT: &'static str = "default";

    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, TableNameError> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
        if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.into()))
        } else {
            let shown: String = name.chars().take(80).collect();
            Err(TableNameError(shown))
        }
    }

    /// The name.
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
    /// Points of timelines: typed fields for each timestamp.
    #[default]
    Series,
    /// Rows with one to eight typed key columns and any other columns.
    Wide,
    /// Messages of timelines, in the order of their sequence numbers.
    Feed,
}

impl TableModel {
    /// Every model.
    pub const ALL: [Self; 3] = [Self::Series, Self::Wide, Self::Feed];

    /// Name in requests, answers and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Wide => "wide",
            Self::Feed => "feed",
        }
    }

    /// True for the default model, which stored settings omit.
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

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The points are on stable storage.
    #[default]
    Synced,
    /// The points are with the operating system: a killed process loses nothing, a power cut may.
    Buffered,
}

/// One of the tables that a series table consists of, by the age of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Young points: small windows, the fastest codecs.
    #[default]
    Hot,
    /// Old points: large windows, the tightest codecs, summaries.
    Cold,
    /// The oldest points: files on an object store, of which only the places of rows are kept here.
    Archive,
}

impl Tier {
    /// Every tier, young to old.
    pub const ALL: [Self; 3] = [Self::Hot, Self::Cold, Self::Archive];
    /// Those that a backend keeps, young to old.
    pub const KEPT: [Self; 2] = [Self::Hot, Self::Cold];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
            Self::Archive => "archive",
        }
    }

    /// Where a backend keeps what belongs to it: the places of archived rows lie with cold points.
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

/// When a kind of move may begin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// As soon as there is something to move.
    #[default]
    Continuous,
    /// At the instants of a cron expression, and after a start if one of them was missed.
    Cron {
        /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first.
        expression: String,
        /// Name in the IANA time zone database, such as `Europe/Berlin`.
        time_zone: String,
    },
}

/// Where and when points leave for files on an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivePolicy {
    /// The target: a name of the server's configuration, or an address such as `s3://bucket/prefix`.
    pub target: String,
    /// Age at which points leave, counted back from now; above `hot_ttl`.
    pub after: i64,
    /// When they do.
    #[serde(default)]
    pub schedule: Schedule,
    /// How much longer than `after` points stay in the cold tier beside their files, and answer from there. `None` = they
    /// leave at once.
    #[serde(default)]
    pub keep_cold: Option<i64>,
    /// Age at which archived points are gone, and with them all of that age; above `after`. `None` = as `retention` says.
    #[serde(default)]
    pub keep: Option<i64>,
}

/// The life of a table's points. Ages in nanoseconds, counted back from now; `None` = for ever or without limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Age at which points move from the hot to the cold tier. Default 7 days.
    pub hot_ttl: Option<i64>,
    /// Age at which points leave the cold tier for good; above `hot_ttl`. A table with an archive has none.
    pub cold_ttl: Option<i64>,
    /// Age at which points are gone from every tier: hidden at once, their bytes freed some time later.
    pub retention: Option<i64>,
    /// Where points go from the cold tier.
    pub archive: Option<ArchivePolicy>,
    /// Silence after which a timeline is removed with all its points.
    pub timeline_ttl: Option<i64>,
    /// When points move from hot to cold.
    pub migrate: Schedule,
    /// When the bytes of expired points and timelines are freed.
    pub expire: Schedule,
    /// Most bytes that moves of this table read in a second.
    pub move_bytes_per_second: Option<u64>,
    /// Most timelines that writes may add in a minute.
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
    /// The age beyond which no point is visible, in whatever tier it lies.
    pub fn visible_age(&self) -> Option<i64> {
        let end = match &self.archive {
            Some(archive) => archive.keep,
            None => self.cold_ttl,
        };
        [end, self.retention].into_iter().flatten().min()
    }
}

/// Everything that a user sets about a table. Durations in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Model of the table. Settings stored before there were models omit it, and so do those of a series table.
    #[serde(default, skip_serializing_if = "TableModel::is_default")]
    pub model: TableModel,
    /// Tags that name the machine, first present wins. Fixed at the table's first write.
    pub source_tags: Vec<String>,
    /// What an acknowledgement promises when the request does not say.
    pub durability: Durability,
    /// How far before now a point may lie; `None` = any past.
    pub write_past: Option<i64>,
    /// How far after now a point may lie; `None` = any future.
    pub write_future: Option<i64>,
    /// How its points age.
    #[serde(default)]
    pub policy: Policy,
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
        }
    }
}
