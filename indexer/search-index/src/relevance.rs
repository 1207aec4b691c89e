//! Relevance score of a timeline for the words of a condition, and the texts of a subject.

use tideline_condition::text::{SearchedWords, TextTest};
use tideline_condition::{Node, Subject};
use tideline_timeline_catalog::{AttributeRef, Entry};

use crate::record::{Property, texts_of};

/// Words of a condition, each list with the subject that it applies to.
pub(crate) struct QueryWords<'a>(Vec<(&'a Subject, &'a SearchedWords)>);

impl<'a> QueryWords<'a> {
    /// Collects the words of all word and phrase tests that are not below a `Not`.
    pub(crate) fn of(root: &'a Node) -> Self {
        let mut query = Vec::new();
        each_text(root, &mut |subject, test| {
            if let TextTest::Words(words) | TextTest::Phrase(words) = test {
                query.push((subject, words));
            }
        });
        Self(query)
    }

    /// Returns the number of words.
    pub(crate) fn words(&self) -> usize {
        self.0.iter().map(|(_, words)| words.len()).sum()
    }

    /// Returns the score as defined at [`crate::SortBy::Relevance`], summed over all words.
    pub(crate) fn score(&self, entry: &Entry<'_>) -> f64 {
        self.0
            .iter()
            .map(|(subject, query)| score(subject, query, entry))
            .sum()
    }
}

fn score(subject: &Subject, query: &SearchedWords, entry: &Entry<'_>) -> f64 {
    let mut best = vec![0.0f64; query.len()];
    for (_, text) in texts(subject, entry) {
        let found = query.split(text);
        let brief = 0.5 + 0.5 / found.len().max(1) as f64;
        for (word, best) in query.iter().zip(&mut best) {
            let edits = found.iter().filter_map(|found| word.edits(&found.word)).min();
            if let Some(edits) = edits {
                *best = best.max(brief / (1.0 + f64::from(edits)));
            }
        }
    }
    best.iter().sum()
}

/// Visits every text test that is not below a `Not`.
pub(crate) fn each_text<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Subject, &'a TextTest)) {
    match node {
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().for_each(|node| each_text(node, visit)),
        Node::Text(subject, test) => visit(subject, test),
        _ => {}
    }
}

/// Returns the texts of a subject, each with its property.
pub(crate) fn texts<'a>(subject: &Subject, entry: &Entry<'a>) -> Vec<(Subject, &'a str)> {
    let one = |subject: Subject, text: Option<&'a str>| {
        text.into_iter().map(|text| (subject.clone(), text)).collect()
    };
    match subject {
        Subject::Any => {
            let owned = |property: Property<'_>| match property {
                Property::Measurement => Subject::Measurement,
                Property::Tag(key) => Subject::Tag(key.to_owned()),
                Property::Attribute(key) => Subject::Attribute(key.to_owned()),
            };
            texts_of(entry)
                .map(|(property, text)| (owned(property), text))
                .collect()
        }
        Subject::Measurement => one(Subject::Measurement, Some(entry.measurement())),
        Subject::Source => one(Subject::Source, entry.source()),
        Subject::Tag(key) => one(Subject::Tag(key.clone()), entry.tag(key)),
        Subject::Attribute(key) => {
            let subject = Subject::Attribute(key.clone());
            match entry.attribute(key) {
                Some(AttributeRef::Text(text)) => one(subject, Some(text)),
                Some(AttributeRef::Texts(texts)) => {
                    texts.iter().map(|text| (subject.clone(), text)).collect()
                }
                _ => Vec::new(),
            }
        }
        // These subjects have no text tests.
        Subject::Id | Subject::FirstSeen | Subject::LastSeen | Subject::Field(_) | Subject::Column(_) => {
            Vec::new()
        }
    }
}
