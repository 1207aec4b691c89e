//! Execution of requests for series of a table: permit, budget, registry of running queries, streamed response.
//!
//! The handlers only parse their parameters to a [`SeriesRequest`] and pass it to a [`Caller`].

use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use tideline_connections::Permits;
use tideline_prometheus::settings::transfer_budget;
use tideline_prometheus::{PromqlError, SeriesRequest, SeriesView, reaches_cold};
use tideline_query::{Budget, Cancel};

use super::PrometheusTable;
use crate::app::App;
use crate::context::{RequestId, current_client};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::running::Description;
use crate::stream::{self, WriteContext};

/// Content type of most responses.
pub(super) const JSON: &str = "application/json";

/// State of a request about a table: the service, the request id and the name of the table.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) app: Grant,
    request_id: RequestId,
    table: String,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Ok(request_id) = RequestId::from_request_parts(parts, app).await;
        let PrometheusTable(table) = PrometheusTable::from_request_parts(parts, app).await?;
        Ok(Self {
            app: Grant::from_request_parts(parts, app).await?,
            request_id,
            table,
        })
    }
}

impl Caller {
    /// Waits for a query permit, runs the request on a blocking thread, and streams the response. The request stops if
    /// the client disconnects. `resource` is the name in the registry of running queries; `time_max` includes the wait
    /// for the permit.
    pub(super) async fn respond(
        self,
        resource: &'static str,
        time_max: Duration,
        content_type: &'static str,
        request: impl SeriesRequest,
    ) -> Result<Response> {
        let app = self.app.clone();
        let is_cold = request
            .read_range()
            .zip(app.engine.table(&self.table).ok())
            .is_some_and(|(read_range, table)| reaches_cold(&app.querier, &table, read_range));
        let permits = if is_cold { &app.cold_queries } else { &app.queries };
        let budget = app.settings.prometheus.query_budget();
        self.run_with(permits, budget, resource, time_max, content_type, request)
            .await
    }

    /// Runs a transfer of many samples. Transfers have separate permits, because a slow reader can make them last long.
    pub(super) async fn transfer(
        self,
        permits: &Permits,
        resource: &'static str,
        time_max: Duration,
        content_type: &'static str,
        request: impl SeriesRequest,
    ) -> Result<Response> {
        self.run_with(
            permits,
            transfer_budget(),
            resource,
            time_max,
            content_type,
            request,
        )
        .await
    }

    async fn run_with(
        self,
        permits: &Permits,
        budget: Budget,
        resource: &'static str,
        time_max: Duration,
        content_type: &'static str,
        request: impl SeriesRequest,
    ) -> Result<Response> {
        let Self {
            app,
            request_id,
            table,
        } = self;
        let began = Instant::now();
        let permit = tokio::time::timeout(time_max, permits.take(current_client())).await;
        let permit = permit.map_err(|_| PromqlError::Timeout("query queue"))??;
        let waited = began.elapsed();
        let budget = Budget {
            time_max: time_max.saturating_sub(waited),
            ..budget
        };
        let context = WriteContext {
            permit: Some(permit),
            cancel: Cancel::new(),
        };
        let (running, cancel) = (app.clone(), context.cancel.clone());
        stream::respond(&app, content_type, context, move |writer| {
            let app = running;
            let known = app.engine.table(&table)?;
            let description = Description {
                request_id,
                table,
                resource,
                text: request.text(),
            };
            let _listed = app.running.list(&app.engine, description, cancel.clone());
            let view = SeriesView::new(&app.querier, &known, budget, &cancel);
            Ok(request.write(&view, waited, writer)?)
        })
        .await
    }
}
