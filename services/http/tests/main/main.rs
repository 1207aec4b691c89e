//! The HTTP service over real connections, on the in-memory backend.

mod client;
mod document;
mod finding;
mod influx;
mod limits;
mod service;
mod writing;
