//! Everything that is proved about the whole process: see `tests/README.md`.

mod bad_input;
mod crash;
mod drain;
mod house;
mod rebuild;
mod scenarios;
