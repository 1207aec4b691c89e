//! Harness for tests of the whole process: starts and stops the real binary as an operator does, and sends HTTP
//! requests to it. Seeds, sizes and outside data come from `tideline_testkit`.
//!
//! The harness does not link the server. A test has only the access of an agent or a dashboard: it cannot
//! bypass the protocol or keep state that a killed process would lose.
//!
//! | module | holds |
//! |---|---|
//! | [`disk`] | disk that runs out of space, with simulated power cuts |
//! | [`server`] | [`Server`]: the binary on a fresh data folder; readiness, kill −9, SIGTERM, restart |
//! | [`cluster`] | keyspaces of a node of Cassandra, for suites that run on either engine |
//! | [`client`] | [`Client`] and [`Response`]: requests, responses of any status |
//! | [`program`] | third-party programs: agents and reference servers |
//! | [`raw`] | raw bytes on a socket, for malformed requests |
//! | [`archive`] | a folder in one file: stores of older builds, prepared stores |
//! | [`compress`] | compressed bodies and bombs |
//! | [`script`] | scenarios in text form: requests and expected responses |
//! | [`subset`] | comparison of a response with an expected subset |
//! | [`points`] | points as JSON bodies |
//! | [`remote_write`] | remote write requests from their JSON form in scenarios |
//! | [`reading`] | points of a table, read page by page through the query route |
//! | [`ledger`] | sent and acknowledged points, kept outside the server |
//! | [`load`] | concurrent writers with a ledger |
//! | [`model`] | random steps compared with a naive model |
//! | [`syscalls`] | failing system calls of a running server, by `strace` |
//! | [`corpora`] | folder of outside data, root of the workspace |
//! | [`yaml`] | conversion of YAML to JSON |
//! | [`schema`] | validation against an OpenAPI schema |
//! | [`wait`] | polling of states that send no event |

pub mod archive;
pub mod client;
pub mod cluster;
pub mod compress;
pub mod corpora;
pub mod disk;
pub mod ledger;
pub mod load;
pub mod model;
pub mod points;
pub mod program;
pub mod raw;
pub mod reading;
pub mod remote_write;
pub mod schema;
pub mod script;
pub mod server;
pub mod subset;
pub mod syscalls;
pub mod yaml;

pub use client::{Client, Response};
pub use ledger::Ledger;
pub use server::{Launch, Server};
pub use tideline_testkit::{is_slow, not_run, rounds, seed, seeds, skip, wait};
