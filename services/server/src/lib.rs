//! tideline-server
