//! Pages: Markdown to HTML.
//!
//! Headings below the title get the same anchors as on GitHub, so that a link to a section works on GitHub and in the
//! served page. Links to other source files become links to served pages.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Page of the guide.
#[derive(Debug)]
pub(crate) struct Page {
    /// Name of the page in URLs.
    pub(crate) name: &'static str,
    /// Markdown source.
    pub(crate) markdown: &'static str,
}

/// Section of a page: a heading and the text up to the next heading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) anchor: String,
    pub(crate) text: String,
}

impl Page {
    /// Returns the title: the first line without its leading `#`.
    pub(crate) fn title(&self) -> &'static str {
        let first = self.markdown.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// Renders the page, with links to all pages.
    pub(crate) fn html(&self, pages: &[Self]) -> String {
        let mut html = String::with_capacity(self.markdown.len() * 2);
        html.push_str(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <link rel=\"stylesheet\" href=\"guide.css\"><script src=\"guide.js\" defer></script><title>",
        );
        html.push_str(self.title());
        html.push_str(
            "</title><header><label>Search <input type=\"search\" id=\"search\" autocomplete=\"off\"></label>\
             <ul id=\"found\" aria-live=\"polite\"></ul><details id=\"pages\"><summary>Pages</summary><nav>",
        );
        for page in pages {
            let current = if page.name == self.name {
                " aria-current=\"page\""
            } else {
                ""
            };
            html.push_str(&format!(
                "<a href=\"{}\"{current}>{}</a> ",
                page.name,
                page.title()
            ));
        }
        html.push_str("<a href=\"/docs/\">API</a></nav></details></header><main>");
        let mut events: Vec<Event<'_>> = self.events().map(to_served_links).collect();
        add_anchors(&mut events);
        pulldown_cmark::html::push_html(&mut html, events.into_iter());
        html.push_str("</main></html>\n");
        html
    }

    /// Returns the sections in order. Tables and code are part of the text; text before the first heading is omitted.
    pub(crate) fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        let mut is_heading = false;
        for event in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => {
                    is_heading = true;
                    sections.push(Section {
                        heading: String::new(),
                        anchor: String::new(),
                        text: String::new(),
                    });
                }
                Event::End(TagEnd::Heading(_)) => {
                    is_heading = false;
                    if let Some(section) = sections.last_mut() {
                        section.anchor = anchor(&section.heading);
                    }
                }
                Event::Text(text) | Event::Code(text) => {
                    let Some(section) = sections.last_mut() else {
                        continue;
                    };
                    let part = if is_heading {
                        &mut section.heading
                    } else {
                        &mut section.text
                    };
                    part.push_str(&text);
                }
                // Separates the words of neighboring blocks.
                Event::End(_) | Event::SoftBreak | Event::HardBreak if !is_heading => {
                    if let Some(section) = sections.last_mut() {
                        section.text.push(' ');
                    }
                }
                _ => {}
            }
        }
        sections
    }

    fn events(&self) -> Parser<'static> {
        Parser::new_ext(self.markdown, Options::ENABLE_TABLES)
    }

    /// Returns the targets of all links.
    #[cfg(test)]
    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.events().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        });
        links.collect()
    }
}

/// Returns the anchor of a heading: its letters and digits, with ASCII letters in lower case and hyphens for spaces.
/// Punctuation is removed, except `-` and `_`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Adds an anchor to each heading below the title.
fn add_anchors(events: &mut [Event<'_>]) {
    for at in 0..events.len() {
        let Event::Start(Tag::Heading { level, .. }) = &events[at] else {
            continue;
        };
        if *level == HeadingLevel::H1 {
            continue;
        }
        let inside = events[at + 1..]
            .iter()
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
        let text: String = inside
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
                _ => None,
            })
            .collect();
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[at] {
            *id = Some(CowStr::from(anchor(&text)));
        }
    }
}

/// Converts links between source files to links between served pages.
fn to_served_links(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => {
            let dest_url = match dest_url.split_once(".md") {
                Some((page, rest)) if !page.contains("://") => CowStr::from(format!("{page}{rest}")),
                _ => dest_url,
            };
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::PAGES;

    #[test]
    fn every_link_leads_to_a_section_and_the_index_to_all_pages() {
        for page in PAGES {
            for link in page.links() {
                let (name, section) = link.split_once('#').unwrap_or((&link, ""));
                let name = name.strip_suffix(".md").unwrap_or(name);
                let target = match name {
                    "" => Some(page),
                    _ => PAGES.iter().find(|page| page.name == name),
                };
                let target = target.unwrap_or_else(|| panic!("{link} of {}: no such page", page.name));
                let has_section = target.sections().iter().any(|found| found.anchor == section);
                assert!(
                    section.is_empty() || has_section,
                    "{link} of {}: no such section",
                    page.name
                );
            }
        }
        let listed = PAGES[0].links();
        let names = PAGES[1..].iter().map(|page| format!("{}.md", page.name));
        assert_eq!(listed, names.collect::<Vec<_>>());
    }

    #[test]
    fn pages_are_complete_and_link_to_no_source_files() {
        for page in PAGES {
            let html = page.html(PAGES);
            assert!(
                html.contains("<h1>") && html.ends_with("</html>\n"),
                "{}",
                page.name
            );
            assert!(!html.contains(".md\"") && !html.contains(".md#"), "{}", page.name);
        }
    }

    #[test]
    fn sections_of_a_page_have_distinct_anchors() {
        for page in PAGES {
            let sections = page.sections();
            let anchors: BTreeSet<&str> = sections.iter().map(|section| section.anchor.as_str()).collect();
            assert_eq!(anchors.len(), sections.len(), "{}", page.name);
        }
        assert_eq!(
            anchor("What `hot_ttl` does, and when"),
            "what-hot_ttl-does-and-when"
        );
    }
}
