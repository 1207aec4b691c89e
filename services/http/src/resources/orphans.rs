//! `/v1/archive/orphans`: lists and removes unused objects at an archive target.
//!
//! The objects of a target can belong to any table, so the request needs a token without a scope.

use std::time::Duration;

use tideline_engine::moves::{Orphan, OrphanSearch, StoreError};
use tideline_openapi::archive::{FoundOrphans, OrphanObject, SearchOrphans};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::Json;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, instant};

/// Maximum number of objects that a response lists.
const LISTED_MAX: usize = 1_000;
/// Longest time for which a request removes objects. A repeated request removes the remaining ones.
const REMOVE_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(orphans))
}

/// Find unused objects at a target
///
/// Finds files and descriptions that failed or killed jobs have left at a target. Objects in use by a segment, a
/// reader or a job of this database are kept, and so are objects that a complete description of another
/// database refers to. With `remove` the unused objects are removed, descriptions first, for at most 20
/// seconds. A repeated request removes the remaining ones (`objects` minus `removed`). The daily job of kind
/// `sweep_archive` removes the same objects once they are a day old.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/archive/orphans", tag = "jobs",
    request_body = SearchOrphans,
    responses((status = 200, description = "The unused objects", body = FoundOrphans), Failures)
)]
async fn orphans(
    app: Grant,
    id: RequestId,
    Json(request): Json<SearchOrphans>,
) -> Result<axum::Json<FoundOrphans>> {
    app.access.check_all()?;
    app.note_detail(audit_detail::members(&request));
    let permit = app.permit(&app.requested_jobs).await?;
    blocking(move || {
        let _permit = permit;
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
