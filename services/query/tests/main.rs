//! The query crate through its public door, on a whole engine in memory.

#[path = "main/agreement.rs"]
mod agreement;
#[path = "main/budgets.rs"]
mod budgets;
#[path = "main/calendars.rs"]
mod calendars;
#[path = "main/computed.rs"]
mod computed;
#[path = "main/explains.rs"]
mod explains;
#[path = "main/fills.rs"]
mod fills;
#[path = "main/functions.rs"]
mod functions;
#[path = "main/lanes.rs"]
mod lanes;
#[path = "main/latest.rs"]
mod latest;
#[path = "main/naive.rs"]
mod naive;
#[path = "main/naive_areas.rs"]
mod naive_areas;
#[path = "main/naive_fill.rs"]
mod naive_fill;
#[path = "main/naive_values.rs"]
mod naive_values;
#[path = "main/pages.rs"]
mod pages;
#[path = "main/ranks.rs"]
mod ranks;
#[path = "main/rules.rs"]
mod rules;
#[path = "main/samples.rs"]
mod samples;
#[path = "main/screens.rs"]
mod screens;
#[path = "main/small.rs"]
mod small;
#[path = "main/sorted.rs"]
mod sorted;
#[path = "main/support.rs"]
mod support;
#[path = "main/tiers.rs"]
mod tiers;
#[path = "main/values.rs"]
mod values;
