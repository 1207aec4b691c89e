//! Analyzers, which split texts into the words that a search compares.
//!
//! The same analyzer splits the text of a search and the texts that the search compares with it. The analyzer of a
//! language reduces each word to its stem with a Snowball algorithm. The version of the library is pinned, because an
//! index on disk holds stems.

use std::borrow::Cow;
use std::ops::Range;

use frostem::{Algorithm, Stemmer};
use tideline_model::{SearchAnalyzer, SearchLanguage};

use crate::text::{WordAt, words_at};

/// Splits a text into words with their byte ranges.
///
/// # Examples
///
/// ```
/// use tideline_condition::analyzer::analyzed;
/// use tideline_model::{SearchAnalyzer, SearchLanguage};
///
/// let words = analyzed(SearchAnalyzer::Language(SearchLanguage::English), "Connected houses");
/// let words: Vec<&str> = words.iter().map(|found| &*found.word).collect();
/// assert_eq!(words, ["connect", "hous"]);
/// ```
pub fn analyzed(analyzer: SearchAnalyzer, text: &str) -> Vec<WordAt<'_>> {
    match analyzer {
        SearchAnalyzer::Words => words_at(text).collect(),
        SearchAnalyzer::Language(language) => {
            let stemmer = Stemmer::new(algorithm(language));
            let stemmed = words_at(text).map(|found| WordAt {
                word: Cow::Owned(stemmer.stem(&found.word).into_owned()),
                at: found.at,
            });
            stemmed.collect()
        }
        SearchAnalyzer::Ngram(length) => {
            let mut grams = Vec::new();
            for found in words_at(text) {
                push_grams(text, found.at, usize::from(length), &mut grams);
            }
            grams
        }
        SearchAnalyzer::Cjk => {
            let mut words = Vec::new();
            for found in words_at(text) {
                for (is_cjk, at) in runs(text, found.at) {
                    match is_cjk {
                        true => push_grams(text, at, 2, &mut words),
                        false => words.push(in_lower_case(text, at)),
                    }
                }
            }
            words
        }
    }
}

/// Appends all substrings of a word that have `length` characters (n-grams). A shorter word is appended whole.
fn push_grams<'t>(text: &'t str, word: Range<usize>, length: usize, grams: &mut Vec<WordAt<'t>>) {
    let starts = text[word.clone()].char_indices().map(|(at, _)| word.start + at);
    let mut ends: Vec<usize> = starts.collect();
    ends.push(word.end);
    if ends.len() <= length {
        grams.push(in_lower_case(text, word));
        return;
    }
    for gram in ends.windows(length + 1) {
        grams.push(in_lower_case(text, gram[0]..gram[length]));
    }
}

fn in_lower_case(text: &str, at: Range<usize>) -> WordAt<'_> {
    WordAt {
        word: Cow::Owned(text[at.clone()].to_lowercase()),
        at,
    }
}

/// Splits a word into runs of Chinese, Japanese or Korean characters (true) and runs of other characters (false).
fn runs(text: &str, word: Range<usize>) -> Vec<(bool, Range<usize>)> {
    let mut runs: Vec<(bool, Range<usize>)> = Vec::new();
    for (at, character) in text[word.clone()].char_indices() {
        let (start, end) = (word.start + at, word.start + at + character.len_utf8());
        match runs.last_mut() {
            Some((is_cjk, run)) if *is_cjk == is_cjk_character(character) => run.end = end,
            _ => runs.push((is_cjk_character(character), start..end)),
        }
    }
    runs
}

/// Returns true for Chinese, Japanese and Korean characters.
fn is_cjk_character(character: char) -> bool {
    matches!(
        u32::from(character),
        0x1100..=0x11ff // Hangul Jamo
            | 0x2e80..=0x303f // radicals, ideographic marks
            | 0x3040..=0x30ff // Hiragana, Katakana
            | 0x3100..=0x31ff // Bopomofo, Katakana extensions
            | 0x3400..=0x4dbf // Han, extension A
            | 0x4e00..=0x9fff // Han
            | 0xac00..=0xd7af // Hangul
            | 0xf900..=0xfaff // Han, compatibility
            | 0xff66..=0xff9f // Katakana, half width
            | 0x20000..=0x3ffff // Han, further extensions
    )
}

fn algorithm(language: SearchLanguage) -> Algorithm {
    match language {
        SearchLanguage::Danish => Algorithm::Danish,
        SearchLanguage::Dutch => Algorithm::Dutch,
        SearchLanguage::English => Algorithm::English,
        SearchLanguage::Finnish => Algorithm::Finnish,
        SearchLanguage::French => Algorithm::French,
        SearchLanguage::German => Algorithm::German,
        SearchLanguage::Italian => Algorithm::Italian,
        SearchLanguage::Norwegian => Algorithm::Norwegian,
        SearchLanguage::Portuguese => Algorithm::Portuguese,
        SearchLanguage::Russian => Algorithm::Russian,
        SearchLanguage::Spanish => Algorithm::Spanish,
        SearchLanguage::Swedish => Algorithm::Swedish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(analyzer: SearchAnalyzer, text: &str) -> Vec<String> {
        let words = analyzed(analyzer, text);
        for word in &words {
            assert!(text.get(word.at.clone()).is_some(), "a range of the text");
        }
        words.into_iter().map(|found| found.word.into_owned()).collect()
    }

    #[test]
    fn languages_reduce_words_to_stems() {
        let of = |language, text| split(SearchAnalyzer::Language(language), text);
        assert_eq!(of(SearchLanguage::English, "Running dogs"), ["run", "dog"]);
        assert_eq!(of(SearchLanguage::German, "Häuser, Haus"), ["haus", "haus"]);
        assert_eq!(of(SearchLanguage::French, "continuellement"), ["continuel"]);
        assert_eq!(
            of(SearchLanguage::Russian, "книги"),
            of(SearchLanguage::Russian, "книга")
        );
    }

    #[test]
    fn grams_overlap_within_words() {
        assert_eq!(
            split(SearchAnalyzer::Ngram(3), "Wine ab é"),
            ["win", "ine", "ab", "é"]
        );
        assert_eq!(split(SearchAnalyzer::Ngram(2), "Übung"), ["üb", "bu", "un", "ng"]);
    }

    #[test]
    fn chinese_japanese_and_korean_are_pairs_of_characters() {
        assert_eq!(
            split(SearchAnalyzer::Cjk, "東京都 Tokyo2020"),
            ["東京", "京都", "tokyo2020"]
        );
        assert_eq!(
            split(SearchAnalyzer::Cjk, "iPhone手机壳"),
            ["iphone", "手机", "机壳"]
        );
        assert_eq!(split(SearchAnalyzer::Cjk, "水"), ["水"]);
    }
}
