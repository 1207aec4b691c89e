//! Tests of a text, checked and compiled.
//!
//! An index looks up texts, close texts and words; it puts each distinct value of a subject to any other test once per
//! search. So a test borrows, and allocates only to look at words.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder};

use crate::condition::{DISTANCE_MAX, FUZZY_BYTES_MAX, PATTERN_BYTES_MAX, WORDS_MAX};
use crate::error::limit;
use crate::matcher::Compiler;
use crate::{ConditionError, Result};

/// A test of a text.
#[derive(Debug, Clone)]
pub enum TextTest {
    /// It is one of these, sorted and without repetition.
    OneOf(Vec<String>),
    /// It is close to another, and not empty.
    Close(Close),
    /// All of these are among its words.
    Words(Vec<Word>),
    /// These are words of it, one after the other.
    Phrase(Vec<Word>),
    /// It passes a predicate.
    Predicate(Arc<dyn TextPredicate>),
}

/// A test that an index can only put to each distinct value.
pub trait TextPredicate: Debug + Send + Sync {
    /// Whether the bytes of a text pass.
    fn matches(&self, text: &[u8]) -> bool;

    /// Returns a prefix of every text that passes.
    fn literal_prefix(&self) -> &str {
        ""
    }

    /// Returns the bytes of a passing text that made it pass.
    fn matched(&self, text: &str) -> Range<usize> {
        0..text.len()
    }
}

/// A word that is asked for, in small letters.
#[derive(Debug, Clone)]
pub enum Word {
    /// This word.
    Same(String),
    /// A word close to another.
    Close(Close),
}

/// A word of a text.
#[derive(Debug)]
pub struct WordAt<'a> {
    /// In small letters.
    pub word: Cow<'a, str>,
    /// Which bytes of the text it is.
    pub at: Range<usize>,
}

/// A text that few edits make of another. An edit inserts, removes or replaces a character, or swaps two neighbours.
#[derive(Clone)]
pub struct Close {
    automaton: Arc<DFA>,
    edits_max: u8,
}

impl TextTest {
    /// Returns a test that a predicate decides.
    pub(crate) fn predicate(predicate: impl TextPredicate + 'static) -> Self {
        Self::Predicate(Arc::new(predicate))
    }

    /// Returns a test of equality with any of some texts.
    pub(crate) fn one_of(mut texts: Vec<String>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        Self::OneOf(texts)
    }

    /// Whether a text passes.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// Whether the bytes of a text pass.
    pub fn matches_bytes(&self, text: &[u8]) -> bool {
        match self {
            Self::OneOf(values) => values
                .binary_search_by(|value| value.as_bytes().cmp(text))
                .is_ok(),
            Self::Close(close) => !text.is_empty() && close.to(text),
            Self::Words(asked) => read(text).is_some_and(|text| self.says(&mut asked.iter().collect(), text)),
            Self::Phrase(asked) => {
                let found: Vec<WordAt<'_>> = read(text).into_iter().flat_map(words_at).collect();
                phrases(asked, &found).next().is_some()
            }
            Self::Predicate(predicate) => predicate.matches(text),
        }
    }

    /// Removes the words that a text says from `missing`; whether none is left.
    pub(crate) fn says(&self, missing: &mut Vec<&Word>, text: &str) -> bool {
        for found in words(text) {
            missing.retain(|word| !word.is(&found));
            if missing.is_empty() {
                return true;
            }
        }
        false
    }

    /// Returns a prefix of every text that passes.
    pub fn literal_prefix(&self) -> &str {
        match self {
            Self::Predicate(predicate) => predicate.literal_prefix(),
            _ => "",
        }
    }
}

/// Returns the words of a search, each within so many edits.
pub(crate) fn asked_words(asked: &str, edits_max: u8, compiler: &mut Compiler<'_>) -> Result<Vec<Word>> {
    limit("bytes of a text search", PATTERN_BYTES_MAX, asked.len())?;
    let asked: Vec<String> = words(asked).map(Cow::into_owned).collect();
    limit("words of a text search", WORDS_MAX, asked.len())?;
    if asked.is_empty() {
        return Err(ConditionError::NoWords);
    }
    let compiled = asked.into_iter().map(|word| match edits_max {
        0 => Ok(Word::Same(word)),
        _ => Close::new(&word, edits_max, compiler).map(Word::Close),
    });
    compiled.collect()
}

impl Word {
    /// Whether a word of a text passes for it.
    pub fn is(&self, word: &str) -> bool {
        self.edits(word).is_some()
    }

    /// How many edits make it of a word of a text, if they are few enough.
    pub fn edits(&self, word: &str) -> Option<u8> {
        match self {
            Self::Same(asked) => (asked == word).then_some(0),
            Self::Close(close) => close.edits(word.as_bytes()),
        }
    }
}

/// Where words of a text follow each other as those that are asked for: the numbers of the first ones.
pub fn phrases(asked: &[Word], found: &[WordAt<'_>]) -> impl Iterator<Item = usize> {
    let places = found.windows(asked.len()).enumerate();
    let fits = places.filter(|(_, found)| {
        let mut pairs = asked.iter().zip(*found);
        pairs.all(|(word, found)| word.is(&found.word))
    });
    fits.map(|(at, _)| at)
}

impl Close {
    pub(crate) fn new(text: &str, edits_max: u8, compiler: &mut Compiler<'_>) -> Result<Self> {
        /// Builders of the automata, one for each number of edits; creating one takes milliseconds.
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

    /// Returns the automaton that reads the bytes of a text.
    pub fn automaton(&self) -> &DFA {
        &self.automaton
    }

    fn to(&self, text: &[u8]) -> bool {
        self.edits(text).is_some()
    }

    fn edits(&self, text: &[u8]) -> Option<u8> {
        self.within(self.automaton.eval(text))
    }

    /// Returns the edits of a distance, if they are few enough.
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

/// The words of a text: letters and digits without a break, in small letters.
pub fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    words_at(text).map(|found| found.word)
}

/// The words of a text, with their places.
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

/// Whether a text is one word in small letters, so that it is the only word that it says.
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

/// Whether a text has no characters but small letters and digits of ASCII.
fn is_plain(text: &str) -> bool {
    let is_small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(is_small)
}

/// Values in the index are texts; what is not cannot pass.
pub(crate) fn read(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}
