//! Archives of wide tables: archived parts, and parts that wait to be archived.

use tideline_model::{PartPeriod, PartsArchive, TableId, TableName, Tier, Timestamp};
pub use tideline_wide_table::ArchivedPart;

use crate::engine::Engine;
use crate::tables::Table;

/// Archive of a wide table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowArchive {
    /// Table of the archive.
    pub table: TableId,
    /// Name of the table.
    pub name: TableName,
    /// Creation time of the table, or the time of the last change of its policy or its archive, in nanoseconds since
    /// the epoch.
    pub changed: i64,
    /// Archive in the settings of the table; `None` if no further parts are archived.
    pub settings: Option<PartsArchive>,
    /// Parts in the archive, oldest first.
    pub parts: Vec<ArchivedPart>,
    /// Start of the oldest and end of the newest part in the archive; `None` without parts.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Number of parts that are old enough for the archive and not archived yet; 0 while the clock is in doubt.
    pub waiting: u64,
    /// Time at which the first waiting part became old enough, in nanoseconds since the epoch; `None` if no part waits.
    pub waiting_since: Option<i64>,
}

impl RowArchive {
    /// Returns the sum of a figure over the archived parts.
    pub fn sum(&self, figure: fn(&ArchivedPart) -> u64) -> u64 {
        self.parts.iter().map(figure).sum()
    }
}

impl Engine {
    /// Returns the archives of all wide tables that have archived parts or an archive in their settings, sorted by
    /// name. If the file list of a part cannot be read, the parts of its table are omitted, with a warning in the log.
    pub fn row_archives(&self) -> Vec<RowArchive> {
        let mut tables = self.tables();
        tables.retain(|table| self.has_archived_parts(table));
        tables.sort_by(|one, other| one.name().cmp(other.name()));
        let trusted = self.store.trusted_now();
        let due = match trusted.doubt {
            None => self.due_parts(trusted.now.nanos()),
            Some(_) => Vec::new(),
        };
        let archive_of = |table: &Table| {
            let id = table.points().id();
            let spec = table.spec();
            let settings = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
            let waiting = || {
                let due = due.iter();
                due.filter(|part| part.table == id && part.tier == Tier::Archive)
            };
            let parts = self.archived_parts(id);
            RowArchive {
                table: id,
                name: table.name().clone(),
                changed: table.points().policy_changed().max(table.created()),
                span: settings.and_then(|settings| span_of(settings.every, &parts)),
                settings: settings.and_then(|settings| settings.archive.clone()),
                parts,
                waiting: waiting().count() as u64,
                waiting_since: waiting().map(|part| part.since).min(),
            }
        };
        tables.iter().map(archive_of).collect()
    }

    /// Returns the archived parts of a table; an empty list if a file list cannot be read. Damage therefore prevents
    /// neither the report on other tables nor a drop of the part. `tideline check` reports the damage.
    pub(crate) fn archived_parts(&self, table: TableId) -> Vec<ArchivedPart> {
        self.rows.archived_parts(table).unwrap_or_else(|error| {
            tracing::warn!(%error, "the sizes of archived parts are not known");
            Vec::new()
        })
    }
}

fn span_of(every: PartPeriod, parts: &[ArchivedPart]) -> Option<(Timestamp, Timestamp)> {
    let start = |number| Timestamp::from_nanos_clamped(every.start_of(number));
    let (first, last) = (parts.first()?, parts.last()?);
    Some((start(first.number), start(last.number.saturating_add(1))))
}
