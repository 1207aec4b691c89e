//! `/v1/tables/{table}/timelines/attributes`: attributes of all timelines that are selected.

use std::collections::BTreeMap;
use std::io::Write;

use axum::extract::State;
use axum::response::Response;
use tideline_engine::AttributesChanged;
use tideline_openapi::bulk::{ChangeAttributes, ChangeProgress};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition::{to_attribute, to_selector};
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::resources::{Failures, TablePath};
use crate::saved::expand_selector;
use crate::stream::{self, AnswerWriter};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(change))
}

/// Set and remove attributes of many timelines
///
/// Of those that are selected at that moment, by a thousand at a time. The answer is NDJSON: a line after each thousand,
/// which are durable and findable then, and a last one with `done`. Closing the connection ends it: what is changed stays.
/// Sent again, also after a restart of the service, it changes what is left, and counts the others as `unchanged`.
#[utoipa::path(
    post, path = "/v1/tables/{table}/timelines/attributes", tag = "timelines",
    params(TablePath),
    request_body = ChangeAttributes,
    responses(
        (status = 200, description = "How far it has come, line by line", content_type = "application/x-ndjson", body = ChangeProgress),
        Failures
    )
)]
async fn change(
    State(app): State<App>,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(ChangeAttributes {
        timelines,
        set,
        remove,
    }): Json<ChangeAttributes>,
) -> Result<Response> {
    let now = app.engine.clock().now();
    let mut changes = BTreeMap::new();
    for (key, value) in set {
        changes.insert(key, Some(to_attribute(value, now)?));
    }
    for key in remove {
        if changes.get(&key).is_some_and(Option::is_some) {
            return Err(Failure::invalid(format!(
                "attribute {key:?} is to be set and removed"
            )));
        }
        changes.insert(key, None);
    }
    if changes.is_empty() {
        return Err(Failure::invalid("nothing is to be set or removed"));
    }
    let selector = to_selector(expand_selector(&app, &table, timelines)?, now)?;
    let turn = app.changes.take().await?;
    let running = app.clone();
    let id = String::from(id);
    stream::answer("application/x-ndjson", move |writer| {
        let _turn = turn;
        let table = running.engine.table(&table)?;
        let selected = running.engine.selected(&table, &selector)?;
        let mut has_left = false;
        let mut watch = |progress: &AttributesChanged| {
            let told = tell(writer, progress, false, &id);
            has_left |= told.is_err();
            told.is_ok()
        };
        let changed = running
            .engine
            .set_attributes_of(&table, &selected, &changes, &mut watch)?;
        if has_left {
            return Ok(());
        }
        tell(writer, &changed, true, &id).map_err(stream::client_left)
    })
    .await
}

/// Writes a line, and sends it at once.
fn tell(
    writer: &mut AnswerWriter,
    progress: &AttributesChanged,
    done: bool,
    id: &str,
) -> std::io::Result<()> {
    let line = ChangeProgress {
        selected: progress.selected,
        changed: progress.changed,
        unchanged: progress.unchanged,
        gone: progress.gone,
        refused: progress.refused,
        first_refusal: progress.first_refusal.clone(),
        done,
        request_id: id.to_owned(),
    };
    serde_json::to_writer(&mut *writer, &line)?;
    writer.write_all(b"\n")?;
    writer.flush()
}
