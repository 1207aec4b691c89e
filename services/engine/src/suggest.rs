//! "Did you mean" suggestions: unknown names in a query, with similar known names.
//!
//! A measurement, tag or attribute is unknown if the table does not have it. A field is unknown if the table has it
//! only in measurements that the query does not read.
//!
//! Names are compared without case, by Jaro-Winkler similarity.

use std::collections::{BTreeMap, BTreeSet};

use tideline_condition::operators::{Equals, In, NotEquals};
use tideline_condition::{Condition, Literal, Subject, Test};
use tideline_model::FieldId;
use tideline_timeline_catalog::{CatalogReader, NameSelection};

use crate::tables::Table;

/// Maximum number of names that one name is compared with.
const NAMES_COMPARED_MAX: usize = 10_000;
/// Maximum number of unknown names that get suggestions; fields are limited separately.
const MISSING_MAX: usize = 16;
/// Longest name that is compared, in bytes. The cost of a comparison is the product of both lengths.
const NAME_BYTES_MAX: usize = 256;
/// Maximum number of suggestions for one name.
const SUGGESTED_MAX: usize = 3;
/// Smallest Jaro-Winkler similarity, from 0 to 1; allows one or two wrong letters in a short name.
const LIKENESS_MIN: f64 = 0.8;

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A measurement.
    Measurement,
    /// A tag key.
    Tag,
    /// An attribute key.
    Attribute,
    /// A field that the table has, but not in the measurements that the condition requires.
    Field,
}

/// Unknown name in a request, with suggestions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// Kind of the name.
    pub kind: NameKind,
    /// Name in the request.
    pub name: String,
    /// Similar known names, most similar first. May be empty.
    pub did_you_mean: Vec<String>,
}

/// Returns the names in a condition and in `others` that no timeline of the table has, at most [`MISSING_MAX`], each
/// with similar names.
///
/// Costs one look-up per name, and for each unknown name a comparison with at most 10,000 names of its kind.
pub(crate) fn suggestions(table: &Table, condition: &Condition, others: &[Subject]) -> Vec<Suggestion> {
    let mut names = BTreeSet::new();
    gather(condition, &mut names);
    names.extend(others.iter().filter_map(of_subject));
    let missing: Vec<(NameKind, String)> = {
        let reader = table.reader();
        let missing = names
            .into_iter()
            .filter(|(kind, name)| !exists(&reader, *kind, name));
        missing.take(MISSING_MAX).collect()
    };
    let mut known = BTreeMap::new();
    let suggestion = |(kind, name): (NameKind, String)| {
        // The catalog is locked while names are read, but not while they are compared.
        let known = known
            .entry(kind)
            .or_insert_with(|| names_of(&table.reader(), kind));
        Suggestion {
            kind,
            did_you_mean: alike(known, &name),
            name,
        }
    };
    missing.into_iter().map(suggestion).collect()
}

fn gather(condition: &Condition, names: &mut BTreeSet<(NameKind, String)>) {
    match condition {
        Condition::All | Condition::Saved(_) => {}
        Condition::And(inner) | Condition::Or(inner) => inner.iter().for_each(|inner| gather(inner, names)),
        Condition::Not(inner) => gather(inner, names),
        Condition::Leaf {
            subject: Subject::Measurement,
            test,
        } => {
            let values = match test {
                Test::Equals(Equals(value)) | Test::NotEquals(NotEquals(value)) => {
                    std::slice::from_ref(value)
                }
                Test::In(In(values)) => values,
                _ => &[],
            };
            for value in values {
                if let Literal::Text(name) = value {
                    names.insert((NameKind::Measurement, name.clone()));
                }
            }
        }
        Condition::Leaf { subject, .. } => names.extend(of_subject(subject)),
    }
}

fn of_subject(subject: &Subject) -> Option<(NameKind, String)> {
    match subject {
        Subject::Tag(key) => Some((NameKind::Tag, key.clone())),
        Subject::Attribute(key) => Some((NameKind::Attribute, key.clone())),
        _ => None,
    }
}

fn exists(reader: &CatalogReader<'_>, kind: NameKind, name: &str) -> bool {
    match kind {
        // Fields are in the schema of the table, not in its catalog.
        NameKind::Field => true,
        NameKind::Measurement => reader.has_measurement(name),
        NameKind::Tag => reader.has_tag_key(name),
        NameKind::Attribute => reader.has_attribute_key(name),
    }
}

/// Returns names of a kind, at most [`NAMES_COMPARED_MAX`], each with its lower-case form. Long names are omitted.
fn names_of(reader: &CatalogReader<'_>, kind: NameKind) -> Vec<(String, String)> {
    let selection = NameSelection {
        limit: NAMES_COMPARED_MAX,
        ..NameSelection::default()
    };
    let counted = |names: Vec<tideline_timeline_catalog::CountedName>| {
        names.into_iter().map(|name| name.name).collect()
    };
    let known: Vec<String> = match kind {
        NameKind::Measurement => counted(reader.measurements(&selection)),
        NameKind::Tag => counted(reader.tag_keys(&selection)),
        NameKind::Attribute => {
            let keys = reader.attribute_keys().into_iter().take(NAMES_COMPARED_MAX);
            keys.map(|key| key.key).collect()
        }
        NameKind::Field => Vec::new(),
    };
    folded(known)
}

fn folded(names: Vec<String>) -> Vec<(String, String)> {
    let short = names.into_iter().filter(|name| name.len() <= NAME_BYTES_MAX);
    short.map(|name| (name.to_lowercase(), name)).collect()
}

impl Table {
    /// Returns the fields of the table that are similar to `name`, most similar first, at most three.
    pub fn fields_like(&self, name: &str) -> Vec<String> {
        let fields = self.fields();
        let mut names: Vec<String> = fields.into_iter().map(|field| field.field).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_COMPARED_MAX);
        alike(&folded(names), name)
    }

    /// Returns the names in a query that the table does not have: measurements, tags and attributes of `condition`, and
    /// tags of `tags`. Also returns the `fields` that the table has, but not in the measurements that the condition
    /// requires.
    ///
    /// Costs one look-up per name, and for each unknown name a comparison with at most 10,000 names of its kind.
    pub fn unknown_names(
        &self,
        condition: &Condition,
        tags: &[String],
        fields: &[String],
    ) -> Vec<Suggestion> {
        let tags: Vec<Subject> = tags.iter().cloned().map(Subject::Tag).collect();
        let mut unknown = suggestions(self, condition, &tags);
        unknown.extend(self.unknown_fields(condition, fields));
        unknown
    }

    /// Returns the fields that the table has, but not in the measurements that the condition requires. Returns nothing
    /// if the condition requires no measurement or these measurements have no fields.
    fn unknown_fields(&self, condition: &Condition, fields: &[String]) -> Vec<Suggestion> {
        let measurements = required_measurements(condition).unwrap_or_default();
        let schema = self.points().schema();
        let mut known: Vec<FieldId> = Vec::new();
        {
            let reader = self.reader();
            for name in measurements {
                if reader.has_measurement(name) {
                    known.extend(schema.fields_of(name));
                }
            }
        }
        if known.is_empty() {
            return Vec::new();
        }
        known.sort_unstable();
        known.dedup();
        let is_elsewhere = |field: &&String| {
            let id = self.field(field);
            id.is_some_and(|id| known.binary_search(&id).is_err())
        };
        let missing: Vec<&String> = fields.iter().filter(is_elsewhere).take(MISSING_MAX).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let names = known.iter().take(NAMES_COMPARED_MAX);
        let names = folded(names.filter_map(|field| schema.field_name(*field)).collect());
        let suggestion = |field: &String| Suggestion {
            kind: NameKind::Field,
            name: field.clone(),
            did_you_mean: alike(&names, field),
        };
        missing.into_iter().map(suggestion).collect()
    }
}

/// Returns a list of measurements that includes the measurement of every matching timeline. Returns `None` if the
/// condition does not list measurements, for example because it excludes measurements or tests a prefix.
fn required_measurements<'a>(condition: &'a Condition) -> Option<Vec<&'a str>> {
    match condition {
        Condition::All | Condition::Saved(_) | Condition::Not(_) => None,
        Condition::And(inner) => inner.iter().find_map(required_measurements),
        Condition::Or(inner) => {
            let all: Option<Vec<Vec<&'a str>>> = inner.iter().map(required_measurements).collect();
            all.map(|all| all.concat()).filter(|all| !all.is_empty())
        }
        Condition::Leaf { subject, test } => {
            let values = match (subject, test) {
                (Subject::Measurement, Test::Equals(Equals(value))) => std::slice::from_ref(value),
                (Subject::Measurement, Test::In(In(values))) => values,
                _ => return None,
            };
            let text = |value: &'a Literal| match value {
                Literal::Text(name) => Some(name.as_str()),
                _ => None,
            };
            Some(values.iter().filter_map(text).collect())
        }
    }
}

fn alike(known: &[(String, String)], name: &str) -> Vec<String> {
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let given = name.to_lowercase();
    let likeness = |(folded, known): &(String, String)| (strsim::jaro_winkler(&given, folded), known.clone());
    let mut alike: Vec<(f64, String)> = known.iter().map(likeness).collect();
    alike.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    alike.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
    alike
        .into_iter()
        .take(SUGGESTED_MAX)
        .map(|(_, name)| name)
        .collect()
}
