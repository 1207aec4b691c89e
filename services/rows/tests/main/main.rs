//! Tests of rows in JSON: forms of values, searches, and parts of tables.

mod advice;
mod aggregates;
mod database;
mod parts;
mod search;
mod values;
mod why;
