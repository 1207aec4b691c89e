//! Tests of the archive through its public interface. Targets are directories, memory and an S3 server. Files are
//! written, read back, damaged, and read by foreign tools.

mod attach;
mod cache;
mod damage;
mod flips;
mod goldens;
mod kit;
mod other_readers;
mod round_trip;
mod rows;
mod s3;
mod sparse;
mod targets;
