//! Everything that is proved about the whole process: see `tests/README.md`.

mod aging;
mod bad_input;
mod cold_flood;
mod crash;
mod crash_matrix;
mod dashboards;
mod documentation;
mod documented;
mod drain;
mod export_import;
mod house;
mod model;
mod openapi_examples;
mod prometheus_client;
mod prometheus_openapi;
mod real_data;
mod rebuild;
mod scenarios;
mod upgrade;
mod watch;
