//! The binary as a whole process: exit statuses, signals, restarts, the demo.

mod config;
mod demo;
mod process;
mod serve;
