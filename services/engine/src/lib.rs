//! tideline-engine
