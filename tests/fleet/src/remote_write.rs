//! Encoder of Prometheus remote write requests, versions 1.0 and 2.0, without compression.
//!
//! Tests and benchmarks need a sender that is independent of the code under test. Like real senders, the encoder of
//! [`WriteRequest`] writes fields in the order of their numbers and omits fields that hold their default value. A
//! [`Template`] of version 2.0 writes the sample of a series after its metadata, which has a higher number.

use std::collections::HashMap;

use tideline_wire::protobuf::PutFields;
use tideline_wire::varint::zigzag;

/// Content of a remote write request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteRequest {
    /// Series with their samples.
    pub series: Vec<Series>,
    /// Metadata of metrics. Version 1.0 only; version 2.0 uses [`Series::metadata`].
    pub metadata: Vec<Metadata>,
}

/// Labels of a series with its samples, histograms and exemplars.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Labels, in the order in which they are sent.
    pub labels: Vec<(String, String)>,
    /// Float samples.
    pub samples: Vec<Sample>,
    /// Native histograms.
    pub histograms: Vec<Histogram>,
    /// Exemplars.
    pub exemplars: Vec<Exemplar>,
    /// Metadata of the metric. Version 2.0 only.
    pub metadata: Option<Metadata>,
}

/// Float sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Value.
    pub value: f64,
    /// Timestamp, in milliseconds since the Unix epoch.
    pub millis: i64,
    /// Start timestamp of a counter, in milliseconds since the Unix epoch; 0 if unknown. Version 2.0 only.
    pub start: i64,
}

/// Exemplar: one observation with additional labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exemplar {
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Value.
    pub value: f64,
    /// Timestamp, in milliseconds since the Unix epoch.
    pub millis: i64,
}

/// Metadata of a metric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Number of the metric type.
    pub kind: u64,
    /// Name of the metric family. Version 1.0 only.
    pub name: String,
    /// Help text.
    pub help: String,
    /// Unit.
    pub unit: String,
}

/// Native histogram, with the fields of the protobuf message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// True if counts are doubles. Otherwise they are integers, and buckets are differences.
    pub is_float: bool,
    /// Number of observations.
    pub count: f64,
    /// Sum of the observations.
    pub sum: f64,
    /// Schema number of the bucket layout.
    pub schema: i64,
    /// Largest absolute value in the zero bucket.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: f64,
    /// Offset and length of each span of negative buckets.
    pub negative_spans: Vec<(i64, u64)>,
    /// Absolute counts of negative buckets, or differences if counts are integers.
    pub negative: Vec<f64>,
    /// Offset and length of each span of positive buckets.
    pub positive_spans: Vec<(i64, u64)>,
    /// Absolute counts of positive buckets, or differences if counts are integers.
    pub positive: Vec<f64>,
    /// Counter reset hint: 0 unknown, 1 yes, 2 no, 3 gauge.
    pub reset_hint: u64,
    /// Timestamp, in milliseconds since the Unix epoch.
    pub millis: i64,
    /// Upper bounds of custom buckets.
    pub custom_values: Vec<f64>,
    /// Start timestamp, in milliseconds since the Unix epoch; 0 if unknown. Version 2.0 only.
    pub start: i64,
}

impl WriteRequest {
    /// Encodes the message `prometheus.WriteRequest`.
    pub fn to_v1(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for series in &self.series {
            let mut message = Vec::new();
            put_labels(1, &series.labels, &mut message);
            for sample in &series.samples {
                message.put_bytes(2, &sample_message(sample, false));
            }
            for exemplar in &series.exemplars {
                let mut one = Vec::new();
                put_labels(1, &exemplar.labels, &mut one);
                one.put_double(2, exemplar.value);
                one.put_int(3, exemplar.millis);
                message.put_bytes(3, &one);
            }
            for histogram in &series.histograms {
                message.put_bytes(4, &histogram_message(histogram, false));
            }
            out.put_bytes(1, &message);
        }
        for metadata in &self.metadata {
            let mut message = Vec::new();
            message.put_uint(1, metadata.kind);
            message.put_text(2, &metadata.name);
            message.put_text(4, &metadata.help);
            message.put_text(5, &metadata.unit);
            out.put_bytes(3, &message);
        }
        out
    }

    /// Encodes the message `io.prometheus.write.v2.Request`.
    pub fn to_v2(&self) -> Vec<u8> {
        let mut symbols = Symbols::default();
        let mut all = Vec::new();
        for series in &self.series {
            let mut message = Vec::new();
            message.put_uints(1, symbols.refs(&series.labels));
            for sample in &series.samples {
                message.put_bytes(2, &sample_message(sample, true));
            }
            for histogram in &series.histograms {
                message.put_bytes(3, &histogram_message(histogram, true));
            }
            for exemplar in &series.exemplars {
                let mut one = Vec::new();
                one.put_uints(1, symbols.refs(&exemplar.labels));
                one.put_double(2, exemplar.value);
                one.put_int(3, exemplar.millis);
                message.put_bytes(4, &one);
            }
            put_metadata(&mut message, series, &mut symbols);
            all.put_bytes(5, &message);
        }
        let mut out = symbols.encode();
        out.extend(all);
        out
    }
}

/// Series with pre-encoded labels. A request with one sample per series is then cheap to encode.
#[derive(Debug, Clone)]
pub struct Template {
    /// Bytes before the series of every request: the symbol table of version 2.0, empty for version 1.0.
    head: Vec<u8>,
    /// Encoded series without samples: labels, and metadata in version 2.0.
    series: Vec<Vec<u8>>,
    /// Field number of a series in the request message.
    field: u32,
}

impl Template {
    /// Encodes series for version 1.0, without metadata.
    pub fn v1(series: &[Series]) -> Self {
        let labels = |series: &Series| {
            let mut message = Vec::new();
            put_labels(1, &series.labels, &mut message);
            message
        };
        Self {
            head: Vec::new(),
            series: series.iter().map(labels).collect(),
            field: 1,
        }
    }

    /// Encodes series for version 2.0, with metadata.
    pub fn v2(series: &[Series]) -> Self {
        let mut symbols = Symbols::default();
        let mut labels = |series: &Series| {
            let mut message = Vec::new();
            message.put_uints(1, symbols.refs(&series.labels));
            put_metadata(&mut message, series, &mut symbols);
            message
        };
        let series = series.iter().map(&mut labels).collect();
        Self {
            head: symbols.encode(),
            series,
            field: 5,
        }
    }

    /// Appends a request with one sample per series to `out`.
    ///
    /// `millis` is the timestamp of all samples. `value` receives the index of a series and returns the value of its
    /// sample.
    pub fn write(&self, millis: i64, mut value: impl FnMut(usize) -> f64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        let mut sample = Vec::new();
        for (place, series) in self.series.iter().enumerate() {
            sample.clear();
            sample.put_double(1, value(place));
            sample.put_int(2, millis);
            // The sample's field tag and length take one byte each.
            let length = series.len() + 2 + sample.len();
            out.put_bytes_head(self.field, length);
            out.extend_from_slice(series);
            out.put_bytes(2, &sample);
        }
    }
}

fn put_metadata(message: &mut Vec<u8>, series: &Series, symbols: &mut Symbols) {
    if let Some(metadata) = &series.metadata {
        let mut one = Vec::new();
        one.put_uint(1, metadata.kind);
        one.put_uint(3, symbols.of(&metadata.help));
        one.put_uint(4, symbols.of(&metadata.unit));
        message.put_bytes(5, &one);
    }
}

fn sample_message(sample: &Sample, with_start: bool) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_double(1, sample.value);
    message.put_int(2, sample.millis);
    if with_start {
        message.put_int(3, sample.start);
    }
    message
}

fn histogram_message(histogram: &Histogram, with_start: bool) -> Vec<u8> {
    let mut message = Vec::new();
    // A field of a `oneof` is written even if it is zero.
    match histogram.is_float {
        true => message.put_fixed64(2, histogram.count.to_bits()),
        false => message.put_integer(1, histogram.count as u64),
    }
    message.put_double(3, histogram.sum);
    message.put_sint(4, histogram.schema);
    message.put_double(5, histogram.zero_threshold);
    match histogram.is_float {
        true => message.put_fixed64(7, histogram.zero_count.to_bits()),
        false => message.put_integer(6, histogram.zero_count as u64),
    }
    let (spans, buckets) = (&histogram.negative_spans, &histogram.negative);
    put_buckets(&mut message, [8, 9, 10], spans, buckets, histogram.is_float);
    let (spans, buckets) = (&histogram.positive_spans, &histogram.positive);
    put_buckets(&mut message, [11, 12, 13], spans, buckets, histogram.is_float);
    message.put_uint(14, histogram.reset_hint);
    message.put_int(15, histogram.millis);
    message.put_doubles(16, &histogram.custom_values);
    if with_start {
        message.put_int(17, histogram.start);
    }
    message
}

/// Writes spans, then buckets: absolute doubles if `is_float`, differences of integers otherwise. The array holds the
/// field numbers of spans, differences and doubles.
fn put_buckets(
    message: &mut Vec<u8>,
    [of_spans, of_deltas, of_counts]: [u32; 3],
    spans: &[(i64, u64)],
    buckets: &[f64],
    is_float: bool,
) {
    for (offset, length) in spans {
        let mut span = Vec::new();
        span.put_sint(1, *offset);
        span.put_uint(2, *length);
        message.put_bytes(of_spans, &span);
    }
    match is_float {
        true => message.put_doubles(of_counts, buckets),
        false => message.put_uints(of_deltas, buckets.iter().map(|delta| zigzag(*delta as i64))),
    }
}

/// Symbol table of a request. The empty symbol has reference 0 and is not stored in the list.
#[derive(Default)]
struct Symbols {
    list: Vec<String>,
    places: HashMap<String, u64>,
}

impl Symbols {
    fn of(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        self.list.push(text.to_owned());
        let place = self.list.len() as u64;
        self.places.insert(text.to_owned(), place);
        place
    }

    /// Encodes the symbol fields, starting with the empty symbol.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(4, b"");
        self.list
            .iter()
            .for_each(|symbol| out.put_bytes(4, symbol.as_bytes()));
        out
    }

    fn refs(&mut self, labels: &[(String, String)]) -> Vec<u64> {
        let pairs = labels.iter().flat_map(|(name, value)| [name, value]);
        pairs.map(|text| self.of(text)).collect()
    }
}

fn put_labels(field: u32, labels: &[(String, String)], out: &mut Vec<u8>) {
    let mut label = Vec::new();
    for (name, value) in labels {
        label.clear();
        label.put_text(1, name);
        label.put_text(2, value);
        out.put_bytes(field, &label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_schema() {
        let request = WriteRequest {
            series: vec![Series {
                labels: vec![("__name__".into(), "up".into())],
                samples: vec![Sample {
                    value: 1.0,
                    millis: 300,
                    start: 5,
                }],
                ..Series::default()
            }],
            metadata: vec![Metadata {
                kind: 2,
                name: "up".into(),
                ..Metadata::default()
            }],
        };
        let mut v1 = vec![0x0a, 30, 0x0a, 14, 0x0a, 8];
        v1.extend(b"__name__\x12\x02up");
        v1.extend([0x12, 12, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02]);
        v1.extend([0x1a, 6, 0x08, 2, 0x12, 2, b'u', b'p']);
        assert_eq!(request.to_v1(), v1);
        let mut v2 = vec![0x22, 0, 0x22, 8];
        v2.extend(b"__name__\x22\x02up");
        v2.extend([
            0x2a, 20, 0x0a, 2, 1, 2, 0x12, 14, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
        ]);
        v2.extend([0x10, 0xac, 0x02, 0x18, 5]);
        assert_eq!(request.to_v2(), v2);
    }

    #[test]
    fn a_template_makes_the_same_requests() {
        let series = |name: &str, value: f64| Series {
            labels: vec![("__name__".into(), name.into()), ("job".into(), "x".repeat(200))],
            samples: vec![Sample {
                value,
                millis: 7,
                start: 0,
            }],
            ..Series::default()
        };
        let request = WriteRequest {
            series: vec![series("a", 1.5), series("b", 0.0)],
            metadata: Vec::new(),
        };
        let write = |template: &Template| {
            let mut out = Vec::new();
            template.write(7, |place| request.series[place].samples[0].value, &mut out);
            out
        };
        assert_eq!(write(&Template::v1(&request.series)), request.to_v1());
        assert_eq!(write(&Template::v2(&request.series)), request.to_v2());
    }
}
