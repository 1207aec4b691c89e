//! tideline-http
