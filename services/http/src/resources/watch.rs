//! `/v1/tables/{table}/watch`: new writes as server-sent events, from now or from a cursor on.
//!
//! Invalid requests get an error status before the first event. A separate task then serves the watch ([`crate::live`]):
//! it waits for ticks, advances the watch ([`crate::watching`]) and sends the encoded events. If the writes after the
//! position of a watch are no longer available, the client gets an error event, and the watch ends.

mod event;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use tideline_engine::TimelineSelector;
use tideline_engine::condition::Condition;
use tideline_engine::model::SequenceNumber;
use tideline_engine::watch::{WatchCursor, WatchRequest as EngineRequest, Watcher};
use tideline_openapi::query as wire;
use tideline_openapi::watch::{WatchKind, WatchQuery, WatchReady, WatchRequest};
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::event::EventText;
use crate::app::{App, blocking};
use crate::condition::to_selector;
use crate::context::current_client;
use crate::extract::{Json, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::live::{self, Source, Step};
use crate::resources::{TablePath, WatchFailures};
use crate::saved_search;
use crate::watching::WatchGroup;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(watch_by_body, watch_by_address))
}

/// Watch a table
///
/// Sends new points of the selected timelines, new and changed timelines, and deletes, as server-sent events as soon as
/// they are acknowledged. Events:
///
/// * `ready`: the first event, with the start of the watch (`WatchReady`).
/// * `points`: new points by timeline (`WatchPoints`). A point that is written again is sent again.
/// * `timelines`: new timelines, and timelines whose attributes were changed, in their current state
///   (`WatchTimelines`). A timeline may be sent twice.
/// * `deleted`: deleted points, by timeline ids and time range (`WatchDeleted`). If timelines were deleted too, the ids
///   may include some that do not match the condition, because a deleted timeline can no longer be tested. Points
///   hidden by a policy are not sent.
/// * `failed`: the last event (`ErrorBody`). The watch cannot continue, for example because the client was so slow that
///   the next writes are no longer available.
/// * `resume`: the last event (`WatchResume`). The client has read nothing for half of `http.answer_timeout`. Start the
///   watch again from the `id` of the event.
///
/// To continue right after an event, send its `id` as `from` or in the header `Last-Event-ID`; the header takes
/// precedence. No event is missed, and the points before the event are not sent again, even across a restart of the
/// service. The newest writes are kept in memory for this (at most 16 MiB); an older `id` is refused with 410.
///
/// To mirror a table, start a watch, query all points after `ready`, then apply the events. Events whose writes are
/// already in the result of the query can be applied again without harm.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/watch", tag = "points",
    params(TablePath),
    request_body = WatchRequest,
    responses(
        (status = 200, description = "Events until the client disconnects", content((String = "text/event-stream", example = events_example))),
        WatchFailures
    )
)]
async fn watch_by_body(
    app: Grant,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Json(request): Json<WatchRequest>,
) -> Result<Response> {
    respond(app, table, &headers, request).await
}

/// Watch a table, with URL parameters
///
/// The same watch for clients that cannot send a body, such as `EventSource` in browsers.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables/{table}/watch", tag = "points",
    params(TablePath, WatchQuery),
    responses(
        (status = 200, description = "Events until the client disconnects", content((String = "text/event-stream", example = events_example))),
        WatchFailures
    )
)]
async fn watch_by_address(
    app: Grant,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Query(query): Query<WatchQuery>,
) -> Result<Response> {
    respond(app, table, &headers, from_address(query)?).await
}

fn events_example() -> &'static str {
    "retry: 2000\nid: 1-2a7f-0-0\nevent: ready\ndata: {\"cursor\":\"1-2a7f-0-0\"}\n\nid: 1-2a80-0-0\nevent: points\ndata: {\"series\":[{\"id\":\"3f2a9c017bde45a18c40f1e29d3b6a57\",\"measurement\":\"cpu\",\"tags\":{\"host\":\"web-1\"},\"columns\":[\"time\",\"usage_user\"],\"points\":[[\"2026-11-20T12:00:00Z\",41.5]]}]}\n\n"
}

fn from_address(query: WatchQuery) -> Result<WatchRequest> {
    let names = |list: Option<String>| -> Vec<String> {
        let list = list.unwrap_or_default();
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let kind = |name: String| match name.as_str() {
        "points" => Ok(WatchKind::Points),
        "timelines" => Ok(WatchKind::Timelines),
        "deletes" => Ok(WatchKind::Deletes),
        _ => Err(Failure::invalid(format!(
            "tell: {name:?} is not a kind of event; use points, timelines or deletes"
        ))),
    };
    let selector = |json: String| {
        serde_json::from_str::<wire::TimelineSelector>(&json)
            .map_err(|error| Failure::invalid(format!("timelines must be a selector as JSON: {error}")))
    };
    Ok(WatchRequest {
        sample_details: query.sample_details,
        timelines: query.timelines.map(selector).transpose()?,
        fields: names(query.fields),
        tell: names(query.tell).into_iter().map(kind).collect::<Result<_>>()?,
        from: query.from,
        time: query.time,
        times: query.times,
        int64: query.int64,
    })
}

async fn respond(
    app: Grant,
    table: String,
    headers: &HeaderMap,
    mut request: WatchRequest,
) -> Result<Response> {
    let end = live::end_of(request.time)?;
    let is_of_existing = live::is_of_existing(request.time);
    let text = EventText::new(request.times, request.int64);
    request.timelines = saved_search::expand_optional(&app, &table, request.timelines)?;
    let request = to_engine(&app, request, headers)?;
    let permit = app.watches.take(current_client()).await?;
    // The subscription starts before the first step, so that no tick is missed in between.
    let ticks = app.watching.subscribe(&app);
    let engine = app.engine.clone();
    let watcher = blocking(move || Ok(engine.watch(&engine.table(&table)?, request)?)).await?;
    let group = app.watching.join(&watcher, text);
    let begin = watcher.cursor();
    let mut watcher = Some(watcher);
    // If the watch cannot start, for example because its cursor is too old, the response has an error status.
    let until = app.engine.store().recent_end();
    let first = app
        .watching
        .step(&app.engine, &group, &mut watcher, until)
        .await?;
    let ready = live::ready(
        &begin,
        &WatchReady {
            cursor: begin.to_string(),
        },
    );
    let source = TableEvents {
        app: app.clone(),
        watcher,
        group,
        until,
        existing: is_of_existing.then_some(until),
        ticks,
    };
    Ok(live::respond(app, (source, permit), end, (ready, first)))
}

fn to_engine(app: &Grant, request: WatchRequest, headers: &HeaderMap) -> Result<EngineRequest> {
    let selector = request
        .timelines
        .map(|selector| to_selector(selector, app.engine.now()));
    let everything = TimelineSelector::Condition(Condition::All);
    let from = live::cursor_of(headers, request.from.as_deref());
    let from = from
        .map(str::parse::<WatchCursor>)
        .transpose()
        .map_err(Failure::invalid)?;
    let includes = |kind| request.tell.is_empty() || request.tell.contains(&kind);
    Ok(EngineRequest {
        details: request.sample_details,
        timelines: selector.transpose()?.unwrap_or(everything),
        includes_points: includes(WatchKind::Points),
        includes_timelines: includes(WatchKind::Timelines),
        includes_deletes: includes(WatchKind::Deletes),
        fields: request.fields,
        from,
    })
}

/// Events of a table.
struct TableEvents {
    app: Grant,
    /// `None` while another thread advances the watch.
    watcher: Option<Watcher>,
    group: Arc<WatchGroup>,
    /// Position up to which the watch advances.
    until: SequenceNumber,
    /// Position up to which the watch sends events although its time is over; `None` = it ends at once.
    existing: Option<SequenceNumber>,
    ticks: watch::Receiver<SequenceNumber>,
}

impl TableEvents {
    /// Returns true if no event up to a position is left to read.
    fn has_read(&self, position: SequenceNumber) -> bool {
        let watcher = self.watcher.as_ref();
        watcher.is_none_or(|watcher| watcher.cursor().sequence() >= position)
    }
}

impl Source for TableEvents {
    type Cursor = WatchCursor;

    async fn step(&mut self) -> Result<Arc<Step<WatchCursor>>> {
        // The last tick can be older than the first step.
        self.until = self.until.max(*self.ticks.borrow_and_update());
        let Self {
            app,
            group,
            watcher,
            until,
            ..
        } = self;
        app.watching.step(&app.engine, group, watcher, *until).await
    }

    fn jump(&mut self, cursor: WatchCursor) {
        if let Some(watcher) = &mut self.watcher {
            watcher.jump(cursor);
        }
    }

    fn is_caught_up(&self) -> bool {
        self.has_read(self.until)
    }

    fn can_end(&self) -> bool {
        self.existing.is_none_or(|existing| self.has_read(existing))
    }

    async fn changed(&mut self) -> bool {
        self.ticks.changed().await.is_ok()
    }
}
