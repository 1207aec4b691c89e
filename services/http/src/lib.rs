//! The HTTP service: every route, one file a resource, and what lies around them.
//!
//! A request in file names: [`serve`] accepts its connection, guarded by `connection` → `observe` names, counts and
//! logs it → `host` checks the host that it names → `auth` asks for the token → a handler under `resources` extracts what it needs (`extract`, `body`), calls
//! one function of the engine on a blocking thread (`app`), and answers → `failure` turns what went wrong into the
//! status and body of the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | [`HttpSettings`], [`Secret`] |
//! | `serve`, `connection` | the accept loop; timeouts of a connection |
//! | `router` | all routes and the OpenAPI document |
//! | `app` | the shared state: engine, budgets, turns |
//! | `client`, `shares` | the client of a request, also behind a proxy; fair shares of bounded resources |
//! | `context`, `observe`, `audit`, `host`, `auth` | what happens around every request |
//! | `failure` | the one table from kind of failure to status, per dialect |
//! | `body` | the one bounded way in for request bodies |
//! | `extract`, `stream`, `whole` | extractors; answers that are streamed, and the memory of others |
//! | `condition`, `saved` | conditions of the interface into those of the index; saved searches spelled out |
//! | `ingest` | a write in its turn; the pipeline is `tideline-ingest` |
//! | `running` | the queries that run now |
//! | `policy` | changes of a policy, applied and checked |
//! | `metrics` | our own figures |
//! | `resources` | the handlers |

mod app;
mod audit;
mod auth;
mod body;
mod client;
mod condition;
mod connection;
mod context;
mod described;
mod errand;
mod extract;
mod failure;
mod holding;
mod host;
mod ingest;
mod metrics;
mod observe;
mod pace;
mod policy;
mod resources;
mod router;
mod running;
mod saved;
mod serve;
mod settings;
mod shares;
mod stream;
mod watching;
mod whole;

pub use client::{Network, NotANetwork};
pub use router::document;
pub use serve::serve;
pub use settings::{HttpSettings, Secret, WeakSecret};
pub use tideline_prometheus::Settings as PrometheusSettings;
