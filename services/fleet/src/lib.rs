//! A simulated fleet.
