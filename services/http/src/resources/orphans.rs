//! `/v1/archive/orphans`: objects at a target that nothing names are listed, and removed on request.

use std::time::Duration;

use axum::extract::State;
use tideline_engine::moves::{Orphan, OrphanSearch, StoreError};
use tideline_openapi::archive::{FoundOrphans, OrphanObject, SearchOrphans};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::context::{RequestId, current_client};
use crate::extract::Json;
use crate::failure::{Failure, Result};
use crate::resources::{Failures, instant};

/// Objects that an answer lists.
const LISTED_MAX: usize = 1_000;
/// A request removes objects for so long; the next one goes on.
const REMOVE_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(orphans))
}

/// Find objects at a target that nothing names
///
/// Files and descriptions that failed or killed jobs have left behind. What a segment, a reader or a job of this database
/// names stays, and so does everything that a finished description of another database names. With `remove` they are removed,
/// descriptions first, for 20 seconds at most; what is then left, `objects` less `removed`, the next request removes. The
/// daily job of kind `sweep` removes the same once they are a day old.
#[utoipa::path(
    post, path = "/v1/archive/orphans", tag = "jobs",
    request_body = SearchOrphans,
    responses((status = 200, description = "Objects that nothing names", body = FoundOrphans), Failures)
)]
async fn orphans(
    State(app): State<App>,
    id: RequestId,
    Json(request): Json<SearchOrphans>,
) -> Result<axum::Json<FoundOrphans>> {
    let turn = app.requested_jobs.take(current_client()).await?;
    blocking(move || {
        let _turn = turn;
        let store = app.engine.store();
        app.engine.allow_target(&request.target)?;
        let failed = |error: StoreError| Failure::from(tideline_engine::EngineError::from(error));
        let search = OrphanSearch {
            target: request.target.clone(),
            origin: request.origin,
        };
        let found = store.find_orphans(&search).map_err(failed)?;
        let (mut removed, mut removed_bytes, mut error) = (0, 0, None);
        if request.remove {
            let clock = app.engine.clock();
            let until = clock.monotonic().saturating_add(REMOVE_WITHIN);
            let mut gone = 0;
            let mut go_on = |count| {
                gone = count;
                clock.monotonic() < until && !app.is_draining()
            };
            match store.remove_orphans(&request.target, &found, &mut go_on) {
                Ok(done) => (removed, removed_bytes) = done,
                Err(failure) => {
                    removed = gone;
                    error = Some(failure.to_string());
                }
            }
        }
        Ok(axum::Json(FoundOrphans {
            target: request.target,
            objects: found.found.len() as u64,
            bytes: found.bytes(),
            listed: found.found.iter().take(LISTED_MAX).map(listed).collect(),
            named: found.named,
            others: found.others,
            young: found.young,
            broken: found.broken,
            removed,
            removed_bytes,
            error,
            request_id: id.into(),
        }))
    })
    .await
}

fn listed(orphan: &Orphan) -> OrphanObject {
    let object = &orphan.object;
    OrphanObject {
        key: object.key.clone(),
        bytes: object.bytes,
        modified: instant(object.modified),
        content: object.content.name().into(),
        origin: object.origin.clone(),
        segment: object.number,
        reason: orphan.reason.into(),
    }
}
