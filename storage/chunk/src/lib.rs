//! tideline-chunk
