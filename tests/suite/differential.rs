//! Differential test: random PromQL on random data is sent to this service and to a real Prometheus. Both
//! must return the same results.
//!
//! `TIDELINE_PROMETHEUS` is the path of a Prometheus binary or the address (`IP:port`) of a running Prometheus. A
//! binary is started on loopback with a separate folder; a running Prometheus must be empty and accept remote write.
//! Without the variable, the test is reported as not run. The same series are sent to both by remote write. Timestamps
//! are chosen so that no bound of a window coincides with a sample. Prometheus versions before 3, whose ranges include
//! their start, therefore return the same results.
//!
//! `TIDELINE_QUERIES` sets the number of queries and `TIDELINE_SEED` their seed. A difference fails the test
//! and prints the seed of the query. Add such a seed to [`FOUND`], whose queries run each time.

mod data;
mod grammar;
mod outcome;
mod reference;

use tideline_fleet::Random;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, not_run, rounds, seed};

use self::grammar::{Grammar, RandomQuery};
use self::outcome::{Outcome, difference};
use self::reference::Reference;

/// Number of queries in the short form of the test.
const QUERIES: usize = 2_000;
/// Seeds of single queries that once showed a difference.
const FOUND: &[u64] = &[];
/// Number of differences after which the test stops.
const SHOWN_MAX: usize = 20;

#[test]
fn answers_equal_those_of_prometheus() {
    let Some(reference) = Reference::of_environment() else {
        not_run("TIDELINE_PROMETHEUS names no Prometheus to compare with");
        return;
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    for request in data::requests() {
        data::send(&client, &request);
        data::send(reference.client(), &request);
    }
    let is_old = reference.is_before_3();
    println!("compared with Prometheus {}", reference.version());
    let mut seeds = Random::new(seed("differential"));
    let queries = rounds("TIDELINE_QUERIES", QUERIES, 10 * QUERIES);
    let seeds = FOUND.iter().copied().chain((0..queries).map(|_| seeds.bits()));
    let (mut asked, mut answered, mut differing) = (0, 0, Vec::new());
    for seed in seeds {
        let query = RandomQuery::random(&mut Grammar::new(seed, is_old));
        let ours = Outcome::run(&client, &query);
        let theirs = Outcome::run(reference.client(), &query);
        asked += 1;
        answered += usize::from(theirs.is_full());
        if let Some(difference) = difference(&ours, &theirs) {
            println!("seed {seed}: {query}\n  {difference}");
            differing.push(seed);
            if differing.len() >= SHOWN_MAX {
                break;
            }
        }
    }
    println!("{asked} random queries, {answered} of them with a result that is not empty");
    assert!(differing.is_empty(), "they differ on {differing:?}");
    assert!(answered * 4 > asked, "most queries should have a result");
}
