//! Tests of the sender against receivers on loopback, and of its checks.

mod addresses;
mod backoff;
mod signature;
mod targets;
