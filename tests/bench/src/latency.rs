//! Asking one kind of question many times, and how long the answers took at the client.

use std::time::{Duration, Instant};

use serde_json::Value;
use tideline_fleet::Random;

use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::question::{Ask, CONTENT_TYPE};

/// How long the answers to one kind of question took: from before the first byte of the question to after the last
/// of the answer.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// The very first one.
    pub(crate) first: Duration,
    /// How many were asked in all, warm-up included.
    pub(crate) asked: usize,
    /// Of the rounds after the warm-up, rising.
    sorted: Vec<Duration>,
}

/// Rounds after the first that are not counted.
const WARM_UP_ROUNDS: usize = 20;
/// Every run asks about the same hosts.
const SEED: u64 = 7;

impl Latencies {
    /// Asks `rounds` times after a warm-up; every answer is checked, outside the time that counts.
    ///
    /// `make` draws each round's question, so that no answer can come from a cache of answers.
    pub(crate) fn measure<'a>(
        connection: &mut Connection,
        rounds: usize,
        mut make: impl FnMut(&mut Random) -> Ask<'a>,
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

    /// Latencies that were measured elsewhere.
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        let first = took.first().copied().unwrap_or_default();
        took.sort_unstable();
        Self {
            first,
            asked: took.len(),
            sorted: took,
        }
    }

    /// The time that so many of a hundred answers did not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

/// Asks once and checks the answer; how long it took.
pub(crate) fn answer_time(connection: &mut Connection, ask: &Ask<'_>) -> Result<Duration> {
    let begun = Instant::now();
    let answer = connection.ask("POST", &ask.path, CONTENT_TYPE, ask.body.as_bytes());
    let took = begun.elapsed();
    let answer = answer.map_err(|source| BenchError::Connection {
        what: "asking a question",
        source,
    })?;
    if answer.status != 200 {
        return Err(BenchError::Refused {
            method: "POST",
            path: ask.path.clone(),
            status: answer.status,
            body: crate::http::excerpt(&answer.body),
        });
    }
    let wrong = |difference: String| BenchError::Wrong {
        question: format!("POST {} {}", ask.path, ask.body),
        difference,
    };
    let value: Value = serde_json::from_slice(&answer.body).map_err(|error| wrong(error.to_string()))?;
    (ask.check)(&value).map_err(wrong)?;
    Ok(took)
}
