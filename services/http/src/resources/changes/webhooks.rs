//! `/v1/changes/{stream}/webhooks`: addresses to which the changes of a stream are sent.
//!
//! The server sends the changes in order, signs each request, and repeats failed requests. A delivery that is no
//! longer repeated is kept for a replay.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_change_stream::{Position, delivery};
use tideline_openapi::change::{
    FailedDeliveries, ReplayReport, ReplayWebhook, WebhookDetail, WebhookList, WebhookSettings,
};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{StreamPath, change_of, with_streams};
use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, NoQuery, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::Failures;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, get, delete))
        .routes(routes!(list_failed))
        .routes(routes!(discard))
        .routes(routes!(replay))
        .routes(routes!(resume))
}

/// Path parameters of routes for a webhook.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct WebhookPath {
    /// Name of the stream
    #[param(example = "orders")]
    stream: String,
    /// Name of the webhook: 1 to 64 letters, digits, dots, dashes and underscores
    #[param(example = "shop")]
    webhook: String,
}

/// Path parameters of routes for a failed delivery.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct DeliveryPath {
    /// Name of the stream
    #[param(example = "orders")]
    stream: String,
    /// Name of the webhook
    #[param(example = "shop")]
    webhook: String,
    /// Id of the delivery
    #[param(example = "0-1a2b-0_0-1a2c-0")]
    delivery: String,
}

/// List the webhooks of a stream
#[utoipa::path(
    security(("token" = ["operate"])),
    get, path = "/v1/changes/{stream}/webhooks", tag = "changes", operation_id = "list_webhooks",
    params(StreamPath),
    responses((status = 200, description = "All webhooks with their state", body = WebhookList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(StreamPath { stream }): Path<StreamPath>,
    _: NoQuery,
) -> Result<Json<WebhookList>> {
    app.check_stream(&stream, false)?;
    let webhooks = with_streams(&app, move |streams| streams.webhooks(&stream)).await?;
    Ok(Json(WebhookList {
        webhooks,
        request_id: id.into(),
    }))
}

/// Create a webhook, or change its settings
///
/// Each request to the address is a `POST` of a JSON object with `records`, as in a page of changes. It is signed
/// as defined by Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`). A response with any
/// 2xx status accepts the request. The next request is sent only after the previous request was accepted or has
/// failed permanently. A receiver can get records more than once; it detects repeated records by their cursors.
#[utoipa::path(
    security(("token" = ["operate"])),
    put, path = "/v1/changes/{stream}/webhooks/{webhook}", tag = "changes", operation_id = "put_webhook",
    params(WebhookPath), request_body = WebhookSettings,
    responses((status = 200, description = "The webhook", body = WebhookDetail), Failures)
)]
async fn put(
    app: Grant,
    id: RequestId,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
    JsonBody(settings): JsonBody<WebhookSettings>,
) -> Result<Json<WebhookDetail>> {
    let secret = match settings.secret {
        Some(_) => "new",
        None => "unchanged",
    };
    let webhook = change_of(&app, stream, move |streams, stream| {
        streams.put_webhook(stream, &webhook, &settings)
    })
    .await?;
    // The path of the address can hold a secret. The response does not contain it either.
    app.note_detail(format!(
        "url: {}; batch: {}; hold: {}; secret: {secret}",
        webhook.url, webhook.batch, webhook.hold
    ));
    Ok(Json(WebhookDetail {
        webhook,
        request_id: id.into(),
    }))
}

/// Describe a webhook
#[utoipa::path(
    security(("token" = ["operate"])),
    get, path = "/v1/changes/{stream}/webhooks/{webhook}", tag = "changes", operation_id = "get_webhook",
    params(WebhookPath),
    responses((status = 200, description = "The webhook with its state", body = WebhookDetail), Failures)
)]
async fn get(
    app: Grant,
    id: RequestId,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
) -> Result<Json<WebhookDetail>> {
    let webhook = with_streams(&app, move |streams| streams.webhook(&stream, &webhook)).await?;
    Ok(Json(WebhookDetail {
        webhook,
        request_id: id.into(),
    }))
}

/// Delete a webhook with its failed deliveries
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/changes/{stream}/webhooks/{webhook}", tag = "changes", operation_id = "delete_webhook",
    params(WebhookPath),
    responses((status = 204, description = "The webhook does not exist any more"), Failures)
)]
async fn delete(
    app: Grant,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
) -> Result<StatusCode> {
    change_of(&app, stream, move |streams, stream| {
        streams.delete_webhook(stream, &webhook)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resume a webhook
///
/// Ends a pause that began with a response of status 410. The refused delivery is sent again, then the changes
/// after it. A delivery that was refused in a replay stays in the list of failed deliveries. Changes whose
/// retention has passed meanwhile are reported by a `gap`. Repeating the request is safe.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/changes/{stream}/webhooks/{webhook}/resume", tag = "changes", operation_id = "resume_webhook",
    params(WebhookPath),
    responses((status = 200, description = "The webhook, which delivers again", body = WebhookDetail), Failures)
)]
async fn resume(
    app: Grant,
    id: RequestId,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
) -> Result<Json<WebhookDetail>> {
    let webhook = change_of(&app, stream, move |streams, stream| {
        streams.resume_webhook(stream, &webhook)
    })
    .await?;
    Ok(Json(WebhookDetail {
        webhook,
        request_id: id.into(),
    }))
}

/// List the failed deliveries of a webhook
#[utoipa::path(
    security(("token" = ["operate"])),
    get, path = "/v1/changes/{stream}/webhooks/{webhook}/failed", tag = "changes",
    operation_id = "list_failed_deliveries",
    params(WebhookPath),
    responses((status = 200, description = "Deliveries that were given up", body = FailedDeliveries), Failures)
)]
async fn list_failed(
    app: Grant,
    id: RequestId,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
) -> Result<Json<FailedDeliveries>> {
    let failed = with_streams(&app, move |streams| streams.failed_deliveries(&stream, &webhook)).await?;
    Ok(Json(FailedDeliveries {
        failed,
        request_id: id.into(),
    }))
}

/// Discard a failed delivery
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/changes/{stream}/webhooks/{webhook}/failed/{delivery}", tag = "changes",
    operation_id = "discard_delivery",
    params(DeliveryPath),
    responses((status = 204, description = "The delivery is not kept any more"), Failures)
)]
async fn discard(
    app: Grant,
    Path(DeliveryPath {
        stream,
        webhook,
        delivery,
    }): Path<DeliveryPath>,
    _: NoQuery,
) -> Result<StatusCode> {
    change_of(&app, stream, move |streams, stream| {
        streams.discard_delivery(stream, &webhook, &delivery)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send failed deliveries again, or deliver changes from a cursor on again
///
/// Failed deliveries are sent once each, while the request waits. A response with status 410 pauses the webhook and
/// ends the replay: the deliveries after it are not sent and stay in the list. While a replay of the webhook runs,
/// another one is refused with 409 `conflict`. If the request has a cursor, the webhook continues from it.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/changes/{stream}/webhooks/{webhook}/replay", tag = "changes", operation_id = "replay_webhook",
    params(WebhookPath), request_body = ReplayWebhook,
    responses((status = 200, description = "Results of the replay", body = ReplayReport), Failures)
)]
async fn replay(
    app: Grant,
    id: RequestId,
    Path(WebhookPath { stream, webhook }): Path<WebhookPath>,
    _: NoQuery,
    JsonBody(request): JsonBody<ReplayWebhook>,
) -> Result<Json<ReplayReport>> {
    // A missing stream is reported before an invalid cursor.
    app.check_stream(&stream, false)?;
    let report = |delivered, failed| {
        Json(ReplayReport {
            delivered,
            failed,
            request_id: id.into(),
        })
    };
    if let Some(cursor) = &request.cursor {
        if request.ids.is_some() {
            return Err(Failure::invalid("give either `ids` or `cursor`"));
        }
        let position: Position = cursor.parse()?;
        change_of(&app, stream, move |streams, stream| {
            streams.rewind_webhook(stream, &webhook, position)
        })
        .await?;
        return Ok(report(0, Vec::new()));
    }
    let _permit = app.permit(&app.requested_jobs).await?;
    // The stream can have been replaced while the request waited.
    app.check_stream(&stream, false)?;
    let (delivered, failed) = delivery::replay(&app.change_streams, &stream, &webhook, request.ids).await?;
    Ok(report(delivered, failed))
}
