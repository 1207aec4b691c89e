//! Execution of statements by the functions that also execute JSON requests.
//!
//! | module | holds |
//! |---|---|
//! | [`read`] | `SELECT`, `EXPLAIN` |
//! | [`write`](mod@write) | `UPSERT`, `UPDATE`, `DELETE` |
//! | [`table`] | `CREATE`, `ALTER`, `DROP`, `SHOW`, `DESCRIBE` |

pub mod read;
pub mod table;
pub mod write;
