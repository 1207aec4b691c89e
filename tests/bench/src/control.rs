//! Administrative requests of the benchmark: tables, attributes of timelines, background jobs, metrics of the server.
//!
//! All jobs except seals are started with `wait: false` and polled, so that other work can run in the meantime.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{BenchError, Result};
use crate::http::{Connection, excerpt};
use crate::server::Server;
use crate::wait::pause;

/// Connection for administrative requests.
#[derive(Debug)]
pub(crate) struct Control {
    connection: Connection,
}

/// Interval between two polls of a job.
const JOB_POLL: Duration = Duration::from_millis(20);

/// Returns a policy under which points move only on request, so that the start of a move is known.
pub(crate) fn moves_by_hand() -> Value {
    json!({ "migrate": {"cron": "0 0 1 1 *"} })
}

impl Control {
    pub(crate) fn open(server: &Server) -> Result<Self> {
        let connection = server.connect()?;
        Ok(Self { connection })
    }

    pub(crate) fn create_table(&mut self, name: &str, policy: &Value) -> Result<()> {
        self.send("POST", "/v1/tables", &json!({"name": name, "policy": policy}))?;
        Ok(())
    }

    /// Changes the policy of a table; members that `policy` omits are unchanged.
    pub(crate) fn set_policy(&mut self, table: &str, policy: &Value) -> Result<()> {
        self.send(
            "PATCH",
            &format!("/v1/tables/{table}"),
            &json!({ "policy": policy }),
        )?;
        Ok(())
    }

    /// Sets attributes of selected timelines and waits for the end; fails if the server refuses any timeline.
    pub(crate) fn change_attributes(&mut self, table: &str, change: &Value) -> Result<()> {
        let path = format!("/v1/tables/{table}/timelines/attributes");
        let response =
            self.connection
                .send_expecting_success("POST", &path, change.to_string().as_bytes())?;
        let last = response
            .split(|byte| *byte == b'\n')
            .rfind(|line| !line.is_empty());
        let last: Value = last
            .and_then(|line| serde_json::from_slice(line).ok())
            .unwrap_or_default();
        if last["done"] == true && last["refused"] == 0 {
            return Ok(());
        }
        Err(BenchError::Wrong {
            query: format!("POST {path} {change}"),
            difference: format!("the last line is {last}"),
        })
    }

    /// Returns the statistics of a table.
    pub(crate) fn statistics(&mut self, table: &str) -> Result<Value> {
        let mut response = self.get(&format!("/v1/tables/{table}"))?;
        Ok(response["statistics"].take())
    }

    /// Seals the points in memory.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.send("POST", "/v1/jobs", &json!({"kind": "seal"}))?;
        Ok(())
    }

    /// Starts all jobs of a kind for a table; returns their ids.
    pub(crate) fn begin(&mut self, kind: &str, table: &str) -> Result<Vec<u64>> {
        let body = json!({"kind": kind, "table": table, "wait": false});
        let response = self.send("POST", "/v1/jobs", &body)?;
        let jobs = response["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(jobs.iter().filter_map(|job| job["id"].as_u64()).collect())
    }

    /// Runs jobs of a kind for a table until no work is left; returns the ended jobs. A failed or cancelled job is an
    /// error.
    pub(crate) fn run(&mut self, kind: &str, table: &str) -> Result<Vec<Value>> {
        let mut ended = Vec::new();
        loop {
            let jobs = self.run_once(kind, table)?;
            if jobs.is_empty() {
                return Ok(ended);
            }
            ended.extend(jobs);
        }
    }

    /// Runs the jobs of a kind for a table once; returns the ended jobs. A failed or cancelled job is an error.
    pub(crate) fn run_once(&mut self, kind: &str, table: &str) -> Result<Vec<Value>> {
        let jobs = self.begin(kind, table)?.into_iter().map(|job| {
            let job = self.wait_until(job, has_ended)?;
            match job["state"] == "done" {
                true => Ok(job),
                false => Err(BenchError::Job { job: job.to_string() }),
            }
        });
        jobs.collect()
    }

    /// Polls a job until `is_so` returns true; returns the job.
    pub(crate) fn wait_until(&mut self, id: u64, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            let job = self.job(id)?;
            if is_so(&job) {
                return Ok(job);
            }
            pause(JOB_POLL);
        }
    }

    pub(crate) fn job(&mut self, id: u64) -> Result<Value> {
        self.get(&format!("/v1/jobs/{id}"))
    }

    /// Cancels a job and waits for its end. Returns the job, and true if it had already ended (status 409).
    pub(crate) fn cancel(&mut self, id: u64) -> Result<(Value, bool)> {
        let path = format!("/v1/jobs/{id}/cancel");
        let response = self
            .connection
            .send("POST", &path, "application/json", b"")
            .map_err(|source| BenchError::Connection {
                what: "cancelling a job",
                source,
            })?;
        let had_ended = match response.status {
            200 => false,
            409 => true,
            status => {
                return Err(BenchError::Refused {
                    method: "POST",
                    path,
                    status,
                    body: excerpt(&response.body),
                });
            }
        };
        let job = self.wait_until(id, has_ended)?;
        Ok((job, had_ended))
    }

    /// Returns the sum of a metric of `/metrics` over all labels.
    pub(crate) fn metric(&mut self, name: &str) -> Result<f64> {
        let text = self.connection.send_expecting_success("GET", "/metrics", b"")?;
        Ok(sum_of(&String::from_utf8_lossy(&text), name))
    }

    /// Returns true if a background job is running or due, or a retired segment is not yet removed.
    pub(crate) fn is_busy(&mut self) -> Result<bool> {
        let text = self.connection.send_expecting_success("GET", "/metrics", b"")?;
        let text = String::from_utf8_lossy(&text);
        let running = sum_of(&text, "tideline_jobs{state=\"running\"}");
        let retired = sum_of(&text, "tideline_segments_retired");
        Ok(running + retired + sum_of(&text, "tideline_jobs_due") > 0.0)
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        let response = self.connection.send_expecting_success("GET", path, b"")?;
        parse(path, &response)
    }

    fn send(&mut self, method: &'static str, path: &str, body: &Value) -> Result<Value> {
        let response = self
            .connection
            .send_expecting_success(method, path, body.to_string().as_bytes())?;
        parse(path, &response)
    }
}

/// Returns true if a job is done, failed or cancelled.
pub(crate) fn has_ended(job: &Value) -> bool {
    ["done", "failed", "cancelled"]
        .iter()
        .any(|state| job["state"] == *state)
}

/// Returns the sum of all samples of a metric in a text of the Prometheus format; `name` may include labels.
fn sum_of(text: &str, name: &str) -> f64 {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let is_whole = rest.starts_with(['{', ' ']);
        let value = line.rsplit(' ').next()?;
        is_whole.then(|| value.parse::<f64>().ok()).flatten()
    };
    text.lines().filter_map(sample).sum()
}

fn parse(path: &str, response: &[u8]) -> Result<Value> {
    serde_json::from_slice(response).map_err(|error| BenchError::Wrong {
        query: path.to_owned(),
        difference: format!("{error} in {}", excerpt(response)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_are_summed_and_others_left_out() {
        let text = "# HELP jobs_due Work\njobs_due{kind=\"seal\"} 2\njobs_due{kind=\"fold\"} 1.5\njobs_due_more 7\n\
                    jobs{state=\"running\"} 1\njobs{state=\"planned\"} 4\nbytes 12\n";
        assert_eq!(sum_of(text, "jobs_due"), 3.5);
        assert_eq!(sum_of(text, "jobs{state=\"running\"}"), 1.0);
        assert_eq!(sum_of(text, "bytes"), 12.0);
        assert_eq!(sum_of(text, "absent"), 0.0);
    }
}
