//! Words, phrases and close texts on one segment: look-ups among the terms of words, and walks along the dictionary with
//! an automaton. Nothing of this looks at all distinct values of a property, but for phrases of very common words.

use roaring::RoaringBitmap;

use super::{Bound, Bounded, SegmentView, end_of_prefix, with_value};
use crate::mapping::{Property, Token};
use crate::text::{Close, TextTest, Word};

/// Up to this many documents with all words of a phrase are looked at one by one for their order.
const PHRASE_DOCUMENTS_MAX: u64 = 4_096;

impl SegmentView<'_> {
    /// Documents with a value of a property that passes; missing ones left aside.
    pub(super) fn property(
        &self,
        property: Property<'_>,
        test: &TextTest,
        bound: Bound,
    ) -> tantivy::Result<Bounded> {
        let values = match property {
            Property::Measurement => Token::measurement(self.table, ""),
            Property::Tag(key) => Token::tag(self.table, key, ""),
            Property::Attribute(key) => Token::attribute_text(self.table, key, ""),
        };
        match test {
            TextTest::Words(asked) => {
                let words = Token::word(self.table, property, "");
                let all = asked.iter().map(|word| self.saying(&words, word));
                Ok(Bounded::exact(all_in(all)?))
            }
            TextTest::Phrase(asked) => {
                let words = Token::word(self.table, property, "");
                let all = all_in(asked.iter().map(|word| self.saying(&words, word)))?;
                if asked.len() > 1 && all.len() > PHRASE_DOCUMENTS_MAX {
                    // Looking at each distinct value once may be less than looking at that many documents.
                    return Ok(Bounded::exact(self.values(&values, test)?));
                }
                Ok(phrase(all, asked, bound))
            }
            TextTest::Close(close) => Ok(Bounded::exact(self.close(&values, close)?)),
            _ => Ok(Bounded::exact(self.values(&values, test)?)),
        }
    }

    /// Documents that say words, or a phrase, in any property.
    pub(super) fn anywhere(&self, test: &TextTest, bound: Bound) -> tantivy::Result<Bounded> {
        let properties = self.properties()?;
        let anywhere = |word: &Word| -> tantivy::Result<RoaringBitmap> {
            let mut found = RoaringBitmap::new();
            for words in &properties {
                found |= self.saying(words, word)?;
            }
            Ok(found)
        };
        match test {
            TextTest::Words(asked) => Ok(Bounded::exact(all_in(asked.iter().map(anywhere))?)),
            TextTest::Phrase(asked) => {
                let mut found = RoaringBitmap::new();
                for words in &properties {
                    found |= all_in(asked.iter().map(|word| self.saying(words, word)))?;
                }
                Ok(phrase(found, asked, bound))
            }
            // Nothing else is asked of all properties.
            _ => Ok(Bounded::exact(RoaringBitmap::new())),
        }
    }

    /// What the words of each property begin with, one look into the dictionary for each.
    fn properties(&self) -> tantivy::Result<Vec<Token>> {
        let mut found = Vec::new();
        let words = Token::words(self.table);
        let end = end_of_prefix(&words.0);
        let mut next = Some(words.0);
        while let Some(from) = next.take() {
            let range = self.terms.terms().range().ge(&from);
            let mut stream = match &end {
                Some(end) => range.lt(end).into_stream()?,
                None => range.into_stream()?,
            };
            if let Some((token, _)) = stream.next()
                && let Some(property) = Token::property_of_word(token)
            {
                next = end_of_prefix(&property.0);
                found.push(property);
            }
        }
        Ok(found)
    }

    /// Documents that say a word in the property whose words begin with `words`.
    fn saying(&self, words: &Token, word: &Word) -> tantivy::Result<RoaringBitmap> {
        match word {
            Word::Same(word) => self.term(&with_value(words.clone(), word)),
            Word::Close(close) => self.close(words, close),
        }
    }

    /// Documents with a term behind `prefix` that is close to a text.
    fn close(&self, prefix: &Token, close: &Close) -> tantivy::Result<RoaringBitmap> {
        let mut infos = Vec::new();
        let mut stream = self.terms.terms().search(close.behind(&prefix.0)).into_stream()?;
        while let Some((token, info)) = stream.next() {
            if token.len() > prefix.0.len() {
                infos.push(info.clone());
            }
        }
        self.documents(&infos)
    }
}

/// Of documents that say all words of a phrase, which the index cannot put in order.
fn phrase(documents: RoaringBitmap, asked: &[Word], bound: Bound) -> Bounded {
    if asked.len() == 1 {
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

/// What all sets hold; those after an empty one are not made.
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
