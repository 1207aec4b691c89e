//! Finds timelines by conditions ([`tideline_condition`]), with a tantivy index over the timeline catalogs.
//!
//! One index serves all tables. The index is disposable: all of its data is also in the catalogs. A damaged or missing
//! folder is rebuilt from the catalogs while searches and writes continue. A search result never depends on the
//! progress of the index. Timelines that were added or edited since the last commit are *fresh*: a search evaluates
//! each of them on its catalog entry. Timelines that were removed since the last commit are excluded from the hits.
//! The indexes over rows of wide tables, in the module [`rows`], are separate and share only modules such as `folder`
//! and `terms` with this index.
//!
//! ```text
//!  catalogs ──► indexer thread ──► tantivy commit ──► snapshot ──┐
//!     │                                                          ▼
//!     └────────── visible, but not in the snapshot (fresh) ──► search ──► ordinals ──► find ──► a page
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | [`TimelineRecord`]: a timeline as input of a condition |
//! | [`index`] | [`SearchIndex`]: open, attach, notify, flush, close |
//! | [`find`] | [`FindRequest`] and [`FindPage`]: order and paging |
//! | [`facet`] | [`FacetRequest`] and [`Facets`]: counts by value |
//! | [`highlight`] | [`Highlight`]: matched texts and the positions of the matches |
//! | `relevance` | relevance score of words and phrases |
//! | `search` | search evaluation: committed hits and fresh timelines |
//! | `segment` | evaluation of a condition tree on one tantivy segment, as sets of documents |
//! | `terms` | lookups and scans of terms, and the documents in posting lists |
//! | `close_term` | fuzzy matching in the term dictionary |
//! | `documents` | sets of documents: construction and intersection |
//! | `mapping` | the schema, and the tokens of a timeline |
//! | `indexer` | indexer thread |
//! | [`rows`] | [`RowIndex`](rows::RowIndex): index over the rows of a wide table |
//! | `folder` | tantivy index in a folder: opening with checks, the offline check, creation, and the writer |
//! | `positions` | progress of the index per table, stored with each commit |
//! | [`error`] | [`SearchError`] |
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//!
//! use tideline_condition::Condition;
//! use tideline_model::{Identity, Ordinal, TableId};
//! use tideline_search_index::{IndexOptions, SearchIndex, Seen, SeenLookup};
//! use tideline_timeline_catalog::{Catalog, CatalogOptions};
//!
//! /// Lookup for searches that do not test the times of points.
//! struct NoTimes;
//!
//! impl SeenLookup for NoTimes {
//!     fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>> {
//!         vec![None; ordinals.len()]
//!     }
//!     # fn is_stopped(&self) -> bool { false }
//! }
//!
//! let catalog = Arc::new(Catalog::new(TableId(1), CatalogOptions::default()));
//! let folder = tempfile::tempdir()?;
//! let index = SearchIndex::open(folder.path(), IndexOptions::default())?;
//! index.attach(Arc::clone(&catalog));
//! for host in ["web-1", "web-2"] {
//!     let identity = Identity::new("cpu".to_owned(), vec![("host".to_owned(), host.to_owned())])?;
//!     catalog.mark_durable(&[catalog.register(&identity, None)?.ordinal]);
//! }
//! index.notify();
//!
//! // The result does not depend on whether the timelines are indexed yet.
//! let found = index.search(&catalog, &Condition::tag("host", "web-2"), &NoTimes)?;
//! assert_eq!(found.iter().collect::<Vec<_>>(), [1]);
//! index.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod error;
pub mod facet;
pub mod find;
pub mod highlight;
pub mod index;
pub mod record;
pub mod rows;

mod close_term;
mod documents;
mod folder;
mod indexer;
mod mapping;
mod positions;
mod relevance;
mod search;
mod segment;
mod terms;

pub use error::SearchError;
pub use facet::{FacetGroup, FacetOrder, FacetRequest, Facets};
pub use find::{FindPage, FindRequest, Hit, Sort, SortBy, SortDirection};
pub use folder::check as check_folder;
pub use highlight::Highlight;
pub use index::{IndexOptions, IndexStatus, SearchIndex};
pub use record::{Seen, SeenLookup, TimelineRecord};

/// Result of a search call.
pub type Result<T> = std::result::Result<T, SearchError>;
