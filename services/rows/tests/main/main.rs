//! Tests of rows in JSON: forms of values, writes, imports, searches, parts of tables, copies, and estimated counts.

mod advice;
mod aggregates;
mod database;
mod divided;
mod estimates;
mod generated_parts;
mod imports;
mod merged;
mod parts;
mod rekey;
mod search;
mod shards;
mod undeclared;
mod values;
mod why;
mod writes;
