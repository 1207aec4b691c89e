//! tideline-openapi
