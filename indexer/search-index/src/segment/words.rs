//! Text tests of tags and attributes on one segment. Words, phrases and fuzzy texts are evaluated by term lookups and
//! by dictionary scans with an automaton.
//!
//! These evaluations do not read all distinct values of a tag or attribute, except for phrases of very common words.

use std::ops::Bound::{Excluded, Included, Unbounded};

use roaring::RoaringBitmap;
use tideline_condition::Subject;
use tideline_condition::text::{SearchedWords, TextTest, Word, is_word};
use tideline_model::{KeyRange, SearchAnalyzer};

use super::{Bound, Bounded, SegmentView, with_value};
use crate::documents::all_in;
use crate::mapping::{Keyed, Token, first_name};

/// Maximum number of documents whose word order is verified document by document. If more documents contain all words
/// of a phrase, every distinct value of the property is tested instead.
const PHRASE_DOCUMENTS_MAX: u64 = 4_096;

/// Term prefixes of a property whose values can contain words.
struct Prefixes {
    /// Prefix of the terms of words that are not the whole value.
    words: Token,
    /// Prefix of the terms of values.
    values: Token,
    /// True if a value that is a single lower-case word has only the term of the value, and no term of the word.
    are_values_words: bool,
}

impl SegmentView<'_> {
    /// Returns a bound of the documents whose value of `property` passes `test`. Documents without the property are
    /// excluded.
    pub(super) fn keyed(
        &self,
        property: Keyed<'_>,
        test: &TextTest,
        bound: Bound,
    ) -> tantivy::Result<Bounded> {
        let property = match (property, test) {
            (Keyed::Attribute(key), TextTest::Words(query) | TextTest::Phrase(query))
                if query.analyzer() != SearchAnalyzer::Words =>
            {
                Keyed::Analyzed(key)
            }
            _ => property,
        };
        let prefixes = self.prefixes_of(property);
        match test {
            TextTest::Words(query) => {
                let all = query.iter().map(|word| self.documents_with(&prefixes, word));
                Ok(Bounded::exact(all_in(all)?))
            }
            TextTest::Phrase(query) => {
                let all = all_in(query.iter().map(|word| self.documents_with(&prefixes, word)))?;
                if query.len() > 1 && all.len() > PHRASE_DOCUMENTS_MAX {
                    // Testing each distinct value once may be cheaper than verifying all documents with these
                    // words.
                    return Ok(Bounded::exact(self.values(&prefixes.values, test)?));
                }
                Ok(phrase(all, query, bound))
            }
            TextTest::Close(close) => {
                let infos = self.terms.close(&prefixes.values.0, close, |_| true)?;
                Ok(Bounded::exact(self.terms.documents(&infos)?))
            }
            _ => Ok(Bounded::exact(self.values(&prefixes.values, test)?)),
        }
    }

    /// Returns a bound of the documents that contain words, or a phrase, in any property.
    pub(super) fn anywhere(&self, test: &TextTest, bound: Bound) -> tantivy::Result<Bounded> {
        let properties = self.properties()?;
        let anywhere = |word: &Word| -> tantivy::Result<RoaringBitmap> {
            let word_alone = TextTest::Words(SearchedWords::new(SearchAnalyzer::Words, vec![word.clone()]));
            let mut found = self.measured(&|text| word_alone.matches(text))?;
            for prefixes in &properties {
                found |= self.documents_with(prefixes, word)?;
            }
            Ok(found)
        };
        match test {
            TextTest::Words(query) => Ok(Bounded::exact(all_in(query.iter().map(anywhere))?)),
            TextTest::Phrase(query) => {
                let in_measurement = self.measured(&|text| test.matches(text))?;
                let mut found = RoaringBitmap::new();
                for prefixes in &properties {
                    found |= all_in(query.iter().map(|word| self.documents_with(prefixes, word)))?;
                }
                let mut bounded = phrase(found, query, bound);
                bounded.documents |= in_measurement;
                Ok(bounded)
            }
            // Other tests do not support `Subject::Any`.
            _ => Ok(Bounded::exact(RoaringBitmap::new())),
        }
    }

    /// Estimates the number of documents that contain all given words: the frequency of the rarest exact word. If there
    /// is no estimate, returns one more than the number of documents.
    pub(super) fn documents_with_estimate(
        &self,
        subject: &Subject,
        query: &SearchedWords,
    ) -> tantivy::Result<u64> {
        let every = u64::from(self.segment.max_doc());
        let prefixes = match subject {
            Subject::Tag(key) => self.prefixes_of(Keyed::Tag(key)),
            Subject::Attribute(key) if query.analyzer() != SearchAnalyzer::Words => {
                self.prefixes_of(Keyed::Analyzed(key))
            }
            Subject::Attribute(key) => self.prefixes_of(Keyed::Attribute(key)),
            _ => return Ok(every + 1),
        };
        let mut rarest = every + 1;
        for word in query.iter() {
            if let Word::Same(word) = word {
                let in_texts = self.frequency(&with_value(prefixes.words.clone(), word))?;
                let alone = match prefixes.are_values_words {
                    true => self.frequency(&with_value(prefixes.values.clone(), word))?,
                    false => 0,
                };
                rarest = rarest.min(in_texts + alone);
            }
        }
        Ok(rarest)
    }

    fn prefixes_of(&self, property: Keyed<'_>) -> Prefixes {
        Prefixes {
            words: Token::words(self.table, property),
            values: match property {
                Keyed::Tag(key) => Token::tag_values(self.table, key),
                Keyed::Attribute(key) | Keyed::Analyzed(key) => Token::attribute_texts(self.table, key),
            },
            are_values_words: !matches!(property, Keyed::Analyzed(_)),
        }
    }

    /// Returns the term prefixes of all keyed properties, with one dictionary lookup per key.
    fn properties(&self) -> tantivy::Result<Vec<Prefixes>> {
        let mut found = Vec::new();
        self.each_key(Token::tags(self.table), &mut |key| {
            found.push(self.prefixes_of(Keyed::Tag(key)));
        })?;
        self.each_key(Token::attributes(self.table), &mut |key| {
            found.push(self.prefixes_of(Keyed::Attribute(key)));
        })?;
        Ok(found)
    }

    /// Visits the distinct keys in the terms of a kind. The key is the first name in a term.
    fn each_key(&self, kind: Token, visit: &mut dyn FnMut(&str)) -> tantivy::Result<()> {
        let end = KeyRange::prefix(&kind.0).end;
        let mut next = Some(kind.0);
        while let Some(from) = next.take() {
            let end = end.as_deref().map_or(Unbounded, Excluded);
            let mut stream = self.terms.stream((Included(&from), end))?;
            if let Some((token, _)) = stream.next()
                && let Some((prefix, name)) = first_name(token)
            {
                visit(name);
                next = KeyRange::prefix(&prefix.0).end;
            }
        }
        Ok(())
    }

    /// Returns the documents that contain a word in a property.
    fn documents_with(&self, prefixes: &Prefixes, word: &Word) -> tantivy::Result<RoaringBitmap> {
        match word {
            Word::Same(word) => {
                let is_alone = prefixes.are_values_words && is_word(word);
                let alone = is_alone.then(|| with_value(prefixes.values.clone(), word));
                let in_texts = with_value(prefixes.words.clone(), word);
                self.terms(alone.into_iter().chain([in_texts]))
            }
            Word::Close(close) => {
                let mut infos = self.terms.close(&prefixes.words.0, close, |_| true)?;
                if prefixes.are_values_words {
                    infos.append(&mut self.terms.close(&prefixes.values.0, close, is_word)?);
                }
                self.terms.documents(&infos)
            }
        }
    }
}

/// Returns the bound of a phrase from the documents with all its words. The index holds no word order.
fn phrase(documents: RoaringBitmap, query: &[Word], bound: Bound) -> Bounded {
    if query.len() == 1 {
        return Bounded::exact(documents);
    }
    Bounded {
        exact: documents.is_empty(),
        documents: match bound {
            Bound::Upper => documents,
            Bound::Lower => RoaringBitmap::new(),
        },
    }
}
