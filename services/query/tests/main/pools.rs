//! Queries of cold segments run separately from hot queries: few at once, in order, with low priority.
//!
//! Also tests the limit of the read rate.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tideline_engine::ErrorKind;
use tideline_model::{TimeRange, Value};
use tideline_query::{
    Budget, Cancel, Function, GroupBy, Header, PointQuery, QueryError, QuerySettings, QueryStats, RowSink,
    Series, SinkClosed, ValueRef, while_waiting,
};

use crate::support::{CollectedResult, World, aggregate_query, rows_query};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Returns a world with a cold day and a hot day.
fn world(settings: &QuerySettings) -> World {
    let world = World::with_settings(settings);
    let point = |at: i64| ("m,host=a", at * 60 * SECOND, vec![("v", Value::Signed(at * at))]);
    world.write(&(0..2 * 1_440).map(point).collect::<Vec<_>>());
    world.seal_and_move(|day| day == 0);
    world
}

fn cold_query() -> PointQuery {
    PointQuery {
        range: TimeRange::new(0, DAY),
        ..rows_query()
    }
}

fn hot_query() -> PointQuery {
    PointQuery {
        range: TimeRange::new(DAY, 2 * DAY),
        ..rows_query()
    }
}

/// Sink that signals the start of the result and then waits for a signal to continue.
struct BlockedSink {
    begun: Sender<i32>,
    go_on: Receiver<()>,
}

impl RowSink for BlockedSink {
    fn begin(&mut self, _: &Header) -> Result<(), SinkClosed> {
        self.begun.send(niceness()).map_err(|_| SinkClosed)?;
        self.go_on.recv().map_err(|_| SinkClosed)
    }

    fn series(&mut self, _: &Series<'_>) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, _: i64, _: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        Ok(())
    }
}

/// Returns the niceness of the calling thread.
fn niceness() -> i32 {
    rustix::process::getpriority_process(None).expect("a thread has a priority")
}

fn wait_until(world: &World, reached: impl Fn(QueryStats) -> bool) {
    while !reached(world.querier.stats()) {
        std::thread::yield_now();
    }
}

#[test]
fn cold_queries_take_turns_and_hot_ones_pass_them() {
    let world = world(&QuerySettings {
        threads: Some(1),
        cold_threads: Some(1),
        cold_queries_max: Some(1),
        cold_waiting_max: 1,
        ..QuerySettings::default()
    });
    let (begun, begins) = channel();
    let (go_on, held) = channel();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut sink = BlockedSink { begun, go_on: held };
            world
                .querier
                .points(&world.table, &cold_query(), &Cancel::new(), &mut sink)
        });
        let of_cold = begins.recv().expect("it begins");
        if cfg!(target_os = "linux") {
            assert_eq!(of_cold, (niceness() + 10).min(19));
        }
        let second = scope.spawn(|| world.run(&cold_query()));
        wait_until(&world, |stats| stats.cold_waiting == 1);
        // A hot query neither waits for cold queries nor delays them.
        let hot = world.run(&hot_query()).expect("answered");
        assert_eq!(hot.rows().len(), 1_440);
        let refused = world.run(&cold_query()).expect_err("too many");
        assert!(matches!(
            refused,
            QueryError::Overloaded {
                running: 1,
                waiting: 1
            }
        ));
        assert_eq!(refused.kind(), ErrorKind::Overloaded);
        let stats = world.querier.stats();
        assert_eq!(
            (
                stats.hot_running,
                stats.cold_running,
                stats.cold_waiting,
                stats.cold_refused
            ),
            (0, 1, 1, 1)
        );
        go_on.send(()).expect("it waits");
        assert_eq!(first.join().expect("no panic").expect("answered").rows, 1_440);
        assert_eq!(
            second.join().expect("no panic").expect("answered").rows().len(),
            1_440
        );
    });
    let stats = world.querier.stats();
    assert_eq!((stats.cold_running, stats.cold_waiting), (0, 0));
    assert!(stats.cold_read_bytes > 0);
}

#[test]
fn who_waits_may_leave_and_waiting_is_time_of_the_query() {
    let world = world(&QuerySettings {
        cold_queries_max: Some(1),
        ..QuerySettings::default()
    });
    let (begun, begins) = channel();
    let (go_on, held) = channel();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut sink = BlockedSink { begun, go_on: held };
            world
                .querier
                .points(&world.table, &cold_query(), &Cancel::new(), &mut sink)
        });
        begins.recv().expect("it begins");
        let second = scope.spawn(|| {
            world.querier.points(
                &world.table,
                &cold_query(),
                &cancel,
                &mut CollectedResult::default(),
            )
        });
        wait_until(&world, |stats| stats.cold_waiting == 1);
        cancel.cancel();
        assert!(matches!(
            second.join().expect("no panic"),
            Err(QueryError::Cancelled)
        ));
        let impatient = PointQuery {
            budget: Budget {
                time_max: Duration::from_millis(1),
                ..Budget::default()
            },
            ..cold_query()
        };
        assert!(matches!(world.run(&impatient), Err(QueryError::TimedOut { .. })));
        assert_eq!(world.querier.stats().cold_waiting, 0);
        go_on.send(()).expect("it waits");
        first.join().expect("no panic").expect("answered");
    });
    assert_eq!(world.run(&cold_query()).expect("answered").rows().len(), 1_440);
}

/// Sink that waits for a slow client in `begin`, so that its query releases the permit meanwhile.
struct SlowClient(BlockedSink);

impl RowSink for SlowClient {
    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        while_waiting(|| self.0.begin(header))
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        self.0.series(series)
    }

    fn row(&mut self, at: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        self.0.row(at, values)
    }
}

#[test]
fn a_cancelled_query_does_not_wait_for_a_permit_after_its_client() {
    let world = world(&QuerySettings {
        cold_queries_max: Some(1),
        ..QuerySettings::default()
    });
    let run = |cancel: &Cancel, sink: &mut dyn RowSink| {
        world.querier.points(&world.table, &cold_query(), cancel, sink)
    };
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let (begun, begins) = channel();
        let (client_reads, held) = channel();
        let (end, ended) = channel();
        let (run, cancel) = (&run, &cancel);
        scope.spawn(move || {
            let mut sink = SlowClient(BlockedSink { begun, go_on: held });
            end.send(run(cancel, &mut sink)).expect("the test waits");
        });
        begins.recv().expect("it begins");
        let (begun, begins) = channel();
        let (go_on, held) = channel();
        let second = scope.spawn(|| run(&Cancel::new(), &mut BlockedSink { begun, go_on: held }));
        begins.recv().expect("the first query has released its permit");
        client_reads.send(()).expect("it waits");
        wait_until(&world, |stats| stats.cold_waiting == 1);
        cancel.cancel();
        let first = ended.recv_timeout(Duration::from_secs(30));
        assert!(matches!(first, Ok(Err(QueryError::Cancelled))), "{first:?}");
        assert_eq!(world.querier.stats().cold_running, 1);
        go_on.send(()).expect("it waits");
        second.join().expect("no panic").expect("answered");
    });
    assert_eq!(world.querier.stats().cold_running, 0);
}

#[test]
fn cold_reads_keep_to_their_rate() {
    let rate = 100;
    let world = world(&QuerySettings {
        cold_read_bytes_per_second: Some(rate),
        ..QuerySettings::default()
    });
    let query = aggregate_query(&[Function::Mean], TimeRange::new(0, DAY), None, GroupBy::Nothing);
    // The clock does not advance, so the query waits until its time limit.
    let impatient = PointQuery {
        budget: Budget {
            time_max: Duration::from_millis(30),
            ..Budget::default()
        },
        ..query.clone()
    };
    assert!(matches!(world.run(&impatient), Err(QueryError::TimedOut { .. })));
    assert_eq!(world.run(&hot_query()).expect("answered").rows().len(), 1_440);
    let before = world.querier.stats().cold_read_bytes;
    std::thread::scope(|scope| {
        let requested = scope.spawn(|| world.run(&query));
        let mut seconds = 0;
        while !requested.is_finished() {
            world.clock.advance(SECOND);
            seconds += 1;
            std::thread::yield_now();
        }
        requested.join().expect("no panic").expect("answered");
        let read = world.querier.stats().cold_read_bytes;
        assert!(read > before && before > rate, "{before} {read}");
        // Reads may run one second ahead of the rate; one more second allows for rounding.
        assert!(seconds + 2 >= read / rate, "{read} bytes in {seconds} s");
    });
}
