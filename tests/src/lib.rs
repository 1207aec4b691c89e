//! tideline-tests
