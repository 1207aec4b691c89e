//! Runner for PromQL test scripts in the format of Prometheus' own tests.
//!
//! ```text
//! load 1m
//!     requests{path="/"} 0+10x5 _ stale
//!
//! eval instant at 5m rate(requests[5m])
//!     expect no_warn
//!     {path="/"} 0.1666667
//! ```
//!
//! A [`Script`] is run against a [`Target`]. As in Prometheus, instant queries are by default evaluated in three
//! ways: unchanged, fixed to their timestamp with `@` and evaluated at other timestamps, and as the middle of a
//! range query. [`Options`] can disable the last two.
//!
//! | module | content |
//! |---|---|
//! | [`script`] | [`Script`]: parser of script files |
//! | `series` | notation of series with their values |
//! | `load` | series to load: start timestamps, conversion of classic histograms |
//! | [`expect`] | expected results, and their comparison with actual results |
//! | [`run`](run()), `invariant` | execution of scripts, report of failures; step-invariant form of queries |
//! | [`api`] | parser of Prometheus' API responses, for targets over HTTP |

pub mod api;
pub mod expect;
mod invariant;
mod load;
mod run;
pub mod script;
mod series;

pub use load::{LoadedSample, LoadedSeries};
pub use run::{Failure, Options, QueryResult, Report, Target, run};
pub use script::{Script, ScriptError};
