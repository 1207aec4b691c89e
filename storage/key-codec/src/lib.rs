//! tideline-key-codec
