//! The vocabulary of timelines: catalog entries, names with their counts, attributes and metadata of metrics.
//!
//! The types are those of the catalog; services import them here, so that the engine is the only crate below them.

pub use tideline_timeline_catalog::value::AttributeRef;
pub use tideline_timeline_catalog::{
    AttributeChanges, AttributeType, AttributeValue, CatalogReader, CountedName, Entry, MetricKind,
    MetricMetadata, NameSelection,
};
