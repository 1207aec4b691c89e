//! Tests of the write pipeline with a whole engine, without HTTP.

mod pipeline;
