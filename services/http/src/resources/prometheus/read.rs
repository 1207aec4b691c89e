//! `/api/v1/read`: remote read. Another Prometheus or `vmctl` pulls samples out, raw or in chunks.

mod bits;
mod chunk;
mod message;
mod whole;

use std::io::Write as _;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tideline_ingest_protocols::prometheus::{
    ReadMatcher, ReadMatcherKind, ReadQuery, ReadRequest, ReadResponseType, decode_read,
};
use tideline_pattern::PatternBudget;
use tideline_prometheus::Piece;
use tideline_promql::{Labels, MatchOp, Matcher, PromqlError, Samples};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::message::{put_chunked_series, put_samples};
use self::whole::WholeAnswer;
use super::PrometheusTable;
use super::answer::PrometheusFailures;
use super::parameters::{TIME_MAX, TIME_MIN};
use super::run::{Asked, Running, run_transfer};
use crate::app::App;
use crate::body::{self, BodyLimits};
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::stream::AnswerWriter;

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
    post, path = "/api/v1/read", tag = "prometheus", operation_id = "prometheus_read",
    request_body(
        content = Vec<u8>, content_type = "application/x-protobuf", description = "A snappy block of a ReadRequest",
        example = json!("\u{0}")
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
    let mut patterns = PatternBudget::default();
    let queries = queries.iter().map(|query| Question::of(query, &mut patterns));
    let queries: Vec<Question> = queries.collect::<Result<_>>()?;
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
            let whole = WholeAnswer::new(app.engine.memory());
            let content_type = "application/x-protobuf";
            let answer = run_transfer(&app.reads, &app, asked, content_type, move |running, writer| {
                write_samples(running, &queries, whole, writer)
            });
            let mut answer = answer.await?;
            answer
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
            Ok(answer)
        }
        ReadResponseType::StreamedXorChunks => {
            let content_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
            run_transfer(&app.reads, &app, asked, content_type, move |running, writer| {
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
    fn of(query: &ReadQuery, patterns: &mut PatternBudget) -> Result<Self> {
        let mut matcher = |ReadMatcher { kind, name, value }: &ReadMatcher| {
            let op = match kind {
                ReadMatcherKind::Equal => MatchOp::Equal,
                ReadMatcherKind::NotEqual => MatchOp::NotEqual,
                ReadMatcherKind::Regex => MatchOp::Regex,
                ReadMatcherKind::NotRegex => MatchOp::NotRegex,
            };
            let matcher = Matcher::new(name.as_str(), op, value.as_str())?;
            if let Some(pattern) = matcher.pattern() {
                patterns.take(value, pattern.bytes())?;
            }
            Ok(matcher)
        };
        let selector: Vec<Matcher> = query.matchers.iter().map(&mut matcher).collect::<Result<_>>()?;
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

/// Answers with samples: a block whose length stands in front, so it is sent whole.
fn write_samples(
    running: &Running<'_>,
    questions: &[Question],
    mut answer: WholeAnswer,
    writer: &mut AnswerWriter,
) -> Result<()> {
    let encode = |_: &Labels, samples: Samples<'_>, out: &mut Vec<u8>| {
        put_samples(&samples, out);
        Ok(())
    };
    for question in questions {
        answer.begin()?;
        let Question { selector, range, .. } = question;
        let mut take = |piece: Piece<'_>| answer.take(piece);
        running
            .view
            .transfer_sorted(selector, *range, &encode, &mut take)?;
    }
    Ok(answer.write(writer)?)
}

/// Answers with chunks, as they are read.
fn write_chunks(running: &Running<'_>, questions: &[Question], writer: &mut AnswerWriter) -> Result<()> {
    for (index, question) in questions.iter().enumerate() {
        let encode = |labels: &Labels, samples: Samples<'_>, out: &mut Vec<u8>| {
            put_chunked_series(labels, &samples, index as u64, out);
            Ok(())
        };
        let Question { selector, range, .. } = question;
        let mut write = |piece: Piece<'_>| {
            let written = writer.write_all(piece.bytes);
            written.map_err(|_| PromqlError::Canceled("remote read"))
        };
        running
            .view
            .transfer_sorted(selector, *range, &encode, &mut write)?;
    }
    Ok(())
}
