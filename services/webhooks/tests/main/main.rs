//! Tests of the sender against receivers on loopback, and of its checks.

mod addresses;
mod backoff;
mod failures;
mod limits;
mod names;
mod receiver;
mod sending;
mod signature;
mod targets;
