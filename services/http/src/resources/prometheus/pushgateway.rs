//! What clients of a Pushgateway send: `/metrics/job/{job}{/label/value…}`.
//!
//! A Pushgateway shows the last push of a group to every scrape, for ever. Here nothing is scraped: a push is stored
//! once, at its arrival, and is then as old as it is. So replacing (PUT) and adding (POST) come to the same, and DELETE
//! says that the group has ended: its series get a stale marker, and are gone from every question about now. What was
//! pushed before stays.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::routing::put;
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tideline_ingest::group::{self, PUSH_TIME};
use tideline_ingest_protocols::prometheus::ImportOptions;
use tideline_openapi::ErrorCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::samples::ImportFailures;
use super::{PrometheusTable, import};
use crate::app::App;
use crate::body;
use crate::failure::{Failure, Result};

/// Labels of one group.
const GROUP_LABELS_MAX: usize = 64;

/// Of an address: both alphabets have it differently, this is the one for addresses, with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(replace_group, add_to_group, end_group))
        .route(
            "/metrics/{*group}",
            put(replace_group).post(add_to_group).delete(end_group),
        )
}

/// The path of a group, for the document; see [`Group::of`].
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "the document is made of it")]
struct JobPath {
    /// Value of the label `job`
    #[param(example = "nightly")]
    job: String,
}

/// Push the metrics of a group (Pushgateway)
///
/// The path names the group: `/metrics/job/nightly/instance/db-1` gives every series the labels `job` and `instance`,
/// in place of its own. A value that holds a slash is written in base64: `/metrics/job@base64/YS9i`.
///
/// The samples are stored at their arrival, with `push_time_seconds` beside them. Nothing is shown again later, so PUT
/// and POST are the same here. The formats of `/api/v1/import/prometheus` are read.
#[utoipa::path(
    put, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All stored"),
        ImportFailures
    )
)]
async fn replace_group(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// Push more metrics of a group (Pushgateway)
///
/// The same as PUT.
#[utoipa::path(
    post, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE backup_bytes gauge\nbackup_bytes 1234567\n"
    ),
    responses(
        (status = 200, description = "All stored"),
        ImportFailures
    )
)]
async fn add_to_group(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    push(&app, table, request).await
}

/// End a group (Pushgateway)
///
/// Its series get a stale marker, so that questions about now do not find them. What was pushed stays: use
/// `/v1/tables/{table}/points/delete` to delete it. A group that was never pushed is ended already.
#[utoipa::path(
    delete, path = "/metrics/job/{job}", tag = "prometheus",
    params(JobPath),
    responses(
        (status = 202, description = "It has ended"),
        (status = 400, description = "The group is wrong", body = String, content_type = "text/plain", example = json!("label \"instance\" has no value\n")),
        (status = 503, description = "Send it again after `Retry-After`", body = String, content_type = "text/plain", example = json!("100 writes are running\n"))
    )
)]
async fn end_group(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<StatusCode> {
    let group = Group::of(request.uri())?;
    app.change(move |engine| {
        let table = engine.table(&table)?;
        Ok(group::end(engine, &table, &group.0)?)
    })
    .await?;
    Ok(StatusCode::ACCEPTED)
}

async fn push(app: &App, table: String, request: Request) -> Result<StatusCode> {
    // An empty page writes nothing and would not notice that its table is missing.
    let known = app.engine.table(&table).map_err(Failure::from);
    let group = match known.and_then(|_| Group::of(request.uri())) {
        Ok(group) => group,
        Err(failure) => {
            body::discard(request, app).await;
            return Err(failure);
        }
    };
    let now = match app.engine.need_arrival_time() {
        Ok(now) => now,
        Err(error) => {
            body::discard(request, app).await;
            return Err(error.into());
        }
    };
    let seconds = now.nanos() as f64 / 1e9;
    let import = ImportOptions {
        millis: None,
        extra_labels: group.0.into_iter().collect(),
        extra_samples: vec![(PUSH_TIME.to_owned(), seconds)],
    };
    import::store_text(app, "pushgateway", table, import, request).await?;
    Ok(StatusCode::OK)
}

/// The labels that a path names.
#[derive(Debug, PartialEq, Eq)]
struct Group(BTreeMap<String, String>);

impl Group {
    /// Reads what follows `/metrics/`: label names and values in turn, `job` first.
    fn of(uri: &Uri) -> Result<Self> {
        let path = uri.path().split_once("/metrics/").map_or("", |(_, path)| path);
        let mut labels = BTreeMap::new();
        let mut parts = path.trim_end_matches('/').split('/');
        while let Some(name) = parts.next() {
            let name = decoded(name)?;
            let value = parts.next();
            let value = value.ok_or_else(|| Failure::invalid(format!("label {name:?} has no value")))?;
            let (name, value) = match name.strip_suffix("@base64") {
                Some(name) => (name.to_owned(), from_base64(value)?),
                None => (name, decoded(value)?),
            };
            if labels.is_empty() && name != "job" {
                return Err(Failure::invalid("the first label of a group is job"));
            }
            if name.is_empty() || name.starts_with("__") {
                return Err(Failure::invalid(format!("label {name:?} is not for groups")));
            }
            if labels.contains_key(&name) {
                return Err(Failure::invalid(format!("duplicate label {name:?}")));
            }
            labels.insert(name, value);
        }
        if labels.get("job").is_none_or(String::is_empty) {
            return Err(Failure::invalid("the job of a group has no name"));
        }
        match labels.len() {
            0..=GROUP_LABELS_MAX => Ok(Self(labels)),
            more => Err(Failure::over(
                ErrorCode::OverLimit,
                "number of labels of a group",
                GROUP_LABELS_MAX as u64,
                more as u64,
            )),
        }
    }
}

fn decoded(part: &str) -> Result<String> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(Into::into)
        .map_err(|_| Failure::invalid(format!("{part:?} is not UTF-8")))
}

/// A value in base64; `=` alone is the empty one, since an address cannot have an empty part.
fn from_base64(part: &str) -> Result<String> {
    if part == "=" {
        return Ok(String::new());
    }
    let part = decoded(part)?;
    let bytes = BASE64.decode(&part).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| Failure::invalid(format!("{part:?} is not text in base64")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &str) -> std::result::Result<Vec<(String, String)>, String> {
        let uri = path.parse().expect("an address");
        let group = Group::of(&uri).map_err(|failure| failure.message)?;
        Ok(group.0.into_iter().collect())
    }

    #[test]
    fn a_path_names_the_labels_of_its_group() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            Ok(pairs.iter().map(owned).collect::<Vec<_>>())
        };
        assert_eq!(group("/metrics/job/a"), pairs(&[("job", "a")]));
        assert_eq!(
            group("/metrics/job/a%20b/instance/c/"),
            pairs(&[("instance", "c"), ("job", "a b")])
        );
        assert_eq!(
            group("/v1/tables/x/prometheus/metrics/job/a"),
            pairs(&[("job", "a")])
        );
        assert_eq!(
            group("/metrics/job@base64/YS9i/path@base64/L3Zhci90bXA/name/foo"),
            pairs(&[("job", "a/b"), ("name", "foo"), ("path", "/var/tmp")])
        );
        assert_eq!(
            group("/metrics/job/titan/dir@base64/="),
            pairs(&[("dir", ""), ("job", "titan")])
        );
        for (path, reason) in [
            ("/metrics/instance/a", "the first label of a group is job"),
            ("/metrics/job/", "label \"job\" has no value"),
            ("/metrics/job/a/instance", "label \"instance\" has no value"),
            ("/metrics/job/a/x/1/x/2", "duplicate label \"x\""),
            (
                "/metrics/job/a/__name__/2",
                "label \"__name__\" is not for groups",
            ),
            ("/metrics/job@base64/=", "the job of a group has no name"),
            ("/metrics/job@base64/%%", "\"%%\" is not text in base64"),
        ] {
            let Ok(_) = path.parse::<Uri>() else { continue };
            assert_eq!(group(path), Err(reason.to_owned()), "{path}");
        }
    }
}
