//! The HTTP service: every route, one file a resource, and what lies around them.
//!
//! A request in file names: `tideline_connections` accepts its connection, [`serve`] passes it to the router → `observe` names, counts and
//! logs it → `host` checks the host that it names → `auth` asks for the token → a handler under `resources` extracts what it needs (`extract`, `body`), calls
//! one function of the engine on a blocking thread (`app`), and answers → `failure` turns what went wrong into the
//! status and body of the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | [`HttpSettings`], [`Secret`] |
//! | `serve` | the router on the connections of `tideline_connections` |
//! | `router` | all routes and the OpenAPI document |
//! | `app` | the shared state: engine, budgets, turns |
//! | `context`, `observe`, `audit`, `host`, `auth` | what happens around every request |
//! | `failure` | the one table from kind of failure to status, per dialect |
//! | `body` | limits of request bodies; `tideline_connections` reads them |
//! | `extract`, `stream`, `whole` | extractors; answers that are streamed, and the memory of others |
//! | `condition`, `saved` | conditions of the interface into those of the index; saved searches spelled out |
//! | `ingest` | a write in its turn; the pipeline is `tideline-ingest` |
//! | `running` | the queries that run now |
//! | `metrics` | our own figures |
//! | `resources` | the handlers |

mod app;
mod audit;
mod auth;
mod body;
mod condition;
mod context;
mod described;
mod extract;
mod failure;
mod host;
mod ingest;
mod metrics;
mod observe;
mod requested;
mod resources;
mod router;
mod running;
mod saved;
mod serve;
mod settings;
mod stream;
mod watching;
mod whole;

pub use router::document;
pub use serve::serve;
pub use settings::{HttpSettings, Secret, WeakSecret};
pub use tideline_connections::{Network, NotANetwork};
pub use tideline_prometheus::Settings as PrometheusSettings;
