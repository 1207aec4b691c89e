//! Tests of statements: refusals, random statements against a naive model, names, definitions, random words.

mod definitions;
mod groups;
mod model;
mod names;
mod noise;
mod refusals;
mod support;
