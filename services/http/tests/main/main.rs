//! Tests of the HTTP service over real connections, with the in-memory backend.

mod ages;
mod client;
mod columnar;
mod deletes;
mod details;
mod document;
mod finding;
mod influx;
mod jobs;
mod limits;
mod models;
mod otlp;
mod patterns;
mod plain_words;
mod policies;
mod prometheus;
mod refusals;
mod rows;
mod running;
mod service;
mod shares;
mod statistics;
mod transfers;
mod watches;
mod writing;
mod wrong_clock;
