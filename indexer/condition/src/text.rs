//! Checked and compiled text tests.
//!
//! An index looks up texts, fuzzy texts, words and rare phrases directly. Any other test is evaluated once per search
//! for each distinct value of a subject. Therefore the evaluation does not copy the value; only the splitting of a
//! value into words allocates memory.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::{Arc, LazyLock};

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder};

use tideline_model::SearchAnalyzer;

use crate::analyzer::analyzed;
use crate::condition::{DISTANCE_MAX, FUZZY_BYTES_MAX, PATTERN_BYTES_MAX, Subject, WORDS_MAX};
use crate::error::limit;
use crate::matcher::Compiler;
use crate::{ConditionError, Result};

/// A test of a text.
#[derive(Debug, Clone)]
pub enum TextTest {
    /// The text is one of these texts, which are sorted and distinct.
    OneOf(Vec<String>),
    /// The text is not empty and is within an edit distance of another text.
    Close(Close),
    /// The text contains all of these words.
    Words(SearchedWords),
    /// The text contains these words, one after the other.
    Phrase(SearchedWords),
    /// The text passes a predicate.
    Predicate(Arc<dyn TextPredicate>),
}

/// Words of a search, and the analyzer that splits the texts.
#[derive(Debug, Clone)]
pub struct SearchedWords {
    analyzer: SearchAnalyzer,
    words: Vec<Word>,
}

impl SearchedWords {
    /// Creates a search for words in texts that an analyzer splits.
    pub fn new(analyzer: SearchAnalyzer, words: Vec<Word>) -> Self {
        Self { analyzer, words }
    }

    /// Returns the analyzer that splits the texts.
    pub fn analyzer(&self) -> SearchAnalyzer {
        self.analyzer
    }

    /// Removes from `missing` each word that the text contains; returns true if no word is left.
    pub(crate) fn remove(&self, missing: &mut Vec<&Word>, text: &str) -> bool {
        if self.analyzer != SearchAnalyzer::Words {
            let found = self.split(text);
            missing.retain(|word| !found.iter().any(|found| word.is(&found.word)));
            return missing.is_empty();
        }
        // The default analyzer yields the words one by one: no list is allocated, and the loop ends at the last
        // missing word.
        for found in words(text) {
            missing.retain(|word| !word.is(&found));
            if missing.is_empty() {
                return true;
            }
        }
        false
    }

    /// Returns the words of a text with their byte ranges.
    pub fn split<'t>(&self, text: &'t str) -> Vec<WordAt<'t>> {
        analyzed(self.analyzer, text)
    }
}

impl Deref for SearchedWords {
    type Target = [Word];

    fn deref(&self) -> &[Word] {
        &self.words
    }
}

/// Text test that an index must evaluate on each distinct value.
pub trait TextPredicate: Debug + Send + Sync {
    /// Returns true if the bytes of a text pass.
    fn matches(&self, text: &[u8]) -> bool;

    /// Returns a prefix of every text that passes.
    fn literal_prefix(&self) -> &str {
        ""
    }

    /// Returns the byte range of the match within a passing text; by default the whole text.
    fn matched(&self, text: &str) -> Range<usize> {
        0..text.len()
    }
}

/// Word of a search in its compared form; see [`WordAt::word`].
#[derive(Debug, Clone)]
pub enum Word {
    /// Exactly this word.
    Same(String),
    /// Any word within an edit distance of the searched word.
    Close(Close),
}

/// Word of a text.
#[derive(Debug)]
pub struct WordAt<'a> {
    /// Compared form, depending on the analyzer: the word in lower case, its stem, or a part of it.
    pub word: Cow<'a, str>,
    /// Byte range of the word in the text.
    pub at: Range<usize>,
}

/// Test for an edit distance to a text. An edit inserts, removes or replaces a character, or swaps two adjacent
/// characters.
#[derive(Clone)]
pub struct Close {
    automaton: Arc<DFA>,
    edits_max: u8,
}

impl TextTest {
    /// Creates a test from a predicate.
    pub(crate) fn predicate(predicate: impl TextPredicate + 'static) -> Self {
        Self::Predicate(Arc::new(predicate))
    }

    /// Creates a test of equality with any of the texts.
    pub(crate) fn one_of(mut texts: Vec<String>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        Self::OneOf(texts)
    }

    /// Returns true if a text passes.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// Returns true if the bytes of a text pass.
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
        match self {
            Self::OneOf(values) => values
                .binary_search_by(|value| value.as_bytes().cmp(text))
                .is_ok(),
            Self::Close(close) => !text.is_empty() && close.to(text),
            Self::Words(query) => {
                read(text).is_some_and(|text| query.remove(&mut query.iter().collect(), text))
            }
            Self::Phrase(query) => read(text).is_some_and(|text| {
                let found = query.split(text);
                phrases(query, &found).next().is_some()
            }),
            Self::Predicate(predicate) => predicate.matches(text),
        }
    }

    /// Returns a prefix of every text that passes.
    pub fn literal_prefix(&self) -> &str {
        match self {
            Self::Predicate(predicate) => predicate.literal_prefix(),
            _ => "",
        }
    }
}

/// Compiles the words of a search on a subject, with a maximum number of edits per word.
pub(crate) fn query_words(
    query: &str,
    edits_max: u8,
    subject: &Subject,
    compiler: &mut Compiler<'_>,
) -> Result<SearchedWords> {
    limit("bytes of a text search", PATTERN_BYTES_MAX, query.len())?;
    let analyzer = compiler.analyzer_of(subject);
    let found = analyzed(analyzer, query);
    // Grams are parts of words, so even a text of few words has many grams.
    if !matches!(analyzer, SearchAnalyzer::Ngram(_) | SearchAnalyzer::Cjk) {
        limit("words of a text search", WORDS_MAX, found.len())?;
    }
    if found.is_empty() {
        return Err(ConditionError::NoWords);
    }
    let compiled = found.into_iter().map(|found| match edits_max {
        0 => Ok(Word::Same(found.word.into_owned())),
        _ => Close::new(&found.word, edits_max, compiler).map(Word::Close),
    });
    let compiled = compiled.collect::<Result<Vec<_>>>()?;
    Ok(SearchedWords::new(analyzer, compiled))
}

impl Word {
    /// Returns true if a word of a text matches.
    pub fn is(&self, word: &str) -> bool {
        self.edits(word).is_some()
    }

    /// Returns the number of edits to a word of a text; `None` if it does not match.
    pub fn edits(&self, word: &str) -> Option<u8> {
        match self {
            Self::Same(query) => (query == word).then_some(0),
            Self::Close(close) => close.edits(word.as_bytes()),
        }
    }
}

/// Iterates over the indexes in `found` at which the phrase `query` begins.
pub fn phrases(query: &[Word], found: &[WordAt<'_>]) -> impl Iterator<Item = usize> {
    let positions = found.windows(query.len()).enumerate();
    let fits = positions.filter(|(_, found)| {
        let mut pairs = query.iter().zip(*found);
        pairs.all(|(word, found)| word.is(&found.word))
    });
    fits.map(|(at, _)| at)
}

impl Close {
    pub(crate) fn new(text: &str, edits_max: u8, compiler: &mut Compiler<'_>) -> Result<Self> {
        /// Automaton builders by maximum number of edits; creating one takes milliseconds.
        static BUILDERS: [LazyLock<LevenshteinAutomatonBuilder>; DISTANCE_MAX as usize] = [
            LazyLock::new(|| LevenshteinAutomatonBuilder::new(1, true)),
            LazyLock::new(|| LevenshteinAutomatonBuilder::new(2, true)),
        ];
        limit(
            "distance of a fuzzy search",
            DISTANCE_MAX.into(),
            edits_max.into(),
        )?;
        limit("bytes of a fuzzy search", FUZZY_BYTES_MAX, text.len())?;
        let automaton = BUILDERS[usize::from(edits_max) - 1].build_dfa(text);
        compiler.take_states(automaton.num_states())?;
        Ok(Self {
            automaton: Arc::new(automaton),
            edits_max,
        })
    }

    /// Returns the automaton over the bytes of a text.
    pub fn automaton(&self) -> &DFA {
        &self.automaton
    }

    fn to(&self, text: &[u8]) -> bool {
        self.edits(text).is_some()
    }

    fn edits(&self, text: &[u8]) -> Option<u8> {
        self.within(self.automaton.eval(text))
    }

    /// Converts an automaton distance to a number of edits; `None` if it exceeds the maximum.
    pub fn within(&self, distance: Distance) -> Option<u8> {
        match distance {
            Distance::Exact(edits) if edits <= self.edits_max => Some(edits),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Close {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Close")
            .field("edits_max", &self.edits_max)
            .finish_non_exhaustive()
    }
}

/// Iterates over the words of a text in lower case. A word is a run of letters and digits.
pub fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    words_at(text).map(|found| found.word)
}

/// Iterates over the words of a text with their byte ranges.
pub fn words_at(text: &str) -> impl Iterator<Item = WordAt<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find(char::is_alphanumeric)?;
        let length = text[start..].find(|c: char| !c.is_alphanumeric());
        from = length.map_or(text.len(), |length| start + length);
        Some(WordAt {
            word: in_small_letters(&text[start..from]),
            at: start..from,
        })
    })
}

/// Returns true if a text is a single lower-case word, so that [`words`] yields exactly this text.
pub fn is_word(text: &str) -> bool {
    let mut words = words_at(text);
    !text.is_empty() && is_plain(text) || words.next().is_some_and(|first| first.word == text)
}

fn in_small_letters(word: &str) -> Cow<'_, str> {
    if is_plain(word) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.to_lowercase())
    }
}

/// Returns true if a text contains only lower-case ASCII letters and digits.
fn is_plain(text: &str) -> bool {
    let is_small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(is_small)
}

/// Decodes UTF-8; returns `None` if the bytes are not valid UTF-8.
pub(crate) fn read(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}
