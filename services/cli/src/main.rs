//! tideline-cli
fn main() {}
