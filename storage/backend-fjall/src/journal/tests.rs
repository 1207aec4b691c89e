//! Torn ends, damage, and what a failed write leaves.
