//! Process-wide resources that many crates share.
//!
//! | module | holds |
//! |---|---|
//! | [`memory`] | [`MemoryAccount`]: one limit for the memory of requests, watches and search indexes |
//! | [`supervision`] | [`Supervisor`]: starts threads and reports their first panic, so that the server can exit |
//! | [`background`] | background threads: low CPU priority, and yields of the core |
//! | [`helpers`] | [`Helpers`]: threads that help with work that consists of independent items |

pub mod background;
pub mod helpers;
pub mod memory;
pub mod supervision;

pub use helpers::Helpers;
pub use memory::{MemoryAccount, MemoryFull, Reservation};
pub use supervision::{SupervisedThread, Supervisor, ThreadFailure};
