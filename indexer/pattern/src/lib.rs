//! Regular expressions within limits: checked and weighed before they are compiled.
//!
//! A short expression may compile into megabytes (`\pL{50}` is two of them), and a request may hold thousands. So an
//! expression is first parsed, which costs as much as its text is long, and its compiled size is estimated from the
//! syntax tree: an upper bound, so what passes the limits compiles. [`PatternBudget`] adds up the expressions of one
//! request.
//!
//! | module | holds |
//! |---|---|
//! | `pattern` | [`Pattern`]: a checked expression, compiled on demand |
//! | `budget` | [`PatternBudget`]: the sum of one request |
//! | `cost` | the estimate |
//! | `glob` | [`Glob`]: wildcard patterns, matched without compiling |
//! | `texts` | the few texts that an expression takes, and whether the empty one is among them |
//! | `error` | [`PatternError`] |

mod budget;
mod cost;
mod error;
mod glob;
mod pattern;
mod texts;

pub use budget::{PatternBudget, REQUEST_BYTES_MAX};
pub use error::PatternError;
pub use glob::Glob;
pub use pattern::{Limits, Pattern};
pub use texts::TEXTS_MAX;

/// The result of a call here.
pub type Result<T> = std::result::Result<T, PatternError>;
