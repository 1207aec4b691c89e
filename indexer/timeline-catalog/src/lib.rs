//! tideline-timeline-catalog
