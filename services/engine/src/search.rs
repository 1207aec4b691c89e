//! The vocabulary of searches for timelines: requests, orders, facets and hits.
//!
//! The types are those of the index; services import them here, so that the engine is the only crate below them.

pub use tideline_search_index::{
    FacetGroup, FacetOrder, FacetRequest, Facets, FindRequest, Highlight, Order, Seen, Sort, SortBy,
};
