//! Decoder of line-protocol bodies into columns.
//!
//! # Algorithm
//!
//! 1. Finds the raw series key: all bytes up to the first unescaped space. Tags are not parsed here.
//! 2. Guesses that the fields are those of a known group. Candidates are, in this order: the group that most recently
//!    followed the group of the previous line, the group of the previous line itself, and the most recent group of this
//!    measurement. Field names are compared in place, and values are parsed directly into the columns.
//! 3. If the guess fails, removes the pushed values and parses the fields one by one. Finds the group by a hash of
//!    names and types, or opens a new one.
//! 4. Parses the timestamp and the line end, resolves the timeline, and completes the row. If a step fails, the pushed
//!    values are removed again. No timeline is registered for a line that cannot be parsed.

use std::collections::HashMap;

use tideline_model::{ColumnData, PointBatch, SeriesResolver};

use super::scan::{self, Fault, RawValue};
use crate::grouping::{FieldValue, Groups, ShapeKey, finish_row, last_of_each_name, take_back};
use crate::number;
use crate::options::{DecodeOptions, or_unknown};
use crate::reject::{Rejects, quote, too_large};
use crate::series_key::{self, KEY_BYTES_MAX, Name};

/// Name and equals sign of the field that InfluxDB drops.
const TIME_FIELD: &[u8] = b"time=";

/// UTF-8 byte-order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Result of [`decode_counted`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    /// Rows and rejects.
    pub batch: PointBatch,
    /// Number of dropped fields named `time`. The other fields of their lines are kept.
    pub time_fields_dropped: u64,
}

/// Decodes a body of lines. Valid lines become rows, and bad lines become rejects; the body never fails as a whole.
///
/// Cost: one pass over the bytes and one call of `resolver` per row. A line whose shape occurred before in the body
/// allocates only if a column grows.
pub fn decode(body: &[u8], options: DecodeOptions, resolver: &mut impl SeriesResolver) -> PointBatch {
    decode_counted(body, options, resolver).batch
}

/// Decodes a body as [`decode`] does, and also counts the dropped fields.
pub fn decode_counted(body: &[u8], options: DecodeOptions, resolver: &mut impl SeriesResolver) -> Decoded {
    let mut decoder = Decoder {
        body,
        options,
        default_nanos: options.default_nanos(),
        resolver,
        groups: Groups::new(options.limits.shapes),
        guesses: Vec::new(),
        latest: HashMap::new(),
        previous: 0,
        rejects: Rejects::new(options.limits.rejects),
        line: 1,
        fields: Vec::new(),
        shape: ShapeKey::default(),
        text: String::new(),
        time_fields_dropped: 0,
    };
    decoder.run();
    let mut groups = decoder.groups.all;
    groups.retain(|group| group.rows() > 0);
    Decoded {
        batch: PointBatch {
            groups,
            rejects: decoder.rejects.stored,
        },
        time_fields_dropped: decoder.time_fields_dropped,
    }
}

/// Measurement and field names of a group, as spelt in the line that opened it, and the group that probably follows.
#[derive(Debug)]
struct Guess<'a> {
    measurement: &'a [u8],
    /// Field names, each with its equals sign.
    fields: Vec<&'a [u8]>,
    /// Group of the line after the most recent line of this group; initially this group.
    next: usize,
}

struct Decoder<'a, 'r, R> {
    body: &'a [u8],
    options: DecodeOptions,
    default_nanos: Option<i64>,
    resolver: &'r mut R,
    groups: Groups,
    /// One guess per group, in the order of `groups`.
    guesses: Vec<Guess<'a>>,
    /// Most recent group of each raw measurement.
    latest: HashMap<&'a [u8], usize>,
    /// Group of the last valid line.
    previous: usize,
    rejects: Rejects,
    /// Number of the current line.
    line: u32,
    /// Fields of the current line when they are parsed one by one; each name includes its equals sign.
    fields: Vec<(&'a [u8], RawValue<'a>)>,
    shape: ShapeKey,
    /// Buffer for the unescaped text of a string.
    text: String,
    time_fields_dropped: u64,
}

impl<'a, R: SeriesResolver> Decoder<'a, '_, R> {
    fn run(&mut self) {
        let mut at = if self.body.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        while at < self.body.len() {
            if self.rejects.is_full() {
                let unread = self.body[at..].split_inclusive(|byte| *byte == b'\n').count();
                self.rejects.push_unread(self.line, unread);
                return;
            }
            at = self.read_line(at);
        }
    }

    /// Reads one point (of one or more lines), a comment or a blank line; returns the start of the next line.
    fn read_line(&mut self, start: usize) -> usize {
        let body = self.body;
        let mut at = start;
        while matches!(body.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        if let Some(next) = scan::line_end(body, at) {
            self.line = self.line.saturating_add(1);
            return next;
        }
        let outcome = if body[at] == b'#' {
            self.read_comment(at)
        } else {
            self.read_point(at)
        };
        let next = match outcome {
            Ok(next) => next,
            Err(fault) => {
                let from = fault.at.min(body.len());
                let end = memchr::memchr(b'\n', &body[from..]).map_or(body.len(), |found| from + found);
                self.rejects
                    .push(self.line, fault.reason, body[at..end].trim_ascii_end());
                end + usize::from(end < body.len())
            }
        };
        let lines = memchr::memchr_iter(b'\n', &body[at..next]).count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        next
    }

    fn read_comment(&self, at: usize) -> Result<usize, Fault> {
        let rest = &self.body[at..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let comment = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        match comment
            .iter()
            .find(|byte| byte.is_ascii_control() && **byte != b'\t')
        {
            Some(_) => Err(Fault::new("control character in comment", at)),
            None => Ok(at + end + usize::from(end < rest.len())),
        }
    }

    fn read_point(&mut self, at: usize) -> Result<usize, Fault> {
        let key_end = scan::key_end(self.body, at)?;
        let key = &self.body[at..key_end];
        if key.len() > KEY_BYTES_MAX {
            return Err(Fault::new(
                too_large("series key", key.len(), KEY_BYTES_MAX),
                key_end,
            ));
        }
        let fields_at = scan::skip_spaces(self.body, key_end);
        let (group, fields_end) = match self.guess(key, fields_at) {
            Some(guessed) => guessed,
            None => {
                let fields_end = self.read_fields(fields_at)?;
                let group = self.push_fields(key).map_err(|reason| Fault {
                    reason,
                    at: fields_end,
                })?;
                (group, fields_end)
            }
        };
        let completed = self.complete(group, at, key, fields_end);
        if completed.is_err() {
            take_back(&mut self.groups.all[group]);
        } else if group != self.previous {
            self.guesses[self.previous].next = group;
            self.latest.insert(self.guesses[group].measurement, group);
            self.previous = group;
        } else {
            self.guesses[group].next = group;
        }
        completed
    }

    /// Parses timestamp and line end, resolves the timeline, and completes the row whose values are already in the
    /// columns of `group`.
    fn complete(&mut self, group: usize, at: usize, key: &[u8], fields_end: usize) -> Result<usize, Fault> {
        let (nanos, next) = self.read_time(fields_end)?;
        let limit = self.options.limits.line_bytes;
        let line_bytes = self.body[at..next].trim_ascii_end().len();
        if line_bytes > limit {
            return Err(Fault::new(too_large("line", line_bytes, limit), next - 1));
        }
        let timeline = self
            .resolver
            .resolve(key)
            .map_err(|reason| Fault::new(reason, fields_end))?;
        finish_row(&mut self.groups.all[group], timeline, nanos, self.line);
        Ok(next)
    }

    /// Parses the optional timestamp and the end of the line. Returns the timestamp in nanoseconds, which is the
    /// default time if the line has none, and the start of the next line.
    #[inline]
    fn read_time(&self, fields_end: usize) -> Result<(i64, usize), Fault> {
        let body = self.body;
        let at = scan::skip_spaces(body, fields_end);
        if let Some(next) = scan::line_end(body, at) {
            let nanos = or_unknown(self.default_nanos).map_err(|reason| Fault::new(reason, at))?;
            return Ok((nanos, next));
        }
        let rest = &body[at..];
        let token = &rest[..scan::token_len(rest)];
        let nanos = number::timestamp(token, self.options.precision)
            .map_err(|reason| Fault::new(format!("{reason} {}", quote(token)), at))?;
        let end = scan::skip_spaces(body, at + token.len());
        match scan::line_end(body, end) {
            Some(next) => Ok((nanos, next)),
            None => Err(Fault::new("bad timestamp: unexpected text after it", end)),
        }
    }

    /// Parses the fields at `at` directly into the columns of the group that they probably belong to. Returns the group
    /// and the end of the fields; `None` if the fields are not those of any candidate group.
    #[inline]
    fn guess(&mut self, key: &[u8], at: usize) -> Option<(usize, usize)> {
        let next = self.guesses.get(self.previous)?.next;
        if let Some(end) = self.try_group(next, key, at) {
            return Some((next, end));
        }
        if next != self.previous
            && let Some(end) = self.try_group(self.previous, key, at)
        {
            return Some((self.previous, end));
        }
        let latest = *self.latest.get(series_key::raw_measurement(key))?;
        if latest == next || latest == self.previous {
            return None;
        }
        self.try_group(latest, key, at).map(|end| (latest, end))
    }

    #[inline]
    fn try_group(&mut self, group: usize, key: &[u8], at: usize) -> Option<usize> {
        let guess = &self.guesses[group];
        let tags = key.strip_prefix(guess.measurement)?;
        if !matches!(tags.first(), None | Some(b',')) {
            return None;
        }
        let rows = &mut self.groups.all[group];
        let limit = self.options.limits.string_bytes;
        let end = push_guessed(
            self.body,
            at,
            &guess.fields,
            &mut rows.columns,
            limit,
            &mut self.text,
        );
        if end.is_none() {
            take_back(rows);
        }
        end
    }

    /// Parses the fields at `at` one by one into `self.fields`; returns their end.
    fn read_fields(&mut self, at: usize) -> Result<usize, Fault> {
        let body = self.body;
        let limits = self.options.limits;
        self.fields.clear();
        let mut at = at;
        loop {
            let name_end = at + Name::FieldKey.raw_len(&body[at..]);
            let name = &body[at..name_end];
            match body.get(name_end) {
                None | Some(b'\n' | b'\r') if self.fields.is_empty() && name.is_empty() => {
                    return Err(Fault::new("missing fields", at));
                }
                _ if name.is_empty() => return Err(Fault::new("missing field key", at)),
                Some(b'=') => {}
                _ => return Err(Fault::new(format!("invalid field format {}", quote(name)), at)),
            }
            let (value, end) = scan::value(body, name_end + 1, name, limits.string_bytes)?;
            if self.fields.len() == limits.fields {
                let reason = format!("too many fields: limit {}", limits.fields);
                return Err(Fault::new(reason, end));
            }
            self.fields.push((&body[at..=name_end], value));
            match body.get(end) {
                Some(b',') => at = end + 1,
                None | Some(b' ' | b'\n' | b'\r') => return Ok(end),
                Some(_) => {
                    let reason = format!(
                        "unexpected character {} after field {}",
                        quote(&body[end..=end]),
                        quote(name)
                    );
                    return Err(Fault::new(reason, end));
                }
            }
        }
    }

    /// Appends `self.fields` to the group of their shape; opens a new group if necessary.
    fn push_fields(&mut self, key: &'a [u8]) -> Result<usize, crate::reject::Reason> {
        let measurement = series_key::raw_measurement(key);
        series_key::check_measurement(measurement)?;
        let read = self.fields.len();
        self.fields.retain(|(name, _)| *name != TIME_FIELD);
        if self.fields.is_empty() {
            let measurement = quote(measurement);
            return Err(format!(
                "invalid field name: input field \"time\" on measurement {measurement} is invalid"
            )
            .into());
        }
        self.time_fields_dropped += (read - self.fields.len()) as u64;
        self.spell_shape(measurement);
        let group = match self.groups.find(&self.shape) {
            Some(group) => group,
            None => self.open_group(measurement)?,
        };
        let columns = &mut self.groups.all[group].columns;
        for ((_, raw), column) in self.fields.iter().zip(columns) {
            push_raw(*raw, column, &mut self.text);
        }
        Ok(group)
    }

    fn spell_shape(&mut self, measurement: &[u8]) {
        self.shape
            .start(|out| Name::Measurement.unescape(measurement, out));
        for (name, raw) in &self.fields {
            let name = &name[..name.len() - 1];
            self.shape
                .field(raw.value.value_type(), |out| Name::FieldKey.unescape(name, out));
        }
    }

    /// Removes repeated names from `self.fields`, and returns the group of the remaining fields. Opens the group if
    /// its shape is new.
    fn open_group(&mut self, measurement: &'a [u8]) -> Result<usize, crate::reject::Reason> {
        let names: Vec<Vec<u8>> = self
            .fields
            .iter()
            .map(|(name, _)| {
                let mut unescaped = Vec::with_capacity(name.len());
                Name::FieldKey.unescape(name, &mut unescaped);
                unescaped
            })
            .collect();
        if let Some(kept) = last_of_each_name(&names) {
            self.fields = kept.into_iter().map(|field| self.fields[field]).collect();
            self.spell_shape(measurement);
            if let Some(group) = self.groups.find(&self.shape) {
                return Ok(group);
            }
        }
        let group = self.groups.open(&self.shape)?;
        self.guesses.push(Guess {
            measurement,
            fields: self.fields.iter().map(|(name, _)| *name).collect(),
            next: group,
        });
        Ok(group)
    }
}

/// Appends a value to a column. Unescapes a string with escapes into the buffer `text` first.
fn push_raw(raw: RawValue<'_>, column: &mut ColumnData, text: &mut String) {
    match raw.value {
        FieldValue::String(escaped) if raw.escaped => {
            scan::unescape_string(escaped, text);
            FieldValue::String(text).push_to(column);
        }
        value => value.push_to(column),
    }
}

/// Parses exactly the given fields from `at` on into their columns. If the result is `None`, the columns may have
/// different lengths.
#[inline]
fn push_guessed(
    body: &[u8],
    at: usize,
    names: &[&[u8]],
    columns: &mut [ColumnData],
    string_bytes_max: usize,
    text: &mut String,
) -> Option<usize> {
    let mut at = at;
    let mut separator = Some(&b',');
    for (index, (name, column)) in names.iter().zip(columns).enumerate() {
        if index > 0 {
            if separator != Some(&b',') {
                return None;
            }
            at += 1;
        }
        let rest = body.get(at..)?.strip_prefix(*name)?;
        at += name.len() + push_guessed_value(rest, column, string_bytes_max, text)?;
        separator = body.get(at);
    }
    matches!(separator, None | Some(b' ' | b'\n' | b'\r')).then_some(at)
}

/// Parses a value of the column's type at the start of `rest`. Returns the number of bytes consumed; `None` if the
/// value has another type or cannot be parsed here.
#[inline]
fn push_guessed_value(
    rest: &[u8],
    column: &mut ColumnData,
    string_bytes_max: usize,
    text: &mut String,
) -> Option<usize> {
    match column {
        ColumnData::Signed(values) => {
            let sign = usize::from(rest.first() == Some(&b'-'));
            let (magnitude, taken) = number::short_unsigned(&rest[sign..])?;
            if rest.get(sign + taken) != Some(&b'i') {
                return None;
            }
            let magnitude = i64::try_from(magnitude).ok()?;
            values.push(if sign == 1 { -magnitude } else { magnitude });
            Some(sign + taken + 1)
        }
        ColumnData::Float(values) => {
            if let Some((value, taken)) = number::short_decimal(rest)
                && rest.get(taken).is_none_or(|byte| scan::ends_value(*byte))
            {
                values.push(value);
                return Some(taken);
            }
            let token = &rest[..scan::token_len(rest)];
            values.push(number::float(token)?);
            Some(token.len())
        }
        ColumnData::Unsigned(values) => {
            let (value, taken) = number::short_unsigned(rest)?;
            if rest.get(taken) != Some(&b'u') {
                return None;
            }
            values.push(value);
            Some(taken + 1)
        }
        ColumnData::Boolean(values) => {
            let token = &rest[..scan::token_len(rest)];
            values.push(scan::boolean(token)?);
            Some(token.len())
        }
        ColumnData::String(_) => {
            if rest.first() != Some(&b'"') {
                return None;
            }
            let (raw, taken) = scan::string(rest, string_bytes_max).ok()?;
            push_raw(raw, column, text);
            Some(taken)
        }
        // Line protocol has no histograms.
        ColumnData::Histogram(_) => None,
    }
}
