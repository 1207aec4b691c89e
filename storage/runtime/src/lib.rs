//! Resources of the process that many crates share, each with an owner and a bound.
//!
//! | module | holds |
//! |---|---|
//! | [`memory`] | [`MemoryAccount`]: one limit for the memory that requests hold |
//! | [`supervision`] | [`Supervisor`]: starts threads whose panic ends the process |
//! | [`background`] | a low priority for threads whose work lets other work go first |

pub mod background;
pub mod memory;
pub mod supervision;

pub use memory::{MemoryAccount, MemoryFull, Reservation};
pub use supervision::{SupervisedThread, Supervisor, ThreadFailure};
