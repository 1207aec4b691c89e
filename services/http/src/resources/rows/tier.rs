//! Requests for old rows, that is, rows in parts in the cold tier or in the archive.
//!
//! These requests have separate permits, so that they do not occupy the permits of other requests. Only a few run
//! concurrently, and their total read rate can be limited. Queries of cold points share these permits and limits.

use tideline_connections::Permits;
use tideline_engine::row_limits::PacedReads;
use tideline_engine::rows::take_cold_bytes;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::GetRows;
use tideline_query::{Cancel, ColdRows};
use tideline_rows::read::{ScanTerms, keys_of};
use tideline_rows::{RowsError, Scan, Selection};

use crate::failure::Result;
use crate::grant::Grant;

type RowsResult<T> = std::result::Result<T, RowsError>;

/// Tiers that a request for rows reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowTier {
    /// The hot tier.
    Hot,
    /// The hot tier, and parts in the cold tier or in the archive. These requests share separate permits with queries
    /// of cold points, so that they do not delay other requests.
    Cold,
}

impl RowTier {
    /// Returns the permits of the requests.
    pub(crate) fn permits(self, app: &Grant) -> &Permits {
        match self {
            Self::Hot => &app.queries,
            Self::Cold => &app.cold_queries,
        }
    }
}

/// Returns the tiers that a request reads, and the request. `is_cold` plans the request, which can take a second,
/// so it runs on a blocking thread, and only if the table has old rows. An error of `is_cold` is ignored here,
/// because the request itself fails later with the same error.
///
/// # Errors
///
/// The errors of [`Grant::read`].
pub(crate) async fn tier_of<R: Send + 'static>(
    app: &Grant,
    table: &str,
    request: R,
    is_cold: impl FnOnce(&Engine, &WideTable, &R) -> RowsResult<bool> + Send + 'static,
) -> Result<(RowTier, R)> {
    let table = app.engine.table_of_rows(table).ok();
    let Some(table) = table.filter(|table| app.engine.has_cold_parts(table)) else {
        return Ok((RowTier::Hot, request));
    };
    app.read(move |engine| {
        let tier = match is_cold(engine, &table, &request) {
            Ok(true) => RowTier::Cold,
            Ok(false) | Err(_) => RowTier::Hot,
        };
        Ok((tier, request))
    })
    .await
}

/// Returns true if a scan reads old rows.
pub(super) fn is_cold_scan(engine: &Engine, table: &WideTable, terms: &ScanTerms<'_>) -> RowsResult<bool> {
    let terms = ScanTerms {
        page_token: None,
        ..*terms
    };
    Scan::new(engine, table, &terms, &Selection::of_nothing())?.reaches_cold(engine, table)
}

/// Returns true if a request lists keys of old rows.
pub(super) fn has_cold_keys(engine: &Engine, table: &WideTable, request: &GetRows) -> RowsResult<bool> {
    Ok(engine.has_cold_keys(table, &keys_of(table, request)?)?)
}

/// Request for rows that is running.
pub(crate) struct RowReading<'r> {
    engine: &'r Engine,
    cancel: &'r Cancel,
    cold: Option<&'r ColdRows<'r>>,
}

impl RowReading<'_> {
    /// Returns true if the request was cancelled or its token was revoked. Called before each row or page. A
    /// request for old rows waits here until the rate limit of cold reads allows the bytes that it has read. If the
    /// table has rate limits, a request waits here until these limits allow the rows that it has read.
    pub(crate) fn is_stopped(&self) -> bool {
        let is_ended = || self.cancel.is_cancelled() || self.engine.is_revoked();
        self.engine.wait_for_row_rate(&is_ended);
        let goes_on = self.cold.is_none_or(|cold| cold.pass(take_cold_bytes()));
        !goes_on || is_ended()
    }
}

/// Runs a request for rows that already holds its HTTP permit. A request for old rows also waits for a permit of the
/// querier.
pub(crate) fn in_tier<T: Send>(
    app: &Grant,
    cancel: &Cancel,
    tier: RowTier,
    work: impl FnOnce(&RowReading<'_>) -> Result<T> + Send,
) -> Result<T> {
    let _paced = PacedReads::begin();
    let engine = &*app.engine;
    match tier {
        RowTier::Hot => work(&RowReading {
            engine,
            cancel,
            cold: None,
        }),
        RowTier::Cold => app.querier.read_cold_rows(cancel, |cold| {
            work(&RowReading {
                engine,
                cancel,
                cold: Some(cold),
            })
        })?,
    }
}
