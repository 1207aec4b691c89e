//! Search index of the guide: one entry per section, with its text in lower case.
//!
//! The browser downloads the index, which is about as large as the pages, and searches it. The server therefore has
//! no search route that a client could overload.

use serde::Serialize;

use crate::page::Page;

/// Entry of the index.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    /// Address relative to the guide: the page, and an anchor except for the first section.
    at: String,
    /// Title of the page.
    page: &'a str,
    /// Heading of the section.
    heading: String,
    /// Title, heading and text in lower case, with single spaces.
    text: String,
}

/// Returns the index of all pages as JSON.
pub(crate) fn index(pages: &[Page]) -> String {
    let entries: Vec<Entry<'_>> = pages
        .iter()
        .flat_map(|page| {
            page.sections()
                .into_iter()
                .enumerate()
                .map(move |(number, section)| {
                    let text =
                        format!("{} {} {}", page.title(), section.heading, section.text).to_lowercase();
                    Entry {
                        // The first section has the address of the page.
                        at: match number {
                            0 => page.name.to_owned(),
                            _ => format!("{}#{}", page.name, section.anchor),
                        },
                        page: page.title(),
                        heading: section.heading,
                        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                    }
                })
        })
        .collect();
    serde_json::to_string(&entries).expect("texts can be serialized")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::PAGES;

    #[test]
    fn sections_are_found_by_the_words_of_their_text() {
        let index: Vec<Value> = serde_json::from_str(&super::index(PAGES)).expect("JSON");
        let found = |words: &[&str]| -> Vec<&str> {
            let has_all = |entry: &&Value| {
                let text = entry["text"].as_str().expect("a text");
                words.iter().all(|word| text.contains(word))
            };
            let hits = index.iter().filter(has_all);
            hits.map(|entry| entry["at"].as_str().expect("an address"))
                .collect()
        };
        assert!(
            found(&["idempotency-key"])
                .iter()
                .any(|at| at.starts_with("points#"))
        );
        assert!(found(&["keep_cold"]).iter().any(|at| at.starts_with("archive")));
        assert_eq!(found(&["no page contains this"]), Vec::<&str>::new());
    }
}
