//! Tests of rows in JSON: forms of values, and searches.

mod search;
mod values;
