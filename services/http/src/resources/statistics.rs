//! `/v1/tables/{table}/hot-ranges`, `/partitions`: distribution of the load and the data of a table. Also contains
//! the statistics of a table.

use axum::Json;
use tideline_engine::{Engine, Table, TierStats};
use tideline_openapi::statistics::{
    HeldPoints, HotRange, HotRangeList, Partition, PartitionList, SurveyedRows, TableStatistics,
    TierStatistics, UnsealedPoints,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::Path;
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::{Failures, TablePath, instant};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(hot_ranges))
        .routes(routes!(partitions))
}

/// List hot ranges
///
/// Returns the key ranges that had more than four times their fair share, or more than half, of the writes or
/// reads of the last minute, with the machines that cause the load. The list is empty if the load is even or
/// low: writes count from 1,000 points per minute on, reads from 1,000 timelines per minute on.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/hot-ranges", tag = "tables",
    params(TablePath),
    responses((status = 200, description = "The ranges in key order", body = HotRangeList), Failures)
)]
async fn hot_ranges(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
) -> Result<Json<HotRangeList>> {
    let ranges = app.read_table(table, |engine, table| Ok(engine.hot_ranges(table)));
    let view = |range: tideline_engine::HotRange| HotRange {
        from: range.from,
        to: range.to,
        share_of_writes: range.share_of_writes,
        share_of_reads: range.share_of_reads,
        sources: range.sources,
    };
    Ok(Json(HotRangeList {
        hot_ranges: ranges.await?.into_iter().map(view).collect(),
        request_id: id.into(),
    }))
}

/// List the largest machines
///
/// All points of a machine are stored and moved together. A machine with more than 8 GiB has a warning with advice.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/partitions", tag = "tables",
    params(TablePath),
    responses((status = 200, description = "The largest machines", body = PartitionList), Failures)
)]
async fn partitions(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
) -> Result<Json<PartitionList>> {
    let largest = app.read_table(table, |engine, table| Ok(engine.largest_partitions(table)));
    let view = |partition: tideline_engine::Partition| Partition {
        source: partition.source,
        prefix: partition.prefix,
        bytes: partition.bytes,
        warning: partition.warning,
    };
    Ok(Json(PartitionList {
        partitions: largest.await?.into_iter().map(view).collect(),
        request_id: id.into(),
    }))
}

/// Returns the statistics of a table.
pub(super) fn of(engine: &Engine, table: &Table) -> TableStatistics {
    let stats = engine.table_stats(table);
    let visible_from = engine.store().visible_from(table.points());
    let survey = engine.survey_of(table);
    TableStatistics {
        timelines: stats.timelines,
        segments: stats.segments,
        sealed_points: stats.sealed_points,
        sealed_values: stats.sealed_values,
        sealed_bytes: stats.sealed_bytes,
        sealed_from: stats.sealed_span.map(|(first, _)| instant(first)),
        sealed_to: stats.sealed_span.map(|(_, last)| instant(last)),
        tiers: TierStatistics {
            head: UnsealedPoints {
                points: stats.head.points,
                bytes: stats.head.bytes,
                oldest: stats.head.span.map(|(first, _)| instant(first)),
                newest: stats.head.span.map(|(_, last)| instant(last)),
            },
            hot: held(stats.hot),
            cold: held(stats.cold),
            archive: held(stats.archive),
        },
        visible_from: (visible_from > i64::MIN).then(|| instant(visible_from)),
        deletes_waiting: stats.deletes_waiting,
        bytes_with_deletes: stats.bytes_with_deletes,
        expired_bytes: stats.expired_bytes,
        loaded_bytes: stats.loaded_bytes,
        write_amplification: (stats.sealed_bytes > 0)
            .then(|| stats.loaded_bytes as f64 / stats.sealed_bytes as f64),
        rows: survey.map(|survey| SurveyedRows {
            surveyed: instant(survey.at),
            changed: engine.next_row_survey(table.points().id()).is_some(),
            rows: survey.rows.rows,
            bytes: survey.stored_bytes(),
        }),
    }
}

fn held(tier: TierStats) -> HeldPoints {
    HeldPoints {
        segments: tier.segments,
        windows: tier.windows,
        points: tier.points,
        values: tier.values,
        bytes: tier.bytes,
        oldest: tier.span.map(|(first, _)| instant(first)),
        newest: tier.span.map(|(_, last)| instant(last)),
    }
}
