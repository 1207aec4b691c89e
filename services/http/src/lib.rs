//! HTTP service: all routes, one file per resource, and the layers around them.
//!
//! A request passes these stages:
//!
//! 1. `tideline_connections` accepts the connection, and [`mod@serve`] passes the request to the router.
//! 2. `observe` assigns the request id, counts and logs the request.
//! 3. `lease` checks that this process owns the data, and checks it again when the response is sent.
//! 4. `guard` checks the requested host (`host`), the token and the header `Origin` (`auth`), whether a role of
//!    the token allows the action of the route (`routes`), and the budgets of the tenant.
//! 5. A handler under `resources` extracts its input (`extract`, `body`), calls a function of the engine on a blocking
//!    thread (`app`), and returns the response.
//! 6. `failure` converts an error to the status and body of the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | [`HttpSettings`], [`Secret`] |
//! | `serve` | the binding of the router to `tideline_connections` |
//! | `router`, `described` | all routes and the OpenAPI document; its common error responses |
//! | `app` | the shared state: engine, budgets, permits |
//! | `tenants` | stored tenants, and the tenant of a request |
//! | `tokens`, `hashes_file`, `jwks_file`, `followed_file` | stored tokens; tokens of a file and of an identity provider |
//! | `tls_files` | certificate and key of the listener |
//! | `routes`, `grant` | actions of routes; the handle that gives a handler access to tables |
//! | `audit_log`, `audit_detail` | records of changes and refusals, for the audit table; the texts of what changed |
//! | `context`, `observe`, `audit`, `lease`, `guard`, `host`, `auth` | the layers around every request |
//! | `failure` | the mapping from errors to statuses, per dialect |
//! | `body` | size limits of request bodies; `tideline_connections` reads the bodies |
//! | `extract`, `stream`, `response_memory` | extractors; streamed responses; memory accounting of whole responses |
//! | `condition`, `saved_search` | conversion of conditions; expansion of saved searches |
//! | `ingest` | execution of writes; the pipeline is `tideline-ingest` |
//! | `inline_reads` | short reads on the threads of the runtime |
//! | [`standby`] | the service of a process that does not own the data |
//! | `running` | the registry of running queries |
//! | `requested` | background jobs that a request starts and does not wait for |
//! | `live` | watches: events that are sent to a client as they happen |
//! | `feed_watching` | shared state of all readers that wait for messages of feeds |
//! | `watching` | shared state of all watches |
//! | `metrics` | the metrics of the service |
//! | `resources` | the handlers |

mod app;
mod audit;
mod audit_detail;
mod audit_log;
mod auth;
mod body;
mod condition;
mod context;
mod described;
mod extract;
mod failure;
mod feed_watching;
mod followed_file;
mod grant;
mod guard;
mod hashes_file;
mod host;
mod ingest;
mod inline_reads;
mod jwks_file;
mod lease;
mod live;
mod metrics;
mod observe;
mod requested;
mod resources;
mod response_memory;
mod router;
mod routes;
mod running;
mod saved_search;
mod serve;
mod settings;
pub mod standby;
mod stream;
mod tenants;
mod tls_files;
mod tokens;
mod watching;

pub use router::document;
pub use serve::serve;
pub use settings::{HttpSettings, JwtFileSettings, Secret, TlsSettings, WeakSecret};
pub use tideline_access::jwt::JwtSettings;
pub use tideline_change_stream::{Backoff, ChangeSettings, HostPattern, WebhookSettings};
pub use tideline_connections::{Listeners, Network, NotANetwork, TrustedProxy};
pub use tideline_ingest::protocols::prometheus::{DeltaTemporality, OtlpSettings, TranslationStrategy};
pub use tideline_prometheus::Settings as PrometheusSettings;
