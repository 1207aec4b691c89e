//! The archive through its public interface: files on a directory, in memory and on an S3 server, written, read back,
//! damaged, and read by tools that nobody here wrote.

mod attach;
mod cache;
mod damage;
mod flips;
mod goldens;
mod kit;
mod other_readers;
mod round_trip;
mod s3;
mod sparse;
mod targets;
