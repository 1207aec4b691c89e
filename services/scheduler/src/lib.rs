//! The life of data, by itself: what is sealed, folded, migrated, purged and dropped, and when.

pub mod schedule;

pub use schedule::{ScheduleError, Timetable};
