//! A write, from its body to its outcome; the same for every route that takes points.

use std::time::Instant;

use axum::http::HeaderMap;
use tideline_engine::{
    Engine, ErrorKind, IdempotentRequest, RequestStart, Table, WriteOptions, WriteOutcome,
};
use tideline_ingest_protocols::{DecodeOptions, IngestError, json, line_protocol, ndjson};
use tideline_model::{Durability, PointBatch, Precision, SeriesResolver, Timestamp};
use tideline_openapi::plain;

use crate::app::{App, blocking};
use crate::body::Received;
use crate::database::{DatabaseTag, TaggingResolver};
use crate::failure::{Failure, Result};

/// How points are written in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ndjson,
    Lines,
}

impl Format {
    /// Its name in the digest of a request.
    fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Lines => "lines",
        }
    }
}

/// A write that is to be decoded and committed.
#[derive(Debug)]
pub(crate) struct Write {
    /// The label of the protocol in our own metrics.
    pub(crate) protocol: &'static str,
    pub(crate) format: Format,
    pub(crate) precision: Precision,
    /// The time of points that have none; `None` = that of the decoding.
    pub(crate) default_time: Option<Timestamp>,
    pub(crate) target: Target,
    /// Durability of the acknowledgement; `None` = the table's setting.
    pub(crate) durability: Option<Durability>,
    /// The client's idempotency key.
    pub(crate) request_key: Option<String>,
}

/// Where points go.
#[derive(Debug)]
pub(crate) enum Target {
    /// To the table of this name, which must exist.
    Table(String),
    /// Where a `db` or `bucket` of this name leads; see [`crate::database`]. Empty = the default table.
    Database(String),
}

/// Decodes and commits a write on a blocking thread, when its turn comes.
pub(crate) async fn write(app: &App, body: Received, write: Write) -> Result<WriteOutcome> {
    let turn = app.writes.take().await?;
    let app = app.clone();
    blocking(move || {
        let _turn = turn;
        let started = Instant::now();
        let body = body.decode()?;
        let outcome = commit(&app.engine, &body, &write)?;
        let seconds = started.elapsed().as_secs_f64();
        app.metrics.written(write.protocol, &outcome, seconds);
        Ok(outcome)
    })
    .await
}

fn commit(engine: &Engine, body: &[u8], write: &Write) -> Result<WriteOutcome> {
    let (table, tag) = resolve_target(engine, &write.target)?;
    let request = write.request_key.clone().map(|key| {
        let (format, unit) = (write.format.name(), write.precision.nanos().to_le_bytes());
        let tag = tag.as_ref().map_or(&[][..], DatabaseTag::as_bytes);
        IdempotentRequest::new(key, body, &[format.as_bytes(), &unit, tag])
    });
    let request = match request.map(|request| engine.begin_request(&table, &request)) {
        None => None,
        Some(begun) => match begun? {
            RequestStart::Repeated(outcome) => return Ok(outcome),
            RequestStart::New(request) => Some(request),
        },
    };
    let options = DecodeOptions {
        precision: write.precision,
        ..DecodeOptions::new(write.default_time.or_else(|| engine.arrival_time()))
    };
    let resolver = engine.resolver(&table);
    let batch = match &tag {
        None => decode(body, options, write.format, resolver),
        Some(tag) => decode(body, options, write.format, TaggingResolver::new(tag, resolver)),
    }?;
    let options = WriteOptions {
        durability: write.durability,
        request,
    };
    Ok(engine.write(&table, batch, &options)?)
}

/// The table to write to, and the tag that its timelines get.
fn resolve_target(engine: &Engine, target: &Target) -> Result<(Table, Option<DatabaseTag>)> {
    let name = match target {
        Target::Table(name) => return Ok((engine.table(name)?, None)),
        Target::Database(name) if name.is_empty() => return Ok((engine.default_table()?, None)),
        Target::Database(name) => name,
    };
    match engine.table(name) {
        Ok(table) => Ok((table, None)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok((engine.default_table()?, Some(DatabaseTag::new(name)?)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Decodes a body; the resolver, and with it the catalog's lock, is given up at the end.
fn decode(
    body: &[u8],
    options: DecodeOptions,
    format: Format,
    mut resolver: impl SeriesResolver,
) -> Result<PointBatch> {
    match format {
        Format::Lines => Ok(line_protocol::decode(body, options, &mut resolver)),
        Format::Ndjson => Ok(ndjson::decode(body, options, &mut resolver)),
        Format::Json => json::decode(body, options, &mut resolver)
            .map_err(|error| Failure::invalid(in_plain_words(error))),
    }
}

/// Words the error of a body for people who send JSON.
fn in_plain_words(error: IngestError) -> IngestError {
    match error {
        IngestError::Json { line, column, reason } => IngestError::Json {
            line,
            column,
            reason: plain::message(&reason),
        },
        other => other,
    }
}

/// The client's idempotency key, from the header `Idempotency-Key`.
pub(crate) fn request_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key
        .to_str()
        .map_err(|_| Failure::invalid("Idempotency-Key is not plain ASCII"))?;
    Ok(Some(key.to_owned()))
}
