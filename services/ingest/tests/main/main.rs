//! The write pipeline over a whole engine, without HTTP.

mod pipeline;
