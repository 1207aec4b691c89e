//! Regular expressions within limits, checked and estimated before compilation.
//!
//! A short expression may compile into megabytes (`\pL{50}` takes two), and a request may contain thousands. An
//! expression is therefore parsed first, in time proportional to its length, and its compiled size is estimated from
//! the syntax tree. The estimate is an upper bound, so an expression within the limits compiles. [`PatternBudget`]
//! limits the total size of the expressions of one request.
//!
//! | module | holds |
//! |---|---|
//! | `pattern` | [`Pattern`]: a checked expression, compiled on first use |
//! | `budget` | [`PatternBudget`]: total size of the patterns of one request |
//! | `cost` | size estimate |
//! | `glob` | [`Glob`]: wildcard patterns, matched without compilation |
//! | `texts` | list of all texts that an expression matches, if they are few; check for a match of the empty text |
//! | `error` | [`PatternError`] |
//!
//! # Examples
//!
//! ```
//! use tideline_pattern::{Limits, Pattern, PatternError};
//!
//! let limits = Limits { text_bytes_max: 1_000, compiled_bytes_max: 1 << 20 };
//! let pattern = Pattern::new("web-[0-9]+", limits)?;
//! assert!(pattern.matches(b"web-12"));
//! assert!(!pattern.matches(b"web-12.example.org"), "the whole text must match");
//!
//! let large = Pattern::new(r"\pL{50}", limits);
//! assert!(matches!(large, Err(PatternError::TooLarge { .. })));
//! # Ok::<(), PatternError>(())
//! ```

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

/// Result of checking or compiling a pattern.
pub type Result<T> = std::result::Result<T, PatternError>;
