//! The scheduler from outside: against a store that only counts, and against the real one.

mod archives;
mod chance;
mod clock_jumps;
mod control;
mod database;
mod fake;
mod models;
mod real_store;
mod requested;
mod restarts;
mod retries;
mod schedules;
mod seals;
