//! Extractor of [`Parameters`] from a form and the query string. Parameters of the form precede those of the query
//! string.

use axum::extract::{FromRequest, Request};
use axum::http::Method;
use tideline_openapi::ErrorCode;
use tideline_prometheus::Parameters;

use crate::app::App;
use crate::body;
use crate::extract::content_type;
use crate::failure::{Failure, Result};

/// Content type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

impl FromRequest<App> for Parameters {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let address = request.uri().query().unwrap_or_default();
        if request.method() != Method::POST {
            return Ok(Self::read([address.as_bytes()]));
        }
        let address = address.to_owned();
        match content_type(request.headers()).as_str() {
            FORM => {}
            // Parameters in this format must not be ignored silently.
            sent @ "multipart/form-data" => {
                app.bodies.discard(request).await;
                return Err(Failure::new(
                    ErrorCode::UnsupportedMediaType,
                    format!("content type {sent:?} is not supported; use {FORM}"),
                ));
            }
            _ => {
                app.bodies.discard(request).await;
                return Ok(Self::read([address.as_bytes()]));
            }
        }
        let received = body::receive(request, app, body::request_limits(&app.settings)).await?;
        let form = body::decode(received).await?;
        Ok(Self::read([form.trim_ascii_end(), address.as_bytes()]))
    }
}
