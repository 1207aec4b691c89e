//! tideline-search-index
