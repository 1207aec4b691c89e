//! Tests of the query crate through its public API, on an engine in memory.

mod agreement;
mod budgets;
mod calendars;
mod computed;
mod explains;
mod fills;
mod functions;
mod latest;
mod naive;
mod naive_areas;
mod naive_fill;
mod naive_values;
mod pages;
mod pools;
mod ranks;
mod rules;
mod samples;
mod small;
mod sorted;
mod support;
mod tiers;
mod values;
mod zone_filter;
