//! Prometheus remote write as a sender encodes it, both versions, before compression.
//!
//! Tests and benchmarks need a sender that is not the code under test. Fields are written in the order of their
//! numbers and left out where they hold what a missing field means, as senders do.

use std::collections::HashMap;

use tideline_wire::varint::{self, zigzag};

/// What a request says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteRequest {
    /// Series with what was measured of them.
    pub series: Vec<Series>,
    /// What is said of metrics: version 1.0 only, version 2.0 says it with each series.
    pub metadata: Vec<Metadata>,
}

/// A series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Labels, in the order in which they are sent.
    pub labels: Vec<(String, String)>,
    /// Numbers.
    pub samples: Vec<Sample>,
    /// Native histograms.
    pub histograms: Vec<Histogram>,
    /// Exemplars.
    pub exemplars: Vec<Exemplar>,
    /// What is said of its metric: version 2.0 only.
    pub metadata: Option<Metadata>,
}

/// A number at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// The number.
    pub value: f64,
    /// Milliseconds since the epoch.
    pub millis: i64,
    /// Since when it counts; 0 = not known. Version 2.0 only.
    pub start: i64,
}

/// An example of what was counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exemplar {
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
    /// Milliseconds since the epoch.
    pub millis: i64,
}

/// What is said of a metric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The number of its type.
    pub kind: u64,
    /// The name of its family; in version 2.0 that of its series.
    pub name: String,
    /// What it measures.
    pub help: String,
    /// Its unit.
    pub unit: String,
}

/// A native histogram, field by field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Whether counts are doubles; otherwise integers, buckets as differences.
    pub is_float: bool,
    /// All observations.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The layout of buckets.
    pub schema: i64,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Observations in it.
    pub zero_count: f64,
    /// Offset and length of runs of negative buckets.
    pub negative_spans: Vec<(i64, u64)>,
    /// Absolute counts, or differences where they are integers.
    pub negative: Vec<f64>,
    /// Offset and length of runs of positive buckets.
    pub positive_spans: Vec<(i64, u64)>,
    /// Absolute counts, or differences where they are integers.
    pub positive: Vec<f64>,
    /// 0 unknown, 1 yes, 2 no, 3 gauge.
    pub reset_hint: u64,
    /// Milliseconds since the epoch.
    pub millis: i64,
    /// Bounds of custom buckets.
    pub custom_values: Vec<f64>,
    /// Since when it counts; 0 = not known. Version 2.0 only.
    pub start: i64,
}

impl WriteRequest {
    /// The message `prometheus.WriteRequest`.
    pub fn to_v1(&self) -> Vec<u8> {
        let mut out = Message::default();
        for series in &self.series {
            let mut message = Message::default();
            message.labels(1, &series.labels);
            for sample in &series.samples {
                message.message(2, &sample_message(sample, false));
            }
            for exemplar in &series.exemplars {
                let mut one = Message::default();
                one.labels(1, &exemplar.labels);
                one.double(2, exemplar.value);
                one.int(3, exemplar.millis);
                message.message(3, &one);
            }
            for histogram in &series.histograms {
                message.message(4, &histogram_message(histogram, false));
            }
            out.message(1, &message);
        }
        for metadata in &self.metadata {
            let mut message = Message::default();
            message.varint(1, metadata.kind);
            message.text(2, &metadata.name);
            message.text(4, &metadata.help);
            message.text(5, &metadata.unit);
            out.message(3, &message);
        }
        out.bytes
    }

    /// The message `io.prometheus.write.v2.Request`.
    pub fn to_v2(&self) -> Vec<u8> {
        let mut symbols = Symbols::default();
        let mut all = Message::default();
        for series in &self.series {
            let mut message = Message::default();
            message.packed(1, symbols.refs(&series.labels));
            for sample in &series.samples {
                message.message(2, &sample_message(sample, true));
            }
            for histogram in &series.histograms {
                message.message(3, &histogram_message(histogram, true));
            }
            for exemplar in &series.exemplars {
                let mut one = Message::default();
                one.packed(1, symbols.refs(&exemplar.labels));
                one.double(2, exemplar.value);
                one.int(3, exemplar.millis);
                message.message(4, &one);
            }
            put_metadata(&mut message, series, &mut symbols);
            all.message(5, &message);
        }
        let mut out = symbols.encode();
        out.extend(all.bytes);
        out
    }
}

/// Series whose labels are encoded once: a request with a number of each costs little to make.
#[derive(Debug, Clone)]
pub struct Template {
    /// What comes before the series of every request: the symbols of version 2.0.
    head: Vec<u8>,
    /// All that is sent of each series but its numbers.
    series: Vec<Vec<u8>>,
    /// The number of the field that holds a series.
    field: u32,
}

impl Template {
    /// For version 1.0.
    pub fn v1(series: &[Series]) -> Self {
        let labels = |series: &Series| {
            let mut message = Message::default();
            message.labels(1, &series.labels);
            message.bytes
        };
        Self {
            head: Vec::new(),
            series: series.iter().map(labels).collect(),
            field: 1,
        }
    }

    /// For version 2.0, with metadata.
    pub fn v2(series: &[Series]) -> Self {
        let mut symbols = Symbols::default();
        let mut labels = |series: &Series| {
            let mut message = Message::default();
            message.packed(1, symbols.refs(&series.labels));
            put_metadata(&mut message, series, &mut symbols);
            message.bytes
        };
        let series = series.iter().map(&mut labels).collect();
        Self {
            head: symbols.encode(),
            series,
            field: 5,
        }
    }

    /// Appends a request with one number of each series at an instant, in milliseconds.
    pub fn write(&self, millis: i64, mut value: impl FnMut(usize) -> f64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        let mut request = Message {
            bytes: std::mem::take(out),
        };
        let mut sample = Message::default();
        for (place, series) in self.series.iter().enumerate() {
            sample.bytes.clear();
            sample.double(1, value(place));
            sample.int(2, millis);
            // A tag and a length of one byte each.
            let length = series.len() + 2 + sample.bytes.len();
            request.tag(self.field, 2);
            request.raw(length as u64);
            request.bytes.extend_from_slice(series);
            request.run(2, &sample.bytes);
        }
        *out = request.bytes;
    }
}

fn put_metadata(message: &mut Message, series: &Series, symbols: &mut Symbols) {
    if let Some(metadata) = &series.metadata {
        let mut one = Message::default();
        one.varint(1, metadata.kind);
        one.varint(3, symbols.of(&metadata.help));
        one.varint(4, symbols.of(&metadata.unit));
        message.message(5, &one);
    }
}

fn sample_message(sample: &Sample, with_start: bool) -> Message {
    let mut message = Message::default();
    message.double(1, sample.value);
    message.int(2, sample.millis);
    if with_start {
        message.int(3, sample.start);
    }
    message
}

fn histogram_message(histogram: &Histogram, with_start: bool) -> Message {
    let mut message = Message::default();
    // Of a choice the chosen field is written also where it is zero.
    match histogram.is_float {
        true => message.word(2, histogram.count.to_bits()),
        false => message.number(1, histogram.count as u64),
    }
    message.double(3, histogram.sum);
    message.varint(4, zigzag(histogram.schema));
    message.double(5, histogram.zero_threshold);
    match histogram.is_float {
        true => message.word(7, histogram.zero_count.to_bits()),
        false => message.number(6, histogram.zero_count as u64),
    }
    let (spans, buckets) = (&histogram.negative_spans, &histogram.negative);
    put_buckets(&mut message, [8, 9, 10], spans, buckets, histogram.is_float);
    let (spans, buckets) = (&histogram.positive_spans, &histogram.positive);
    put_buckets(&mut message, [11, 12, 13], spans, buckets, histogram.is_float);
    message.varint(14, histogram.reset_hint);
    message.int(15, histogram.millis);
    message.doubles(16, &histogram.custom_values);
    if with_start {
        message.int(17, histogram.start);
    }
    message
}

/// Spans, then differences of integers or absolute doubles, in the fields of these numbers.
fn put_buckets(
    message: &mut Message,
    [of_spans, of_deltas, of_counts]: [u32; 3],
    spans: &[(i64, u64)],
    buckets: &[f64],
    is_float: bool,
) {
    for (offset, length) in spans {
        let mut span = Message::default();
        span.varint(1, zigzag(*offset));
        span.varint(2, *length);
        message.message(of_spans, &span);
    }
    match is_float {
        true => message.doubles(of_counts, buckets),
        false => message.packed(of_deltas, buckets.iter().map(|delta| zigzag(*delta as i64))),
    }
}

/// The list of symbols of a request; the empty one is not held.
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

    /// The fields that hold all of them.
    fn encode(&self) -> Vec<u8> {
        let mut out = Message::default();
        out.run(4, b"");
        self.list.iter().for_each(|symbol| out.run(4, symbol.as_bytes()));
        out.bytes
    }

    fn refs(&mut self, labels: &[(String, String)]) -> Vec<u64> {
        let pairs = labels.iter().flat_map(|(name, value)| [name, value]);
        pairs.map(|text| self.of(text)).collect()
    }
}

/// A message that grows.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn raw(&mut self, value: u64) {
        varint::put(value, &mut self.bytes);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.raw(u64::from(field << 3 | wire));
    }

    fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.raw(value);
    }

    fn varint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.number(field, value);
        }
    }

    fn int(&mut self, field: u32, value: i64) {
        self.varint(field, value as u64);
    }

    fn word(&mut self, field: u32, bits: u64) {
        self.tag(field, 1);
        self.bytes.extend(bits.to_le_bytes());
    }

    fn double(&mut self, field: u32, value: f64) {
        if value.to_bits() != 0 {
            self.word(field, value.to_bits());
        }
    }

    fn run(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.raw(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.run(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.run(field, &message.bytes);
    }

    fn packed(&mut self, field: u32, numbers: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        numbers.into_iter().for_each(|number| packed.raw(number));
        if !packed.bytes.is_empty() {
            self.run(field, &packed.bytes);
        }
    }

    fn doubles(&mut self, field: u32, numbers: &[f64]) {
        if !numbers.is_empty() {
            let bytes: Vec<u8> = numbers
                .iter()
                .flat_map(|number| number.to_bits().to_le_bytes())
                .collect();
            self.run(field, &bytes);
        }
    }

    fn labels(&mut self, field: u32, labels: &[(String, String)]) {
        for (name, value) in labels {
            let mut label = Self::default();
            label.text(1, name);
            label.text(2, value);
            self.message(field, &label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_that_the_schema_says() {
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
