//! Finds timelines by conditions ([`tideline_condition`]), with tantivy over the timeline catalogs.
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
//! | [`record`] | [`TimelineRecord`]: a timeline as conditions read it |
//! | [`index`] | [`SearchIndex`]: open, attach, notify, flush, close |
//! | [`find`] | [`FindRequest`] and [`FindPage`]: order and paging |
//! | [`facet`] | [`FacetRequest`] and [`Facets`]: counts by value |
//! | [`highlight`] | [`Highlight`]: which texts matched, and where |
//! | `relevance` | how well words are said |
//! | `search` | the answer: committed hits and fresh timelines |
//! | `segment` | the tree on one tantivy segment, as sets of documents |
//! | `close_term` | close texts in the dictionary |
//! | `mapping` | the schema, and the tokens of a timeline |
//! | `indexer` | the thread that writes |
//! | `positions` | how far the index has come, as stored with each commit |

pub mod error;
pub mod facet;
pub mod find;
pub mod highlight;
pub mod index;
pub mod record;

mod close_term;
mod indexer;
mod mapping;
mod positions;
mod relevance;
mod search;
mod segment;

pub use error::SearchError;
pub use facet::{FacetGroup, FacetOrder, FacetRequest, Facets};
pub use find::{FindPage, FindRequest, Hit, Order, Sort, SortBy};
pub use highlight::Highlight;
pub use index::{IndexOptions, IndexStatus, SearchIndex};
pub use record::{Seen, SeenLookup, TimelineRecord};

/// The result of a search call.
pub type Result<T> = std::result::Result<T, SearchError>;
