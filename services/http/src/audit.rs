//! Audit log. Each of the following is one log line, and one record in the audit table:
//!
//! - a change of tables, indexes, parts, timelines, saved searches, archives, feeds with their members and blocks,
//!   change streams, webhooks, jobs, tenants, tokens, the retention of the audit table, or the clock;
//! - a delete of points or rows by a selection, of a message, or of a Pushgateway group;
//! - a cancelled query.
//!
//! This module also limits the log lines about refused requests. `audit_log` writes the records, and counts
//! refusals for the audit table.
//!
//! A line contains the operation, the principal and the client address, and describes what was changed
//! (`audit_detail`). If the request came through a trusted
//! proxy, the line contains the address of the proxy as well. Writes of points, rows and messages are not logged;
//! `/metrics` counts them. Each refused request (status below 500) is one line at level `debug`. At level `info`
//! each kind of refusal, which is a pair of status and error code, has at most one such line per
//! [`SUMMARY_INTERVAL`], so that refused requests cannot flood the log. In addition, `audit_log` logs the
//! counted refusals once a minute.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tideline_openapi::ErrorCode;

/// Target of audit lines; `log.level` can select it.
pub(crate) const TARGET: &str = "tideline::audit";
/// Shortest time between two lines at level `info` about the same kind of refusal.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(10);

/// Operations that change something, as pairs of method and route. Not included are writes of points, rows and messages
/// except deletes of messages and of Pushgateway groups, positions of readers, and SQL statements.
const CHANGES: [(&str, &str); 52] = [
    ("POST", "/v1/tables"),
    ("DELETE", "/v1/tables/{table}"),
    ("PATCH", "/v1/tables/{table}"),
    ("POST", "/v1/tables/{table}/points/delete"),
    ("POST", "/v1/tables/{table}/rows/delete"),
    ("POST", "/v1/tables/{table}/rows/rekey"),
    ("POST", "/v1/tables/{table}/indexes"),
    ("POST", "/v1/tables/{table}/parts/drop"),
    ("POST", "/v1/tables/{table}/parts/restore"),
    ("POST", "/v1/tables/{table}/search-indexes"),
    ("DELETE", "/v1/tables/{table}/search-indexes/{index}"),
    ("DELETE", "/v1/tables/{table}/indexes/{index}"),
    ("DELETE", "/v1/queries/{query}"),
    ("POST", "/v1/tables/{table}/timelines/delete"),
    ("DELETE", "/v1/tables/{table}/timelines/{id}"),
    ("PATCH", "/v1/tables/{table}/timelines/{id}/attributes"),
    ("POST", "/v1/tables/{table}/timelines/attributes"),
    ("PUT", "/v1/tables/{table}/searches/{name}"),
    ("DELETE", "/v1/tables/{table}/searches/{name}"),
    ("POST", "/v1/tables/{table}/archive/restore"),
    ("PUT", "/v1/changes/{stream}"),
    ("DELETE", "/v1/changes/{stream}"),
    ("PUT", "/v1/changes/{stream}/groups/{group}"),
    ("DELETE", "/v1/changes/{stream}/groups/{group}"),
    ("PUT", "/v1/changes/{stream}/webhooks/{webhook}"),
    ("DELETE", "/v1/changes/{stream}/webhooks/{webhook}"),
    (
        "DELETE",
        "/v1/changes/{stream}/webhooks/{webhook}/failed/{delivery}",
    ),
    ("POST", "/v1/changes/{stream}/webhooks/{webhook}/replay"),
    ("POST", "/v1/changes/{stream}/webhooks/{webhook}/resume"),
    ("PUT", "/v1/tables/{table}/feeds/{feed}"),
    ("DELETE", "/v1/tables/{table}/feeds/{feed}"),
    ("DELETE", "/v1/tables/{table}/feeds/{feed}/messages/{sequence}"),
    ("PUT", "/v1/tables/{table}/feeds/{feed}/members/{user}"),
    ("PATCH", "/v1/tables/{table}/feeds/{feed}/members/{user}"),
    ("DELETE", "/v1/tables/{table}/feeds/{feed}/members/{user}"),
    ("PUT", "/v1/tables/{table}/users/{user}/blocks/{sender}"),
    ("DELETE", "/v1/tables/{table}/users/{user}/blocks/{sender}"),
    ("POST", "/v1/archive/attach"),
    ("POST", "/v1/archive/orphans"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/{job}/pause"),
    ("POST", "/v1/jobs/{job}/resume"),
    ("POST", "/v1/jobs/{job}/cancel"),
    ("POST", "/v1/clock/confirm"),
    ("PUT", "/v1/audit/retention"),
    ("PUT", "/v1/tenants/{tenant}"),
    ("DELETE", "/v1/tenants/{tenant}"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/{token}"),
    ("POST", "/v1/tokens/{token}/rotate"),
    ("DELETE", "/metrics/job/{job}"),
    ("DELETE", "/v1/tables/{table}/prometheus/metrics/job/{job}"),
];

/// Routes of Pushgateway groups with further labels. They are not in the OpenAPI document.
const GROUPS: [&str; 2] = [
    "/metrics/{*group}",
    "/v1/tables/{table}/prometheus/metrics/{*group}",
];

/// Returns true if requests of this method and route are written to the audit log. Refused requests (status 400 to
/// 499) are not written. A request that failed with another status is written, because it may have changed
/// something.
pub(crate) fn is_change(method: &str, route: &str) -> bool {
    CHANGES.contains(&(method, route)) || (method == "DELETE" && GROUPS.contains(&route))
}

/// Counts of refused requests since the last log line about them.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<(u16, ErrorCode), Counted>>);

#[derive(Debug)]
struct Counted {
    logged: Instant,
    since: u64,
}

impl Refusals {
    /// Counts a refusal. If a log line is due, returns the number of refusals of this kind since the last line, this
    /// one included; otherwise `None`.
    pub(crate) fn count(&self, status: u16, code: ErrorCode, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock();
        // The service defines few statuses and codes, so clients cannot make the map large.
        let Some(counted) = kinds.get_mut(&(status, code)) else {
            let counted = Counted {
                logged: now,
                since: 0,
            };
            kinds.insert((status, code), counted);
            return Some(1);
        };
        counted.since += 1;
        if now.saturating_duration_since(counted.logged) < SUMMARY_INTERVAL {
            return None;
        }
        counted.logged = now;
        Some(std::mem::take(&mut counted.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_line_an_interval() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let mut lines = Vec::new();
        for n in 0..20_000u64 {
            // 20 s with a thousand refusals per second.
            let now = start + Duration::from_millis(n);
            lines.extend(refusals.count(400, ErrorCode::Invalid, now));
        }
        assert_eq!(lines, [1, 10_000]);
        assert_eq!(
            refusals.count(404, ErrorCode::NotFound, start),
            Some(1),
            "each kind is counted separately"
        );
    }

    #[test]
    fn every_operation_that_changes_something_is_listed_or_known_not_to_be() {
        /// Path suffixes of reads with a body, of writes of points, rows and messages, and of `/v1/sql`. Every `DELETE` is
        /// listed in `CHANGES`.
        const OTHERS: [&str; 31] = [
            "/cursors/{feed}",
            "/messages",
            "/messages/{sequence}",
            "/recall",
            "/counters",
            "/merge",
            "/v1/metrics",
            // The handler of this route reports the changes of its statements.
            "/v1/sql",
            "/rows",
            "/rows/get",
            "/rows/scan",
            "/rows/count",
            "/rows/why",
            "/advice",
            "/rows/aggregate",
            "/rows/import",
            "/blobs/{column}",
            "/query",
            "/query/batch",
            "/explain",
            "/latest",
            "/watch",
            "/search",
            "/facets",
            "/preview",
            "/points",
            "/write",
            "/push",
            "/read",
            "/export",
            "/checkpoints",
        ];
        let document = serde_json::to_value(crate::document()).expect("serialises");
        let paths = document["paths"].as_object().expect("paths");
        let mut changes = 0;
        for (path, item) in paths {
            for method in item
                .as_object()
                .into_iter()
                .flatten()
                .map(|(method, _)| method.to_uppercase())
            {
                let is_other = method != "DELETE"
                    && (path.contains("/api/v1/")
                        || path.contains("/metrics/job/")
                        || OTHERS.iter().any(|other| path.ends_with(other)));
                if matches!(&*method, "POST" | "PUT" | "PATCH" | "DELETE") && !is_other {
                    assert!(
                        is_change(&method, path),
                        "{method} {path} is neither listed nor known"
                    );
                    changes += 1;
                }
            }
        }
        assert_eq!(changes, CHANGES.len(), "all listed routes exist");
    }
}
