//! Random writes, overwrites, late points, deletes, policies, seals, moves and restarts, compared with a
//! naive model in memory: in any order of steps the service must return the results of the model.
//!
//! Each step is an action of a user. The seed is printed and replays the steps, but not the timing of the
//! background work.

mod ages;
mod naive;
mod writes;

use std::collections::BTreeMap;

use crate::Client;
use crate::reading::{self, Row};
use serde_json::json;
use tideline_fleet::Random;

pub use ages::Purge;
use naive::{Model, Span, same_rows};

/// Kinds of steps with their probability in percent.
const STEPS: [(Step, usize); 10] = [
    (Step::Write, 42),
    (Step::ReadRows, 16),
    (Step::Aggregate, 12),
    (Step::Latest, 6),
    (Step::Delete, 5),
    (Step::Policy, 3),
    (Step::Seal, 6),
    (Step::Move, 6),
    (Step::Kill, 2),
    (Step::Stop, 2),
];

#[derive(Debug, Clone, Copy)]
enum Step {
    Write,
    ReadRows,
    Aggregate,
    Latest,
    Delete,
    Policy,
    Seal,
    Move,
    Kill,
    Stop,
}

/// Service under test.
pub trait Service {
    /// Returns a client of the service as it is running now.
    fn client(&self) -> Client;

    /// Ends the service like a kill or a machine failure, and restarts it on the same data.
    fn kill(&mut self);

    /// Shuts the service down cleanly, as an operator does, and restarts it.
    fn stop(&mut self);
}

/// Runs `steps` random steps against the service that `start` returns.
///
/// # Panics
///
/// Panics if a response differs from the model. The message contains the seed and the step.
pub fn run(seed: u64, steps: usize, start: &mut dyn FnMut(Purge) -> Box<dyn Service>) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let purge = Purge::draw(&mut random);
    let mut service = start(purge);
    let mut client = service.client();
    ages::write_now(&client);
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for number in 1..=steps {
        let step = pick(&mut random);
        *done.entry(format!("{step:?}")).or_default() += 1;
        let context = format!("seed {seed}, step {number}, {step:?}");
        match step {
            Step::Write => writes::write(&client, &mut model, &mut random, &context),
            Step::ReadRows => read_rows(&client, &model, &mut random, &context),
            Step::Aggregate => aggregate(&client, &model, &mut random, &context),
            Step::Latest => latest(&client, &model, &mut random, &context),
            Step::Delete => ages::delete(&client, &mut model, &mut random, &context),
            Step::Policy => ages::set_policy(&client, &mut model, &mut random, purge, &context),
            Step::Move => ages::start_move(&client, &mut random, &context),
            Step::Seal => {
                client
                    .post_json("/v1/jobs", &json!({"kind": "seal"}))
                    .expect_status(200);
            }
            Step::Kill | Step::Stop => {
                match step {
                    Step::Kill => service.kill(),
                    _ => service.stop(),
                }
                client = service.client();
                read_all(&client, &model, &context);
            }
        }
    }
    read_all(&client, &model, &format!("seed {seed}, at the end"));
    println!("{steps} steps, {done:?}, {purge:?}, {} points", model.points());
}

fn pick(random: &mut Random) -> Step {
    let mut place = random.index(100);
    for (step, weight) in STEPS {
        if place < weight {
            return step;
        }
        place -= weight;
    }
    Step::Write
}

fn read_all(client: &Client, model: &Model, context: &str) {
    for measurement in writes::MEASUREMENTS {
        let expected = model.rows(&Span::all(measurement));
        let actual = reading::all_if_known(client, "default", measurement);
        same_rows(&expected, &actual, context);
    }
    ages::check_timelines(client, model, context);
}

/// Reads raw rows of random timelines and a random range, in either order, page by page.
fn read_rows(client: &Client, model: &Model, random: &mut Random, context: &str) {
    let Some(span) = Span::draw(model, random) else {
        return;
    };
    let is_newest_first = random.index(2) == 0;
    let limit = [1, 7, 100, 5_000][random.index(4)];
    let mut query = span.query();
    query["order"] = json!(if is_newest_first { "desc" } else { "asc" });
    // Pages of one row would take too long for many rows.
    query["limit"] = json!(limit.max(model.rows(&span).len() / 20));
    let context = format!("{context}, {query}");
    let actual = reading::rows(client, "default", query).expect("a response");
    for pair in actual.windows(2) {
        let [before, after] = pair else { continue };
        let is_ordered = match is_newest_first {
            true => before.time > after.time,
            false => before.time < after.time,
        };
        assert!(
            before.tags != after.tags || is_ordered,
            "{context}: {before:?} before {after:?}"
        );
    }
    same_rows(&model.rows(&span), &actual, &context);
}

/// Compares seven aggregate functions over aligned windows, per machine.
fn aggregate(client: &Client, model: &Model, random: &mut Random, context: &str) {
    let Some(span) = Span::draw(model, random) else {
        return;
    };
    let seconds = [1, 10, 60, 3_600][random.index(4)];
    let field = ["f", "n"][random.index(2)];
    if !model.knows(&span.measurement, field) {
        return;
    }
    let (start, end) = span.bounded(seconds);
    let query = span.aggregate_query(field, seconds, start, end);
    let context = format!("{context}, {query}");
    let response = client
        .post_json("/v1/tables/default/query", &query)
        .expect_status(200);
    let actual = reading::rows_of(&response);
    model.compare_windows(&span, field, seconds, (start, end), &actual, &context);
}

/// Compares the newest value of each field of random timelines.
fn latest(client: &Client, model: &Model, random: &mut Random, context: &str) {
    let Some(span) = Span::draw(model, random) else {
        return;
    };
    let query = json!({"timelines": {"where": span.condition()}});
    let context = format!("{context}, {query}");
    let response = client
        .post_json("/v1/tables/default/latest", &query)
        .expect_status(200);
    model.compare_latest(&span, &reading::rows_of(&response), &context);
}

/// Returns the key of a row for comparisons: measurement, host and timestamp.
fn place(row: &Row) -> (String, String, i64) {
    (
        row.measurement.clone(),
        row.tags.get("host").cloned().unwrap_or_default(),
        row.time,
    )
}
