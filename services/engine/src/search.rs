//! Types of timeline searches: requests, orders, facets and hits.
//!
//! They are re-exported here, so that services depend on no crate below the engine.

pub use tideline_search_index::{
    FacetGroup, FacetOrder, FacetRequest, Facets, FindRequest, Highlight, Seen, Sort, SortBy, SortDirection,
};
