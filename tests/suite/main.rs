//! Everything that is proved about the whole process: see `tests/README.md`.

mod house;
