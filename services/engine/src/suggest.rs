//! "Did you mean": names in a condition that a table does not have, and those that it has and that look like them.

use std::collections::{BTreeMap, BTreeSet};

use tideline_search_index::{Condition, Subject, Test};
use tideline_timeline_catalog::{AttributeValue, Catalog, CatalogReader, NameSelection};

use crate::tables::Table;

/// Most names that one is compared with.
const NAMES_COMPARED_MAX: usize = 10_000;
/// Most missing names of a condition that others are suggested for.
const MISSING_MAX: usize = 16;
/// Longest name that is compared, in bytes: a comparison takes as many steps as the product of two lengths.
const NAME_BYTES_MAX: usize = 256;
/// Most names that are suggested for one.
const SUGGESTED_MAX: usize = 3;
/// How much two names must be alike, from 0 to 1 (Jaro-Winkler): a letter or two wrong in a short one.
const LIKENESS_MIN: f64 = 0.8;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A measurement.
    Measurement,
    /// A tag key.
    Tag,
    /// An attribute key.
    Attribute,
}

/// A name that a table does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What it is of.
    pub kind: NameKind,
    /// The name that was given.
    pub name: String,
    /// Names that the table has, the most alike first; may be empty.
    pub did_you_mean: Vec<String>,
}

/// The names of a condition and of other subjects that no timeline of the table has, the first of them.
///
/// Costs a look-up a name, and for each that is missing a comparison with the names of its kind.
pub(crate) fn suggestions(catalog: &Catalog, condition: &Condition, others: &[Subject]) -> Vec<Suggestion> {
    let mut names = BTreeSet::new();
    gather(condition, &mut names);
    names.extend(others.iter().filter_map(of_subject));
    let missing: Vec<(NameKind, String)> = {
        let reader = catalog.reader();
        let missing = names
            .into_iter()
            .filter(|(kind, name)| !exists(&reader, *kind, name));
        missing.take(MISSING_MAX).collect()
    };
    let mut known = BTreeMap::new();
    let suggestion = |(kind, name): (NameKind, String)| {
        // The catalog is locked while names are read, and not while they are compared.
        let known = known
            .entry(kind)
            .or_insert_with(|| names_of(&catalog.reader(), kind));
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
        Condition::All => {}
        Condition::And(inner) | Condition::Or(inner) => inner.iter().for_each(|inner| gather(inner, names)),
        Condition::Not(inner) => gather(inner, names),
        Condition::Leaf {
            subject: Subject::Measurement,
            test,
        } => {
            let values = match test {
                Test::Equals(value) | Test::NotEquals(value) => std::slice::from_ref(value),
                Test::In(values) => values,
                _ => &[],
            };
            for value in values {
                if let AttributeValue::Text(name) = value {
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
        NameKind::Measurement => reader.has_measurement(name),
        NameKind::Tag => reader.has_tag_key(name),
        NameKind::Attribute => reader.has_attribute_key(name),
    }
}

/// The names of a kind, each also in lower case.
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
    };
    folded(known)
}

fn folded(names: Vec<String>) -> Vec<(String, String)> {
    let short = names.into_iter().filter(|name| name.len() <= NAME_BYTES_MAX);
    short.map(|name| (name.to_lowercase(), name)).collect()
}

impl Table {
    /// Fields that the table has and that look like `name`, the most alike first; at most three.
    pub fn fields_like(&self, name: &str) -> Vec<String> {
        let fields = self.points().schema().fields();
        let mut names: Vec<String> = fields.into_iter().map(|field| field.field).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_COMPARED_MAX);
        alike(&folded(names), name)
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
