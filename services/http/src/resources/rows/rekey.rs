//! `rows/rekey`: copies the rows of a table into a table with another key, as a job.
//!
//! The job holds a permit for requested jobs and runs in the background.

use axum::Json as JsonResponse;
use axum::http::StatusCode;
use tideline_engine::model::JobKind;
use tideline_openapi::ErrorBody;
use tideline_openapi::job::JobDetail;
use tideline_openapi::rekey::RekeyRows;
use tideline_rows::rekey::{Rekey, RekeyProgress};
use tideline_scheduler::requested::{JobEnding, RequestedJob};

use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::Grant;
use crate::requested;
use crate::resources::jobs::{awaited, detail};
use crate::resources::{Failures, WideTablePath};

/// Copy rows into a table with another key
///
/// Starts the job `rekey`. Columns are matched by their names: a key column of one table can be a column outside the
/// key of the other table. Every row is written as an update with the timestamps of the source, if the source row has
/// not changed since it was read; otherwise it is read again. Newer values in the target stay. Rows that the target
/// cannot hold are counted, and the outcome of the job shows the first of them. The source stays unchanged.
///
/// Rows that clients write into the source during the copy may be missing in the target. Therefore clients must write
/// into both tables: first into the source, then into the target. Rows and columns that they delete in this order stay
/// deleted. Copy only as long as clients write into both tables. A later copy brings back the rows and columns that
/// clients have deleted in the target only, and columns that a `put` into the target has removed.
///
/// After an interruption of the copy, also by the end of the process, the job is `cancelled` and the copied rows stay.
/// Send the request again: it copies all rows from the first one, and a row that was copied before stays as it is.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/rows/rekey", tag = "rows", operation_id = "rekey_rows",
    params(WideTablePath),
    request_body = RekeyRows,
    responses(
        (status = 200, description = "The job, which has ended", body = JobDetail),
        (status = 202, description = "The job, which is running", body = JobDetail),
        (status = 422, description = "One of the tables has another model", body = ErrorBody),
        Failures
    )
)]
pub(super) async fn rekey(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Json(RekeyRows { into, merge, wait }): Json<RekeyRows>,
) -> Result<(StatusCode, JsonResponse<JobDetail>)> {
    app.note_detail(format!("into: {into}; merge: {merge}"));
    let permit = app.permit(&app.requested_jobs).await?;
    let (running, begun) = (app.clone(), app.clone());
    let begin = move || {
        let (from, into) = (
            begun.engine.table_of_rows(&table)?,
            begun.engine.wide_table(&into)?,
        );
        let rekey = Rekey::new(from, into, merge)?;
        let (from, into) = (rekey.from().table(), rekey.into_table().table());
        let reason = format!("requested copy of its rows into table {}", into.name());
        let table = Some((from.points().id(), from.name().as_str()));
        let job = begun.scheduler.begin(JobKind::Rekey, table, reason, 0);
        Ok((job, rekey))
    };
    let shown = |work: &(RequestedJob, Rekey)| work.0.job();
    let started = requested::in_background(permit, begin, shown, move |(job, rekey)| {
        perform(&running, job, &rekey);
    });
    let (status, job) = awaited(&app, started.await?, wait).await?;
    Ok((status, detail(job, id)))
}

/// Copies the rows and records how the job ended.
fn perform(app: &Grant, job: RequestedJob, rekey: &Rekey) {
    let mut step = |progress: &RekeyProgress| job.step(progress.read) && !app.is_draining();
    // Both tables were found with the access of the request. The job itself is work of the server, so the rows
    // that it copies are not charged to a tenant.
    let (progress, is_complete) = match rekey.run(app.service_engine(), &mut step) {
        Ok(copied) => copied,
        Err(error) => return job.end(JobEnding::Failed(error.to_string())),
    };
    let mut text = format!("{} of {} rows copied", progress.written, progress.read);
    if progress.deleted > 0 {
        text = format!("{text}, {} deleted meanwhile", progress.deleted);
    }
    if let Some(first) = &progress.first_refusal {
        text = format!("{text}, {} refused, the first: {first}", progress.refused);
    }
    let ending = match is_complete {
        true => JobEnding::Done(text),
        false => job.cut_short(&text, app.is_draining()),
    };
    job.end(ending);
}
