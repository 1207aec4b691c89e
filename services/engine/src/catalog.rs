//! Types of the timeline catalog: entries, counted names, attributes and metric metadata.
//!
//! They are re-exported here, so that services depend on no crate below the engine.

pub use tideline_timeline_catalog::value::AttributeRef;
pub use tideline_timeline_catalog::{
    AttributeChanges, AttributeType, AttributeValue, CatalogReader, CountedName, Entry, MetricKind,
    MetricMetadata, NameSelection, TimelinesAhead,
};
