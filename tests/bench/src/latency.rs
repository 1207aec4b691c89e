//! Client latencies of repeated queries of one kind.

use std::time::{Duration, Instant};

use serde_json::Value;
use tideline_fleet::Random;

use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::queries::{CONTENT_TYPE, CheckedRequest};

/// Latencies of one kind of query, from before the first byte of the request to after the last byte of the
/// response.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// Latency of the first query.
    pub(crate) first: Duration,
    /// Number of queries sent, including the warm-up.
    pub(crate) asked: usize,
    /// Latencies after the warm-up, ascending.
    sorted: Vec<Duration>,
}

/// Rounds after the first that are not counted.
const WARM_UP_ROUNDS: usize = 20;
/// Seed of the queries: every run queries the same hosts.
const SEED: u64 = 7;

impl Latencies {
    /// Runs `rounds` queries after a warm-up. Every response is checked, outside the measured time.
    ///
    /// `make` returns the query of each round. Queries are random so that no result cache can answer them.
    pub(crate) fn measure<'a>(
        connection: &mut Connection,
        rounds: usize,
        mut make: impl FnMut(&mut Random) -> CheckedRequest<'a>,
    ) -> Result<Self> {
        let mut random = Random::new(SEED);
        let first = answer_time(connection, &make(&mut random))?;
        let warm_up = WARM_UP_ROUNDS.min(rounds);
        for _ in 0..warm_up {
            answer_time(connection, &make(&mut random))?;
        }
        let mut sorted = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            sorted.push(answer_time(connection, &make(&mut random))?);
        }
        sorted.sort_unstable();
        let asked = 1 + warm_up + rounds;
        Ok(Self { first, asked, sorted })
    }

    /// Wraps latencies that were measured elsewhere.
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        let first = took.first().copied().unwrap_or_default();
        took.sort_unstable();
        Self {
            first,
            asked: took.len(),
            sorted: took,
        }
    }

    /// Returns the latency that `percent` percent of the queries did not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

/// Runs one query, checks the response and returns the latency.
pub(crate) fn answer_time(connection: &mut Connection, send: &CheckedRequest<'_>) -> Result<Duration> {
    let begun = Instant::now();
    let response = connection.send("POST", &send.path, CONTENT_TYPE, send.body.as_bytes());
    let took = begun.elapsed();
    let response = response.map_err(|source| BenchError::Connection {
        what: "sending a query",
        source,
    })?;
    if response.status != 200 {
        return Err(BenchError::Refused {
            method: "POST",
            path: send.path.clone(),
            status: response.status,
            body: crate::http::excerpt(&response.body),
        });
    }
    let wrong = |difference: String| BenchError::Wrong {
        query: format!("POST {} {}", send.path, send.body),
        difference,
    };
    let value: Value = serde_json::from_slice(&response.body).map_err(|error| wrong(error.to_string()))?;
    (send.check)(&value).map_err(wrong)?;
    Ok(took)
}
