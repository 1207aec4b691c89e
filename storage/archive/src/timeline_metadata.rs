//! Interfaces to metadata that the store does not hold. Files include this metadata, so that other tools can read them.

use std::sync::Arc;

use tideline_model::{FieldId, Identity, TimelineId};

/// Resolves timeline ids to identities and attributes.
pub trait TimelineMetadata: Send + Sync {
    /// Returns the identity of a timeline; `None` if it is unknown.
    fn identity(&self, id: TimelineId) -> Option<Arc<Identity>>;

    /// Returns the attributes of a timeline as JSON; `None` if it has none.
    fn attributes(&self, id: TimelineId) -> Option<String>;

    /// Returns the tag keys of the timelines of a measurement, sorted. A tag key that is not in the result can cost an
    /// additional file.
    fn tag_keys(&self, measurement: &str) -> Vec<String>;
}

/// Resolves fields to names and types.
pub trait Fields: Send + Sync {
    /// Returns the fields of a measurement, in the form of [`Shape`](crate::Shape).
    fn of_measurement(&self, measurement: &str) -> Vec<crate::ShapeField>;

    /// Returns the name of a field; `None` if it is unknown.
    fn name(&self, field: FieldId) -> Option<String>;
}
