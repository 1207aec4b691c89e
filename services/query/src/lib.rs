//! tideline-query
