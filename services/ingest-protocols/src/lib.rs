//! tideline-ingest-protocols
