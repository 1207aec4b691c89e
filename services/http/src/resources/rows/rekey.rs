//! `rows/rekey`: copies the rows of a table into a table with another key, as a job.
//!
//! The job holds a permit for requested jobs and runs in the background.

use axum::Json as JsonResponse;
use axum::http::StatusCode;
use tideline_engine::fail_points::around;
use tideline_engine::model::JobKind;
use tideline_engine::row_copies::ROW_COPY_REFUSED_MAX;
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_openapi::ErrorBody;
use tideline_openapi::job::JobDetail;
use tideline_openapi::rekey::RekeyRows;
use tideline_rows::RowsError;
use tideline_rows::rekey::{Rekey, RekeyProgress};
use tideline_scheduler::requested::{JobEnding, RequestedJob};

use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::{FIRST_REFUSAL, Grant};
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
/// deleted.
///
/// A repeated copy writes only rows that have changed in the source since the last complete copy, and rows that the
/// target has refused. It does not write other rows, so clients that write only into the target can delete and replace
/// them there. If a changed row is newer in the target, only versions with timestamps later than ten minutes before the
/// last complete copy are written, or the whole row if its key in the target can have changed. A copy never deletes rows
/// or columns.
///
/// After an interruption of the copy, also by the end of the process or the drop of one of the tables, the job is
/// `cancelled` and the copied rows stay.
/// The interrupted copy is not complete. Send the request again.
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
        let reason = "requested copy of its rows".to_owned();
        let source = (from.points().id(), from.name().as_str());
        let tables = (Some(source), Some(into.name().as_str()));
        let job = around::<_, EngineError>("rekey", "begin", || {
            Ok(begun.scheduler.begin_into(JobKind::Rekey, tables, reason, 0))
        })?;
        Ok((job, rekey))
    };
    let shown = |work: &(RequestedJob, Rekey)| work.0.job();
    let started = requested::in_background(permit, begin, shown, move |(job, rekey)| {
        perform(&running, job, &rekey);
    });
    let (status, job) = awaited(&app, started.await?, wait).await?;
    Ok((status, detail(job, id)))
}

/// Returns the ending of a copy that has failed. The drop of one of its tables is not a failure of the server. The name
/// of the target is not part of the text, because some readers of the job must not see it.
fn ending_of(engine: &Engine, rekey: &Rekey, error: &RowsError) -> JobEnding {
    let is_dropped = |table: &WideTable| {
        let now = engine.table_of_rows(table.table().name().as_str());
        !now.is_ok_and(|now| now.table().points().id() == table.table().points().id())
    };
    let dropped = match error {
        RowsError::Engine(error) if !matches!(error.kind(), ErrorKind::NotFound) => None,
        RowsError::Engine(_) if is_dropped(rekey.into_table()) => Some("target"),
        RowsError::Engine(_) if is_dropped(rekey.from()) => Some("source"),
        _ => None,
    };
    match dropped {
        Some(dropped) => JobEnding::Cancelled(format!("the {dropped} of the copy was dropped meanwhile")),
        None => JobEnding::Failed(error.to_string()),
    }
}

/// Copies the rows and records how the job ended.
fn perform(app: &Grant, job: RequestedJob, rekey: &Rekey) {
    let mut step = |progress: &RekeyProgress| job.step(progress.read) && !app.is_draining();
    // Both tables were found with the access of the request. The job itself is work of the server, so the rows
    // that it copies are not charged to a tenant.
    let (progress, is_complete) = match rekey.run(app.service_engine(), &mut step) {
        Ok(copied) => copied,
        Err(error) => return job.end(ending_of(app.service_engine(), rekey, &error)),
    };
    let mut text = format!("{} of {} rows copied", progress.written, progress.read);
    if progress.up_to_date > 0 {
        text = format!("{text}, {} up to date", progress.up_to_date);
    }
    if progress.deleted > 0 {
        text = format!("{text}, {} deleted meanwhile", progress.deleted);
    }
    if let Some(first) = &progress.first_refusal {
        text = format!("{text}, {} refused{FIRST_REFUSAL}{first}", progress.refused);
    }
    if progress.is_unrecorded {
        text = format!(
            "{text}; the copy is not recorded as complete, because more than {ROW_COPY_REFUSED_MAX} rows were refused \
             or archived parts were attached to the source meanwhile"
        );
    }
    let ending = match is_complete {
        true => JobEnding::Done(text),
        false => job.cut_short(&text, app.is_draining()),
    };
    // A job that an injected error keeps from its end is recorded as failed.
    let _ = around::<_, EngineError>("rekey", "end", || {
        job.end(ending);
        Ok(())
    });
}
