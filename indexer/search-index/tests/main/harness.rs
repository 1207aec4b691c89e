//! A catalog with its index, a model of both, and an independent implementation of conditions.
//!
//! [`Database`] applies each change to the catalog and to the model, and compares the results of a search on both.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tempfile::TempDir;
use tideline_backend::Stamp;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::analyzer::analyzed;
use tideline_condition::geo::Area;
use tideline_condition::operators::{
    Equals, Exists, Fuzzy, In, NotEquals, Phrase, Prefix, Regex, Suffix, Wildcard, Words,
};
use tideline_condition::{Condition, Literal, Subject, Test};
use tideline_model::{Identity, Ordinal, SearchAnalyzer, TableId, TimelineId, Timestamp};
use tideline_search_index::{IndexOptions, SearchIndex, Seen, SeenLookup};
use tideline_timeline_catalog::{AttributeValue, Attributes, Catalog, CatalogError, CatalogOptions};

use crate::places::lies_within;

pub(crate) const SOURCE_TAGS: [&str; 2] = ["host", "dc"];

/// A timeline in the model.
#[derive(Debug, Clone)]
pub(crate) struct Modelled {
    pub(crate) id: TimelineId,
    pub(crate) measurement: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) attributes: Attributes,
    pub(crate) seen: Option<Seen>,
}

/// All visible timelines by ordinal.
#[derive(Debug, Default)]
pub(crate) struct Model(
    pub(crate) BTreeMap<u32, Modelled>,
    /// Analyzers of attributes.
    pub(crate) BTreeMap<String, SearchAnalyzer>,
);

impl SeenLookup for Model {
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>> {
        let seen = |ordinal: &Ordinal| self.0.get(&ordinal.0).and_then(|timeline| timeline.seen);
        ordinals.iter().map(seen).collect()
    }
}

/// One table with its index.
pub(crate) struct Database {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) index: SearchIndex,
    pub(crate) model: Model,
    disk: Arc<MemoryDisk>,
    backend: MemoryBackend,
    stamp: u64,
    folder: TempDir,
}

pub(crate) fn options() -> IndexOptions {
    IndexOptions {
        // Only attaching a table and flushing start a commit, so a test controls which timelines are fresh.
        commit_delay: Duration::from_secs(3_600),
        commit_documents: u64::MAX,
        heap_bytes: 15_000_000,
        ..IndexOptions::default()
    }
}

fn catalog_options() -> CatalogOptions {
    CatalogOptions {
        source_tags: SOURCE_TAGS.map(str::to_owned).to_vec(),
        raw_key_budget: Arc::default(),
        unflushed: Arc::default(),
    }
}

impl Database {
    pub(crate) fn new(table: TableId) -> Self {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend = MemoryBackend::open(&disk);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let index = SearchIndex::open(&folder.path().join("index"), options()).expect("a new index");
        let catalog = Arc::new(Catalog::new(table, catalog_options()));
        index.attach(Arc::clone(&catalog));
        Self {
            catalog,
            index,
            model: Model::default(),
            disk,
            backend,
            stamp: 0,
            folder,
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("index")
    }

    /// Registers a timeline and makes it visible to searches. For a known timeline, only the times change.
    pub(crate) fn add(
        &mut self,
        measurement: &str,
        tags: &[(&str, &str)],
        seen: Option<(i64, i64)>,
    ) -> Ordinal {
        let pairs = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let tags: BTreeMap<String, String> = pairs.collect();
        let owned = tags.clone().into_iter().collect();
        let identity = Identity::new(measurement.to_owned(), owned).expect("valid");
        let registered = self.catalog.register(&identity, None).expect("room");
        self.catalog.mark_durable(&[registered.ordinal]);
        let seen = seen.map(|(first, last)| Seen {
            first: Timestamp::from_nanos_clamped(first),
            last: Timestamp::from_nanos_clamped(last),
        });
        let timeline = self
            .model
            .0
            .entry(registered.ordinal.0)
            .or_insert_with(|| Modelled {
                id: registered.id,
                measurement: measurement.to_owned(),
                tags,
                attributes: Attributes::new(),
                seen,
            });
        timeline.seen = seen;
        registered.ordinal
    }

    /// Sets or removes an attribute. Asserts that a value is rejected if the key has another type on other
    /// timelines.
    pub(crate) fn edit(&mut self, ordinal: Ordinal, key: &str, value: Option<AttributeValue>) {
        let changes = BTreeMap::from([(key.to_owned(), value.clone())]);
        let edited = self.catalog.set_attributes(ordinal, &changes, &|entry| {
            assert!(entry.is_current(), "one thread changes the catalog");
            entry.apply();
            Ok(())
        });
        let others = self.model.0.iter().filter(|(other, _)| **other != ordinal.0);
        let mut kinds = others.filter_map(|(_, timeline)| Some(timeline.attributes.get(key)?.kind()));
        let is_mix = value
            .as_ref()
            .is_some_and(|value| kinds.next().is_some_and(|kind| kind != value.kind()));
        if is_mix {
            assert!(
                matches!(edited, Err(CatalogError::MixedAttribute { .. })),
                "{edited:?}"
            );
            return;
        }
        let timeline = self.model.0.get_mut(&ordinal.0).expect("visible");
        match value {
            Some(value) => timeline.attributes.insert(key.to_owned(), value),
            None => timeline.attributes.remove(key),
        };
        assert_eq!(edited.expect("memory does not fail"), timeline.attributes);
    }

    /// Removes a timeline and deletes its row, as the server does before it acknowledges a delete.
    pub(crate) fn remove(&mut self, ordinal: Ordinal) {
        let timeline = self.model.0.remove(&ordinal.0).expect("visible");
        self.catalog.remove(&[timeline.id]);
        let stamp = &mut self.stamp;
        self.catalog
            .save_removals(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
    }

    /// Sets or removes the analyzer of an attribute, as a change of the settings of the table does.
    pub(crate) fn analyze(&mut self, key: &str, analyzer: Option<SearchAnalyzer>) {
        match analyzer {
            Some(analyzer) => self.model.1.insert(key.to_owned(), analyzer),
            None => self.model.1.remove(key),
        };
        self.catalog.set_analyzers(self.model.1.clone());
    }

    pub(crate) fn flush(&self) {
        self.index.flush().expect("a sound disk");
        let status = self.index.status();
        assert_eq!(
            (status.documents, status.pending),
            (self.catalog.len(), 0),
            "{status:?}"
        );
    }

    /// Removes the index folder atomically, even while the indexer uses it.
    pub(crate) fn delete_folder(&self) {
        let gone = self.folder.path().join("gone");
        match std::fs::rename(self.folder(), &gone) {
            Ok(()) => std::fs::remove_dir_all(gone).expect("no more writes there"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }

    /// Closes the index and reopens it over the same folder and catalog.
    pub(crate) fn reopen_index(&mut self) {
        self.index.close();
        self.index = SearchIndex::open(&self.folder(), options()).expect("an index");
        self.index.attach(Arc::clone(&self.catalog));
    }

    /// Simulates a restart of the process after saving all rows.
    pub(crate) fn restart(&mut self) {
        let stamp = &mut self.stamp;
        self.catalog
            .write_rows(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
        self.backend = MemoryBackend::open(&self.disk);
        let loaded = Catalog::load(&self.backend, self.catalog.table(), catalog_options());
        self.catalog = Arc::new(loaded.expect("sound rows"));
        self.catalog.set_analyzers(self.model.1.clone());
        self.reopen_index();
    }

    /// Simulates a restart that loses all unsaved changes of the catalog.
    pub(crate) fn restart_without_journal(&mut self) {
        self.backend = MemoryBackend::open(&self.disk);
        let loaded = Catalog::load(&self.backend, self.catalog.table(), catalog_options());
        self.catalog = Arc::new(loaded.expect("sound rows"));
        self.catalog.set_analyzers(self.model.1.clone());
        let reader = self.catalog.reader();
        self.model
            .0
            .retain(|ordinal, _| reader.visible().contains(*ordinal));
        drop(reader);
        self.reopen_index();
    }

    /// Returns the result of a search. Asserts that the result is equal to the result of the model.
    pub(crate) fn check(&self, condition: &Condition) -> RoaringBitmap {
        let found = self.index.search(&self.catalog, condition, &self.model);
        if self.model.lacks_words(condition) {
            assert!(found.is_err(), "{condition:?} searches for no word");
            return RoaringBitmap::new();
        }
        let found = found.expect("a valid condition");
        let expected: RoaringBitmap = self.model.matching(condition).into_iter().collect();
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>(),
            "{condition:?}\nstatus {:?}",
            self.index.status()
        );
        found
    }
}

fn next(stamp: &mut u64) -> tideline_backend::Result<Stamp> {
    *stamp += 1;
    Ok(Stamp(*stamp))
}

impl Model {
    /// Returns the ordinals of the timelines that match a condition.
    pub(crate) fn matching(&self, condition: &Condition) -> Vec<u32> {
        let matching = self
            .0
            .iter()
            .filter(|(_, timeline)| timeline.matches(condition, &self.1));
        matching.map(|(ordinal, _)| *ordinal).collect()
    }

    /// Returns true if the analyzer of an attribute finds no word in the text of a search, so that the search is
    /// refused.
    fn lacks_words(&self, condition: &Condition) -> bool {
        match condition {
            Condition::And(conditions) | Condition::Or(conditions) => {
                conditions.iter().any(|condition| self.lacks_words(condition))
            }
            Condition::Not(condition) => self.lacks_words(condition),
            Condition::Leaf { subject, test } => match test {
                Test::Words(Words { text, .. }) | Test::Phrase(Phrase { text, .. }) => {
                    split(analyzer_of(&self.1, subject), text).is_empty()
                }
                _ => false,
            },
            Condition::All | Condition::Saved(_) => false,
        }
    }
}

impl Modelled {
    pub(crate) fn source(&self) -> Option<&String> {
        SOURCE_TAGS.iter().find_map(|key| self.tags.get(*key))
    }

    fn matches(&self, condition: &Condition, analyzers: &BTreeMap<String, SearchAnalyzer>) -> bool {
        let matches = |condition: &Condition| self.matches(condition, analyzers);
        match condition {
            Condition::All => true,
            Condition::And(conditions) => conditions.iter().all(matches),
            Condition::Or(conditions) => conditions.iter().any(matches),
            Condition::Not(condition) => !matches(condition),
            Condition::Saved(name) => panic!("{name} was not expanded"),
            Condition::Leaf { subject, test } => self.passes(subject, test, analyzer_of(analyzers, subject)),
        }
    }

    fn passes(&self, subject: &Subject, test: &Test, analyzer: SearchAnalyzer) -> bool {
        let text = |text: &str| Some(AttributeValue::Text(text.to_owned()));
        let value = match subject {
            Subject::Any => return self.says(test),
            Subject::Measurement => text(&self.measurement),
            Subject::Source => self.source().and_then(|source| text(source)),
            Subject::Tag(key) => self.tags.get(key).and_then(|value| text(value)),
            Subject::Attribute(key) => self.attributes.get(key).cloned(),
            Subject::Id => text(&self.id.to_string()),
            Subject::FirstSeen | Subject::LastSeen => {
                let Test::Within(within) = test else {
                    panic!("times support only ranges")
                };
                let range = within.0.range().expect("absolute times");
                return self.seen.is_some_and(|seen| {
                    let first = *subject == Subject::FirstSeen;
                    let time = if first { seen.first } else { seen.last };
                    range.start <= time.nanos() && time.nanos() < range.end
                });
            }
            Subject::Field(_) | Subject::Column(_) => None,
        };
        if let Test::Words(_) | Test::Phrase(_) = test {
            return match value {
                Some(AttributeValue::Text(text)) => says(&text, test, analyzer),
                Some(AttributeValue::Texts(texts)) => say(&texts, test, analyzer),
                _ => false,
            };
        }
        let value = match value {
            Some(AttributeValue::Texts(texts)) => {
                let values = texts.into_iter().map(AttributeValue::Text);
                return any_passes(subject, values, test);
            }
            Some(AttributeValue::Numbers(numbers)) => {
                let values = numbers.into_iter().map(AttributeValue::Number);
                return any_passes(subject, values, test);
            }
            alone => alone,
        };
        let present = value.is_some();
        passes(
            subject,
            present,
            &value.unwrap_or(AttributeValue::Text(String::new())),
            test,
        )
    }
}

impl Modelled {
    /// Returns all texts of the timeline.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut texts = vec![self.measurement.clone()];
        texts.extend(self.tags.values().cloned());
        for value in self.attributes.values() {
            match value {
                AttributeValue::Text(text) => texts.push(text.clone()),
                AttributeValue::Texts(list) => texts.extend(list.iter().cloned()),
                _ => {}
            }
        }
        texts
    }

    fn says(&self, test: &Test) -> bool {
        say(&self.texts(), test, SearchAnalyzer::Words)
    }
}

fn analyzer_of(analyzers: &BTreeMap<String, SearchAnalyzer>, subject: &Subject) -> SearchAnalyzer {
    match subject {
        Subject::Attribute(key) => analyzers.get(key).copied().unwrap_or_default(),
        _ => SearchAnalyzer::Words,
    }
}

/// Splits a text into the words of an analyzer.
fn split(analyzer: SearchAnalyzer, text: &str) -> Vec<String> {
    match analyzer {
        SearchAnalyzer::Words => words(text),
        analyzer => {
            let words = analyzed(analyzer, text).into_iter();
            words.map(|word| word.word.into_owned()).collect()
        }
    }
}

/// Returns true if the texts together contain all words, or one of them contains the phrase.
fn say(texts: &[String], test: &Test, analyzer: SearchAnalyzer) -> bool {
    match test {
        Test::Words(Words { text, distance }) => {
            let found: Vec<String> = texts.iter().flat_map(|text| split(analyzer, text)).collect();
            let asked = split(analyzer, text);
            let mut asked = asked.iter();
            asked.all(|asked| {
                found
                    .iter()
                    .any(|found| edits(asked, found) <= (*distance).into())
            })
        }
        phrase => texts.iter().any(|text| says(text, phrase, analyzer)),
    }
}

/// Returns true if a text contains all words, or the phrase.
fn says(text: &str, test: &Test, analyzer: SearchAnalyzer) -> bool {
    let Test::Phrase(Phrase {
        text: asked,
        distance,
    }) = test
    else {
        return say(&[text.to_owned()], test, analyzer);
    };
    let (asked, found) = (split(analyzer, asked), split(analyzer, text));
    let is = |asked: &String, found: &String| edits(asked, found) <= (*distance).into();
    let mut places = found.windows(asked.len());
    places.any(|found| asked.iter().zip(found).all(|(asked, found)| is(asked, found)))
}

/// Returns true if one value of a list passes. `NotEquals` passes if no value is equal.
fn any_passes(subject: &Subject, mut values: impl Iterator<Item = AttributeValue>, test: &Test) -> bool {
    if let Test::NotEquals(NotEquals(other)) = test {
        return !values.any(|value| literal(value) == *other);
    }
    values.any(|value| passes(subject, true, &value, test))
}

/// Returns true if a single value passes. A missing value is given as the empty text, with `present` set to false.
fn passes(subject: &Subject, present: bool, value: &AttributeValue, test: &Test) -> bool {
    let as_text = match value {
        AttributeValue::Text(text) => Some(text.as_str()),
        _ => None,
    };
    match test {
        Test::Equals(Equals(other)) => literal(value.clone()) == *other,
        Test::NotEquals(NotEquals(other)) => literal(value.clone()) != *other,
        Test::In(In(others)) => others.contains(&literal(value.clone())),
        Test::Prefix(Prefix(prefix)) => as_text.is_some_and(|text| text.starts_with(prefix)),
        Test::Suffix(Suffix(suffix)) => as_text.is_some_and(|text| text.ends_with(suffix)),
        Test::Fuzzy(Fuzzy {
            text: close,
            distance,
        }) => as_text.is_some_and(|text| !text.is_empty() && edits(close, text) <= (*distance).into()),
        Test::Words(_) | Test::Phrase(_) => panic!("tests of words need an analyzer"),
        Test::Compare(compare) => {
            let number = match value {
                AttributeValue::Number(number) => Some(*number),
                AttributeValue::Text(text) if !matches!(subject, Subject::Attribute(_)) => {
                    text.parse().ok().filter(|number: &f64| number.is_finite())
                }
                _ => None,
            };
            number.is_some_and(|number| {
                let bounds = [&compare.low, &compare.high];
                let [low, high] =
                    bounds.map(|bound| bound.as_ref().map(|end| end.as_f64().expect("a number")));
                (low, high).contains(&number)
            })
        }
        Test::Wildcard(Wildcard(pattern)) => {
            let pattern: Vec<char> = pattern.chars().collect();
            as_text.is_some_and(|text| fits(&pattern, &text.chars().collect::<Vec<_>>()))
        }
        Test::Regex(Regex(pattern)) => as_text.is_some_and(|text| fits_regex(pattern, text)),
        Test::Exists(Exists(exists)) => present == *exists,
        Test::Within(within) => {
            let range = within.0.range().expect("absolute times");
            matches!(value, AttributeValue::Time(time) if range.start <= time.nanos() && time.nanos() < range.end)
        }
        Test::Near(near) => is_in(value, &near.area().expect("a sound circle")),
        Test::WithinBox(within) => is_in(value, &within.area().expect("a sound box")),
        Test::Polygon(polygon) => is_in(value, &polygon.area().expect("a sound polygon")),
        Test::Between(_) => false,
    }
}

fn is_in(value: &AttributeValue, area: &Area) -> bool {
    matches!(value, AttributeValue::Point(point) if lies_within(*point, area))
}

/// Converts the value of an attribute to a literal.
pub(crate) fn literal(value: AttributeValue) -> Literal {
    match value {
        AttributeValue::Text(text) => Literal::Text(text),
        AttributeValue::Number(number) => Literal::Float(number),
        AttributeValue::Boolean(boolean) => Literal::Boolean(boolean),
        AttributeValue::Time(time) => Literal::from(time),
        AttributeValue::Point(point) => Literal::Point(point.into()),
        AttributeValue::Texts(texts) => Literal::Texts(texts),
        AttributeValue::Numbers(numbers) => Literal::Numbers(numbers),
    }
}

pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in text.chars() {
        if c.is_alphanumeric() {
            words.last_mut().expect("one at least").extend(c.to_lowercase());
        } else {
            words.push(String::new());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the edit distance: insertions, deletions, replacements, and swaps of adjacent characters that are not
/// edited again.
pub(crate) fn edits(one: &str, other: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = match (i, j) {
                (0, _) | (_, 0) => i + j,
                _ => {
                    let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let least = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if is_swap {
                        least.min(table[i - 2][j - 2] + 1)
                    } else {
                        least
                    }
                }
            };
        }
    }
    table[a.len()][b.len()]
}

fn fits(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (['*', rest @ ..], _) => fits(rest, text) || (!text.is_empty() && fits(pattern, &text[1..])),
        (['?', rest @ ..], [_, tail @ ..]) => fits(rest, tail),
        ([one, rest @ ..], [other, tail @ ..]) => one == other && fits(rest, tail),
        _ => false,
    }
}

fn fits_regex(pattern: &str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, regex::Regex>> = RefCell::default();
    }
    let compile = || regex::Regex::new(&format!("^(?s:{pattern})$")).expect("valid");
    COMPILED.with_borrow_mut(|compiled| {
        let regex = compiled.entry(pattern.to_owned()).or_insert_with(compile);
        regex.is_match(text)
    })
}
