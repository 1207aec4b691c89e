//! Tests of rows in JSON: forms of values, searches, parts of tables, copies, and estimated counts.

mod advice;
mod aggregates;
mod database;
mod estimates;
mod generated_parts;
mod parts;
mod rekey;
mod search;
mod shards;
mod undeclared;
mod values;
mod why;
