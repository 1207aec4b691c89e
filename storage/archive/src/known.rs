//! What the archive must be told to make files that others can read.

use std::sync::Arc;

use tideline_model::{FieldId, Identity, TimelineId};

/// Who timelines are and what their fields are called: the store knows neither.
pub trait People: Send + Sync {
    /// Who a timeline is; `None` where that was forgotten.
    fn identity(&self, id: TimelineId) -> Option<Arc<Identity>>;

    /// What was set about a timeline, as JSON; `None` where that is nothing.
    fn attributes(&self, id: TimelineId) -> Option<String>;

    /// The keys of the tags that timelines of a measurement have, sorted; missing ones cost a file.
    fn tag_keys(&self, measurement: &str) -> Vec<String>;
}

/// What the fields of measurements are called, and their types.
pub trait Fields: Send + Sync {
    /// The fields of a measurement, as [`Shape`] has them.
    fn of_measurement(&self, measurement: &str) -> Vec<crate::ShapeField>;

    /// The name of a field.
    fn name(&self, field: FieldId) -> Option<String>;
}
