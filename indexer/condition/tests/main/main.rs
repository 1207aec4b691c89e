//! Conditions through the public interface: properties against a plain model.

mod properties;
