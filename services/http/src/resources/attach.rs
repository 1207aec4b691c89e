//! `/v1/archive/attach`: creates tables from the archive of another database.
//!
//! The handler starts a job. It streams the progress of the job, or returns the job immediately.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tideline_engine::model::TableName;
use tideline_engine::{AttachProgress, AttachRequest};
use tideline_openapi::attach as wire;
use tideline_openapi::job::JobDetail;
use tideline_scheduler::requested::attach::AttachJob;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::Json;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::requested;
use crate::resources::Failures;
use crate::resources::jobs::detail;
use crate::stream::{self, WriteContext};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(attach))
}

/// Attach an archive
///
/// Makes the archived tables of another database available in this one: points, timelines, tags and attributes, and
/// parts of wide tables, as they were when the files were written. The files stay at their location. A missing table
/// is created with its original settings. Points of an existing table stay and take precedence over attached ones. A
/// part of a wide table is attached only if the table has no row of this part; the key, the division and the columns
/// of an existing table must equal those of the archive, and its indexes are built again.
///
/// The response is NDJSON: one line after each thousand timelines, each segment and each part, and a last line with
/// `done` or `error`. Closing the connection cancels the job; the data attached so far stays. With `"wait": false` the
/// response is the job, which can be listed and cancelled under `/v1/jobs`. A repeated request attaches the rest, even
/// after a restart of the service. Damaged segments and parts are reported in `problems`; all others are attached.
/// `problems` also has the number of streamed values of each attached part, because the archive does not contain them.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/archive/attach", tag = "jobs",
    request_body = wire::AttachArchive,
    responses(
        (status = 200, description = "Progress, one JSON object per line", content_type = "application/x-ndjson", body = wire::AttachProgress),
        (status = 202, description = "The job, if `wait` is false", body = JobDetail),
        (status = 409, description = "Another archive is being attached, or the files belong to another table", body = tideline_openapi::ErrorBody),
        Failures
    )
)]
async fn attach(app: Grant, id: RequestId, Json(request): Json<wire::AttachArchive>) -> Result<Response> {
    app.access.check_all()?;
    let wait = request.wait;
    app.note_change(format!("/v1/archive/attach {}", request.target));
    app.note_detail(audit_detail::members(&request));
    let request = to_request(request)?;
    let permit = app.permit(&app.requested_jobs).await?;
    let running = app.clone();
    let begin = move || Ok(AttachJob::begin(&running.scheduler, &running.engine, &request)?);
    if !wait {
        let running = app.clone();
        let shown = |work: &AttachJob| work.job.job();
        let job = requested::in_background(permit, begin, shown, move |work| {
            // The job stores the outcome.
            let _outcome = work.perform(&running.engine, &|| running.is_draining(), &mut |_| true);
        });
        return Ok((StatusCode::ACCEPTED, detail(job.await?, id)).into_response());
    }
    let id = String::from(id);
    let running = app.clone();
    stream::respond(
        &app,
        "application/x-ndjson",
        WriteContext::default(),
        move |writer| {
            let _permit = permit;
            let work = begin()?;
            let job = work.job.id();
            let mut has_left = false;
            let mut last = AttachProgress::default();
            let mut watch = |progress: &AttachProgress| {
                last.clone_from(progress);
                let written = stream::write_line(writer, &line(job, progress, &id));
                has_left |= written.is_err();
                written.is_ok()
            };
            let outcome = work.perform(&running.engine, &|| running.is_draining(), &mut watch);
            if has_left {
                return Ok(());
            }
            let mut end = line(job, &last, &id);
            match outcome {
                Ok((progress, done)) => {
                    end = line(job, &progress, &id);
                    end.done = done;
                    end.error = (!done).then(|| "cancelled".into());
                }
                Err(error) => end.error = Some(error.to_string()),
            }
            stream::write_line(writer, &end).map_err(stream::client_left)
        },
    )
    .await
}

fn to_request(request: wire::AttachArchive) -> Result<AttachRequest> {
    let name = |name: Option<String>| {
        let name = name.map(|name| TableName::new(&name)).transpose();
        name.map_err(|error| Failure::invalid(error.to_string()))
    };
    Ok(AttachRequest {
        target: request.target,
        table: name(request.table)?,
        rename: name(request.rename)?,
        origin: request.origin,
        own: request.own,
        parts: request.parts,
        verify: request.verify,
    })
}

fn line(job: u64, progress: &AttachProgress, id: &str) -> wire::AttachProgress {
    wire::AttachProgress {
        job,
        tables: progress.tables,
        segments: progress.segments,
        attached: progress.attached,
        timelines: progress.timelines,
        points: progress.points,
        parts: progress.parts,
        parts_attached: progress.parts_attached,
        rows: progress.rows,
        superseded: progress.superseded,
        known: progress.known,
        problems: progress.problems.clone(),
        problem_count: progress.problem_count,
        done: false,
        error: None,
        request_id: id.to_owned(),
    }
}
