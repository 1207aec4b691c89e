//! `/v1/policies/preview`: effect of a policy, without applying it.

use axum::Json;
use tideline_engine::model::Policy;
use tideline_openapi::preview::{Amount, PlannedMove, PolicyPreview, PreviewPolicy, UnsealedPoints};
use tideline_openapi::{ErrorBody, policy};
use tideline_scheduler::{Amount as JobAmount, Preview};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::Json as JsonBody;
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::{Failures, changed_policy, instant, span};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(preview))
}

/// Preview a policy
///
/// Returns the data that the policy of a table would move, archive, hide and delete from now on. The policy is
/// the current policy of the table, with the given changes if there are any. Nothing is changed.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/policies/preview", tag = "jobs",
    request_body = PreviewPolicy,
    responses(
        (status = 200, description = "The effect of the policy", body = PolicyPreview),
        (status = 422, description = "The table does not have the model series", body = ErrorBody),
        Failures
    )
)]
async fn preview(
    app: Grant,
    id: RequestId,
    JsonBody(PreviewPolicy { table, policy }): JsonBody<PreviewPolicy>,
) -> Result<Json<PolicyPreview>> {
    let scheduler = app.scheduler.clone();
    let preview = app.read_table(table, move |engine, table| {
        let held = Policy::clone(&table.spec().policy);
        let policy = policy.map(|changes| changed_policy(held, changes)).transpose()?;
        if let Some(policy) = &policy {
            engine.check_archive(Some(&table.spec().policy), policy)?;
        }
        Ok(scheduler.preview(table.name().as_str(), policy)?)
    });
    Ok(Json(view(preview.await?, id)))
}

fn view(preview: Preview, id: RequestId) -> PolicyPreview {
    let planned = |amount: JobAmount, at: Option<i64>, windows: Vec<_>| PlannedMove {
        amount: self::amount(amount),
        begins: at.map(instant),
        first_windows: windows
            .into_iter()
            .map(|window: tideline_engine::model::TimeRange| span((window.start, window.end)))
            .collect(),
    };
    PolicyPreview {
        now: instant(preview.now),
        policy: policy::Policy::from(&preview.policy),
        migrate: planned(preview.migrates, preview.migrates_at, preview.migrating),
        archive: preview
            .archives
            .map(|archives| planned(archives.amount, archives.at, archives.windows)),
        hide: amount(preview.hides),
        free: planned(preview.drops, preview.drops_at, preview.dropping),
        unsealed: UnsealedPoints {
            migrate: preview.unsealed.migrates,
            archive: preview.unsealed.archives,
            hide: preview.unsealed.hides,
            free: preview.unsealed.drops,
        },
        visible_from: preview.visible_from.map(instant),
        paused: preview.expiry_paused,
        request_id: id.into(),
    }
}

/// Converts an amount for a response.
pub(super) fn amount(amount: JobAmount) -> Amount {
    Amount {
        windows: amount.windows,
        segments: amount.segments,
        timelines: amount.timelines,
        points: amount.points,
        values: amount.values,
        bytes: amount.bytes,
    }
}
