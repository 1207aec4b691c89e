//! The life of data, by itself: what is sealed, folded, migrated, purged and dropped, and when.

pub mod chore;
pub mod plan;
pub mod schedule;

pub use chore::Chore;
pub use schedule::{ScheduleError, Timetable};
