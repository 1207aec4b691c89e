//! Encoder of OTLP metrics requests, as Protocol Buffers and as JSON, without compression.
//!
//! Tests and benchmarks need a sender that is independent of the code under test. Like real senders, the encoder of
//! Protocol Buffers writes fields in the order of their numbers and omits fields that hold their default value.

use std::fmt::Write as _;

use tideline_wire::protobuf::PutFields;

/// Content of an `ExportMetricsServiceRequest`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Resources with their metrics.
    pub resources: Vec<Resource>,
}

/// Resource with its scopes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource {
    /// Attributes of the resource.
    pub attributes: Attributes,
    /// Scopes.
    pub scopes: Vec<Scope>,
}

/// Scope with its metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// URL of the schema.
    pub schema_url: String,
    /// Attributes of the scope.
    pub attributes: Attributes,
    /// Metrics.
    pub metrics: Vec<Metric>,
}

/// Metric with its data points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metric {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Unit in the notation of UCUM.
    pub unit: String,
    /// Type and data points.
    pub data: Data,
}

/// Type and data points of a metric. A temporality is 1 for delta and 2 for cumulative.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the members are those of the messages")]
pub enum Data {
    Gauge(Vec<Point>),
    Sum {
        points: Vec<Point>,
        temporality: u64,
        is_monotonic: bool,
    },
    Histogram {
        points: Vec<Point>,
        temporality: u64,
    },
    Exponential {
        points: Vec<Point>,
        temporality: u64,
    },
    Summary(Vec<Point>),
}

impl Default for Data {
    fn default() -> Self {
        Self::Gauge(Vec::new())
    }
}

/// Data point of any type. The Protocol Buffers form of a metric has only the members of its type; the JSON form has
/// the members of all types.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// Attributes.
    pub attributes: Attributes,
    /// Start time in nanoseconds since the Unix epoch; 0 if unknown.
    pub start: u64,
    /// Time in nanoseconds since the Unix epoch.
    pub time: u64,
    /// Flags; 1 means that no value was recorded.
    pub flags: u64,
    /// Exemplars.
    pub exemplars: Vec<Exemplar>,
    /// Value of a number point.
    pub value: Option<Number>,
    /// Number of observations.
    pub count: u64,
    /// Sum of the observations.
    pub sum: Option<f64>,
    /// Counts of explicit buckets.
    pub counts: Vec<u64>,
    /// Bounds of explicit buckets.
    pub bounds: Vec<f64>,
    /// Scale of exponential buckets.
    pub scale: i32,
    /// Number of observations in the zero bucket.
    pub zero_count: u64,
    /// Largest absolute value in the zero bucket.
    pub zero_threshold: f64,
    /// Offset and counts of positive buckets.
    pub positive: Option<(i32, Vec<u64>)>,
    /// Offset and counts of negative buckets.
    pub negative: Option<(i32, Vec<u64>)>,
    /// Quantiles of a summary with their values.
    pub quantiles: Vec<(f64, f64)>,
}

/// Value of a number point or exemplar.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the values")]
pub enum Number {
    Double(f64),
    Int(i64),
}

/// Exemplar of a data point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exemplar {
    /// Attributes that the point does not have.
    pub attributes: Attributes,
    /// Time in nanoseconds since the Unix epoch.
    pub time: u64,
    /// Value.
    pub value: Option<Number>,
    /// Span id; empty or eight bytes.
    pub span_id: Vec<u8>,
    /// Trace id; empty or 16 bytes.
    pub trace_id: Vec<u8>,
}

/// Attributes in the order in which they are sent.
pub type Attributes = Vec<(String, Value)>;

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the values")]
pub enum Value {
    Empty,
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(Vec<Value>),
    Map(Attributes),
    Bytes(Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Returns attributes with texts as values.
pub fn texts(pairs: &[(&str, &str)]) -> Attributes {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::from(*value));
    pairs.iter().map(owned).collect()
}

impl Request {
    /// Returns a request with one metric of one resource without attributes.
    pub fn of(metric: Metric) -> Self {
        Self {
            resources: vec![Resource {
                scopes: vec![Scope {
                    metrics: vec![metric],
                    ..Scope::default()
                }],
                ..Resource::default()
            }],
        }
    }

    /// Encodes the request as Protocol Buffers.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for resource in &self.resources {
            let mut message = Vec::new();
            let mut inner = Vec::new();
            put_attributes(1, &resource.attributes, &mut inner);
            message.put_bytes(1, &inner);
            for scope in &resource.scopes {
                message.put_bytes(2, &scope.to_protobuf());
            }
            out.put_bytes(1, &message);
        }
        out
    }

    /// Encodes the request as JSON.
    pub fn to_json(&self) -> String {
        let resources = list(&self.resources, |resource| {
            format!(
                r#"{{"resource":{{"attributes":{}}},"scopeMetrics":{}}}"#,
                attributes_json(&resource.attributes),
                list(&resource.scopes, Scope::to_json)
            )
        });
        format!(r#"{{"resourceMetrics":{resources}}}"#)
    }
}

impl Scope {
    fn to_protobuf(&self) -> Vec<u8> {
        let mut scope = Vec::new();
        scope.put_text(1, &self.name);
        scope.put_text(2, &self.version);
        put_attributes(3, &self.attributes, &mut scope);
        let mut message = Vec::new();
        message.put_bytes(1, &scope);
        for metric in &self.metrics {
            message.put_bytes(2, &metric.to_protobuf());
        }
        message.put_text(3, &self.schema_url);
        message
    }

    fn to_json(&self) -> String {
        format!(
            r#"{{"scope":{{"name":{},"version":{},"attributes":{}}},"schemaUrl":{},"metrics":{}}}"#,
            quoted(&self.name),
            quoted(&self.version),
            attributes_json(&self.attributes),
            quoted(&self.schema_url),
            list(&self.metrics, Metric::to_json)
        )
    }
}

impl Metric {
    fn to_protobuf(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |points: &[Point], encode: fn(&Point) -> Vec<u8>| {
            points.iter().for_each(|point| data.put_bytes(1, &encode(point)));
        };
        let (field, temporality, is_monotonic) = match &self.data {
            Data::Gauge(points) => {
                put(points, Point::number);
                (5, 0, false)
            }
            Data::Sum {
                points,
                temporality,
                is_monotonic,
            } => {
                put(points, Point::number);
                (7, *temporality, *is_monotonic)
            }
            Data::Histogram { points, temporality } => {
                put(points, Point::histogram);
                (9, *temporality, false)
            }
            Data::Exponential { points, temporality } => {
                put(points, Point::exponential);
                (10, *temporality, false)
            }
            Data::Summary(points) => {
                put(points, Point::summary);
                (11, 0, false)
            }
        };
        data.put_uint(2, temporality);
        data.put_uint(3, is_monotonic.into());
        let mut message = Vec::new();
        message.put_text(1, &self.name);
        message.put_text(2, &self.description);
        message.put_text(3, &self.unit);
        message.put_bytes(field, &data);
        message
    }

    fn to_json(&self) -> String {
        let (name, points, rest) = match &self.data {
            Data::Gauge(points) => ("gauge", points, String::new()),
            Data::Sum {
                points,
                temporality,
                is_monotonic,
            } => (
                "sum",
                points,
                format!(r#","aggregationTemporality":{temporality},"isMonotonic":{is_monotonic}"#),
            ),
            Data::Histogram { points, temporality } => (
                "histogram",
                points,
                format!(r#","aggregationTemporality":{temporality}"#),
            ),
            Data::Exponential { points, temporality } => (
                "exponentialHistogram",
                points,
                format!(r#","aggregationTemporality":{temporality}"#),
            ),
            Data::Summary(points) => ("summary", points, String::new()),
        };
        format!(
            r#"{{"name":{},"description":{},"unit":{},"{name}":{{"dataPoints":{}{rest}}}}}"#,
            quoted(&self.name),
            quoted(&self.description),
            quoted(&self.unit),
            list(points, Point::to_json)
        )
    }
}

impl Point {
    fn number(&self) -> Vec<u8> {
        let mut message = self.times();
        if let Some(Number::Double(value)) = self.value {
            message.put_fixed64(4, value.to_bits());
        }
        put_exemplars(5, &self.exemplars, &mut message);
        if let Some(Number::Int(value)) = self.value {
            message.put_fixed64(6, value.cast_unsigned());
        }
        put_attributes(7, &self.attributes, &mut message);
        message.put_uint(8, self.flags);
        message
    }

    fn histogram(&self) -> Vec<u8> {
        let mut message = self.times();
        put_word(4, self.count, &mut message);
        if let Some(sum) = self.sum {
            message.put_fixed64(5, sum.to_bits());
        }
        let counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        if !counts.is_empty() {
            message.put_bytes(6, &counts);
        }
        message.put_doubles(7, &self.bounds);
        put_exemplars(8, &self.exemplars, &mut message);
        put_attributes(9, &self.attributes, &mut message);
        message.put_uint(10, self.flags);
        message
    }

    fn exponential(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_attributes(1, &self.attributes, &mut message);
        message.extend(self.times());
        put_word(4, self.count, &mut message);
        if let Some(sum) = self.sum {
            message.put_fixed64(5, sum.to_bits());
        }
        message.put_sint(6, self.scale.into());
        put_word(7, self.zero_count, &mut message);
        for (field, side) in [(8, &self.positive), (9, &self.negative)] {
            if let Some((offset, counts)) = side {
                let mut buckets = Vec::new();
                buckets.put_sint(1, (*offset).into());
                buckets.put_uints(2, counts.iter().copied());
                message.put_bytes(field, &buckets);
            }
        }
        message.put_uint(10, self.flags);
        put_exemplars(11, &self.exemplars, &mut message);
        message.put_double(14, self.zero_threshold);
        message
    }

    fn summary(&self) -> Vec<u8> {
        let mut message = self.times();
        put_word(4, self.count, &mut message);
        message.put_double(5, self.sum.unwrap_or_default());
        for (quantile, value) in &self.quantiles {
            let mut one = Vec::new();
            one.put_double(1, *quantile);
            one.put_double(2, *value);
            message.put_bytes(6, &one);
        }
        put_attributes(7, &self.attributes, &mut message);
        message.put_uint(8, self.flags);
        message
    }

    fn times(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_word(2, self.start, &mut message);
        put_word(3, self.time, &mut message);
        message
    }

    fn to_json(&self) -> String {
        let mut out = format!(
            r#"{{"startTimeUnixNano":"{}","timeUnixNano":"{}","flags":{},"attributes":{},"exemplars":{}"#,
            self.start,
            self.time,
            self.flags,
            attributes_json(&self.attributes),
            list(&self.exemplars, Exemplar::to_json)
        );
        let mut put = |text: String| out.push_str(&text);
        put(number_json(self.value));
        put(format!(
            r#","count":"{}","zeroCount":{}"#,
            self.count, self.zero_count
        ));
        if let Some(sum) = self.sum {
            put(format!(r#","sum":{}"#, double_json(sum)));
        }
        put(format!(
            r#","bucketCounts":{},"explicitBounds":{},"scale":{},"zeroThreshold":{}"#,
            list(&self.counts, |count| format!("\"{count}\"")),
            list(&self.bounds, |bound| double_json(*bound)),
            self.scale,
            double_json(self.zero_threshold)
        ));
        for (name, side) in [("positive", &self.positive), ("negative", &self.negative)] {
            if let Some((offset, counts)) = side {
                put(format!(
                    r#","{name}":{{"offset":{offset},"bucketCounts":{}}}"#,
                    list(counts, ToString::to_string)
                ));
            }
        }
        put(format!(
            r#","quantileValues":{}}}"#,
            list(&self.quantiles, |(quantile, value)| format!(
                r#"{{"quantile":{},"value":{}}}"#,
                double_json(*quantile),
                double_json(*value)
            ))
        ));
        out
    }
}

impl Exemplar {
    fn to_protobuf(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_word(2, self.time, &mut message);
        if let Some(Number::Double(value)) = self.value {
            message.put_fixed64(3, value.to_bits());
        }
        for (field, id) in [(4, &self.span_id), (5, &self.trace_id)] {
            if !id.is_empty() {
                message.put_bytes(field, id);
            }
        }
        if let Some(Number::Int(value)) = self.value {
            message.put_fixed64(6, value.cast_unsigned());
        }
        put_attributes(7, &self.attributes, &mut message);
        message
    }

    fn to_json(&self) -> String {
        let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        format!(
            r#"{{"timeUnixNano":{},"spanId":"{}","traceId":"{}","filteredAttributes":{}{}}}"#,
            self.time,
            hexadecimal(&self.span_id),
            hexadecimal(&self.trace_id),
            attributes_json(&self.attributes),
            number_json(self.value)
        )
    }
}

impl Value {
    fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Empty => {}
            Self::Text(text) => out.put_bytes(1, text.as_bytes()),
            Self::Bool(value) => out.put_integer(2, (*value).into()),
            Self::Int(value) => out.put_integer(3, value.cast_unsigned()),
            Self::Double(value) => out.put_fixed64(4, value.to_bits()),
            Self::List(values) => {
                let mut inner = Vec::new();
                values
                    .iter()
                    .for_each(|value| inner.put_bytes(1, &value.to_protobuf()));
                out.put_bytes(5, &inner);
            }
            Self::Map(members) => {
                let mut inner = Vec::new();
                put_attributes(1, members, &mut inner);
                out.put_bytes(6, &inner);
            }
            Self::Bytes(bytes) => out.put_bytes(7, bytes),
        }
        out
    }

    fn to_json(&self) -> String {
        match self {
            Self::Empty => "{}".to_owned(),
            Self::Text(text) => format!(r#"{{"stringValue":{}}}"#, quoted(text)),
            Self::Bool(value) => format!(r#"{{"boolValue":{value}}}"#),
            Self::Int(value) => format!(r#"{{"intValue":"{value}"}}"#),
            Self::Double(value) => format!(r#"{{"doubleValue":{}}}"#, double_json(*value)),
            Self::List(values) => format!(r#"{{"arrayValue":{{"values":{}}}}}"#, list(values, Self::to_json)),
            Self::Map(members) => format!(r#"{{"kvlistValue":{{"values":{}}}}}"#, attributes_json(members)),
            Self::Bytes(bytes) => format!(r#"{{"bytesValue":"{}"}}"#, base64(bytes)),
        }
    }
}

/// Pre-encoded request in which only times and values change. Both have a fixed size and are replaced in place.
#[derive(Debug, Clone)]
pub struct Template {
    message: Vec<u8>,
    /// Positions of the times.
    times: Vec<usize>,
    /// Positions of the values.
    values: Vec<usize>,
}

impl Template {
    /// Placeholder for the time of a point.
    pub const TIME: u64 = 0xfedc_ba98_7654_3210;
    /// Placeholder for the value of a point.
    pub const VALUE: Number = Number::Double(f64::from_bits(0x7654_3210_fedc_ba98));

    /// Encodes a request whose points have [`Self::TIME`] and [`Self::VALUE`].
    pub fn new(request: &Request) -> Self {
        let message = request.to_protobuf();
        let places = |word: u64| {
            let windows = message.windows(8).enumerate();
            let found = windows.filter(|(_, window)| *window == word.to_le_bytes());
            found.map(|(place, _)| place).collect()
        };
        let Number::Double(value) = Self::VALUE else {
            unreachable!("it is a double");
        };
        Self {
            times: places(Self::TIME),
            values: places(value.to_bits()),
            message,
        }
    }

    /// Returns the number of data points.
    pub fn points(&self) -> usize {
        self.values.len()
    }

    /// Returns the request with `time`, in nanoseconds, as the time of all points. `value` receives the index of a
    /// point and returns the value of the point.
    pub fn fill(&mut self, time: u64, mut value: impl FnMut(usize) -> f64) -> &[u8] {
        for place in &self.times {
            self.message[*place..*place + 8].copy_from_slice(&time.to_le_bytes());
        }
        for (index, place) in self.values.iter().enumerate() {
            self.message[*place..*place + 8].copy_from_slice(&value(index).to_bits().to_le_bytes());
        }
        &self.message
    }
}

/// Writes a `fixed64` field unless its value is zero.
fn put_word(field: u32, word: u64, out: &mut Vec<u8>) {
    if word != 0 {
        out.put_fixed64(field, word);
    }
}

fn put_exemplars(field: u32, exemplars: &[Exemplar], out: &mut Vec<u8>) {
    exemplars
        .iter()
        .for_each(|exemplar| out.put_bytes(field, &exemplar.to_protobuf()));
}

fn put_attributes(field: u32, attributes: &[(String, Value)], out: &mut Vec<u8>) {
    for (name, value) in attributes {
        let mut message = Vec::new();
        message.put_text(1, name);
        message.put_bytes(2, &value.to_protobuf());
        out.put_bytes(field, &message);
    }
}

fn attributes_json(attributes: &[(String, Value)]) -> String {
    list(attributes, |(name, value)| {
        format!(r#"{{"key":{},"value":{}}}"#, quoted(name), value.to_json())
    })
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(text).collect();
    format!("[{}]", items.join(","))
}

fn number_json(value: Option<Number>) -> String {
    match value {
        None => String::new(),
        Some(Number::Double(value)) => format!(r#","asDouble":{}"#, double_json(value)),
        Some(Number::Int(value)) => format!(r#","asInt":"{value}""#),
    }
}

fn double_json(value: f64) -> String {
    if value.is_nan() {
        return "\"NaN\"".to_owned();
    }
    match value {
        f64::INFINITY => "\"Infinity\"".to_owned(),
        f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
        value => format!("{value:e}"),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let chunk = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = |at: usize| match at <= chunk.len() {
            true => char::from(DIGITS[(word >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge() -> Request {
        Request::of(Metric {
            name: "a".into(),
            data: Data::Gauge(vec![Point {
                attributes: texts(&[("b", "c\"")]),
                time: Template::TIME,
                value: Some(Template::VALUE),
                ..Point::default()
            }]),
            ..Metric::default()
        })
    }

    #[test]
    fn messages_have_the_bytes_of_the_schema() {
        let mut point = vec![0x19, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe];
        point.extend([0x21, 0x98, 0xba, 0xdc, 0xfe, 0x10, 0x32, 0x54, 0x76]);
        point.extend(b"\x3a\x09\x0a\x01b\x12\x04\x0a\x02c\"");
        let mut expected = vec![0x0a, 44, 0x0a, 0, 0x12, 40, 0x0a, 0, 0x12, 36];
        expected.extend(b"\x0a\x01a\x2a\x1f\x0a\x1d");
        expected.extend(point);
        assert_eq!(gauge().to_protobuf(), expected);
        let json = gauge().to_json();
        assert!(
            json.contains(r#"{"key":"b","value":{"stringValue":"c\""}}"#),
            "{json}"
        );
    }

    #[test]
    fn a_template_makes_the_same_requests() {
        let mut template = Template::new(&gauge());
        let mut request = gauge();
        let Data::Gauge(points) = &mut request.resources[0].scopes[0].metrics[0].data else {
            panic!("it is a gauge");
        };
        points[0].time = 7;
        points[0].value = Some(Number::Double(2.5));
        assert_eq!(template.points(), 1);
        assert_eq!(template.fill(7, |_| 2.5), request.to_protobuf());
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(
            [&b""[..], b"f", b"fo", b"foo"].map(base64),
            ["", "Zg==", "Zm8=", "Zm9v"]
        );
    }
}
