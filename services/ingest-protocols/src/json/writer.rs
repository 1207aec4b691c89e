//! Writer that puts the points of JSON bodies into groups by shape.
//!
//! The writer is shared by [`crate::json`] and [`crate::ndjson`], which differ only in how they find the elements.

use tideline_model::{PointBatch, SeriesResolver};

use super::point::{self, Parsed, Point};
use crate::grouping::{Groups, ShapeKey, finish_row, last_of_each_name};
use crate::options::{DecodeOptions, or_unknown};
use crate::reject::{Reason, Rejects, quote, too_large};
use crate::series_key::{self, KEY_BYTES_MAX, Name};

/// Writer that takes elements one by one and returns a batch.
pub(crate) struct PointWriter<'r, R> {
    options: DecodeOptions,
    default_nanos: Option<i64>,
    resolver: &'r mut R,
    groups: Groups,
    rejects: Rejects,
    /// Index of the first unread element and the number of unread elements; `None` if all elements were read.
    unread: Option<(u32, usize)>,
    key: Vec<u8>,
    shape: ShapeKey,
}

impl<'r, R: SeriesResolver> PointWriter<'r, R> {
    pub(crate) fn new(options: DecodeOptions, resolver: &'r mut R) -> Self {
        Self {
            options,
            default_nanos: options.default_nanos(),
            resolver,
            groups: Groups::new(options.limits.shapes),
            rejects: Rejects::new(options.limits.rejects),
            unread: None,
            key: Vec::new(),
            shape: ShapeKey::default(),
        }
    }

    /// Decodes the point in the JSON text `element`, or adds a reject with the reason.
    pub(crate) fn write(&mut self, index: u32, element: &str) {
        if self.rejects.is_full() {
            self.unread.get_or_insert((index, 0)).1 += 1;
        } else if let Err(reason) = self.write_point(index, element) {
            self.reject(index, reason, element.as_bytes());
        }
    }

    pub(crate) fn reject(&mut self, index: u32, reason: impl Into<Reason>, element: &[u8]) {
        self.rejects.push(index, reason.into(), element);
    }

    pub(crate) fn finish(mut self) -> PointBatch {
        if let Some((first, unread)) = self.unread {
            self.rejects.push_unread(first, unread);
        }
        self.groups.all.retain(|group| group.rows() > 0);
        PointBatch {
            groups: self.groups.all,
            rejects: self.rejects.stored,
        }
    }

    fn write_point(&mut self, index: u32, element: &str) -> Result<(), Reason> {
        let limit = self.options.limits.line_bytes;
        if element.len() > limit {
            return Err(too_large("point", element.len(), limit));
        }
        // Without this check, serde would accept an array as the members of a point in order.
        if !element.starts_with('{') {
            return Err("a point must be an object".into());
        }
        let point: Point<'_> = serde_json::from_str(element).map_err(|error| super::reason_of(&error))?;
        let nanos = match point::time(point.time, self.options.precision)? {
            Some(nanos) => nanos,
            None => or_unknown(self.default_nanos)?,
        };
        let values = self.read_fields(&point)?;
        self.write_key(&point)?;
        let group = self.find_group(&point, &values)?;
        let timeline = self.resolver.resolve(&self.key)?;
        let group = &mut self.groups.all[group];
        for (value, column) in values.iter().zip(&mut group.columns) {
            value.value().push_to(column);
        }
        finish_row(group, timeline, nanos, index);
        Ok(())
    }

    fn read_fields<'a>(&self, point: &Point<'a>) -> Result<Vec<Parsed<'a>>, Reason> {
        let limits = self.options.limits;
        let fields = &point.fields.0;
        if fields.is_empty() {
            return Err("missing fields".into());
        }
        if fields.len() > limits.fields {
            return Err(format!(
                "too many fields: limit {}, actual {}",
                limits.fields,
                fields.len()
            )
            .into());
        }
        let mut values = Vec::with_capacity(fields.len());
        for (name, raw) in fields {
            Name::FieldKey.check(name)?;
            if name == "time" {
                return Err("invalid field name: a field cannot be named \"time\"".into());
            }
            let value = point::field_value(name, raw)?;
            if let Parsed::Text(text) = &value
                && text.len() > limits.string_bytes
            {
                return Err(too_large("string value", text.len(), limits.string_bytes));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn write_key(&mut self, point: &Point<'_>) -> Result<(), Reason> {
        self.key.clear();
        let tags = point.tags.0.iter().map(|(key, value)| (&**key, &*value.0));
        series_key::write(&point.measurement, tags, &mut self.key)?;
        match self.key.len() > KEY_BYTES_MAX {
            true => Err(too_large("series key", self.key.len(), KEY_BYTES_MAX)),
            false => Ok(()),
        }
    }

    fn find_group(&mut self, point: &Point<'_>, values: &[Parsed<'_>]) -> Result<usize, Reason> {
        self.shape
            .start(|out| out.extend_from_slice(point.measurement.as_bytes()));
        for ((name, _), value) in point.fields.0.iter().zip(values) {
            self.shape.field(value.value().value_type(), |out| {
                out.extend_from_slice(name.as_bytes());
            });
        }
        // The fields of a known shape are unique, so only the fields of a new shape are checked for duplicates.
        if let Some(group) = self.groups.find(&self.shape) {
            return Ok(group);
        }
        let names: Vec<&[u8]> = point.fields.0.iter().map(|(name, _)| name.as_bytes()).collect();
        match last_of_each_name(&names) {
            None => self.groups.open(&self.shape),
            Some(_) => Err(format!("duplicate field {}", quote(first_double(&names))).into()),
        }
    }
}

/// Returns the first name that repeats an earlier one; empty if all names differ.
fn first_double<'a>(names: &[&'a [u8]]) -> &'a [u8] {
    let mut seen = std::collections::HashSet::new();
    names
        .iter()
        .find(|name| !seen.insert(**name))
        .copied()
        .unwrap_or_default()
}
