//! Finds timelines by a tree of conditions, with tantivy over the timeline catalogs.
//!
//! One index serves all tables. It is disposable: nothing is in it that the catalogs do not hold, a damaged or
//! missing folder is rebuilt from them while searches and writes go on, and an answer never depends on how far
//! the index has come. What it has not reached yet is *fresh*, and is evaluated timeline by timeline; what has been
//! removed since is left out of its hits.
//!
//! ```text
//!  catalogs ──► indexer thread ──► tantivy commit ──► snapshot ──┐
//!     │                                                          ▼
//!     └────────── visible, but not in the snapshot (fresh) ──► search ──► ordinals ──► find ──► a page
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`condition`] | [`Condition`]: the tree as asked, and its limits |
//! | [`matcher`] | [`Matcher`]: the tree as checked, and its evaluation on one timeline |
//! | [`index`] | [`SearchIndex`]: open, attach, notify, flush, close |
//! | [`find`] | [`FindRequest`] and [`FindPage`]: order and paging |
//! | [`facet`] | [`FacetRequest`] and [`Facets`]: counts by value |
//! | [`geo`] | [`Area`]: circles, boxes and polygons |
//! | [`highlight`] | [`Highlight`]: which texts matched, and where |
//! | `relevance` | how well words are said |
//! | `search` | the answer: committed hits and fresh timelines |
//! | `segment` | the tree on one tantivy segment, as sets of documents |
//! | `text` | tests of a text: patterns, closeness, words |
//! | `mapping` | the schema, and the tokens of a timeline |
//! | `indexer` | the thread that writes |
//! | `positions` | how far the index has come, as stored with each commit |

pub mod condition;
pub mod error;
pub mod facet;
pub mod find;
pub mod geo;
pub mod highlight;
pub mod index;
pub mod matcher;

mod indexer;
mod mapping;
mod positions;
mod relevance;
mod search;
mod segment;
mod text;

pub use condition::{Condition, NumberRange, Subject, Test};
pub use error::SearchError;
pub use facet::{FacetGroup, FacetOrder, FacetRequest, Facets};
pub use find::{FindPage, FindRequest, Hit, Order, Sort, SortBy};
pub use geo::Area;
pub use highlight::Highlight;
pub use index::{IndexOptions, IndexStatus, SearchIndex};
pub use matcher::{Matcher, Seen, SeenLookup};
pub use text::takes_regular_expression;

/// The result of a search call.
pub type Result<T> = std::result::Result<T, SearchError>;
