//! Example queries of the demo: printed as `curl` lines, and run by `--once`.
//!
//! Each example has texts that its result must contain, so that `--once` is a test of the demo.

use serde_json::Value;

use super::poster::Poster;
use crate::failure::{Failure, Result};

/// Example query.
#[derive(Debug)]
pub(crate) struct Example {
    /// Description of the query.
    pub(crate) about: &'static str,
    path: &'static str,
    /// Media type of the result, if not JSON.
    accept: Option<&'static str>,
    query: String,
    /// Texts that a correct result contains.
    shows: [&'static str; 2],
}

/// Returns the three examples. The queries are JSON texts, so that members keep a readable order.
pub(crate) fn examples(host: &str) -> [Example; 3] {
    let host = Value::from(host);
    let european = r#"{"where":{"and":[{"tag":"origin","equals":"simulated"},{"tag":"region","prefix":"eu-"},{"tag":"service_environment","in":["production","staging"]},{"not":{"tag":"os","wildcard":"*LTS"}}]},"sort":[{"tag":"hostname"}],"limit":3}"#;
    let by_minute = format!(
        r#"{{"timelines":{{"where":{{"and":[{{"property":"measurement","equals":"cpu"}},{{"tag":"host","equals":{host}}},{{"tag":"cpu","equals":"cpu-total"}}]}}}},"fields":["usage_active"],"range":{{"start":"now-1h"}},"aggregate":{{"functions":["mean","max"],"window":"1m"}}}}"#
    );
    let latest = format!(
        r#"{{"timelines":{{"where":{{"and":[{{"tag":"host","equals":{host}}},{{"property":"measurement","in":["mem","system"]}}]}}}}}}"#
    );
    [
        Example {
            about: "find timelines: simulated production and staging machines in Europe without LTS",
            path: "/v1/tables/default/timelines/search",
            accept: None,
            query: european.to_owned(),
            shows: ["\"timelines\":[{", "fleet_cpu"],
        },
        Example {
            about: "read points: CPU usage of this machine in the last hour, per minute",
            path: "/v1/tables/default/query",
            accept: Some("text/csv"),
            query: by_minute,
            shows: ["mean(usage_active)", "\ncpu,"],
        },
        Example {
            about: "read the latest values: memory, load and uptime of this machine",
            path: "/v1/tables/default/latest",
            accept: Some("text/csv"),
            query: latest,
            shows: ["used_percent", "uptime"],
        },
    ]
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Example {
    /// Returns the `curl` line. A token is not printed; the line takes it from a variable.
    pub(crate) fn curl(&self, poster: &Poster) -> String {
        let mut line = "curl -s ".to_owned();
        if let Some(certificate) = poster.certificate_file() {
            line += &format!("--cacert {} ", quoted(&certificate.to_string_lossy()));
        }
        line += &format!("{}{}", poster.base(), self.path);
        if let Some(accept) = self.accept {
            line.push_str(&format!(" -H 'accept: {accept}'"));
        }
        if poster.needs_token() {
            line.push_str(" -H \"authorization: Bearer $TIDELINE_TOKEN\"");
        }
        line + &format!(" -d {}", quoted(&self.query))
    }

    /// Runs the query and returns its result. Fails unless the result contains the expected texts.
    pub(crate) fn run(&self, poster: &Poster) -> Result<String> {
        let result = poster.query(self.path, self.accept.unwrap_or("application/json"), &self.query)?;
        match self.shows.iter().find(|part| !result.contains(**part)) {
            None => Ok(result),
            Some(missing) => Err(Failure::MissingText {
                about: self.about,
                missing,
                result,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curl_line_is_one_line_that_a_shell_reads() {
        let poster = Poster::new("http://127.0.0.1:8490".to_owned(), None, None);
        for example in examples("o'brien") {
            let query = serde_json::from_str::<Value>(&example.query);
            assert!(query.is_ok(), "{query:?}: {}", example.query);
            let line = example.curl(&poster);
            assert!(!line.contains('\n') && !line.contains("authorization"), "{line}");
            assert!(
                line.starts_with("curl -s http://127.0.0.1:8490/v1/tables/default/"),
                "{line}"
            );
        }
        let [_, by_minute, _] = examples("o'brien");
        assert!(by_minute.curl(&poster).contains(r#""equals":"o'\''brien""#));
    }
}
