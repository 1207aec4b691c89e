//! Property tests of conditions through the public interface.

mod properties;
