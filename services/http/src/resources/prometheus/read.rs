//! `/api/v1/read`: remote read. Another Prometheus, Thanos or `vmctl` pulls samples out, raw or in chunks.

mod bits;
mod chunk;
mod message;

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tideline_ingest_protocols::prometheus::{
    ReadMatcher, ReadMatcherKind, ReadQuery, ReadRequest, ReadResponseType, decode_read,
};
use tideline_promql::{Labels, MatchOp, Matcher, PromqlError, Samples};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::message::{put_chunked_series, put_result, put_series};
use super::PrometheusTable;
use super::answer::PrometheusFailures;
use super::each::each_series;
use super::parameters::{TIME_MAX, TIME_MIN};
use super::run::{Asked, Running, run};
use crate::app::App;
use crate::body::{self, BodyLimits};
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::stream::{self, AnswerWriter};

/// Bytes of an answer that may be held at once: series are sorted before they go out.
const HELD_BYTES_MAX: usize = 256 << 20;
/// Queries of a request.
const QUERIES_MAX: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read))
}

/// Read samples (remote read)
///
/// A snappy block of `prometheus.ReadRequest`. By `accepted_response_types` the answer is a snappy block of
/// `prometheus.ReadResponse`, or a stream of `prometheus.ChunkedReadResponse`: series sorted by labels, numbers in XOR chunks,
/// native histograms in chunks of float histograms, each message behind its length and its CRC-32C.
#[utoipa::path(
    post, path = "/api/v1/read", tag = "prometheus",
    request_body(
        content = Vec<u8>, content_type = "application/x-protobuf", description = "A snappy block of a ReadRequest",
        example = json!("")
    ),
    responses(
        (status = 200, description = "Samples", content(
            (Vec<u8> = "application/x-protobuf", example = no_example),
            (Vec<u8> = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse", example = no_example)
        )),
        PrometheusFailures
    )
)]
async fn read(
    State(app): State<App>,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<Response> {
    let received = body::receive_snappy(request, &app, BodyLimits::requests(&app.settings)).await?;
    let body = received.decode_small().await?;
    let ReadRequest {
        queries,
        response_type,
    } = decode_read(&body).map_err(Failure::invalid)?;
    if queries.len() > QUERIES_MAX {
        return Err(Failure::invalid(format!(
            "{} queries in a request are over the limit of {QUERIES_MAX}",
            queries.len()
        )));
    }
    let queries: Vec<Question> = queries.iter().map(Question::of).collect::<Result<_>>()?;
    let asked = Asked {
        request_id,
        table,
        resource: "prometheus_read",
        question: queries
            .iter()
            .map(|query| query.text.as_str())
            .collect::<Vec<_>>()
            .join("; "),
        reach: queries
            .iter()
            .map(|query| query.range)
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))),
        time_max: app.settings.prometheus.query_timeout,
    };
    match response_type {
        ReadResponseType::Samples => {
            let answer = run(&app, asked, "application/x-protobuf", move |running, writer| {
                write_samples(running, &queries, writer)
            });
            let mut answer = answer.await?;
            answer
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
            Ok(answer)
        }
        ReadResponseType::StreamedXorChunks => {
            let content_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
            run(&app, asked, content_type, move |running, writer| {
                write_chunks(running, &queries, writer)
            })
            .await
        }
    }
}

/// What is binary shows nothing.
fn no_example() -> &'static str {
    ""
}

/// A query that can be asked.
#[derive(Debug)]
struct Question {
    selector: Vec<Matcher>,
    /// Milliseconds, both ends included.
    range: (i64, i64),
    text: String,
}

impl Question {
    fn of(query: &ReadQuery) -> Result<Self> {
        let matcher = |ReadMatcher { kind, name, value }: &ReadMatcher| {
            let op = match kind {
                ReadMatcherKind::Equal => MatchOp::Equal,
                ReadMatcherKind::NotEqual => MatchOp::NotEqual,
                ReadMatcherKind::Regex => MatchOp::Regex,
                ReadMatcherKind::NotRegex => MatchOp::NotRegex,
            };
            Matcher::new(name.as_str(), op, value.as_str()).map_err(Failure::invalid)
        };
        let selector: Vec<Matcher> = query.matchers.iter().map(matcher).collect::<Result<_>>()?;
        let text = selector
            .iter()
            .map(|matcher| format!("{}{}{:?}", matcher.name, matcher.op, matcher.value));
        Ok(Self {
            text: format!("{{{}}}", text.collect::<Vec<_>>().join(",")),
            range: (
                query.start.clamp(TIME_MIN, TIME_MAX),
                query.end.clamp(TIME_MIN, TIME_MAX),
            ),
            selector,
        })
    }
}

/// The encoded series of a query, sorted by labels.
fn sorted(
    running: &Running<'_>,
    question: &Question,
    held: &mut usize,
    encode: &(dyn Fn(&Labels, Samples<'_>, &mut Vec<u8>) + Sync),
) -> Result<Vec<(Labels, Vec<u8>)>> {
    let found = Mutex::new((Vec::new(), *held));
    each_series(
        running,
        std::slice::from_ref(&question.selector),
        question.range,
        &|labels, samples| {
            let mut bytes = Vec::new();
            encode(labels, samples, &mut bytes);
            // Whoever panicked with the lock has left a whole list.
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.1 += bytes.len();
            if found.1 > HELD_BYTES_MAX {
                return Err(PromqlError::Invalid(format!(
                    "exceeded sample limit: the answer is larger than {HELD_BYTES_MAX} bytes; read a shorter range or fewer series"
                )));
            }
            found.0.push((labels.clone(), bytes));
            Ok(())
        },
    )?;
    let (mut series, bytes) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    *held = bytes;
    series.sort_unstable_by(|one: &(Labels, Vec<u8>), other| one.0.cmp(&other.0));
    Ok(series)
}

fn write_samples(running: &Running<'_>, questions: &[Question], writer: &mut AnswerWriter) -> Result<()> {
    let mut message = Vec::new();
    let mut held = 0;
    for question in questions {
        let series = sorted(running, question, &mut held, &|labels, samples, out| {
            put_series(labels, &samples, out);
        })?;
        put_result(series.iter().map(|(_, series)| series.as_slice()), &mut message);
    }
    let packed = snap::raw::Encoder::new()
        .compress_vec(&message)
        .map_err(|error| {
            Failure::new(
                tideline_openapi::ErrorCode::Internal,
                format!("the answer could not be packed: {error}"),
            )
        })?;
    drop(message);
    writer.write_all(&packed).map_err(stream::client_left)
}

fn write_chunks(running: &Running<'_>, questions: &[Question], writer: &mut AnswerWriter) -> Result<()> {
    let mut held = 0;
    for (index, question) in questions.iter().enumerate() {
        let series = sorted(running, question, &mut held, &|labels, samples, out| {
            put_chunked_series(labels, &samples, index as u64, out);
        })?;
        for (_, frames) in &series {
            writer.write_all(frames).map_err(stream::client_left)?;
        }
        held = 0;
    }
    Ok(())
}
