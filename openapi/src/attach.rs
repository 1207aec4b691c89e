//! Bodies of requests that attach tables from the archive of another database.
//!
//! The request starts a job. By default, the progress of the job is streamed as NDJSON, one [`AttachProgress`] per
//! line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job;

/// Request to attach the archive of another database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "default", "table": "metrics", "as": "metrics_before"}))]
pub struct AttachArchive {
    /// Location of the archive: an address such as `s3://bucket/prefix`, or `default` for the target in the
    /// server's configuration. It must be the configured target, an address of `archive.allowed_targets`, or a
    /// location below one of these.
    pub target: String,
    /// Name of one table in the archive. Default: all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Name on this server of the table given in `table`. Default: its name in the archive.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// Origin of the database whose files are attached; file names start with it. If several databases have
    /// archived a table of the same name to one target, attach each under a different table name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Names of parts of a wide table, such as `2026-08`. Only these parts are attached. Requires `table`. Default: all
    /// parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// True if the files of parts of wide tables are read and compared with their checksums before the parts are
    /// attached, so that damaged files are refused. With `false`, only names and sizes are compared, and damage is
    /// found when rows are read. Default `true`.
    #[serde(default = "job::yes", skip_serializing_if = "job::is_yes")]
    pub verify: bool,
    /// True if this database takes ownership of the files. It then removes files whose points or rows are deleted,
    /// expire or are archived again, and unused files. Set it only if no other database uses the files any
    /// more. Default `false`: the files are never removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// True if the response streams the progress and closing the connection cancels the job. With `false` the
    /// response is the job, which continues in the background. Default `true`.
    #[serde(default = "job::yes", skip_serializing_if = "job::is_yes")]
    pub wait: bool,
}

/// Progress of attaching an archive. The last line of the response has `done` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "job": 31, "tables": 1, "segments": 365, "attached": 365, "timelines": 12_000, "points": 3_153_600_000_u64,
    "parts": 0, "parts_attached": 0, "rows": 0, "superseded": 1, "known": 0, "problems": [], "problem_count": 0, "done": true, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct AttachProgress {
    /// Id of the job in `/v1/jobs`.
    pub job: u64,
    /// Tables started so far.
    pub tables: u64,
    /// Segments to attach. Each covers the files of one day or more.
    pub segments: u64,
    /// Segments attached so far. Their points can be queried.
    pub attached: u64,
    /// Timelines added to the catalog so far. Searches find them.
    pub timelines: u64,
    /// Points of the segments attached so far.
    pub points: u64,
    /// Parts of wide tables to attach.
    pub parts: u64,
    /// Parts attached so far. Their rows can be read.
    pub parts_attached: u64,
    /// Rows of the parts attached so far.
    pub rows: u64,
    /// Segments and parts that were skipped because later ones contain the same points or rows, or because the table
    /// has dropped them.
    pub superseded: u64,
    /// Segments and parts that were skipped because they were attached before or because this database has written
    /// them.
    pub known: u64,
    /// Reasons why tables, segments, parts or streamed values could not be attached; at most the first 20.
    pub problems: Vec<String>,
    /// Number of all problems, including those that are not listed.
    pub problem_count: u64,
    /// True on the last line if the job has processed every table, segment and part. `problems` can still contain
    /// failures.
    pub done: bool,
    /// Reason why the job ended early. Attached segments and parts stay; a repeated request attaches the missing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
