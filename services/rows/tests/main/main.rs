//! Tests of the JSON forms of values.

mod values;
