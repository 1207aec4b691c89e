//! What whole-process tests need: the real binary, started and ended as an operator would, and a client that
//! speaks to it over HTTP.
//!
//! Nothing here links the server. A test sees what an agent or a dashboard sees, so it can neither reach around
//! the protocol nor keep a state alive that a killed process would lose.
//!
//! | module | holds |
//! |---|---|
//! | [`server`] | [`Server`]: the binary on a data folder of its own; ready, kill −9, SIGTERM, again |
//! | [`client`] | [`Client`] and [`Response`]: one request, one answer, any status |
//! | [`program`] | programs of others: agents, and what this service is compared with |
//! | [`raw`] | bytes on a socket, for what no decent client sends |
//! | [`archive`] | a folder as one file: stores of older builds, prepared stores |
//! | [`compress`] | gzip and zstd bodies, and bombs |
//! | [`script`] | scenarios as text: requests and what they must answer |
//! | [`subset`] | whether an answer holds what a scenario expects |
//! | [`points`] | points as JSON bodies state them |
//! | [`remote_write`] | what Prometheus sends, from what a scenario can say of it |
//! | [`reading`] | points of a table as the query route gives them, page by page |
//! | [`ledger`] | what was sent and what was acknowledged, kept outside of the server |
//! | [`load`] | writers that keep the ledger |
//! | [`corpora`] | where the outside data lies |
//! | [`yaml`] | YAML as JSON |
//! | [`schema`] | whether an answer is what an OpenAPI document says |
//! | [`wait`] | waiting for something that tells nobody |

pub mod archive;
pub mod client;
pub mod compress;
pub mod corpora;
pub mod ledger;
pub mod load;
pub mod points;
pub mod program;
pub mod raw;
pub mod reading;
pub mod remote_write;
pub mod schema;
pub mod script;
pub mod server;
pub mod subset;
pub mod wait;
pub mod yaml;

pub use client::{Client, Response};
pub use ledger::Ledger;
pub use server::{Launch, Server};

/// The seed of a run: `TIDELINE_SEED` when it is set, else one drawn from the clock. Printed, so that a failure can
/// be run again.
pub fn seed(test: &str) -> u64 {
    let drawn = || {
        use tideline_model::Clock as _;
        tideline_model::SystemClock.now().nanos().unsigned_abs()
    };
    let set = std::env::var("TIDELINE_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = set.unwrap_or_else(drawn);
    println!("{test}: TIDELINE_SEED={seed}");
    seed
}

/// How often a test repeats its work: the environment variable when it is set, else `default`.
///
/// # Panics
///
/// When the variable is set to something that is no count.
pub fn rounds(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no count")),
        Err(_) => default,
    }
}
