//! Remote read: samples as Protocol Buffers, raw or in chunks.
//!
//! | module | content |
//! |---|---|
//! | `message` | messages of the response |
//! | `chunk` | chunks in the format of Prometheus' storage |
//! | `bits` | bit encoding of chunks |
//! | `snappy_block` | response in one snappy block |

mod bits;
mod chunk;
mod message;
mod snappy_block;

use std::io::Write;
use std::time::Duration;

use tideline_engine::condition::PatternBudget;
use tideline_ingest_protocols::prometheus::{
    ReadMatcher, ReadMatcherKind, ReadQuery, ReadRequest, ReadResponseType, decode_read,
};
use tideline_promql::{Labels, MatchOp, Matcher, Result, Samples};

use self::message::{put_chunked_series, put_samples};
use self::snappy_block::SnappyBlock;
use crate::error::{self, RequestError};
use crate::failure::client_left;
use crate::parameters::{TIME_MAX, TIME_MIN};
use crate::request::SeriesRequest;
use crate::transfer::SeriesFragment;
use crate::view::SeriesView;

/// Maximum number of queries of a request.
const QUERIES_MAX: usize = 1_000;

/// Remote read request.
#[derive(Debug)]
pub struct RemoteRead {
    queries: Vec<Query>,
    response_type: ReadResponseType,
}

#[derive(Debug)]
struct Query {
    selector: Vec<Matcher>,
    /// Time range in milliseconds, both ends included.
    range: (i64, i64),
}

impl RemoteRead {
    /// Decodes a `prometheus.ReadRequest`.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if the message is not valid, has more than 1,000 queries, or has too large regular
    /// expressions.
    pub fn decode(body: &[u8]) -> error::Result<Self> {
        let ReadRequest {
            queries,
            response_type,
        } = decode_read(body).map_err(RequestError::invalid)?;
        if queries.len() > QUERIES_MAX {
            return Err(RequestError::Invalid(format!(
                "{} queries in a request are over the limit of {QUERIES_MAX}",
                queries.len()
            )));
        }
        let mut patterns = PatternBudget::default();
        let queries = queries.iter().map(|query| Query::new(query, &mut patterns));
        Ok(Self {
            queries: queries.collect::<error::Result<_>>()?,
            response_type,
        })
    }

    /// Returns true if the response is a stream of chunks; otherwise it is one snappy block.
    pub fn is_streamed(&self) -> bool {
        self.response_type == ReadResponseType::StreamedXorChunks
    }

    fn write_samples(&self, view: &SeriesView<'_>, out: &mut dyn Write) -> Result<()> {
        let mut answer = SnappyBlock::new(view.engine().memory());
        let encode = |_: &Labels, samples: Samples<'_>, bytes: &mut Vec<u8>| {
            put_samples(&samples, bytes);
            Ok(())
        };
        for Query { selector, range } in &self.queries {
            answer.begin()?;
            let mut take = |fragment: SeriesFragment<'_>| answer.take(fragment);
            view.transfer_sorted(selector, *range, &encode, &mut take)?;
        }
        answer.write(out)
    }

    /// Writes chunks while they are read.
    fn write_chunks(&self, view: &SeriesView<'_>, out: &mut dyn Write) -> Result<()> {
        for (index, Query { selector, range }) in (0..).zip(&self.queries) {
            let encode = |labels: &Labels, samples: Samples<'_>, bytes: &mut Vec<u8>| {
                put_chunked_series(labels, &samples, index, bytes);
                Ok(())
            };
            let mut write = |fragment: SeriesFragment<'_>| out.write_all(fragment.bytes).map_err(client_left);
            view.transfer_sorted(selector, *range, &encode, &mut write)?;
        }
        Ok(())
    }
}

impl SeriesRequest for RemoteRead {
    fn text(&self) -> String {
        let texts = self.queries.iter().map(Query::text);
        texts.collect::<Vec<_>>().join("; ")
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        let ranges = self.queries.iter().map(|query| query.range);
        ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    fn write(&self, view: &SeriesView<'_>, _: Duration, out: &mut dyn Write) -> Result<()> {
        match self.response_type {
            ReadResponseType::Samples => self.write_samples(view, out),
            ReadResponseType::StreamedXorChunks => self.write_chunks(view, out),
        }
    }
}

impl Query {
    fn new(query: &ReadQuery, patterns: &mut PatternBudget) -> error::Result<Self> {
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
        Ok(Self {
            selector: query
                .matchers
                .iter()
                .map(&mut matcher)
                .collect::<error::Result<_>>()?,
            range: (
                query.start.clamp(TIME_MIN, TIME_MAX),
                query.end.clamp(TIME_MIN, TIME_MAX),
            ),
        })
    }

    fn text(&self) -> String {
        let matchers = self.selector.iter();
        let matchers = matchers.map(|matcher| format!("{}{}{:?}", matcher.name, matcher.op, matcher.value));
        format!("{{{}}}", matchers.collect::<Vec<_>>().join(","))
    }
}
