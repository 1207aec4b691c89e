//! The questions that the demo shows: printed as `curl` lines, and asked by `--once`.

use serde_json::json;

use super::poster::Poster;
use crate::error::{CliError, Result};

/// A question worth asking.
#[derive(Debug)]
pub(crate) struct Example {
    /// What it asks, in words.
    pub(crate) about: String,
    path: &'static str,
    accept: &'static str,
    question: String,
    /// What a good answer contains.
    shows: Vec<String>,
}

/// The three questions of the demo.
pub(crate) fn examples(host: &str) -> [Example; 3] {
    let european = json!({
        "where": {"and": [
            {"tag": "origin", "equals": "simulated"},
            {"tag": "region", "prefix": "eu-"},
            {"tag": "service_environment", "in": ["production", "staging"]},
            {"not": {"tag": "os", "wildcard": "*LTS"}}
        ]},
        "sort": [{"tag": "hostname"}],
        "limit": 3
    });
    let by_minute = json!({
        "where": {"and": [
            {"property": "measurement", "equals": "cpu"},
            {"tag": "host", "equals": host},
            {"tag": "cpu", "equals": "cpu-total"}
        ]},
        "fields": ["usage_active"],
        "start": "now-1h",
        "end": "now",
        "aggregate": ["mean"],
        "window": "1m"
    });
    let latest = json!({
        "where": {"and": [
            {"tag": "host", "equals": host},
            {"property": "measurement", "in": ["mem", "system"]}
        ]}
    });
    [
        Example {
            about: "simulated machines in Europe that matter and run no LTS".to_owned(),
            path: "/v1/tables/default/timelines/search",
            accept: "application/json",
            question: european.to_string(),
            shows: vec!["\"timelines\":[{".to_owned(), "fleet_cpu".to_owned()],
        },
        Example {
            about: "how busy this machine was, minute by minute".to_owned(),
            path: "/v1/tables/default/query",
            accept: "text/csv",
            question: by_minute.to_string(),
            shows: vec!["mean".to_owned(), "usage_active".to_owned()],
        },
        Example {
            about: "the latest memory, load and uptime of this machine".to_owned(),
            path: "/v1/tables/default/latest",
            accept: "application/json",
            question: latest.to_string(),
            shows: vec!["used_percent".to_owned(), "uptime".to_owned()],
        },
    ]
}

impl Example {
    /// The `curl` line. A token is not printed; the line takes it from a variable.
    pub(crate) fn curl(&self, poster: &Poster) -> String {
        let token = match poster.needs_token() {
            true => " -H \"authorization: Bearer $TIDELINE_TOKEN\"",
            false => "",
        };
        format!(
            "curl -s {}{} -H 'accept: {}' -H 'content-type: application/json'{token} -d '{}'",
            poster.base(),
            self.path,
            self.accept,
            self.question.replace('\'', "'\\''")
        )
    }

    /// Asks it. The answer, or an error unless it shows what it should.
    pub(crate) fn ask(&self, poster: &Poster) -> Result<String> {
        let answer = poster.ask(self.path, self.accept, &self.question)?;
        match self.shows.iter().find(|part| !answer.contains(*part)) {
            None => Ok(answer),
            Some(missing) => Err(CliError::Answer {
                about: self.about.clone(),
                missing: missing.clone(),
                answer,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curl_line_is_one_line_that_a_shell_reads() {
        let poster = Poster::new("http://127.0.0.1:8490".to_owned(), None);
        for example in examples("o'brien") {
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
