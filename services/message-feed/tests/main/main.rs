//! Tests of feeds: random changes and reads against a naive model, threads, and refused requests.

mod begun;
mod changes;
mod database;
mod fan_out;
mod inboxes;
mod lab;
mod model;
mod refusals;
mod responses;
mod threads;
