//! Highlights: the texts of a timeline or row that a condition matched, and the positions of the matches.
//!
//! The texts are read and split again, which is cheap enough because only the timelines or rows of a page are
//! highlighted. The time is linear in the number of texts and matches, because a row can have a text of a million
//! words, or a list of as many texts.

use std::collections::HashMap;
use std::ops::Range;

use tideline_condition::text::{TextTest, phrases};
use tideline_condition::{Node, Record, Subject, ValueRef};
use tideline_timeline_catalog::Entry;

use crate::relevance::{each_text, texts};

/// A text that matched the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Highlight {
    /// Property that holds the text: measurement, source, a tag, an attribute or a column.
    pub subject: Subject,
    /// The text; in a list, the element that matched.
    pub text: String,
    /// Matched ranges in characters, counted from 0, ascending and disjoint.
    pub spans: Vec<Range<usize>>,
}

/// Returns the texts of a timeline that the text tests of a condition match, with the positions of the matches. Each
/// text is returned once per property; tests below a `Not` do not count.
pub(crate) fn highlights(root: &Node, entry: &Entry<'_>) -> Vec<Highlight> {
    collect(root, |subject, take| {
        for (subject, text) in texts(subject, entry) {
            take(&subject, text);
        }
    })
}

/// Returns the texts of a row that the text tests of a condition match, with the positions of the matches. Each text is
/// returned once per column; tests below a `Not` do not count.
pub fn highlights_of_row(root: &Node, row: &impl Record) -> Vec<Highlight> {
    collect(root, |subject, take| {
        row.any_value(subject, |value| {
            if let ValueRef::Text(text) = value {
                take(subject, text);
            }
            false
        });
    })
}

/// Collects the matches of the text tests. `each_text_of` passes each text of a subject with its property to the given
/// function.
fn collect(root: &Node, each_text_of: impl Fn(&Subject, &mut dyn FnMut(&Subject, &str))) -> Vec<Highlight> {
    let mut found: Vec<Highlight> = Vec::new();
    // Positions in `found` by text; a text can occur in several properties.
    let mut by_text: HashMap<String, Vec<usize>> = HashMap::new();
    each_text(root, &mut |subject, test| {
        each_text_of(subject, &mut |subject, text| {
            let mut spans = matched(test, text);
            if spans.is_empty() {
                return;
            }
            let same_text = by_text.get(text).into_iter().flatten();
            let known = same_text.copied().find(|at| found[*at].subject == *subject);
            if let Some(at) = known {
                // Joined at once: thousands of tests can match the same words, and need memory for them once.
                spans.append(&mut found[at].spans);
                found[at].spans = apart(spans);
                return;
            }
            by_text.entry(text.to_owned()).or_default().push(found.len());
            found.push(Highlight {
                subject: subject.clone(),
                text: text.to_owned(),
                spans,
            });
        });
    });
    // So far the ranges are in bytes, unsorted, and may overlap.
    for highlight in &mut found {
        let spans = std::mem::take(&mut highlight.spans);
        highlight.spans = in_characters(&highlight.text, apart(spans));
    }
    found
}

/// Returns the byte ranges of a text that a test matched.
fn matched(test: &TextTest, text: &str) -> Vec<Range<usize>> {
    let found: Vec<Range<usize>> = match test {
        TextTest::Words(query) => {
            let found = query.split(text).into_iter();
            let found = found.filter(|found| query.iter().any(|word| word.is(&found.word)));
            found.map(|found| found.at).collect()
        }
        TextTest::Phrase(query) => {
            let found = query.split(text);
            let spans = |first: usize| found[first].at.start..found[first + query.len() - 1].at.end;
            phrases(query, &found).map(spans).collect()
        }
        TextTest::Predicate(predicate) if predicate.matches(text.as_bytes()) => {
            Vec::from([predicate.matched(text)])
        }
        whole if whole.matches(text) => Vec::from([Range {
            start: 0,
            end: text.len(),
        }]),
        _ => Vec::new(),
    };
    found.into_iter().filter(|span| !span.is_empty()).collect()
}

/// Sorts ranges, and joins ranges that overlap or touch.
fn apart(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut apart: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => apart.push(span),
        }
    }
    apart
}

/// Converts ascending ranges of bytes to ranges of characters, in one pass over the text.
fn in_characters(text: &str, spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let (mut bytes, mut characters) = (0, 0);
    let mut count = |to: usize| {
        characters += text[bytes..to].chars().count();
        bytes = to;
        characters
    };
    let in_characters = |span: Range<usize>| count(span.start)..count(span.end);
    spans.into_iter().map(in_characters).collect()
}
