//! Everything that is proved about the whole process: see `tests/README.md`.

mod agents;
mod aging;
mod bad_input;
mod cold_flood;
mod crash;
mod crash_matrix;
mod damage;
mod dashboards;
mod differential;
mod documentation;
mod documented;
mod drain;
mod export_import;
mod first_boot;
mod house;
mod model;
mod openapi_examples;
mod prometheus_client;
mod prometheus_openapi;
mod promql_scripts;
mod real_data;
mod rebuild;
mod scenarios;
mod upgrade;
mod watch;
mod write_back;
