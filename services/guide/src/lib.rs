//! The guide: the pages of `docs/` as HTML, with search and copy buttons.
//!
//! The pages are included in the binary, so that they match its version and work without internet access. All files
//! are generated once, at the first request for any file. Search runs in the browser, over an index of all sections.
//!
//! | module | contents |
//! |---|---|
//! | `page` | Markdown to HTML, with anchors of headings |
//! | `search` | the search index |

mod page;
mod search;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use page::Page;

/// Content security policy of the pages: allows scripts and styles of this service and requests to it, and nothing
/// else.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! pages {
    ($($name:literal),* $(,)?) => {
        &[$(Page {
            name: $name,
            markdown: include_str!(concat!("../../../docs/", $name, ".md")),
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
    "rows",
    "row-search",
    "row-examples",
    "row-diagnosis",
    "feeds",
    "feed-examples",
    "sql",
    "watch",
    "changes",
    "tables",
    "jobs",
    "archive",
    "deletes",
    "command-line",
    "agents",
    "prometheus",
    "access",
    "operations",
    "cassandra",
    "settings",
    "figures",
    "errors",
];

/// A file of the guide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuideFile {
    /// Value of the header `Content-Type`.
    pub content_type: &'static str,
    /// Content of the file.
    pub text: Cow<'static, str>,
}

/// Returns a file by its name: a page such as `jobs`, or `guide.css`, `guide.js` or `search.json`. An ending `.md`, as
/// in links between the Markdown sources, is ignored. Returns `None` for any other name.
pub fn file(name: &str) -> Option<&'static GuideFile> {
    static FILES: OnceLock<BTreeMap<&'static str, GuideFile>> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let file = |content_type, text: Cow<'static, str>| GuideFile { content_type, text };
        let pages = PAGES.iter().map(|page| {
            (
                page.name,
                file("text/html; charset=utf-8", page.html(PAGES).into()),
            )
        });
        let parts = [
            (
                "guide.css",
                file("text/css; charset=utf-8", include_str!("guide.css").into()),
            ),
            (
                "guide.js",
                file("text/javascript; charset=utf-8", include_str!("guide.js").into()),
            ),
            (
                "search.json",
                file("application/json", search::index(PAGES).into()),
            ),
        ];
        pages.chain(parts).collect()
    });
    files.get(name.strip_suffix(".md").unwrap_or(name))
}
