//! `/guide`: the pages of `docs/` as HTML.
//!
//! The pages are included in the binary, so that they match its version and work without internet access.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag};
use tideline_openapi::ErrorCode;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::app::App;
use crate::failure::Failure;

/// Policy that allows nothing but this page and the styles in its head.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// Page of the guide.
struct Page {
    name: &'static str,
    markdown: &'static str,
}

macro_rules! pages {
    ($($name:literal),* $(,)?) => {
        &[$(Page {
            name: $name,
            markdown: include_str!(concat!("../../../../docs/", $name, ".md")),
        }),*]
    };
}

/// All pages, in the order of the index.
const PAGES: &[Page] = pages![
    "index",
    "concepts",
    "glossary",
    "keys",
    "points",
    "timelines",
    "searches",
    "queries",
    "watch",
    "tables",
    "jobs",
    "archive",
    "deletes",
    "command-line",
    "agents",
    "prometheus",
    "operations",
    "settings",
    "figures",
    "errors",
];

const STYLE: &str = "body{font:16px/1.55 system-ui,sans-serif;max-width:54rem;margin:0 auto;padding:1rem 1.2rem 4rem;\
     color:#1b2733;background:#fff}nav{border-bottom:1px solid #d5dde5;padding-bottom:.6rem;margin-bottom:1.2rem}\
     nav a{margin-right:.9rem;white-space:nowrap}a{color:#0b6a8f}pre{background:#f3f6f8;padding:.8rem;overflow-x:auto;\
     border-radius:4px}code{font:14px/1.45 ui-monospace,monospace;background:#f3f6f8}table{border-collapse:collapse}\
     td,th{border:1px solid #d5dde5;padding:.3rem .6rem;text-align:left;vertical-align:top}\
     @media(prefers-color-scheme:dark){body{color:#dbe4ec;background:#12181e}pre,code{background:#1d262e}a{color:#6cc5e6}\
     td,th,nav{border-color:#33414d}}";

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(async || Redirect::temporary("/guide/index")))
        .route("/guide", get(async || Redirect::permanent("/guide/index")))
        .route("/guide/", get(async || Redirect::permanent("/guide/index")))
        .route("/guide/{page}", get(page))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_SECURITY_POLICY),
        ))
}

async fn page(Path(name): Path<String>) -> Response {
    // Links in the Markdown sources end with `.md`.
    let name = name.strip_suffix(".md").unwrap_or(&name);
    match PAGES.iter().find(|page| page.name == name) {
        Some(page) => Html(page.html()).into_response(),
        None => Failure::new(
            ErrorCode::NotFound,
            "the guide has no such page; see /guide/index",
        )
        .into_response(),
    }
}

impl Page {
    /// Returns the title of the page, from its first line.
    fn title(&self) -> &'static str {
        let first = self.markdown.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    fn html(&self) -> String {
        let mut html = String::with_capacity(self.markdown.len() * 2);
        html.push_str("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
        html.push_str("<meta name=\"viewport\" content=\"width=device-width\"><title>");
        html.push_str(self.title());
        html.push_str("</title><style>");
        html.push_str(STYLE);
        html.push_str("</style><nav>");
        for page in PAGES {
            let (name, title) = (page.name, page.title());
            html.push_str(&format!("<a href=\"{name}\">{title}</a> "));
        }
        html.push_str("<a href=\"/docs/\">API</a></nav>");
        let events = Parser::new_ext(self.markdown, Options::ENABLE_TABLES).map(to_served_links);
        pulldown_cmark::html::push_html(&mut html, events);
        html.push_str("</html>\n");
        html
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
            let dest_url = match dest_url.strip_suffix(".md") {
                Some(page) => CowStr::from(page.to_owned()),
                None => dest_url,
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
    use super::*;

    fn links(page: &Page) -> Vec<String> {
        let events = Parser::new_ext(page.markdown, Options::ENABLE_TABLES);
        let links = events.filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        });
        links.collect()
    }

    #[test]
    fn every_link_leads_to_a_page_and_the_index_to_all() {
        for page in PAGES {
            for link in links(page) {
                let name = link
                    .strip_suffix(".md")
                    .unwrap_or_else(|| panic!("{link} of {} leaves", page.name));
                assert!(
                    PAGES.iter().any(|page| page.name == name),
                    "{link} of {}",
                    page.name
                );
            }
        }
        let listed = links(&PAGES[0]);
        let names = PAGES[1..].iter().map(|page| format!("{}.md", page.name));
        assert_eq!(listed, names.collect::<Vec<_>>());
    }

    #[test]
    fn pages_are_whole_and_name_no_files() {
        for page in PAGES {
            let html = page.html();
            assert!(
                html.contains("<h1>") && html.ends_with("</html>\n"),
                "{}",
                page.name
            );
            assert!(!html.contains(".md\""), "{}", page.name);
        }
    }
}
