//! Fuzz target: pushes of Pushgateway clients, with arbitrary labels in the path of a group and arbitrary bytes as
//! the body in every format. Parsing returns an error or a group and never panics. Another spelling of the path of a
//! parsed group parses to the same group. Every series of the body has all non-empty labels of the group.
#![no_main]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::{ImportOptions, TextFormat, decode_metric_families, decode_text};
use tideline_ingest_protocols::{DecodeOptions, series_key};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};
use tideline_prometheus::import::read_group;

type Group = BTreeMap<String, String>;

/// Push to a group.
#[derive(Debug, Arbitrary)]
struct Push {
    job: Value,
    labels: Vec<(String, Value)>,
    /// Unstructured end of the path.
    rest: String,
    millis: Option<i64>,
    body: Vec<u8>,
}

/// Value of a label in a path.
#[derive(Debug, Arbitrary)]
enum Value {
    /// Text that is inserted into the path unchanged.
    Plain(String),
    /// Text after `@base64/`, which may be invalid base64.
    Base64(String),
    /// Bytes that are encoded in base64, with padding or without.
    Encoded(Vec<u8>, bool),
}

impl Value {
    fn spell(&self, path: &mut String) {
        match self {
            Self::Plain(text) => *path += &format!("/{text}"),
            Self::Base64(text) => *path += &format!("@base64/{text}"),
            Self::Encoded(bytes, true) => *path += &format!("@base64/{}", URL_SAFE.encode(bytes)),
            Self::Encoded(bytes, false) => *path += &format!("@base64/{}", URL_SAFE_NO_PAD.encode(bytes)),
        }
    }
}

impl Push {
    fn path(&self) -> String {
        let mut path = "/metrics/job".to_owned();
        self.job.spell(&mut path);
        for (name, value) in &self.labels {
            path += &format!("/{name}");
            value.spell(&mut path);
        }
        path + &self.rest
    }
}

/// Returns the path of a group with percent-encoded names and all values in base64.
fn spelled(group: &Group) -> String {
    let mut path = "/metrics".to_owned();
    let job = group.get_key_value("job");
    let others = group.iter().filter(|(name, _)| *name != "job");
    for (name, value) in job.into_iter().chain(others) {
        path.push('/');
        for byte in name.bytes() {
            write!(path, "%{byte:02X}").expect("writing to a string cannot fail");
        }
        match value.is_empty() {
            true => path += "@base64/=",
            false => path += &format!("@base64/{}", URL_SAFE_NO_PAD.encode(value)),
        }
    }
    path
}

/// Series resolver that validates each series key like the engine, and checks that each series has all non-empty
/// labels of a group.
struct Parse<'g>(&'g Group);

impl SeriesResolver for Parse<'_> {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        let identity = series_key::parse(key)?;
        for (name, value) in self.0.iter().filter(|(_, value)| !value.is_empty()) {
            assert_eq!(identity.tag(name), Some(value.as_str()));
        }
        Ok(Ordinal(0))
    }
}

fuzz_target!(|push: Push| {
    let Ok(group) = read_group(&push.path()) else {
        return;
    };
    assert_eq!(
        read_group(&spelled(&group)).expect("what was spelled can be read"),
        group
    );
    let import = ImportOptions {
        millis: push.millis,
        extra_labels: group.clone().into_iter().collect(),
        extra_samples: vec![("push_time_seconds".to_owned(), 1.0)],
    };
    let options = DecodeOptions::new(Timestamp::EPOCH);
    for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
        let _ = decode_text(&push.body, format, &import, &options, &mut Parse(&group));
    }
    let _ = decode_metric_families(&push.body, &import, &options, &mut Parse(&group));
});
