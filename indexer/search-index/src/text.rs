//! Tests of a text, checked and compiled: what a subject's value must be, begin or end with, fit, say or be close to.
//!
//! Words and close texts are looked up in the index. Other tests are asked of every distinct value of a subject, once for
//! each search; all of them of the values of fresh timelines. So a test borrows, and allocates only to look at words.

use std::borrow::Cow;
use std::ops::{Range, RangeBounds};
use std::sync::{Arc, LazyLock};

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder, SINK_STATE};
use tantivy_fst::Automaton;
use tideline_pattern::{Glob, Limits, Pattern};

use crate::condition::{
    DISTANCE_MAX, FUZZY_BYTES_MAX, NumberRange, PATTERN_BYTES_MAX, REGEX_BYTES_MAX, WORDS_MAX,
};
use crate::matcher::{Size, limit};
use crate::{Result, SearchError};

/// A test of a text.
#[derive(Debug, Clone)]
pub(crate) enum TextTest {
    /// Sorted, without repetition.
    OneOf(Vec<String>),
    Prefix(String),
    Suffix(String),
    /// The whole text fits a wildcard pattern.
    Glob(Glob),
    /// The whole text fits a regular expression, which is compiled; every text that does begins with `prefix`.
    Pattern {
        pattern: Pattern,
        prefix: String,
    },
    /// The whole text is close to another, and not empty.
    Close(Close),
    /// All of these are among the words of the text.
    Words(Vec<Word>),
    /// These are words of the text, one after the other.
    Phrase(Vec<Word>),
    /// The text reads as a number in the range.
    Number(NumberRange),
}

/// A word that is asked for, in small letters.
#[derive(Debug, Clone)]
pub(crate) enum Word {
    Same(String),
    Close(Close),
}

/// A word of a text.
#[derive(Debug)]
pub(crate) struct WordAt<'a> {
    /// In small letters.
    pub(crate) word: Cow<'a, str>,
    /// Which bytes of the text it is.
    pub(crate) at: Range<usize>,
}

/// A text that few edits make of another. An edit inserts, removes or replaces a character, or swaps two neighbours.
#[derive(Clone)]
pub(crate) struct Close {
    automaton: Arc<DFA>,
    edits_max: u8,
}

impl TextTest {
    /// It is not empty, and within so many edits of `text`.
    pub(crate) fn close(text: &str, edits_max: u8, size: &mut Size<'_>) -> Result<Self> {
        Ok(match edits_max {
            0 if text.is_empty() => Self::OneOf(Vec::new()),
            0 => Self::OneOf(vec![text.to_owned()]),
            _ => Self::Close(Close::new(text, edits_max, size)?),
        })
    }

    /// It says all the words of `asked`, each within so many edits; as a phrase if they must follow each other.
    pub(crate) fn words(asked: &str, edits_max: u8, is_phrase: bool, size: &mut Size<'_>) -> Result<Self> {
        limit("bytes of a text search", PATTERN_BYTES_MAX, asked.len())?;
        let asked: Vec<String> = words(asked).map(Cow::into_owned).collect();
        limit("words of a text search", WORDS_MAX, asked.len())?;
        if asked.is_empty() {
            return Err(SearchError::NoWords);
        }
        let compiled = asked.into_iter().map(|word| match edits_max {
            0 => Ok(Word::Same(word)),
            _ => Close::new(&word, edits_max, size).map(Word::Close),
        });
        let compiled = compiled.collect::<Result<Vec<_>>>()?;
        Ok(match is_phrase {
            false => Self::Words(compiled),
            true => Self::Phrase(compiled),
        })
    }

    /// What every text that passes begins with.
    pub(crate) fn literal_prefix(&self) -> &str {
        match self {
            Self::Prefix(prefix) | Self::Pattern { prefix, .. } => prefix,
            Self::Glob(glob) => glob.literal_prefix(),
            _ => "",
        }
    }

    /// Whether a text passes.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// As `matches`, for the bytes of a text.
    pub(crate) fn matches_bytes(&self, text: &[u8]) -> bool {
        match self {
            Self::OneOf(values) => values
                .binary_search_by(|value| value.as_bytes().cmp(text))
                .is_ok(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
            Self::Glob(glob) => glob.matches(text),
            Self::Pattern { pattern, prefix } => text.starts_with(prefix.as_bytes()) && pattern.matches(text),
            Self::Close(close) => !text.is_empty() && close.to(text),
            Self::Words(asked) => say_all(asked, read(text).into_iter()),
            Self::Phrase(asked) => {
                let found: Vec<WordAt<'_>> = read(text).into_iter().flat_map(words_at).collect();
                phrases(asked, &found).next().is_some()
            }
            Self::Number(range) => read(text)
                .and_then(number)
                .is_some_and(|number| range.contains(number)),
        }
    }
}

impl NumberRange {
    /// Whether a number lies in it.
    pub fn contains(&self, number: f64) -> bool {
        (self.low, self.high).contains(&number)
    }
}

impl Word {
    /// Whether a word of a text passes for it.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.edits(word).is_some()
    }

    /// How many edits make it of a word of a text, if they are few enough.
    pub(crate) fn edits(&self, word: &str) -> Option<u8> {
        match self {
            Self::Same(asked) => (asked == word).then_some(0),
            Self::Close(close) => close.edits(word.as_bytes()),
        }
    }
}

/// Whether some texts together say all words that are asked for.
pub(crate) fn say_all<'a>(asked: &[Word], texts: impl Iterator<Item = &'a str>) -> bool {
    let mut missing: Vec<&Word> = asked.iter().collect();
    for found in texts.flat_map(words) {
        missing.retain(|word| !word.is(&found));
        if missing.is_empty() {
            return true;
        }
    }
    false
}

/// Where words of a text follow each other as those that are asked for: the numbers of the first ones.
pub(crate) fn phrases(asked: &[Word], found: &[WordAt<'_>]) -> impl Iterator<Item = usize> {
    let places = found.windows(asked.len()).enumerate();
    let fits = places.filter(|(_, found)| {
        let mut pairs = asked.iter().zip(*found);
        pairs.all(|(word, found)| word.is(&found.word))
    });
    fits.map(|(at, _)| at)
}

impl Close {
    fn new(text: &str, edits_max: u8, size: &mut Size<'_>) -> Result<Self> {
        /// What the automata of each number of edits are made with; making these takes milliseconds.
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
        size.take_states(automaton.num_states())?;
        Ok(Self {
            automaton: Arc::new(automaton),
            edits_max,
        })
    }

    fn to(&self, text: &[u8]) -> bool {
        self.edits(text).is_some()
    }

    fn edits(&self, text: &[u8]) -> Option<u8> {
        self.within(self.automaton.eval(text))
    }

    fn within(&self, distance: Distance) -> Option<u8> {
        match distance {
            Distance::Exact(edits) if edits <= self.edits_max => Some(edits),
            _ => None,
        }
    }

    /// Walks the dictionary's terms that begin with some bytes and go on with a close text.
    pub(crate) fn behind<'a>(&'a self, prefix: &'a [u8]) -> CloseTerm<'a> {
        CloseTerm { close: self, prefix }
    }
}

impl std::fmt::Debug for Close {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Close")
            .field("edits_max", &self.edits_max)
            .finish_non_exhaustive()
    }
}

/// The automaton of terms that begin with some bytes and go on with a text close to another.
pub(crate) struct CloseTerm<'a> {
    close: &'a Close,
    prefix: &'a [u8],
}

/// How far a walk along a term has come.
#[derive(Clone, Copy)]
pub(crate) enum CloseState {
    /// So many bytes of the prefix were there.
    Prefix(usize),
    /// Behind the prefix.
    Text(u32),
    /// Nothing that follows can pass.
    Nowhere,
}

impl Automaton for CloseTerm<'_> {
    type State = CloseState;

    fn start(&self) -> CloseState {
        CloseState::Prefix(0)
    }

    fn is_match(&self, state: &CloseState) -> bool {
        match state {
            CloseState::Text(state) => self.close.within(self.close.automaton.distance(*state)).is_some(),
            CloseState::Prefix(_) | CloseState::Nowhere => false,
        }
    }

    fn can_match(&self, state: &CloseState) -> bool {
        !matches!(state, CloseState::Nowhere | CloseState::Text(SINK_STATE))
    }

    fn accept(&self, state: &CloseState, byte: u8) -> CloseState {
        match *state {
            CloseState::Prefix(at) if self.prefix[at] != byte => CloseState::Nowhere,
            CloseState::Prefix(at) if at + 1 == self.prefix.len() => {
                CloseState::Text(self.close.automaton.initial_state())
            }
            CloseState::Prefix(at) => CloseState::Prefix(at + 1),
            CloseState::Text(state) => CloseState::Text(self.close.automaton.transition(state, byte)),
            CloseState::Nowhere => CloseState::Nowhere,
        }
    }
}

/// The words of a text: letters and digits without a break, in small letters.
pub(crate) fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    words_at(text).map(|found| found.word)
}

/// The words of a text, with their places.
pub(crate) fn words_at(text: &str) -> impl Iterator<Item = WordAt<'_>> {
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
pub(crate) fn is_word(text: &str) -> bool {
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
fn read(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}

/// The finite number that a text reads as.
fn number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(number)
}

/// All of a text fits; `*` stands for any text, `?` for any one character.
pub(crate) fn wildcard(pattern: &str) -> Result<TextTest> {
    limit("bytes of a wildcard pattern", PATTERN_BYTES_MAX, pattern.len())?;
    Ok(TextTest::Glob(Glob::new(pattern)))
}

/// All of a text fits the regular expression.
pub(crate) fn regular_expression(expression: &str, size: &mut Size<'_>) -> Result<TextTest> {
    let pattern = Pattern::new(expression, REGEX_LIMITS)?;
    if let Some(texts) = pattern.texts() {
        // Dashboards spell lists like this; terms are found faster than patterns.
        return Ok(TextTest::OneOf(texts.to_vec()));
    }
    size.take_pattern(&pattern)?;
    pattern.compile()?;
    let prefix = literal_prefix(expression).to_owned();
    Ok(TextTest::Pattern { pattern, prefix })
}

/// Literal prefix of every text that matches an expression.
fn literal_prefix(expression: &str) -> &str {
    let is_plain = |c: char| c.is_alphanumeric() || "_-:/ @,;=%~\"'!<>".contains(c);
    if expression.contains('|') {
        return "";
    }
    let rest = expression.trim_start_matches(is_plain);
    let prefix = &expression[..expression.len() - rest.len()];
    match prefix.char_indices().next_back() {
        // The last character is repeated, perhaps zero times.
        Some((last, _)) if rest.starts_with(['*', '?', '{']) => &prefix[..last],
        _ => prefix,
    }
}

/// Whether a condition may hold this regular expression: it is one, not too long, and not too large once compiled.
/// Compiles nothing.
pub fn takes_regular_expression(pattern: &str) -> bool {
    Pattern::new(pattern, REGEX_LIMITS).is_ok()
}

/// Limits of a regular expression in a condition.
const REGEX_LIMITS: Limits = Limits {
    text_bytes_max: PATTERN_BYTES_MAX,
    compiled_bytes_max: REGEX_BYTES_MAX as u64,
};
