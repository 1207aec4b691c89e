//! PromQL, the language of Prometheus 3: parse, plan, evaluate.
//!
//! | module | holds |
//! |---|---|
//! | [`annotations`] | [`Annotations`]: warnings and infos of an answer |
//! | [`ast`] | what an expression is made of |
//! | [`parse`](parse()) | from text to an expression whose types are right |
//! | [`pretty`](pretty()), [`to_json`] | back to text in lines, or to JSON; [`ast::Expr`] displays itself in one line |
//! | [`function`] | the functions by name, with what they take and return |
//! | [`labels`] | [`Labels`], the identity of a series |
//! | [`matcher`] | [`Matcher`], a condition on one label |
//! | [`source`] | [`Source`]: where series come from, and what a plan asks of it |
//! | [`value`] | what an evaluation ends in |
//! | [`range`] | functions over ranges of samples |
//! | [`histogram_functions`] | quantiles, fractions and averages of distributions |
//! | [`mod@evaluate`] | the evaluator: a plan, then columns |
//! | [`note`] | what functions remark about samples |
//! | [`pattern`] | regular expressions as Prometheus writes them |
//! | [`quote`] | texts as Go writes them |
//! | [`error`] | what can go wrong, in the classes that Prometheus' API tells apart |
//!
//! # What is absent
//!
//! No storage, no HTTP, no clock: instants come in as values, series through a [`Source`].

pub mod annotations;
pub mod ast;
mod calendar;
mod check;
pub mod error;
pub mod evaluate;
pub mod function;
mod hash;
pub mod histogram_functions;
mod json;
pub mod labels;
mod lex;
pub mod matcher;
mod math;
pub mod note;
mod number;
mod parse;
pub mod pattern;
mod plan;
mod pretty;
mod print;
pub mod quote;
pub mod range;
pub mod source;
pub mod value;

pub use annotations::{Annotation, Annotations};
pub use error::{ParseError, PromqlError, Result};
pub use evaluate::{Answer, Question, Settings, Stats, evaluate};
pub use json::to_json;
pub use labels::{Labels, LabelsBuilder};
pub use matcher::{MatchOp, Matcher};
pub use parse::{DEPTH_MAX, DurationError, TEXT_BYTES_MAX, parse, parse_duration, parse_selector};
pub use pretty::pretty;
pub use source::{Samples, Select, Source};
pub use tideline_histogram as histogram;
pub use value::{Point, QueryValue, Sample, Series};
