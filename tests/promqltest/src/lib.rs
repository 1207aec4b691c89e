//! Runs the test scripts of PromQL, the language that Prometheus' own tests of it are written in.
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
//! A [`Script`] is run against a [`Target`]. As in Prometheus, an instant query is asked in three ways: as it is, fixed
//! to its instant with `@` and asked at other instants, and as the middle of a range.
//!
//! | module | holds |
//! |---|---|
//! | [`script`] | [`Script`]: the commands of a file |
//! | `series` | the notation of series with their values |
//! | `load` | series in the making: start times, classic histograms as native ones |
//! | [`expect`] | what an answer should be, and whether it is |
//! | [`run`](run()) | runs the commands and reports what fails |
//! | [`api`] | what a target over HTTP makes of the answers of Prometheus' API |

pub mod api;
pub mod expect;
mod invariant;
mod load;
mod run;
pub mod script;
mod series;

pub use load::{LoadedSample, LoadedSeries};
pub use run::{Answer, Failure, Options, Report, Target, run};
pub use script::{Script, ScriptError};
