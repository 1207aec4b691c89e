//! Words, phrases and fuzzy texts on one segment: term lookups, and dictionary scans with an automaton.
//!
//! The evaluation does not read all distinct values of a tag or attribute, except for phrases of very common words.

use roaring::RoaringBitmap;
use tantivy::postings::TermInfo;
use tideline_condition::Subject;
use tideline_condition::text::{Close, SearchedWords, TextTest, Word, is_word};
use tideline_model::SearchAnalyzer;

use super::{Bound, Bounded, SegmentView, end_of_prefix, with_value};
use crate::close_term::CloseTerm;
use crate::mapping::{Keyed, Token, first_name};

/// Maximum number of documents with all words of a phrase up to which the word order is verified document by document.
/// If there are more, every distinct value of the property is tested instead.
const PHRASE_DOCUMENTS_MAX: u64 = 4_096;

/// Term prefixes of a property whose values can contain words.
struct Terms {
    /// Prefix of the terms of words that are not the whole value.
    words: Token,
    /// Prefix of the terms of values. A value that is a single lower-case word has no other term.
    values: Token,
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
        let terms = self.terms_of(property);
        match test {
            TextTest::Words(query) => {
                let all = query.iter().map(|word| self.documents_with(&terms, word));
                Ok(Bounded::exact(all_in(all)?))
            }
            TextTest::Phrase(query) => {
                let all = all_in(query.iter().map(|word| self.documents_with(&terms, word)))?;
                if query.len() > 1 && all.len() > PHRASE_DOCUMENTS_MAX {
                    // Testing each distinct value once may be cheaper than verifying all documents with these
                    // words.
                    return Ok(Bounded::exact(self.values(&terms.values, test)?));
                }
                Ok(phrase(all, query, bound))
            }
            TextTest::Close(close) => {
                let infos = self.close(&terms.values, close, &|_| true)?;
                Ok(Bounded::exact(self.documents(&infos)?))
            }
            _ => Ok(Bounded::exact(self.values(&terms.values, test)?)),
        }
    }

    /// Returns a bound of the documents that contain words, or a phrase, in any property.
    pub(super) fn anywhere(&self, test: &TextTest, bound: Bound) -> tantivy::Result<Bounded> {
        let properties = self.properties()?;
        let anywhere = |word: &Word| -> tantivy::Result<RoaringBitmap> {
            let word_alone = TextTest::Words(SearchedWords::new(SearchAnalyzer::Words, vec![word.clone()]));
            let mut found = self.measured(&|text| word_alone.matches(text))?;
            for terms in &properties {
                found |= self.documents_with(terms, word)?;
            }
            Ok(found)
        };
        match test {
            TextTest::Words(query) => Ok(Bounded::exact(all_in(query.iter().map(anywhere))?)),
            TextTest::Phrase(query) => {
                let in_measurement = self.measured(&|text| test.matches(text))?;
                let mut found = RoaringBitmap::new();
                for terms in &properties {
                    found |= all_in(query.iter().map(|word| self.documents_with(terms, word)))?;
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
    pub(super) fn documents_with_estimate(&self, subject: &Subject, query: &[Word]) -> tantivy::Result<u64> {
        let every = u64::from(self.segment.max_doc());
        let terms = match subject {
            Subject::Tag(key) => self.terms_of(Keyed::Tag(key)),
            Subject::Attribute(key) => self.terms_of(Keyed::Attribute(key)),
            _ => return Ok(every + 1),
        };
        let mut rarest = every + 1;
        for word in query {
            if let Word::Same(word) = word {
                let in_texts = self.frequency(&with_value(terms.words.clone(), word))?;
                let alone = self.frequency(&with_value(terms.values.clone(), word))?;
                rarest = rarest.min(in_texts + alone);
            }
        }
        Ok(rarest)
    }

    fn terms_of(&self, property: Keyed<'_>) -> Terms {
        Terms {
            words: Token::words(self.table, property),
            values: match property {
                Keyed::Tag(key) => Token::tag_values(self.table, key),
                Keyed::Attribute(key) => Token::attribute_texts(self.table, key),
            },
        }
    }

    /// Returns the term prefixes of all keyed properties, with one dictionary lookup per key.
    fn properties(&self) -> tantivy::Result<Vec<Terms>> {
        let mut found = Vec::new();
        self.each_key(Token::tags(self.table), &mut |key| {
            found.push(self.terms_of(Keyed::Tag(key)));
        })?;
        self.each_key(Token::attributes(self.table), &mut |key| {
            found.push(self.terms_of(Keyed::Attribute(key)));
        })?;
        Ok(found)
    }

    /// Visits the distinct keys in the terms of a kind. The key is the first name in a term.
    fn each_key(&self, kind: Token, visit: &mut dyn FnMut(&str)) -> tantivy::Result<()> {
        let end = end_of_prefix(&kind.0);
        let mut next = Some(kind.0);
        while let Some(from) = next.take() {
            let range = self.terms.terms().range().ge(&from);
            let mut stream = match &end {
                Some(end) => range.lt(end).into_stream()?,
                None => range.into_stream()?,
            };
            if let Some((token, _)) = stream.next()
                && let Some((prefix, name)) = first_name(token)
            {
                visit(name);
                next = end_of_prefix(&prefix.0);
            }
        }
        Ok(())
    }

    /// Returns the documents that contain a word in a property.
    fn documents_with(&self, terms: &Terms, word: &Word) -> tantivy::Result<RoaringBitmap> {
        match word {
            Word::Same(word) => {
                let alone = is_word(word).then(|| with_value(terms.values.clone(), word));
                let in_texts = with_value(terms.words.clone(), word);
                self.terms(alone.into_iter().chain([in_texts]))
            }
            Word::Close(close) => {
                let mut infos = self.close(&terms.words, close, &|_| true)?;
                infos.append(&mut self.close(&terms.values, close, &is_word)?);
                self.documents(&infos)
            }
        }
    }

    /// Returns the terms that consist of `prefix` and a non-empty text that passes and is within the edit distance.
    fn close(
        &self,
        prefix: &Token,
        close: &Close,
        passes: &dyn Fn(&str) -> bool,
    ) -> tantivy::Result<Vec<TermInfo>> {
        let mut infos = Vec::new();
        let walk = CloseTerm {
            close,
            prefix: &prefix.0,
        };
        let mut stream = self.terms.terms().search(walk).into_stream()?;
        while let Some((token, info)) = stream.next() {
            let text = &token[prefix.0.len()..];
            if !text.is_empty() && std::str::from_utf8(text).is_ok_and(passes) {
                infos.push(info.clone());
            }
        }
        Ok(infos)
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

/// Intersects all sets; evaluates no further sets once the intersection is empty.
fn all_in(sets: impl Iterator<Item = tantivy::Result<RoaringBitmap>>) -> tantivy::Result<RoaringBitmap> {
    let mut all: Option<RoaringBitmap> = None;
    for set in sets {
        let found = match all {
            Some(all) => all & set?,
            None => set?,
        };
        if found.is_empty() {
            return Ok(found);
        }
        all = Some(found);
    }
    Ok(all.unwrap_or_default())
}
