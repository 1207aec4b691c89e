//! Counts and metrics of the rows that a search finds, grouped by up to four keys.
//!
//! The rows of each segment are counted by codes: ordinals in the dictionary for texts, bits for numbers. The codes are
//! then resolved to values, and the counts are added up over the segments. A row with several values of a key is
//! counted in the group of each value, but only once in the parent group. Each level is therefore counted separately.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use roaring::RoaringBitmap;
use tantivy::SegmentReader;
use tantivy::columnar::{Cardinality, Column, MonotonicallyMappableToU64, StrColumn};
use tideline_condition::{Node, ValueRef};
use tideline_model::{GeoPoint, LogLinearHistogram};

use super::expiry::CellExpiry;
use super::geo::GeoColumn;
use super::page::SortValue;
use super::schema::ColumnFields;
use super::{RowForm, RowIndex, RowIndexError, RowsShown};
use crate::SearchError;
use crate::error::limit;

/// Maximum number of keys.
pub const FACET_KEYS_MAX: usize = 4;
/// Maximum number of groups in one list.
pub const FACET_GROUPS_MAX: usize = 10_000;
/// Maximum number of groups on all levels that are counted.
const FACET_COUNTED_MAX: usize = 1_000_000;
/// Maximum number of sketches for percentiles: groups on all levels, times the metrics with percentiles.
const FACET_SKETCHES_MAX: usize = 20_000;
/// Maximum number of buckets of all sketches, at 20 to 40 bytes each. Values that differ by a factor of 1,000 take up to
/// 640 buckets of a sketch.
const FACET_BUCKETS_MAX: usize = 16_000_000;
/// Maximum number of groups of a result.
const FACET_ANSWER_MAX: usize = 100_000;
/// Maximum number of texts of a segment that are counted in an array.
const COUNTED_TEXTS_MAX: usize = 1 << 22;
/// Number of rows, groups and values that are counted between two checks of the stop signal and of the limits.
const COUNTED_BETWEEN_CHECKS: usize = 1 << 13;

/// Histogram of the values of a group. With six bits, half the width of a bucket is less than 0.8 % of its values.
type Sketch = LogLinearHistogram<6>;

/// Request for counts of rows.
pub struct RowFacetQuery<'q> {
    /// Compiled condition; [`RowIndex::check`] has accepted it.
    pub root: &'q Node,
    /// Keys to group by, at most [`FACET_KEYS_MAX`].
    pub by: &'q [RowFacetKey],
    /// Columns whose values are aggregated.
    pub metrics: &'q [RowMetric],
    /// Maximum number of groups in one list, 1 to [`FACET_GROUPS_MAX`].
    pub limit: usize,
    /// True to order groups by value; otherwise groups with the most rows come first.
    pub is_by_value: bool,
    /// Returns true if the count should stop. Once true, it must stay true.
    pub is_stopped: &'q dyn Fn() -> bool,
}

/// Key to group by. Columns are indexes in the list of indexed columns.
#[derive(Debug, Clone, PartialEq)]
pub enum RowFacetKey {
    /// Values of a keyword, number, time or boolean.
    Value(usize),
    /// Intervals of an integer or a time, with this width. The value of a group is the start of its interval, a
    /// multiple of the width.
    Interval(usize, i64),
    /// Windows of a time. The value of a group is the start of its window.
    Windows(usize, RowWindows),
    /// Intervals of a double, with this width.
    FloatInterval(usize, f64),
    /// Rings around a point, with radii in meters in increasing order. A row belongs to the group of the first radius
    /// that is at least the distance to the nearest geo point of the row. The value of the group is the index of this
    /// radius, or the number of radii if the distance exceeds all radii.
    Rings(usize, GeoPoint, Vec<f64>),
    /// Cells with this width and height in degrees. The value of a group identifies its cell: the upper 32 bits hold
    /// the row, counted from the south pole, and the lower 32 bits the column, counted from 180° west.
    Grid(usize, f64),
}

/// Windows of times of unequal length, such as the months of a time zone.
#[derive(Clone)]
pub struct RowWindows(Arc<dyn Fn(i64) -> (i64, i64) + Send + Sync>);

impl RowWindows {
    /// Creates windows from a function that returns the start and the exclusive end of the window with a time, in
    /// nanoseconds since the epoch. The function is called at least once per window and segment.
    pub fn new(bounds: impl Fn(i64) -> (i64, i64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(bounds))
    }
}

impl std::fmt::Debug for RowWindows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWindows").finish_non_exhaustive()
    }
}

/// Clones of the same windows are equal.
impl PartialEq for RowWindows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Column whose values are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowMetric {
    /// Index of the column, which is a number or a time.
    pub column: usize,
    /// True if percentiles are needed.
    pub has_percentiles: bool,
}

/// Counts of one level.
#[derive(Debug, Clone, Default)]
pub struct RowFacets {
    /// Number of rows.
    pub rows: u64,
    /// Aggregates of the values of the rows, in the order of the metrics.
    pub metrics: Vec<RowSums>,
    /// Number of groups, including those beyond the limit.
    pub distinct: u64,
    /// Groups in order, up to the limit.
    pub groups: Vec<(SortValue, RowFacets)>,
}

/// Aggregates of the values of a column: count, sum, extremes and, if requested, percentiles.
#[derive(Clone, Default)]
pub struct RowSums {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
    /// Lowest value, as bits that [`RowForm::decoded`] converts; `None` without values.
    pub min: Option<u64>,
    /// Highest value.
    pub max: Option<u64>,
    sketch: Option<Box<Sketch>>,
}

impl std::fmt::Debug for RowSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowSums")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .finish_non_exhaustive()
    }
}

impl RowSums {
    fn of(metric: RowMetric) -> Self {
        Self {
            sketch: metric.has_percentiles.then(Box::default),
            ..Self::default()
        }
    }

    /// Adds a value. Returns the number of new buckets of the sketch.
    fn add(&mut self, bits: u64, value: f64) -> usize {
        self.count += 1;
        self.sum += value;
        self.min = Some(self.min.map_or(bits, |min| min.min(bits)));
        self.max = Some(self.max.map_or(bits, |max| max.max(bits)));
        self.sketch.as_mut().map_or(0, |sketch| sketch.add(value))
    }

    /// Adds the values of other aggregates. Returns the number of new buckets of the sketch.
    fn merge(&mut self, other: &Self) -> usize {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.into_iter().chain(other.max).max();
        match (&mut self.sketch, &other.sketch) {
            (Some(sketch), Some(other)) => sketch.merge(other),
            _ => 0,
        }
    }

    /// Returns a percentile, 0 to 100, with a relative error of at most 1 %; `None` without values, or if the metric
    /// was requested without percentiles. NaN is not counted, and numbers closer to 0 than [`f64::MIN_POSITIVE`] count
    /// as 0.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let ranked = self.sketch.as_ref()?.ranked()?;
        let rank = ((percent / 100.0) * ranked.last() as f64) as u64;
        Some(ranked.at(rank))
    }
}

impl RowForm {
    /// Converts the bits of a value of this form. Returns [`ValueRef::Opaque`] for forms whose values have no bits.
    pub fn decoded(self, bits: u64) -> ValueRef<'static> {
        match self {
            Self::Signed => ValueRef::Signed(i64::from_u64(bits)),
            Self::Unsigned => ValueRef::Unsigned(bits),
            Self::Float => ValueRef::Float(f64::from_u64(bits)),
            Self::Boolean => ValueRef::Boolean(bits != 0),
            Self::Keyword | Self::Text(_) | Self::Geo => ValueRef::Opaque,
        }
    }
}

/// Number of rows of a group, and the aggregates of their values.
#[derive(Debug, Clone, Default)]
struct Counted {
    rows: u64,
    sums: Vec<RowSums>,
}

impl Counted {
    /// Adds other rows. Returns the number of new buckets of the sketches.
    fn merge(&mut self, other: &Self) -> usize {
        self.rows += other.rows;
        let sums = self.sums.iter_mut().zip(&other.sums);
        sums.map(|(sums, other)| sums.merge(other)).sum()
    }
}

/// Code of a value within a segment; `None` for a missing value.
type Code = Option<u64>;
/// Codes of the keys of a group; the codes of deeper levels are `None`.
type Codes = [Code; FACET_KEYS_MAX];

impl RowIndex {
    /// Counts the rows that match a condition, as of the last commit.
    ///
    /// # Errors
    ///
    /// [`SearchError::OverLimit`] for too many keys or groups, [`SearchError::EmptyFacet`] for a limit of 0,
    /// [`SearchError::Stopped`] if the count was stopped, and [`SearchError::Rows`] if the index cannot be read and
    /// must be built again.
    pub fn facets(&self, query: &RowFacetQuery<'_>, shown: RowsShown<'_>) -> crate::Result<RowFacets> {
        limit("number of keys", FACET_KEYS_MAX, query.by.len())?;
        limit("number of groups in a list", FACET_GROUPS_MAX, query.limit)?;
        if query.limit == 0 {
            return Err(SearchError::EmptyFacet);
        }
        let empty = Counted {
            rows: 0,
            sums: query.metrics.iter().copied().map(RowSums::of).collect(),
        };
        let mut all = empty.clone();
        // Groups of each level by the values of their keys.
        let mut levels: Vec<HashMap<Vec<SortValue>, Counted>> = vec![HashMap::new(); query.by.len()];
        let mut buckets = 0;
        let searchers = self.searchers(shown.shards);
        for found in self.each_segment(&searchers, query.root, shown, query.is_stopped) {
            let (reader, found) = found?;
            let columns = &self.fields.columns;
            let mut count = Count::new(reader, columns, query, shown, &empty).map_err(RowIndexError)?;
            count.take(&found)?;
            buckets += all.merge(&count.all);
            let values = count.values().map_err(RowIndexError)?;
            for (number, level) in count.levels.iter().enumerate() {
                for (codes, counted) in level {
                    let of_code = |(values, code): (&HashMap<Code, SortValue>, &Code)| {
                        values.get(code).cloned().unwrap_or(SortValue::Missing)
                    };
                    let values = values[..=number].iter().zip(codes).map(of_code).collect();
                    let merged = levels[number].entry(values);
                    buckets += merged.or_insert_with(|| empty.clone()).merge(counted);
                }
            }
            check_count(query, levels.iter().map(HashMap::len).sum())?;
            check_buckets(buckets)?;
        }
        Tree::new(query, levels).facets(all, &[])
    }
}

/// Returns an error if more groups are counted than the memory of a request allows.
fn check_count(query: &RowFacetQuery<'_>, groups: usize) -> crate::Result<()> {
    let sketches = query.metrics.iter().filter(|metric| metric.has_percentiles);
    limit(
        "number of groups times columns with percentiles",
        FACET_SKETCHES_MAX,
        groups.saturating_mul(sketches.count()),
    )?;
    limit("number of counted groups", FACET_COUNTED_MAX, groups)
}

/// Returns an error if the sketches have more buckets than the memory of a request allows.
fn check_buckets(buckets: usize) -> crate::Result<()> {
    limit(
        "number of buckets of values for percentiles",
        FACET_BUCKETS_MAX,
        buckets,
    )
}

/// Count of the rows of a segment.
struct Count<'q> {
    query: &'q RowFacetQuery<'q>,
    empty: &'q Counted,
    keys: Vec<Key>,
    metrics: Vec<Metric>,
    all: Counted,
    levels: Vec<HashMap<Codes, Counted>>,
    /// Number of buckets of all sketches.
    buckets: usize,
}

impl<'q> Count<'q> {
    fn new(
        reader: &SegmentReader,
        columns: &[ColumnFields],
        query: &'q RowFacetQuery<'q>,
        shown: RowsShown<'_>,
        empty: &'q Counted,
    ) -> tantivy::Result<Self> {
        let keys = query.by.iter().map(|key| Key::open(reader, columns, key, shown));
        let metrics = query.metrics.iter().map(|metric| {
            let column = &columns[metric.column];
            Ok(Metric {
                values: column.bits(reader)?,
                form: column.form,
                expiry: CellExpiry::open(reader, column, shown)?,
            })
        });
        Ok(Self {
            query,
            empty,
            keys: keys.collect::<tantivy::Result<_>>()?,
            metrics: metrics.collect::<tantivy::Result<_>>()?,
            all: empty.clone(),
            levels: vec![HashMap::new(); query.by.len()],
            buckets: 0,
        })
    }

    fn take(&mut self, found: &RoaringBitmap) -> crate::Result<()> {
        if self.metrics.is_empty()
            && let [
                Key {
                    values: KeyValues::Texts(texts),
                    expiry: None,
                },
            ] = self.keys.as_slice()
            && texts.num_terms() <= COUNTED_TEXTS_MAX
            && texts.ords().get_cardinality() != Cardinality::Multivalued
        {
            let texts = texts.clone();
            self.take_texts(&texts, found);
            return Ok(());
        }
        let mut values = Vec::new();
        let mut codes = Vec::new();
        let (mut groups, mut inner) = (Vec::new(), Vec::new());
        self.check()?;
        let mut unchecked = 0;
        for document in found {
            values.clear();
            for (number, metric) in self.metrics.iter().enumerate() {
                if has_expired(metric.expiry.as_ref(), document) {
                    continue;
                }
                let of_row = metric.values.values_for_doc(document);
                values.extend(of_row.map(|bits| (number, bits, as_double(metric.form, bits))));
            }
            self.step(&mut unchecked, 1 + values.len())?;
            self.buckets += self.all.add(&values);
            groups.clear();
            groups.push(Codes::default());
            for (level, key) in self.keys.iter().enumerate() {
                codes.clear();
                key.codes(document, &mut codes);
                // One row with lists has a group for each combination of their elements, which can be billions. The
                // groups of a row are distinct, so all of them count towards the limit.
                check_count(self.query, groups.len().saturating_mul(codes.len()))?;
                inner.clear();
                for group in &groups {
                    self.step(&mut unchecked, codes.len() * (1 + values.len()))?;
                    for code in &codes {
                        let mut group: Codes = *group;
                        group[level] = *code;
                        let counted = self.levels[level].entry(group);
                        self.buckets += counted.or_insert_with(|| self.empty.clone()).add(&values);
                        inner.push(group);
                    }
                }
                std::mem::swap(&mut groups, &mut inner);
            }
        }
        Ok(())
    }

    /// Adds to the number of rows, groups and values since the last check. Checks once there are enough.
    fn step(&self, unchecked: &mut usize, counted: usize) -> crate::Result<()> {
        *unchecked += counted;
        if *unchecked < COUNTED_BETWEEN_CHECKS {
            return Ok(());
        }
        *unchecked = 0;
        self.check()
    }

    /// Returns an error if the count is stopped, or if too many groups are counted.
    fn check(&self) -> crate::Result<()> {
        if (self.query.is_stopped)() {
            return Err(SearchError::Stopped);
        }
        check_count(self.query, self.levels.iter().map(HashMap::len).sum())?;
        check_buckets(self.buckets)
    }

    /// Returns the values of the codes of each key.
    fn values(&self) -> tantivy::Result<Vec<HashMap<Code, SortValue>>> {
        let of_key = |(number, key): (usize, &Key)| {
            let level = self.levels[number].keys();
            let mut codes: Vec<u64> = level.filter_map(|codes| codes[number]).collect();
            codes.sort_unstable();
            codes.dedup();
            key.values.of(&codes)
        };
        self.keys.iter().enumerate().map(of_key).collect()
    }

    /// Counts rows with at most one text each in an array.
    fn take_texts(&mut self, texts: &StrColumn, found: &RoaringBitmap) {
        let mut counts = vec![0_u64; texts.num_terms()];
        let mut missing = 0;
        for document in found {
            match texts.ords().first(document) {
                Some(number) => counts[number as usize] += 1,
                None => missing += 1,
            }
        }
        self.all.rows = found.len();
        let numbered = (0_u64..).zip(counts).map(|(number, rows)| (Some(number), rows));
        for (code, rows) in numbered.chain([(None, missing)]).filter(|(_, rows)| *rows > 0) {
            let mut codes = Codes::default();
            codes[0] = code;
            self.levels[0].insert(
                codes,
                Counted {
                    rows,
                    sums: Vec::new(),
                },
            );
        }
    }
}

/// Values of a metric in a segment.
struct Metric {
    values: Column<u64>,
    form: RowForm,
    expiry: Option<CellExpiry>,
}

/// Key in a segment.
struct Key {
    values: KeyValues,
    expiry: Option<CellExpiry>,
}

fn has_expired(expiry: Option<&CellExpiry>, document: u32) -> bool {
    expiry.is_some_and(|expiry| expiry.has_expired(document))
}

/// Windows with the bounds that were determined so far.
struct KnownWindows {
    windows: RowWindows,
    /// End of each known window, by its start.
    known: RefCell<BTreeMap<i64, i64>>,
    /// Start and end of the last window. Neighboring rows are often in the same window.
    last: Cell<(i64, i64)>,
}

impl KnownWindows {
    fn new(windows: RowWindows) -> Self {
        Self {
            windows,
            known: RefCell::default(),
            last: Cell::new((0, 0)),
        }
    }

    fn start(&self, time: i64) -> i64 {
        let (start, end) = self.last.get();
        if (start..end).contains(&time) {
            return start;
        }
        let mut known = self.known.borrow_mut();
        let before = known
            .range(..=time)
            .next_back()
            .map(|(start, end)| (*start, *end));
        let bounds = before.filter(|(_, end)| time < *end);
        let bounds = bounds.unwrap_or_else(|| (self.windows.0)(time));
        known.insert(bounds.0, bounds.1);
        self.last.set(bounds);
        bounds.0
    }
}

/// Values of a key in a segment.
enum KeyValues {
    Texts(StrColumn),
    Bits(Column<u64>),
    Signed(Column<i64>, i64),
    Windows(Column<i64>, KnownWindows),
    Unsigned(Column<u64>, u64),
    Float(Column<f64>, f64),
    Rings(GeoColumn, GeoPoint, Vec<f64>),
    Grid(GeoColumn, f64),
    /// No row of the segment has a value.
    Nothing,
}

impl Key {
    fn open(
        reader: &SegmentReader,
        columns: &[ColumnFields],
        key: &RowFacetKey,
        shown: RowsShown<'_>,
    ) -> tantivy::Result<Self> {
        let (RowFacetKey::Value(column)
        | RowFacetKey::Interval(column, _)
        | RowFacetKey::Windows(column, _)
        | RowFacetKey::FloatInterval(column, _)
        | RowFacetKey::Rings(column, ..)
        | RowFacetKey::Grid(column, _)) = key;
        Ok(Self {
            values: KeyValues::open(reader, columns, key)?,
            expiry: CellExpiry::open(reader, &columns[*column], shown)?,
        })
    }

    /// Appends the distinct codes of a row. Appends `None` if the row has no value.
    fn codes(&self, document: u32, codes: &mut Vec<Code>) {
        if !has_expired(self.expiry.as_ref(), document) {
            self.values.codes(document, codes);
        }
        if codes.is_empty() {
            codes.push(None);
        } else if codes.len() > 1 {
            codes.sort_unstable();
            codes.dedup();
        }
    }
}

impl KeyValues {
    fn open(reader: &SegmentReader, columns: &[ColumnFields], key: &RowFacetKey) -> tantivy::Result<Self> {
        let fast = reader.fast_fields();
        Ok(match key {
            RowFacetKey::Value(column) => {
                let column = &columns[*column];
                match column.form {
                    RowForm::Keyword => fast.str(&column.name)?.map_or(Self::Nothing, Self::Texts),
                    RowForm::Text(_) | RowForm::Geo => Self::Nothing,
                    _ => Self::Bits(column.bits(reader)?),
                }
            }
            RowFacetKey::Interval(column, width) => {
                let column = &columns[*column];
                match column.form {
                    RowForm::Unsigned => Self::Unsigned(fast.u64(&column.name)?, width.unsigned_abs()),
                    _ => Self::Signed(fast.i64(&column.name)?, *width),
                }
            }
            RowFacetKey::Windows(column, windows) => Self::Windows(
                fast.i64(&columns[*column].name)?,
                KnownWindows::new(windows.clone()),
            ),
            RowFacetKey::FloatInterval(column, width) => {
                Self::Float(fast.f64(&columns[*column].name)?, *width)
            }
            RowFacetKey::Rings(column, center, radii) => {
                let column = GeoColumn::open(reader, &columns[*column])?;
                Self::Rings(column, *center, radii.clone())
            }
            RowFacetKey::Grid(column, size) => Self::Grid(GeoColumn::open(reader, &columns[*column])?, *size),
        })
    }

    /// Appends the codes of the values of a row.
    fn codes(&self, document: u32, codes: &mut Vec<Code>) {
        match self {
            Self::Texts(texts) => codes.extend(texts.term_ords(document).map(Some)),
            Self::Bits(column) => codes.extend(column.values_for_doc(document).map(Some)),
            Self::Signed(column, width) => codes.extend(column.values_for_doc(document).map(|value| {
                let start = i128::from(value).div_euclid((*width).into()) * i128::from(*width);
                let start = i64::try_from(start).unwrap_or(i64::MIN);
                Some(start.to_u64())
            })),
            Self::Windows(column, windows) => {
                let starts = column
                    .values_for_doc(document)
                    .map(|time| windows.start(time).to_u64());
                codes.extend(starts.map(Some));
            }
            Self::Unsigned(column, width) => {
                codes.extend(
                    column
                        .values_for_doc(document)
                        .map(|value| Some(value / width * width)),
                );
            }
            Self::Float(column, width) => codes.extend(column.values_for_doc(document).map(|value| {
                // Both zeros are the same number.
                Some(((value / width).floor() * width + 0.0).to_u64())
            })),
            Self::Rings(column, center, radii) => {
                codes.extend(column.nearest(document, *center).map(|nearest| {
                    let ring = radii.iter().position(|radius| nearest <= *radius);
                    Some(ring.unwrap_or(radii.len()) as u64)
                }));
            }
            Self::Grid(column, size) => codes.extend(column.points(document).map(|point| {
                let cell = |degrees: f64| (degrees / size).floor() as u64;
                Some(cell(point.latitude() + 90.0) << 32 | cell(point.longitude() + 180.0))
            })),
            Self::Nothing => {}
        }
    }

    /// Returns the values of codes, which are sorted and distinct. Texts are read in one pass over the dictionary.
    fn of(&self, codes: &[u64]) -> tantivy::Result<HashMap<Code, SortValue>> {
        let mut values = HashMap::with_capacity(codes.len() + 1);
        values.insert(None, SortValue::Missing);
        match self {
            Self::Texts(texts) => {
                let mut rest = codes.iter();
                texts.dictionary().sorted_ords_to_term_cb(codes, |text| {
                    if let Some(code) = rest.next() {
                        values.insert(Some(*code), SortValue::Text(text.to_vec()));
                    }
                })?;
            }
            _ => values.extend(codes.iter().map(|bits| (Some(*bits), SortValue::Bits(*bits)))),
        }
        Ok(values)
    }
}

impl Counted {
    /// Adds a row with its values: index of the metric, bits, and number. Returns the number of new buckets of the
    /// sketches.
    fn add(&mut self, values: &[(usize, u64, f64)]) -> usize {
        self.rows += 1;
        let sums = &mut self.sums;
        let added = values
            .iter()
            .map(|(metric, bits, value)| sums[*metric].add(*bits, *value));
        added.sum()
    }
}

fn as_double(form: RowForm, bits: u64) -> f64 {
    match form.decoded(bits) {
        ValueRef::Signed(number) => number as f64,
        ValueRef::Unsigned(number) => number as f64,
        ValueRef::Float(number) => number,
        _ => 0.0,
    }
}

/// Groups of a level by the values of the keys above them.
type Groups = HashMap<Vec<SortValue>, Vec<(SortValue, Counted)>>;

/// Groups of all levels, from which the result is built.
struct Tree<'q> {
    query: &'q RowFacetQuery<'q>,
    levels: Vec<Groups>,
    /// Number of groups in the result.
    answered: usize,
}

impl<'q> Tree<'q> {
    fn new(query: &'q RowFacetQuery<'q>, counted: Vec<HashMap<Vec<SortValue>, Counted>>) -> Self {
        let mut levels = Vec::with_capacity(counted.len());
        for level in counted {
            let mut groups = Groups::new();
            for (mut values, counted) in level {
                if let Some(value) = values.pop() {
                    groups.entry(values).or_default().push((value, counted));
                }
            }
            levels.push(groups);
        }
        Self {
            query,
            levels,
            answered: 0,
        }
    }

    /// Returns the facets below the keys with these values.
    fn facets(&mut self, counted: Counted, above: &[SortValue]) -> crate::Result<RowFacets> {
        let level = self.levels.get_mut(above.len());
        let mut groups = level.and_then(|level| level.remove(above)).unwrap_or_default();
        let distinct = groups.len() as u64;
        match self.query.is_by_value {
            true => groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other)),
            false => groups.sort_unstable_by(|(one, counted), (other, others)| {
                (Reverse(counted.rows), one).cmp(&(Reverse(others.rows), other))
            }),
        }
        groups.truncate(self.query.limit);
        self.answered += groups.len();
        limit("number of groups of the result", FACET_ANSWER_MAX, self.answered)?;
        let mut inner = Vec::with_capacity(groups.len());
        for (value, counted) in groups {
            let keys = [above, std::slice::from_ref(&value)].concat();
            inner.push((value, self.facets(counted, &keys)?));
        }
        Ok(RowFacets {
            rows: counted.rows,
            metrics: counted.sums,
            distinct,
            groups: inner,
        })
    }
}
