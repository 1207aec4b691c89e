//! Restriction of a table handle to the timelines that its principal may use.
//!
//! A handle of [`Engine::table`](crate::Engine::table) carries the condition of the principal. Every search joins this
//! condition with the condition of the request ([`Table::narrowed`]). Every look-up of timelines, names and counts uses
//! [`Table::reader`], which shows only the matching timelines. Writes test the identity of each timeline
//! ([`crate::resolve`]).
//!
//! A field belongs to its measurement. It is visible together with the measurement, regardless of the timeline that
//! introduced it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tideline_access::TimelineCondition;
use tideline_condition::{Condition, Record, Subject, ValueRef};
use tideline_model::{FieldId, Identity, Ordinal, TimelineId};
use tideline_search_index::TimelineRecord;
use tideline_series_store::FieldInfo;
use tideline_timeline_catalog::{AttributeChanges, CatalogError, CatalogReader, CatalogSubset, Entry};

use crate::error::{EngineError, Result};
use crate::tables::Table;

/// Maximum number of conditions per table whose timelines are kept. The most recently used conditions are kept.
const SUBSETS_MAX: usize = 32;

/// Restriction of a table handle.
#[derive(Debug, Clone)]
pub(crate) struct Restriction {
    pub(crate) condition: TimelineCondition,
    /// Set by the first read. Writes need no subset, and a subset of a write would displace the subset of a reader.
    subset: OnceLock<Arc<CatalogSubset>>,
}

/// Timelines of recently used conditions of a table, the last used one first.
#[derive(Debug, Default)]
pub(crate) struct Subsets(Mutex<Vec<(TimelineCondition, Arc<CatalogSubset>)>>);

impl Subsets {
    fn of(&self, condition: &TimelineCondition) -> Arc<CatalogSubset> {
        let mut kept = self.0.lock();
        let known = kept.iter().position(|(have, _)| have == condition);
        let used = match known {
            Some(at) => kept.remove(at),
            None => (condition.clone(), Arc::default()),
        };
        let subset = Arc::clone(&used.1);
        kept.insert(0, used);
        kept.truncate(SUBSETS_MAX);
        subset
    }
}

impl Table {
    /// Returns the handle restricted to the timelines that match a condition.
    #[must_use]
    pub(crate) fn restricted(mut self, condition: &TimelineCondition) -> Self {
        self.restriction = Some(Restriction {
            condition: condition.clone(),
            subset: OnceLock::new(),
        });
        self
    }

    /// Returns the condition to which the handle is restricted; `None` for a handle of all timelines.
    pub fn condition(&self) -> Option<&TimelineCondition> {
        self.restriction
            .as_ref()
            .map(|restriction| &restriction.condition)
    }

    /// Locks the catalog for a batch of lookups of the timelines that this handle may use; see [`CatalogReader`] for
    /// its limits. A restricted handle first tests timelines that were added or edited since it was last used with the
    /// same condition.
    pub fn reader(&self) -> CatalogReader<'_> {
        match &self.restriction {
            None => self.catalog.reader(),
            Some(Restriction { condition, subset }) => {
                let subset = subset.get_or_init(|| self.activity.subsets.of(condition));
                subset.reader(&self.catalog, &|entry| condition.matches(&record(entry)))
            }
        }
    }

    /// Returns a field by its name; `None` if no measurement of the visible timelines has it.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        let schema = self.points.schema();
        let field = schema.field(name)?;
        if self.restriction.is_none() {
            return Some(field);
        }
        let reader = self.reader();
        let mut measurements = reader.measurement_counts();
        let has_field =
            measurements.any(|(measurement, _)| schema.field_of(measurement.text(), name).is_some());
        has_field.then_some(field)
    }

    /// Returns the fields of the measurements of the visible timelines, with their types.
    pub(crate) fn fields(&self) -> Vec<FieldInfo> {
        let mut fields = self.points.schema().fields();
        if self.restriction.is_some() {
            let reader = self.reader();
            fields.retain(|field| reader.has_measurement(&field.measurement));
        }
        fields
    }

    /// Joins a condition with the condition of the restriction.
    pub(crate) fn narrowed<'c>(&self, condition: &'c Condition) -> Cow<'c, Condition> {
        match &self.restriction {
            None => Cow::Borrowed(condition),
            Some(restriction) => Cow::Owned(Condition::And(vec![
                restriction.condition.condition().clone(),
                condition.clone(),
            ])),
        }
    }

    /// Returns the visible timeline with this id; `None` if the handle may not use it. Tests only this timeline, unlike
    /// [`reader`](Self::reader). `reader` reads all timelines.
    pub(crate) fn usable(&self, reader: &CatalogReader<'_>, id: TimelineId) -> Option<Ordinal> {
        let ordinal = reader.by_id(id)?;
        let restriction = self.restriction.as_ref();
        let is_usable = restriction.is_none_or(|restriction| restriction.has(reader, ordinal));
        is_usable.then_some(ordinal)
    }

    /// Returns true if the removal of a timeline may be reported: the handle is not restricted, or the timeline matches
    /// by its measurement and tags. If the condition tests attributes, no removal is reported, because a removed
    /// timeline has none. `reader` reads all timelines.
    pub(crate) fn may_tell(&self, reader: &CatalogReader<'_>, id: TimelineId) -> bool {
        let Some(restriction) = &self.restriction else {
            return true;
        };
        let known = reader
            .known_by_id(id)
            .filter(|_| !restriction.condition.tests_attributes());
        known.is_some_and(|ordinal| restriction.has(reader, ordinal))
    }

    /// Returns true if the removal of a timeline with this identity may be reported, see [`may_tell`](Self::may_tell).
    pub(crate) fn may_tell_identity(&self, identity: &Identity) -> bool {
        let Some(Restriction { condition, .. }) = &self.restriction else {
            return true;
        };
        let source_tags = &self.spec().source_tags;
        !condition.tests_attributes()
            && condition.matches(&NewTimeline {
                identity,
                source_tags,
            })
    }

    /// Joins conditions like [`narrowed`](Self::narrowed), but puts the restriction inside two negations. Texts that
    /// only the restriction tests are then neither highlighted nor counted as relevant, because tests inside a negation
    /// are not.
    pub(crate) fn narrowed_silently<'c>(&self, condition: &'c Condition) -> Cow<'c, Condition> {
        match &self.restriction {
            None => Cow::Borrowed(condition),
            Some(restriction) => {
                let outside = Condition::Not(Box::new(restriction.condition.condition().clone()));
                Cow::Owned(Condition::And(vec![
                    Condition::Not(Box::new(outside)),
                    condition.clone(),
                ]))
            }
        }
    }

    /// Converts an error of the catalog. For a restricted handle, removes the number of other timelines from the
    /// message.
    pub(crate) fn shown_error(&self, error: CatalogError) -> EngineError {
        match error {
            CatalogError::MixedAttribute { key, has, given, .. } if self.restriction.is_some() => {
                EngineError::Invalid(format!(
                    "attribute {key:?} has the type {has} in this table, so it cannot be a {given}"
                ))
            }
            error => error.into(),
        }
    }

    /// Refuses changes of attributes that decide whether a timeline is visible to a restricted principal.
    pub(crate) fn check_changes(&self, changes: &AttributeChanges) -> Result<()> {
        let Some(Restriction { condition, .. }) = &self.restriction else {
            return Ok(());
        };
        match changes.keys().find(|key| condition.tests_attribute(key)) {
            None => Ok(()),
            Some(key) => Err(EngineError::Forbidden(format!(
                "the token is restricted to timelines with {condition}, so it cannot change attribute {key:?}"
            ))),
        }
    }
}

impl Restriction {
    /// Returns true if the handle may write a timeline that was registered, visible or not.
    pub(crate) fn has(&self, reader: &CatalogReader<'_>, ordinal: Ordinal) -> bool {
        let entry = reader.known_entry(ordinal);
        entry.is_some_and(|entry| self.condition.matches(&record(&entry)))
    }

    /// Returns true if the handle may write a timeline with this identity. `reader` reads all timelines.
    pub(crate) fn has_identity(&self, reader: &CatalogReader<'_>, identity: &Identity) -> bool {
        match reader.by_identity(identity) {
            Ok(Some(ordinal)) => self.has(reader, ordinal),
            // The identity is too long. Its registration reports this error.
            Err(_) => true,
            Ok(None) => self.condition.matches(&NewTimeline {
                identity,
                source_tags: reader.source_tags(),
            }),
        }
    }
}

fn record<'a>(entry: &'a Entry<'a>) -> TimelineRecord<'a> {
    TimelineRecord { entry, seen: None }
}

/// Timeline that is not registered: a new or a removed one. It has no attributes.
struct NewTimeline<'a> {
    identity: &'a Identity,
    source_tags: &'a [String],
}

impl Record for NewTimeline<'_> {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        match subject {
            Subject::Measurement => take(ValueRef::Text(self.identity.measurement())),
            Subject::Source => {
                let source = self.identity.source(self.source_tags);
                source.is_some_and(|source| take(ValueRef::Text(source)))
            }
            Subject::Tag(key) => {
                let tag = self.identity.tags().iter().find(|(have, _)| have == key);
                tag.is_some_and(|(_, value)| take(ValueRef::Text(value)))
            }
            _ => false,
        }
    }
}
