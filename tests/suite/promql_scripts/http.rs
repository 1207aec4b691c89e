//! The service as a target of scripts: samples by remote write, queries by the query endpoints.
//!
//! Each `clear` drops the current table and creates a new one.

use serde_json::json;
use tideline_fleet::remote_write as wire;
use tideline_histogram::{Histogram, Span};
use tideline_promql::Point;
use tideline_promqltest::{LoadedSample, LoadedSeries, QueryResult, Target, api};
use tideline_tests::Client;
use tideline_tests::client::escaped;

/// Server with the current table of a script.
pub(super) struct OverHttp {
    client: Client,
    tables: usize,
}

impl OverHttp {
    pub(super) fn new(client: Client) -> Self {
        Self { client, tables: 0 }
    }

    fn table(&self) -> String {
        format!("scripts_{}", self.tables)
    }

    fn run(&self, endpoint: &str, query: &str, more: &[(&str, i64)]) -> Result<QueryResult, String> {
        let path = format!("/v1/tables/{}/prometheus/api/v1/{endpoint}", self.table());
        let mut form = format!("query={}", escaped(query));
        for (name, millis) in more {
            form += &format!("&{name}={}", seconds(*millis));
        }
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let response = self.client.send("POST", &path, &headers, form.as_bytes());
        let response = response.map_err(|error| error.to_string())?;
        api::result(&response.body)
    }
}

impl Target for OverHttp {
    fn clear(&mut self) -> Result<(), String> {
        if self.tables > 0 {
            let path = format!("/v1/tables/{}", self.table());
            let response = self.client.send("DELETE", &path, &[], b"");
            response.map_err(|error| error.to_string())?;
        }
        self.tables += 1;
        // The table has no retention: scripts begin in 1970, and some use earlier timestamps.
        let table = json!({"name": self.table()});
        self.client.post_json("/v1/tables", &table).expect_status(201);
        Ok(())
    }

    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String> {
        let request = wire::WriteRequest {
            series: series
                .iter()
                .filter(|series| !series.samples.is_empty())
                .map(encoded)
                .collect(),
            ..wire::WriteRequest::default()
        };
        let body = snap::raw::Encoder::new()
            .compress_vec(&request.to_v2())
            .map_err(|error| error.to_string())?;
        let headers = [
            ("Content-Encoding", "snappy"),
            (
                "Content-Type",
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            ),
            ("X-Prometheus-Remote-Write-Version", "2.0.0"),
        ];
        let path = format!("/v1/tables/{}/prometheus/api/v1/write", self.table());
        let response = self.client.send("POST", &path, &headers, &body);
        let response = response.map_err(|error| error.to_string())?;
        match response.status {
            204 => Ok(()),
            status => Err(format!("{status}: {}", response.text())),
        }
    }

    fn instant(&mut self, query: &str, time: i64) -> Result<QueryResult, String> {
        self.run("query", query, &[("time", time)])
    }

    fn range(&mut self, query: &str, start: i64, end: i64, step: i64) -> Result<QueryResult, String> {
        self.run(
            "query_range",
            query,
            &[("start", start), ("end", end), ("step", step)],
        )
    }
}

fn seconds(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    format!("{sign}{}.{:03}", millis / 1_000, millis % 1_000)
}

fn encoded(series: &LoadedSeries) -> wire::Series {
    let labels = series.labels.iter();
    let mut encoded = wire::Series {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        ..wire::Series::default()
    };
    for sample in &series.samples {
        match &sample.value {
            Point::Float(value) => encoded.samples.push(wire::Sample {
                value: *value,
                millis: sample.time,
                start: sample.start.unwrap_or_default(),
            }),
            Point::Histogram(histogram) => encoded.histograms.push(histogram_of(histogram, sample)),
        }
    }
    encoded
}

fn histogram_of(histogram: &Histogram, sample: &LoadedSample) -> wire::Histogram {
    let spans = |spans: &[Span]| -> Vec<(i64, u64)> {
        let spans = spans.iter();
        spans
            .map(|span| (i64::from(span.offset), u64::from(span.length)))
            .collect()
    };
    wire::Histogram {
        is_float: true,
        count: histogram.count,
        sum: histogram.sum,
        schema: i64::from(histogram.schema),
        zero_threshold: histogram.zero_threshold,
        zero_count: histogram.zero_count,
        negative_spans: spans(&histogram.negative_spans),
        negative: histogram.negative_buckets.clone(),
        positive_spans: spans(&histogram.positive_spans),
        positive: histogram.positive_buckets.clone(),
        reset_hint: histogram.reset_hint as u64,
        millis: sample.time,
        custom_values: histogram.custom_values.clone(),
        start: sample.start.unwrap_or_default(),
    }
}
