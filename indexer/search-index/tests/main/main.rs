//! Tests of the search index against a naive model that uses neither tantivy nor the condition matcher.

mod exactness;
mod facets;
mod harness;
mod hits;
mod limits;
mod paging;
mod places;
mod recovery;
mod rows;
