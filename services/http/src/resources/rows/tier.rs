//! Requests for old rows: in parts in the cold tier or in the archive.
//!
//! They run apart from requests for new rows, with permits of their own, so that any number of them leaves room for the others.
//! Only a few run at once, and their common rate can be limited. Queries of cold points share all of this.

use tideline_connections::Permits;
use tideline_engine::rows::take_cold_bytes;
use tideline_openapi::row::GetRows;
use tideline_query::{Cancel, ColdRows};
use tideline_rows::read::{ScanTerms, keys_of};
use tideline_rows::{Scan, Selection};

use crate::app::App;
use crate::failure::Result;

/// Tiers that a request for rows reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowTier {
    /// The hot tier.
    Hot,
    /// Also parts in the cold tier or in the archive. These requests have permits of their own, and take turns with queries of
    /// cold points, so that they do not delay others.
    Cold,
}

impl RowTier {
    /// Returns the cold tier if rows in it, or in the archive, are read.
    pub(super) fn of(is_cold: bool) -> Self {
        match is_cold {
            true => Self::Cold,
            false => Self::Hot,
        }
    }

    /// Returns the permits of the requests.
    pub(super) fn permits(self, app: &App) -> &Permits {
        match self {
            Self::Hot => &app.queries,
            Self::Cold => &app.cold_queries,
        }
    }
}

/// Returns the tiers that a scan reads. An error of the request is returned later, by the scan itself.
pub(super) fn tier_of_scan(app: &App, table: &str, terms: &ScanTerms<'_>) -> RowTier {
    let is_cold = || {
        let table = app.engine.wide_table(table).ok()?;
        table.settings().parts.as_ref()?;
        let terms = ScanTerms {
            page_token: None,
            ..*terms
        };
        let scan = Scan::new(&app.engine, &table, &terms, &Selection::of_nothing()).ok()?;
        scan.reaches_cold(&app.engine, &table).ok()
    };
    RowTier::of(is_cold().unwrap_or(false))
}

/// Returns the tiers of the rows that a request lists. An error of the request is returned later, by the read itself.
pub(super) fn tier_of_keys(app: &App, table: &str, request: &GetRows) -> RowTier {
    let is_cold = || {
        let table = app.engine.wide_table(table).ok()?;
        table.settings().parts.as_ref()?;
        let keys = keys_of(&table, request).ok()?;
        app.engine.has_cold_keys(&table, &keys).ok()
    };
    RowTier::of(is_cold().unwrap_or(false))
}

/// Request for rows that is running.
pub(crate) struct RowReading<'r> {
    pub(crate) cancel: &'r Cancel,
    cold: Option<&'r ColdRows<'r>>,
}

impl RowReading<'_> {
    /// Returns true if the request was cancelled. Called before each row or page: a request for old rows waits here until the
    /// rate of cold reads allows what it has read.
    pub(crate) fn is_stopped(&self) -> bool {
        let goes_on = self.cold.is_none_or(|cold| cold.pass(take_cold_bytes()));
        !goes_on || self.cancel.is_cancelled()
    }
}

/// Runs a request for rows, which has a permit. A request for old rows waits for its turn.
pub(super) fn in_tier<T: Send>(
    app: &App,
    cancel: &Cancel,
    tier: RowTier,
    work: impl FnOnce(&RowReading<'_>) -> Result<T> + Send,
) -> Result<T> {
    match tier {
        RowTier::Hot => work(&RowReading { cancel, cold: None }),
        RowTier::Cold => app.querier.read_cold_rows(cancel, |cold| {
            let cold = Some(cold);
            work(&RowReading { cancel, cold })
        })?,
    }
}
