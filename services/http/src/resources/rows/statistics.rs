//! `rows/stats`, `rows/load`, `rows/growth`: sizes of the stored rows, busy key ranges, and growth of the indexes.
//!
//! The responses come from memory: the result of the last survey, the sampled load of the last minute, and samples of
//! sizes.

use axum::Json as JsonResponse;
use serde::Deserialize;
use tideline_openapi::row_statistics::{RowGrowthList, RowLoad, RowStatistics};
use tideline_rows::statistics::{growth as growth_of, load as load_of, statistics};
use utoipa::IntoParams;

use crate::context::RequestId;
use crate::extract::{Path, Query};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::{Failures, WideTablePath};

/// Return the statistics of the rows of a table
///
/// Returns sizes before and after packing, keys, widths, the largest partitions, and the delete markers of key
/// ranges, for the rows and for each secondary index. The figures are from the last run of the job `survey_rows`.
/// The job runs again after changes of the table, but not before 100 times the duration of its last run has passed
/// (at least ten minutes, at most seven days). The job also packs ranges in which delete markers are more than 5 %
/// of the entries that a read processes.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/rows/stats", tag = "rows", operation_id = "row_stats",
    params(WideTablePath),
    responses((status = 200, description = "The statistics", body = RowStatistics), Failures)
)]
pub(super) async fn stats(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<JsonResponse<RowStatistics>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(statistics(engine, &table))
    });
    Ok(JsonResponse(RowStatistics {
        request_id: id.into(),
        ..found.await?
    }))
}

/// Return the load of the key ranges of a table
///
/// Returns the requests and rows of the last minute, and the key ranges that have far more than their share: partitions
/// with more than four times their fair share, or more than half, of the rows written or read; and the end of the
/// table, if each write has a higher key than all earlier writes. Keys are sampled, so shares are accurate to a
/// few percent.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/rows/load", tag = "rows", operation_id = "row_load",
    params(WideTablePath),
    responses((status = 200, description = "The load", body = RowLoad), Failures)
)]
pub(super) async fn load(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<JsonResponse<RowLoad>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(load_of(engine, &table))
    });
    Ok(JsonResponse(RowLoad {
        request_id: id.into(),
        ..found.await?
    }))
}

/// Thresholds of a forecast, which returns the time when each threshold is reached.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GrowthQuery {
    /// Threshold for the number of rows, entries or documents. Default: 20,000,000,000 for search indexes,
    /// otherwise no threshold.
    rows: Option<u64>,
    /// Threshold for the number of bytes. Default: no threshold.
    bytes: Option<u64>,
}

/// Forecast the growth of a table and of its indexes
///
/// Each run of the job `survey_rows` adds a sample of the rows, the entries of the secondary indexes and the
/// documents of the search indexes, with their bytes. The growth per day is the slope of the line that best fits
/// the samples of the last 30 days. A forecast returns the time when a threshold is reached. Samples survive
/// restarts; they are lost with the folder of the search index.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/rows/growth", tag = "rows", operation_id = "row_growth",
    params(WideTablePath, GrowthQuery),
    responses((status = 200, description = "The growth", body = RowGrowthList), Failures)
)]
pub(super) async fn growth(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<GrowthQuery>,
) -> Result<JsonResponse<RowGrowthList>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(growth_of(engine, &table, query.rows, query.bytes))
    });
    Ok(JsonResponse(RowGrowthList {
        request_id: id.into(),
        ..found.await?
    }))
}
