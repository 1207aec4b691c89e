//! Tests of the scheduler through its public interface, over a fake store and over the real one.

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
