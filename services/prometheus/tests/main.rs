//! The view of a table, over an engine on the real backend.

#[path = "main/budgets.rs"]
mod budgets;
#[path = "main/listing.rs"]
mod listing;
#[path = "main/source.rs"]
mod source;
#[path = "main/support.rs"]
mod support;
#[path = "main/transfer.rs"]
mod transfer;
#[path = "main/windows.rs"]
mod windows;
