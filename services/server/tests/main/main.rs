//! The binary as a whole process: exit statuses, signals, restarts, the demo, and the command line of a running server; and
//! the server over a backend that behaves like a cluster.

mod archive;
mod ask;
mod check;
mod config;
mod demo;
mod distributed;
mod known;
mod lab;
mod operate;
mod parquet;
mod policy;
mod process;
mod query;
mod serve;
mod shell;
mod tls;
mod write;
mod write_again;
mod write_csv;
