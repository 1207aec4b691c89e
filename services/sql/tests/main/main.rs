//! Tests of statements: refusals, random statements against a naive model, names, definitions, random words,
//! column groups.

mod column_groups;
mod definitions;
mod groups;
mod model;
mod names;
mod noise;
mod refusals;
mod support;
