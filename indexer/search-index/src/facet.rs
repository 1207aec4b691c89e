//! Facets: how many of the timelines that meet a condition have which values, and within each value which others.
//!
//! Timelines are counted by the values of all keys at once, in one pass over the hits; the tree is made of those counts
//! afterwards. So sub-groups cost no further pass, and memory depends on how many combinations there are, which is
//! limited.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use tideline_model::Ordinal;
use tideline_timeline_catalog::{AttributeValue, Catalog, Entry};

use crate::find::{SortValue, value};
use crate::matcher::{SeenLookup, limit, name_of};
use crate::{Condition, Result, SearchError, SearchIndex, Subject};

/// Most keys of a request, which is the depth of its tree.
pub const FACET_KEYS_MAX: usize = 4;
/// Most groups of each level.
pub const FACET_GROUPS_MAX: usize = 10_000;
/// Most combinations of values that are counted.
pub const FACET_COMBINATIONS_MAX: usize = 1_000_000;
/// Most groups of an answer, on all levels together.
pub const FACET_ANSWER_MAX: usize = 100_000;
/// Timelines that are counted under one lock of the catalog.
const COUNT_GROUP: usize = 4_096;
/// The number of the value that is missing, in all [`Values`].
const MISSING: u32 = 0;

/// Which timelines are counted, by which keys.
#[derive(Debug, Clone)]
pub struct FacetRequest {
    /// Which timelines.
    pub condition: Condition,
    /// What they are counted by, 1 to [`FACET_KEYS_MAX`]: measurement, source, tags or attributes.
    pub by: Vec<Subject>,
    /// Most groups of each level, 1 to [`FACET_GROUPS_MAX`].
    pub limit: usize,
    /// Which groups come first.
    pub order: FacetOrder,
}

/// The order of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FacetOrder {
    /// Most timelines first; equal ones by value.
    #[default]
    Count,
    /// By value: missing, booleans, numbers, texts by bytes.
    Value,
}

/// The counts of one level.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facets {
    /// Timelines in all groups, also in those beyond the limit.
    pub timelines: u64,
    /// How many groups there are, also beyond the limit.
    pub distinct: u64,
    /// The groups, in order, up to the limit.
    pub groups: Vec<FacetGroup>,
}

/// The timelines with one value.
#[derive(Debug, Clone, PartialEq)]
pub struct FacetGroup {
    /// The value; `None` where timelines have none.
    pub value: Option<AttributeValue>,
    /// What is within, by the next key; on the last level only its count of timelines.
    pub within: Facets,
}

impl SearchIndex {
    /// Counts the timelines that meet a condition, by the values of some keys.
    ///
    /// Costs a search, and about 0.2 µs a hit and key.
    pub fn facets(&self, catalog: &Catalog, request: &FacetRequest, seen: &dyn SeenLookup) -> Result<Facets> {
        check(request)?;
        let hits = self.search(catalog, &request.condition, seen)?;
        let mut count = Count::new(&request.by);
        let mut rest = hits.iter().map(Ordinal);
        loop {
            let mut group = rest.by_ref().take(COUNT_GROUP).peekable();
            if group.peek().is_none() {
                break;
            }
            let reader = catalog.reader();
            for entry in group.filter_map(|ordinal| reader.entry(ordinal)) {
                count.take(&entry)?;
            }
        }
        count.tree(request)
    }
}

fn check(request: &FacetRequest) -> Result<()> {
    limit("number of facet keys", FACET_KEYS_MAX, request.by.len())?;
    limit("groups of a facet", FACET_GROUPS_MAX, request.limit)?;
    if request.by.is_empty() || request.limit == 0 {
        return Err(SearchError::EmptyFacet);
    }
    let is_counted =
        |subject: &&Subject| !matches!(subject, Subject::Id | Subject::FirstSeen | Subject::LastSeen);
    match request.by.iter().find(|subject| !is_counted(subject)) {
        None => Ok(()),
        Some(subject) => Err(SearchError::Unsupported {
            test: "a count of values",
            subject: name_of(subject),
        }),
    }
}

/// The numbers of the values of all keys of one timeline; what is beyond the keys is zero.
type Combination = [u32; FACET_KEYS_MAX];

/// Timelines while they are counted.
struct Count<'a> {
    by: &'a [Subject],
    values: Vec<Values>,
    combinations: HashMap<Combination, u64>,
}

/// The values of one key, numbered as they are met.
struct Values {
    texts: HashMap<String, u32>,
    /// By the bits of the double; both zeros are one.
    numbers: HashMap<u64, u32>,
    booleans: HashMap<bool, u32>,
    /// By their numbers; the first is the missing one.
    all: Vec<SortValue<String>>,
}

impl<'a> Count<'a> {
    fn new(by: &'a [Subject]) -> Self {
        Self {
            by,
            values: by.iter().map(|_| Values::new()).collect(),
            combinations: HashMap::new(),
        }
    }

    fn take(&mut self, entry: &Entry<'_>) -> Result<()> {
        let mut combination = [MISSING; FACET_KEYS_MAX];
        for ((number, subject), values) in combination.iter_mut().zip(self.by).zip(&mut self.values) {
            *number = values.number_of(value(subject, entry, None));
        }
        let actual = self.combinations.len() + 1;
        match self.combinations.entry(combination) {
            Slot::Occupied(mut count) => *count.get_mut() += 1,
            Slot::Vacant(_) if actual > FACET_COMBINATIONS_MAX => {
                return Err(SearchError::OverLimit {
                    what: "number of groups and sub-groups of a facet",
                    limit: FACET_COMBINATIONS_MAX,
                    actual,
                });
            }
            Slot::Vacant(count) => {
                count.insert(1);
            }
        }
        Ok(())
    }

    fn tree(self, request: &FacetRequest) -> Result<Facets> {
        let mut counts: Vec<(Combination, u64)> = self.combinations.into_iter().collect();
        counts.sort_unstable();
        let mut left = FACET_ANSWER_MAX;
        let tree = level(&self.values, &counts, 0, request, &mut left);
        tree.ok_or(SearchError::OverLimit {
            what: "number of groups of an answer, on all levels together,",
            limit: FACET_ANSWER_MAX,
            actual: FACET_ANSWER_MAX + 1,
        })
    }
}

/// The timelines with one value of a key.
struct Alike<'a> {
    value: u32,
    timelines: u64,
    counts: &'a [(Combination, u64)],
}

/// The groups of sorted counts that are alike in the keys before `depth`; `None` where they are more than `left`.
fn level(
    values: &[Values],
    counts: &[(Combination, u64)],
    depth: usize,
    request: &FacetRequest,
    left: &mut usize,
) -> Option<Facets> {
    let timelines = counts.iter().map(|(_, count)| count).sum();
    let Some(of_key) = values.get(depth) else {
        return Some(Facets {
            timelines,
            ..Facets::default()
        });
    };
    let by_value = counts.chunk_by(|(one, _), (other, _)| one[depth] == other[depth]);
    let mut groups: Vec<Alike<'_>> = by_value
        .map(|counts| Alike {
            value: counts[0].0[depth],
            timelines: counts.iter().map(|(_, count)| count).sum(),
            counts,
        })
        .collect();
    let distinct = groups.len() as u64;
    groups.sort_by(|one, other| {
        let values = of_key.get(one.value).compare(of_key.get(other.value));
        match request.order {
            FacetOrder::Count => other.timelines.cmp(&one.timelines).then(values),
            FacetOrder::Value => values,
        }
    });
    groups.truncate(request.limit);
    *left = left.checked_sub(groups.len())?;
    let groups = groups.into_iter().map(|alike| {
        Some(FacetGroup {
            value: of_key.get(alike.value).as_attribute(),
            within: level(values, alike.counts, depth + 1, request, left)?,
        })
    });
    Some(Facets {
        timelines,
        distinct,
        groups: groups.collect::<Option<_>>()?,
    })
}

impl Values {
    fn new() -> Self {
        Self {
            texts: HashMap::new(),
            numbers: HashMap::new(),
            booleans: HashMap::new(),
            all: vec![SortValue::Missing],
        }
    }

    fn get(&self, number: u32) -> &SortValue<String> {
        &self.all[number as usize]
    }

    fn number_of(&mut self, value: SortValue<&str>) -> u32 {
        let next = u32::try_from(self.all.len()).expect("a table has fewer than 2³² timelines");
        let number = match value {
            SortValue::Text(text) => match self.texts.get(text) {
                Some(number) => *number,
                None => *self.texts.entry(text.to_owned()).or_insert(next),
            },
            SortValue::Number(number) => {
                let bits = if number == 0.0 { 0 } else { number.to_bits() };
                *self.numbers.entry(bits).or_insert(next)
            }
            SortValue::Boolean(boolean) => *self.booleans.entry(boolean).or_insert(next),
            SortValue::Missing | SortValue::Time(_) | SortValue::Id(_) => MISSING,
        };
        if number == next {
            self.all.push(value.into_owned());
        }
        number
    }
}

impl SortValue<String> {
    /// The value of a tag, an attribute, the measurement or the source; `None` for the missing one.
    fn as_attribute(&self) -> Option<AttributeValue> {
        match self {
            Self::Text(text) => Some(AttributeValue::Text(text.clone())),
            // Both zeros are one, which is shown as the positive one.
            Self::Number(number) => Some(AttributeValue::Number(number + 0.0)),
            Self::Boolean(boolean) => Some(AttributeValue::Boolean(*boolean)),
            Self::Missing | Self::Time(_) | Self::Id(_) => None,
        }
    }
}
