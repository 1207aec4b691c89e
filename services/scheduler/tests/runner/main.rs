//! The scheduler against a store that only counts: what runs, when, and what becomes of jobs.

mod control;
mod fake;
mod restarts;
mod retries;
mod schedules;
