//! Attaching what another database has archived.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job;

/// What is attached, and as what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "default", "table": "metrics", "as": "metrics_before"}))]
pub struct AttachArchive {
    /// Where the archive is: an address such as `s3://bucket/prefix`, or `default` for the target of the server's
    /// configuration. A directory has to be that target, or lie below it.
    pub target: String,
    /// One table, as it is called there; without it all that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// What that one is called here; without it as there.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// Only what this database has written: the first part of the names of its objects. Where several that do not know of each
    /// other have archived one table to one target, each is attached as a table of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether the files are this database's from now on: removed when their points are deleted, expire or go into newer
    /// files, and swept. Only where no other database uses them any more. Default `false`: they are never removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Whether the answer tells how far it comes, and closing it ends the job. With `false` the answer is the job, which
    /// goes on by itself. Default `true`.
    #[serde(default = "job::waits", skip_serializing_if = "job::is_waiting")]
    pub wait: bool,
}

/// How far attaching has come; the last line of the answer has `done` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "job": 31, "tables": 1, "segments": 365, "attached": 365, "timelines": 12_000, "points": 3_153_600_000_u64, "superseded": 1,
    "known": 0, "problems": [], "problem_count": 0, "done": true, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct AttachProgress {
    /// The job that does it, as `/v1/jobs` lists it.
    pub job: u64,
    /// Tables begun so far.
    pub tables: u64,
    /// Segments that are to be attached; each holds the files of a day or more.
    pub segments: u64,
    /// Those that are; their points can be queried.
    pub attached: u64,
    /// Timelines that were not known here before; they can be found.
    pub timelines: u64,
    /// Points that can be queried.
    pub points: u64,
    /// Segments that are passed over, since later ones hold the same points.
    pub superseded: u64,
    /// Segments that were attached before, or that this database wrote itself.
    pub known: u64,
    /// What could not be attached, and why: the first 20.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problem_count: u64,
    /// Whether this is the end, and all was tried.
    pub done: bool,
    /// Why it ended before its end. What is attached stays; sent again, the request goes on with the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}
