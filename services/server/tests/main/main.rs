//! Tests of the binary as a process: exit statuses, signals, restarts, the demo, and the command line with a
//! running server. Also tests of the server on a backend that simulates a cluster.

mod archive;
mod ask;
#[cfg(feature = "cassandra")]
mod cassandra;
mod check;
#[cfg(feature = "cassandra")]
mod cluster_copy;
mod config;
mod demo;
mod distributed;
mod feeds;
mod known;
mod lab;
mod operate;
mod parquet;
mod policy;
mod process;
mod query;
mod row_search;
mod rows;
mod secrets;
mod serve;
mod shell;
mod sql;
mod tls;
mod tls_listener;
mod unix_socket;
mod write;
mod write_again;
mod write_csv;
