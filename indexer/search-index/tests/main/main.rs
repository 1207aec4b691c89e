//! The search index against a naive model that knows neither tantivy nor the catalog's matcher.

mod exactness;
mod facets;
mod harness;
mod hits;
mod limits;
mod paging;
mod places;
mod recovery;
