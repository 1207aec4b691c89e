//! `/v1/tables/{table}/query/batch`: several queries in one request, with results by name.
//!
//! The queries run one after another. Each result is buffered until it is complete, because its query may
//! still fail. A request therefore buffers at most one result.

use std::io::{self, Write};
use std::time::Duration;

use axum::response::Response;
use tideline_engine::Table;
use tideline_engine::model::Timestamp;
use tideline_engine::runtime::{MemoryFull, Reservation};
use tideline_openapi::ErrorCode;
use tideline_openapi::query::{BatchAnswer, BatchQuery, PointQuery};
use tideline_query::{Budget, Cancel};
use tideline_results::{ResultFormat, ResultOptions, put_json_text};

use super::{describe, point_query};
use crate::context::{RequestId, current_client};
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{QueryFailures, TablePath};
use crate::saved_search;
use crate::stream::{self, WriteContext};

/// Maximum number of queries of a request.
const QUERIES_MAX: usize = 64;
/// Maximum size of one result, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Query points with several queries at once
///
/// The request contains named queries, and the JSON response contains a result or an error for each name. The queries
/// run one after another and share the budget of the request. Each result is limited to 16 MiB. If the client
/// disconnects, all queries stop.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/query/batch", tag = "points",
    params(TablePath),
    request_body = BatchQuery,
    responses((status = 200, description = "The results", body = BatchAnswer), QueryFailures)
)]
pub(super) async fn batch(
    app: Grant,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(batch): Json<BatchQuery>,
) -> Result<Response> {
    if batch.queries.len() > QUERIES_MAX {
        let count = batch.queries.len() as u64;
        return Err(Failure::over(
            ErrorCode::OverLimit,
            "queries",
            QUERIES_MAX as u64,
            count,
        ));
    }
    let budget = point_query::to_budget(&batch.budget)?;
    let description = describe(request_id.clone(), &table, "batch", &batch);
    let now = app.engine.now();
    // The querier has a separate queue for queries of cold points. The choice of permits only prevents such queries
    // from occupying the permits of other queries.
    let is_cold = app.engine.table(&table).is_ok_and(|table| {
        let ranges = batch
            .queries
            .values()
            .map(|query| point_query::read_range(query, now));
        let mut ranges = ranges.into_iter();
        ranges.any(|(range, tier)| app.querier.reaches_cold(&table, range, tier))
    });
    let permits = if is_cold { &app.cold_queries } else { &app.queries };
    let permit = permits.take(current_client()).await?;
    let context = WriteContext {
        permit: Some(permit),
        cancel: Cancel::new(),
    };
    let (running, cancel) = (app.clone(), context.cancel.clone());
    stream::respond(&app, ResultFormat::Json.content_type(), context, move |writer| {
        let table = running.engine.table(&table)?;
        let _listed = running.running.list(&running.engine, description, cancel.clone());
        let mut left = Left {
            began: running.engine.clock().monotonic(),
            budget,
            rows: 0,
            cancel,
        };
        let mut text = b"{\"request_id\":".to_vec();
        put_json_text(request_id.as_str(), &mut text);
        text.extend_from_slice(b",\"answers\":{");
        for (at, (name, query)) in batch.queries.into_iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            put_json_text(&name, &mut text);
            text.push(b':');
            match left.respond(&running, &table, query, now, request_id.clone()) {
                Ok(response) => text.extend_from_slice(response.trim_ascii_end()),
                Err(failure) => {
                    text.extend_from_slice(b"{\"error\":");
                    let body = failure.into_body(request_id.clone());
                    // Writing to memory cannot fail.
                    let _ = serde_json::to_writer(&mut text, &body);
                    text.push(b'}');
                }
            }
            writer.write_all(&text).map_err(stream::client_left)?;
            text.clear();
        }
        text.extend_from_slice(b"}}\n");
        writer.write_all(&text).map_err(stream::client_left)
    })
    .await
}

/// Budget of the request, and its use so far. Both determine the budget of the next query.
struct Left {
    /// Monotonic time at the start of the request.
    began: Duration,
    budget: Budget,
    /// Rows of the results so far.
    rows: u64,
    cancel: Cancel,
}

impl Left {
    fn respond(
        &mut self,
        app: &Grant,
        table: &Table,
        mut query: PointQuery,
        now: Timestamp,
        request_id: RequestId,
    ) -> Result<Vec<u8>> {
        let options = ResultOptions {
            format: ResultFormat::Json,
            times: query.times,
            integers: query.int64,
            plan: query.plan,
            request_id: request_id.into(),
            has_limit: query.limit.is_some(),
        };
        query.timelines = saved_search::expand_optional(app, table.name().as_str(), query.timelines)?;
        let mut query = point_query::to_point_query(query, now)?;
        query.budget = self.share(app, &query.budget);
        let mut buffer = Buffer {
            bytes: Vec::new(),
            is_over: false,
            memory: app.engine.memory().open("answers of several queries"),
            refused: None,
        };
        let mut sink = options.sink(&mut buffer);
        let result = app.querier.points(table, &query, &self.cancel, &mut *sink);
        let ended = result.map(|summary| (sink.end(&summary).is_ok(), summary.rows));
        drop(sink);
        if let Some(full) = buffer.refused {
            return Err(full.into());
        }
        match ended {
            _ if buffer.is_over => Err(Failure::new(
                ErrorCode::OverBudget,
                format!("the result is over the limit of {ANSWER_BYTES_MAX} bytes in a batch; send it alone"),
            )),
            Ok((_, rows)) => {
                self.rows += rows;
                Ok(buffer.bytes)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the budget of a query: the limits of the query, reduced to the remaining budget of the request. The
    /// limits of cells and held memory are not used up; they apply to each query separately.
    fn share(&self, app: &Grant, requested: &Budget) -> Budget {
        let read = self.cancel.progress();
        let elapsed = app.engine.clock().monotonic().saturating_sub(self.began);
        let left = |all: u64, taken: u64| all.saturating_sub(taken);
        Budget {
            timelines_max: requested
                .timelines_max
                .min(left(self.budget.timelines_max, read.timelines)),
            points_max: requested
                .points_max
                .min(left(self.budget.points_max, read.points)),
            values_max: requested
                .values_max
                .min(left(self.budget.values_max, read.values)),
            cells_max: requested.cells_max.min(self.budget.cells_max),
            held_bytes_max: requested.held_bytes_max.min(self.budget.held_bytes_max),
            rows_max: requested.rows_max.min(left(self.budget.rows_max, self.rows)),
            time_max: requested
                .time_max
                .min(self.budget.time_max.saturating_sub(elapsed)),
        }
    }
}

/// Buffer of one result, up to the size limit.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    is_over: bool,
    /// Reservation of the capacity of `bytes`.
    memory: Reservation,
    /// Error if no more memory was available.
    refused: Option<MemoryFull>,
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > ANSWER_BYTES_MAX {
            self.is_over = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            // The buffer grows like a vector: its capacity at least doubles.
            let capacity = (self.bytes.len() + bytes.len()).max(2 * self.bytes.capacity());
            if let Err(full) = self.memory.resize(capacity as u64) {
                self.refused = Some(full);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
