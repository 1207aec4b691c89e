//! Tests of conditions through the public interface, as properties against a simple model.

mod properties;
