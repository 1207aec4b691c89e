//! `/v1/tables/{table}/timelines/attributes`: changes attributes of all selected timelines.
//!
//! The handler starts a job. It streams the progress of the job, or returns the job immediately.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tideline_engine::AttributesChanged;
use tideline_engine::catalog::AttributeChanges;
use tideline_engine::model::Timestamp;
use tideline_openapi::attribute::AttributeValue;
use tideline_openapi::bulk::{ChangeAttributes, ChangeProgress};
use tideline_openapi::job::JobDetail;
use tideline_query::{Budget, Cancel};
use tideline_scheduler::requested::attributes::AttributesJob;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Waiting, stoppable};
use crate::audit_detail;
use crate::condition::{to_attribute, to_selector};
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::requested;
use crate::resources::jobs::detail;
use crate::resources::{Failures, TablePath};
use crate::saved_search::expand_selector;
use crate::stream::{self, WriteContext};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(change))
}

/// Set and remove attributes of many timelines
///
/// Changes the timelines that the selector selects at the start of the request, a thousand at a time, as a job
/// that can be listed and cancelled under `/v1/jobs`. The response is NDJSON: one line after each thousand
/// timelines, which are then durable and searchable, and a last line with `done`. Closing the connection
/// cancels the job; completed changes stay. With `"wait": false` the response is the job, which continues in
/// the background. A repeated request, also after a restart of the service, changes the remaining timelines and
/// counts timelines that were already changed as `unchanged`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/v1/tables/{table}/timelines/attributes", tag = "timelines",
    params(TablePath),
    request_body = ChangeAttributes,
    responses(
        (status = 200, description = "Progress, one JSON object per line", content_type = "application/x-ndjson", body = ChangeProgress),
        (status = 202, description = "The job, if `wait` is false", body = JobDetail),
        Failures
    )
)]
async fn change(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(ChangeAttributes {
        timelines,
        set,
        remove,
        wait,
    }): Json<ChangeAttributes>,
) -> Result<Response> {
    let now = app.engine.now();
    app.note_detail(format!(
        "timelines: {}; set: {}; remove: {}",
        audit_detail::json(&timelines),
        audit_detail::json(&set),
        audit_detail::json(&remove)
    ));
    let changes = changes_of(set, remove, now)?;
    let selector = to_selector(expand_selector(&app, &table, timelines)?, now)?;
    let permit = app.permit(&app.requested_jobs).await?;
    // If the client disconnects during the selection, the request is cancelled.
    let cancel = Cancel::new();
    let mut waiting = Waiting(Some(cancel.clone()));
    let running = app.clone();
    let begin = move || {
        let watch = running.querier.watch(Budget::default(), &cancel);
        stoppable(&watch, |stop| {
            let job = AttributesJob::begin(&running.scheduler, &running.engine, &table, &selector, stop);
            Ok(job?)
        })
    };
    if !wait {
        let running = app.clone();
        let shown = |work: &AttributesJob| work.job.job();
        let job = requested::in_background(permit, begin, shown, move |work| {
            // The job stores the outcome.
            let _outcome = work.perform(&running.engine, &changes, &|| running.is_draining(), &mut |_| {
                true
            });
        });
        let job = job.await;
        waiting.0 = None;
        return Ok((StatusCode::ACCEPTED, detail(job?, id)).into_response());
    }
    let id = String::from(id);
    let running = app.clone();
    let response = stream::respond(
        &app,
        "application/x-ndjson",
        WriteContext::default(),
        move |writer| {
            let _permit = permit;
            let work = begin()?;
            let job = work.job.id();
            let mut has_left = false;
            let mut watch = |progress: &AttributesChanged| {
                let written = stream::write_line(writer, &line(job, progress, false, &id));
                has_left |= written.is_err();
                written.is_ok()
            };
            let (progress, is_done) =
                work.perform(&running.engine, &changes, &|| running.is_draining(), &mut watch)?;
            if has_left {
                return Ok(());
            }
            stream::write_line(writer, &line(job, &progress, is_done, &id)).map_err(stream::client_left)
        },
    )
    .await;
    waiting.0 = None;
    response
}

/// Converts the attributes to set and to remove. Fails without attributes, and if an attribute is in both.
fn changes_of(
    set: BTreeMap<String, AttributeValue>,
    remove: Vec<String>,
    now: Timestamp,
) -> Result<AttributeChanges> {
    let mut changes = BTreeMap::new();
    for (key, value) in set {
        changes.insert(key, Some(to_attribute(value, now)?));
    }
    for key in remove {
        if changes.get(&key).is_some_and(Option::is_some) {
            return Err(Failure::invalid(format!(
                "attribute {key:?} is both in set and in remove"
            )));
        }
        changes.insert(key, None);
    }
    if changes.is_empty() {
        return Err(Failure::invalid(
            "set and remove are both empty; name at least one attribute",
        ));
    }
    Ok(changes)
}

fn line(job: u64, progress: &AttributesChanged, done: bool, id: &str) -> ChangeProgress {
    ChangeProgress {
        job,
        selected: progress.selected,
        changed: progress.changed,
        unchanged: progress.unchanged,
        gone: progress.gone,
        refused: progress.refused,
        first_refusal: progress.first_refusal.clone(),
        done,
        request_id: id.to_owned(),
    }
}
