//! The folder of outside data and the root of the workspace.

pub use tideline_testkit::{corpus, workspace};
