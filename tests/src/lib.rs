//! What whole-process tests need: the real binary, started and ended as an operator would, and a client that
//! speaks to it over HTTP. Seeds, sizes and outside data come from `tideline_testkit`.
//!
//! Nothing here links the server. A test sees what an agent or a dashboard sees, so it can neither reach around
//! the protocol nor keep a state alive that a killed process would lose.
//!
//! | module | holds |
//! |---|---|
//! | [`disk`] | a disk on which write-backs fail and whose power is cut |
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
//! | [`model`] | random steps with a service, and a naive model that it is compared with |
//! | [`syscalls`] | failing system calls of a running server, by `strace` |
//! | [`corpora`] | the folder of outside data, the root of the workspace |
//! | [`yaml`] | YAML as JSON |
//! | [`schema`] | whether an answer is what an OpenAPI document says |
//! | [`wait`] | waiting for something that tells nobody |

pub mod archive;
pub mod client;
pub mod compress;
pub mod corpora;
pub mod disk;
pub mod ledger;
pub mod load;
pub mod model;
pub mod points;
pub mod program;
pub mod python;
pub mod raw;
pub mod reading;
pub mod remote_write;
pub mod schema;
pub mod script;
pub mod server;
pub mod subset;
pub mod syscalls;
pub mod wait;
pub mod yaml;

pub use client::{Client, Response};
pub use ledger::Ledger;
pub use server::{Launch, Server};
pub use tideline_testkit::{is_slow, not_run, rounds, seed, seeds, skip};
