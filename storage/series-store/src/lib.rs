//! tideline-series-store
