//! The HTTP service over real connections, on the in-memory backend.

mod client;
mod document;
mod finding;
mod influx;
mod jobs;
mod lifecycle;
mod limits;
mod service;
mod writing;
