//! Tests of the view of a table, over an engine on the real backend.

mod budgets;
mod listing;
mod source;
mod support;
mod transfer;
mod windows;
