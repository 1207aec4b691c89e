//! Facets: counts of the timelines that match a condition, grouped by the values of up to four keys.
//!
//! Timelines are counted by the values of all keys at once, in one pass over the hits; the tree of groups is built
//! from those counts afterwards. Sub-groups therefore need no further pass, and memory is proportional to the number
//! of value combinations, which is limited.

use std::cmp::{Ordering, Reverse};
use std::collections::hash_map::Entry as Slot;
use std::collections::{BinaryHeap, HashMap};

use tideline_condition::{Condition, Subject};
use tideline_model::Ordinal;
use tideline_timeline_catalog::{AttributeRef, AttributeValue, Catalog, CatalogReader, Entry, NameRef};

use crate::error::limit;
use crate::record::SeenLookup;
use crate::{Result, SearchError, SearchIndex};

/// Maximum number of keys of a request: the maximum depth of the result tree.
pub const FACET_KEYS_MAX: usize = 4;
/// Maximum number of groups in one [`Facets`].
pub const FACET_GROUPS_MAX: usize = 10_000;
/// Maximum number of value combinations that are counted.
pub const FACET_COMBINATIONS_MAX: usize = 1_000_000;
/// Maximum number of groups of a result, on all levels together.
pub const FACET_ANSWER_MAX: usize = 100_000;
/// Number of timelines that are counted under one lock of the catalog.
const COUNT_GROUP: usize = 4_096;
/// Number that every [`Values`] assigns to the missing value.
const MISSING: u32 = 0;

/// Condition and keys of a facet request.
#[derive(Debug, Clone)]
pub struct FacetRequest {
    /// Condition on the timelines.
    pub condition: Condition,
    /// Keys to group by, 1 to [`FACET_KEYS_MAX`]: measurement, source, tags or attributes.
    pub by: Vec<Subject>,
    /// Maximum number of groups in each [`Facets`] of the result, 1 to [`FACET_GROUPS_MAX`].
    pub limit: usize,
    /// Order of the groups.
    pub order: FacetOrder,
}

/// Order of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FacetOrder {
    /// Most timelines first; ties by value.
    #[default]
    Count,
    /// By value: missing, texts by bytes, numbers, booleans, times, points, lists.
    Value,
}

/// Counts of one level of the result tree.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facets {
    /// Number of timelines in all groups, including those beyond the limit.
    pub timelines: u64,
    /// Number of groups, including those beyond the limit.
    pub distinct: u64,
    /// Groups in order, up to the limit.
    pub groups: Vec<FacetGroup>,
}

/// Group of the timelines with one value.
#[derive(Debug, Clone, PartialEq)]
pub struct FacetGroup {
    /// Value; `None` for the timelines without a value.
    pub value: Option<AttributeValue>,
    /// Counts by the next key; on the last level only the number of timelines.
    pub within: Facets,
}

impl SearchIndex {
    /// Counts the timelines that match a condition, grouped by the values of the keys.
    ///
    /// Costs a search, plus a value lookup and a hash lookup per hit and key. A count of all timelines by one tag or
    /// by the measurement is taken from the catalog and only iterates over the distinct values.
    ///
    /// # Errors
    ///
    /// [`SearchError::OverLimit`] for too many keys, groups or combinations, [`SearchError::EmptyFacet`] without a key
    /// or with a limit of 0, [`SearchError::Uncounted`] for a subject that cannot be counted; otherwise the errors of
    /// [`search`](Self::search).
    pub fn facets(&self, catalog: &Catalog, request: &FacetRequest, seen: &dyn SeenLookup) -> Result<Facets> {
        check(request)?;
        if let Some(facets) = of_all(&catalog.reader(), request) {
            return Ok(facets);
        }
        let hits = self.search(catalog, &request.condition, seen)?;
        let mut count = Count::new(&request.by);
        let mut rest = hits.iter().map(Ordinal);
        loop {
            let mut group = rest.by_ref().take(COUNT_GROUP).peekable();
            if group.peek().is_none() {
                break;
            }
            if seen.is_stopped() {
                return Err(SearchError::Stopped);
            }
            let reader = catalog.reader();
            for entry in group.filter_map(|ordinal| reader.entry(ordinal)) {
                count.take(&entry)?;
            }
        }
        count.tree(request)
    }
}

/// Returns the counts of all timelines by one tag or the measurement, which the catalog maintains; `None` for any
/// other request.
fn of_all(reader: &CatalogReader<'_>, request: &FacetRequest) -> Option<Facets> {
    let (Condition::All, [subject]) = (&request.condition, request.by.as_slice()) else {
        return None;
    };
    let timelines = reader.visible().len();
    let mut best = Best {
        request,
        distinct: 0,
        counted: 0,
        kept: BinaryHeap::new(),
    };
    match subject {
        Subject::Measurement => reader
            .measurement_counts()
            .for_each(|(name, count)| best.offer(name, count.into())),
        Subject::Tag(key) => reader
            .tag_counts(key)
            .for_each(|(value, count)| best.offer(value, count.into())),
        _ => return None,
    }
    if best.counted < timelines {
        best.offer_missing(timelines - best.counted);
    }
    let groups = best.kept.into_sorted_vec().into_iter().map(|group| FacetGroup {
        value: group
            .value
            .map(|value| AttributeValue::Text(value.text().to_owned())),
        within: Facets {
            timelines: group.timelines,
            ..Facets::default()
        },
    });
    Some(Facets {
        timelines,
        distinct: best.distinct,
        groups: groups.collect(),
    })
}

/// Collector of the groups up to the limit. Values are offered in ascending order, so that no texts are compared.
struct Best<'a> {
    request: &'a FacetRequest,
    distinct: u64,
    counted: u64,
    /// Max-heap: the last kept group is on top.
    kept: BinaryHeap<Ranked<'a>>,
}

/// Group and its rank. Groups are ranked by descending number of timelines if the order is by count, then in the order
/// in which they are offered.
struct Ranked<'a> {
    rank: (Reverse<u64>, u64),
    value: Option<NameRef<'a>>,
    timelines: u64,
}

impl<'a> Best<'a> {
    fn offer(&mut self, value: NameRef<'a>, timelines: u64) {
        self.distinct += 1;
        self.rank(self.distinct, Some(value), timelines);
    }

    /// Offers the timelines without a value. Their group is ranked before all groups with the same count, or
    /// before all groups if the order is by value.
    fn offer_missing(&mut self, timelines: u64) {
        self.distinct += 1;
        self.rank(0, None, timelines);
    }

    fn rank(&mut self, order: u64, value: Option<NameRef<'a>>, timelines: u64) {
        self.counted += timelines;
        let by = match self.request.order {
            FacetOrder::Count => timelines,
            FacetOrder::Value => 0,
        };
        let group = Ranked {
            rank: (Reverse(by), order),
            value,
            timelines,
        };
        if self.kept.len() < self.request.limit {
            self.kept.push(group);
        } else if let Some(mut last) = self.kept.peek_mut()
            && group < *last
        {
            *last = group;
        }
    }
}

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked<'_> {}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

fn check(request: &FacetRequest) -> Result<()> {
    limit("number of facet keys", FACET_KEYS_MAX, request.by.len())?;
    limit("groups of a facet", FACET_GROUPS_MAX, request.limit)?;
    if request.by.is_empty() || request.limit == 0 {
        return Err(SearchError::EmptyFacet);
    }
    let is_counted = |subject: &&Subject| {
        !matches!(
            subject,
            Subject::Any
                | Subject::Id
                | Subject::FirstSeen
                | Subject::LastSeen
                | Subject::Field(_)
                | Subject::Column(_)
        )
    };
    match request.by.iter().find(|subject| !is_counted(subject)) {
        None => Ok(()),
        Some(subject) => Err(SearchError::Uncounted(subject.describe())),
    }
}

/// Value numbers of all keys of one timeline; positions beyond the keys are zero.
type Combination = [u32; FACET_KEYS_MAX];

/// Counter of value combinations.
struct Count<'a> {
    by: &'a [Subject],
    values: Vec<Values>,
    combinations: HashMap<Combination, u64>,
}

/// Values of one key, numbered in the order of their first occurrence.
struct Values {
    texts: HashMap<String, u32>,
    /// Values other than texts, by their encoded bytes.
    others: HashMap<Vec<u8>, u32>,
    /// Values by number; the first is the missing value.
    all: Vec<Option<AttributeValue>>,
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
            *number = values.number_of(subject, entry);
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
            what: "number of groups in a facet result",
            limit: FACET_ANSWER_MAX,
            actual: FACET_ANSWER_MAX + 1,
        })
    }
}

/// Timelines with the same value of a key.
struct Alike<'a> {
    value: u32,
    timelines: u64,
    counts: &'a [(Combination, u64)],
}

/// Builds the groups by the key at `depth`. `counts` are sorted and have equal values for all previous keys. Returns
/// `None` if the tree has more than `left` groups.
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
    let order = |one: &Alike<'_>, other: &Alike<'_>| {
        let values = || compare(of_key.get(one.value), of_key.get(other.value));
        match request.order {
            FacetOrder::Count => other.timelines.cmp(&one.timelines).then_with(values),
            FacetOrder::Value => values(),
        }
    };
    if groups.len() > request.limit {
        groups.select_nth_unstable_by(request.limit, order);
        groups.truncate(request.limit);
    }
    groups.sort_unstable_by(order);
    *left = left.checked_sub(groups.len())?;
    let groups = groups.into_iter().map(|alike| {
        Some(FacetGroup {
            value: of_key.get(alike.value).clone(),
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
            others: HashMap::new(),
            all: vec![None],
        }
    }

    fn get(&self, number: u32) -> &Option<AttributeValue> {
        &self.all[number as usize]
    }

    fn number_of(&mut self, subject: &Subject, entry: &Entry<'_>) -> u32 {
        match subject {
            Subject::Measurement => self.number_of_text(entry.measurement()),
            Subject::Source => entry
                .source()
                .map_or(MISSING, |source| self.number_of_text(source)),
            Subject::Tag(key) => entry.tag(key).map_or(MISSING, |value| self.number_of_text(value)),
            Subject::Attribute(key) => match entry.attribute(key) {
                Some(AttributeRef::Text(text)) => self.number_of_text(text),
                Some(other) => self.number_of_other(other),
                None => MISSING,
            },
            Subject::Any
            | Subject::Id
            | Subject::FirstSeen
            | Subject::LastSeen
            | Subject::Field(_)
            | Subject::Column(_) => MISSING,
        }
    }

    fn number_of_text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.next();
        self.texts.insert(text.to_owned(), number);
        self.all.push(Some(AttributeValue::Text(text.to_owned())));
        number
    }

    fn number_of_other(&mut self, value: AttributeRef<'_>) -> u32 {
        let bytes = value.to_bytes();
        if let Some(number) = self.others.get(&bytes) {
            return *number;
        }
        let number = self.next();
        self.others.insert(bytes, number);
        self.all.push(Some(value.to_value()));
        number
    }

    fn next(&self) -> u32 {
        u32::try_from(self.all.len()).expect("a table has fewer than 2³² timelines")
    }
}

/// Compares values: missing first, then by type, then by value.
fn compare(one: &Option<AttributeValue>, other: &Option<AttributeValue>) -> Ordering {
    use AttributeValue as Value;
    match (one, other) {
        (Some(Value::Text(a)), Some(Value::Text(b))) => a.cmp(b),
        (Some(Value::Number(a)), Some(Value::Number(b))) => a.total_cmp(b),
        (Some(Value::Boolean(a)), Some(Value::Boolean(b))) => a.cmp(b),
        (Some(Value::Time(a)), Some(Value::Time(b))) => a.cmp(b),
        (Some(Value::Point(a)), Some(Value::Point(b))) => {
            let latitudes = a.latitude().total_cmp(&b.latitude());
            latitudes.then(a.longitude().total_cmp(&b.longitude()))
        }
        (Some(Value::Texts(a)), Some(Value::Texts(b))) => a.cmp(b),
        (Some(Value::Numbers(a)), Some(Value::Numbers(b))) => {
            let pairs = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
            pairs
                .fold(Ordering::Equal, Ordering::then)
                .then(a.len().cmp(&b.len()))
        }
        (one, other) => {
            let kind = |value: &Option<AttributeValue>| value.as_ref().map(AttributeValue::kind);
            kind(one).cmp(&kind(other))
        }
    }
}
