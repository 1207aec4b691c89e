//! `/v1/tables/{table}/cardinality`: counts of names, and growth of the number of timelines.
//!
//! The counts show which measurements, keys and tags cause a high number of timelines.

use axum::Json;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_openapi::cardinality::{
    CardinalityQuery, CardinalityReport, CountedKey, CountedTag, GrowthReport, GrowthWindow,
    MeasurementCardinality, TagKeyCardinality, TagValueCardinality,
};
use tideline_openapi::name::CountedName;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath, instant, page_limit};

/// Default number of entries of each kind.
const TOP_DEFAULT: usize = 10;
/// Default number of windows.
const WINDOWS_DEFAULT: usize = 30;
/// Maximum number of entries of each kind, and of windows.
const ENTRIES_MAX: usize = 1_000;
/// Default width of a window: one day.
const WINDOW_DEFAULT: i64 = 24 * 3_600 * NANOS_PER_SECOND;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(cardinality))
}

/// Count names and the growth of timelines
///
/// Returns the numbers of measurements, tag keys and tags, the largest entries of each kind, and the number of
/// timelines first seen in each window.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/cardinality", tag = "timelines",
    params(TablePath, CardinalityQuery),
    responses((status = 200, description = "The counts", body = CardinalityReport), Failures)
)]
async fn cardinality(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<CardinalityQuery>,
) -> Result<Json<CardinalityReport>> {
    let top = page_limit(query.top, TOP_DEFAULT, ENTRIES_MAX)?;
    let count = page_limit(query.windows, WINDOWS_DEFAULT, ENTRIES_MAX)?;
    let width = query.window.map_or(WINDOW_DEFAULT, |width| width.0);
    if width <= 0 {
        return Err(Failure::invalid("window must be longer than 0s"));
    }
    let now = app.engine.now().nanos();
    let last = now.div_euclid(width).saturating_mul(width);
    let start = last.saturating_sub(width.saturating_mul(count as i64 - 1));
    let counted = app.read_table(table, move |engine, table| {
        let growth = engine.growth(table, start, width, count)?;
        Ok((engine.cardinality(table, top), growth))
    });
    let (names, growth) = counted.await?;
    let window = |(at, timelines): (usize, u64)| GrowthWindow {
        start: instant(start.saturating_add(width.saturating_mul(at as i64))),
        timelines,
    };
    let measured = names.top_measurements.into_iter().map(|name| CountedName {
        name: name.name,
        timelines: name.timelines,
    });
    let keyed = names.top_tag_keys.into_iter().map(|key| CountedKey {
        key: key.key,
        values: key.values,
        timelines: key.timelines,
    });
    let tagged = names.top_tag_values.into_iter().map(|tag| CountedTag {
        key: tag.key,
        value: tag.value,
        timelines: tag.timelines,
    });
    Ok(Json(CardinalityReport {
        timelines: names.timelines,
        measurements: MeasurementCardinality {
            distinct: names.measurements,
            top: measured.collect(),
        },
        tag_keys: TagKeyCardinality {
            distinct: names.tag_keys,
            top: keyed.collect(),
        },
        tag_values: TagValueCardinality {
            distinct: names.tag_values,
            top: tagged.collect(),
        },
        growth: GrowthReport {
            by: "first_seen".to_owned(),
            windows: growth.windows.into_iter().enumerate().map(window).collect(),
            earlier: growth.earlier,
            later: growth.later,
            never: growth.never,
        },
        request_id: id.into(),
    }))
}
