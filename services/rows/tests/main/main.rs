//! Tests of rows in JSON: forms of values, searches, and parts of tables.

mod advice;
mod aggregates;
mod database;
mod generated_parts;
mod parts;
mod search;
mod values;
mod why;
