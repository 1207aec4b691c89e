//! Prometheus view of a table, for one request.
//!
//! [`SeriesView`] holds the budget and the cancellation flag. Other modules add the reads of series, names and samples.

use tideline_engine::model::TimeRange;
use tideline_engine::{Engine, Table};
use tideline_promql::{PromqlError, Result};
use tideline_query::{Budget, Cancel, Querier, Watch};

use crate::failure;
use crate::time::NANOS_PER_MILLI;

/// Prometheus view of a table, for one request. A budget of time and sizes limits the view; the time starts when the
/// view is created. The view is cancelled when the client disconnects.
///
/// All reads block the calling thread.
///
/// # Examples
///
/// Instant query over points that were written as line protocol:
///
/// ```
/// # use std::sync::Arc;
/// # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
/// # use tideline_engine::model::{ManualClock, Timestamp};
/// # use tideline_engine::{Engine, Settings, WriteOptions};
/// # use tideline_ingest_protocols::{DecodeOptions, line_protocol};
/// use std::time::Duration;
///
/// use tideline_prometheus::parameters::{Parameters, parse_query};
/// use tideline_prometheus::query::QueryOptions;
/// use tideline_prometheus::request::SeriesRequest;
/// use tideline_prometheus::SeriesView;
/// use tideline_query::{Budget, Cancel, Querier, QuerySettings};
///
/// # let folder = tempfile::tempdir()?;
/// # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
/// # let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
/// # let engine = Arc::new(Engine::open(backend, clock, Settings::new(folder.path().join("index")))?);
/// let table = engine.default_table()?;
/// let lines = b"disk,host=web-1 used=3,value=8 1000000";
/// # let options = DecodeOptions::new(Timestamp::EPOCH);
/// # let batch = line_protocol::decode(lines, options, &mut engine.resolver(&table));
/// # engine.write(&table, batch, &WriteOptions::default())?;
/// let querier = Querier::new(engine, &QuerySettings::default())?;
///
/// let text = "disk_used + disk";
/// let parameters = Parameters::read([&b"time=1"[..]]);
/// let options = QueryOptions::instant(&parameters, &Default::default(), 0)?;
/// let query = options.query(text.to_owned(), parse_query(text)?, Duration::ZERO);
///
/// let view = SeriesView::new(&querier, &table, Budget::default(), &Cancel::new());
/// let mut body = Vec::new();
/// query.write(&view, Duration::ZERO, &mut body)?;
/// let body: serde_json::Value = serde_json::from_slice(&body)?;
/// assert_eq!(body["data"]["result"][0]["metric"]["host"], "web-1");
/// assert_eq!(body["data"]["result"][0]["value"][1], "11");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SeriesView<'a> {
    pub(crate) querier: &'a Querier,
    pub(crate) table: &'a Table,
    pub(crate) watch: Watch,
}

impl<'a> SeriesView<'a> {
    /// Creates a view of a table and starts its budget.
    pub fn new(querier: &'a Querier, table: &'a Table, budget: Budget, cancel: &Cancel) -> Self {
        Self {
            querier,
            table,
            watch: querier.watch(budget, cancel),
        }
    }

    /// Checks the time limit and the cancellation flag.
    ///
    /// # Errors
    ///
    /// [`PromqlError::Canceled`] if the request was cancelled, [`PromqlError::Timeout`] if its time is over.
    pub fn check(&self) -> Result<()> {
        self.watch.check().map_err(|error| failure::of_query(&error))
    }

    pub(crate) fn engine(&self) -> &'a Engine {
        self.querier.engine()
    }

    /// Returns an error if more timelines are selected than the budget allows.
    pub(crate) fn check_timelines(&self, count: usize) -> Result<()> {
        let limit = self.watch.budget().timelines_max;
        if count as u64 > limit {
            return Err(PromqlError::TooMany(format!(
                "timelines selected: {count} is over the limit of {limit}; narrow the query"
            )));
        }
        Ok(())
    }
}

/// Returns true if points of a time range (milliseconds, both ends included) may be in cold or archived
/// segments.
pub fn reaches_cold(querier: &Querier, table: &Table, (start, end): (i64, i64)) -> bool {
    let start = start.saturating_mul(NANOS_PER_MILLI);
    let end = end.saturating_add(1).saturating_mul(NANOS_PER_MILLI);
    querier.reaches_cold(table, TimeRange::new(start, end.max(start)), None)
}
