//! Requests for lists of series, label names and label values.
//!
//! Each list is built from the catalog; samples are never read.

use std::io::Write;
use std::time::Duration;

use tideline_promql::{Matcher, Result};

use crate::error::{self, RequestError};
use crate::escaping::unescape;
use crate::json::{TRUNCATED, put_json_text, put_labels, write_list};
use crate::listing::Listed;
use crate::parameters::{Parameters, wrong};
use crate::request::SeriesRequest;
use crate::view::SeriesView;

/// Request for a list.
#[derive(Debug)]
pub struct ListRequest {
    list: List,
    selectors: Vec<Vec<Matcher>>,
    /// `None` = all time, which needs no lookup of the time ranges of the series.
    range: Option<(i64, i64)>,
    limit: Option<usize>,
    text: String,
}

#[derive(Debug)]
enum List {
    Series,
    LabelNames,
    /// Values of this label.
    LabelValues(String),
}

impl ListRequest {
    /// Reads a request for series.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if a parameter is not valid, if `match[]` is missing, or if a regular expression is too
    /// large.
    pub fn series(parameters: &Parameters) -> error::Result<Self> {
        parameters.need_selector()?;
        // As in Prometheus, only this request reports a selector error as an error of the parameter `match[]`.
        let selectors = parameters.selectors();
        let selectors = selectors.map_err(|error| wrong("match[]", error))?;
        Self::read(parameters, List::Series, Some(selectors))
    }

    /// Reads a request for label names.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if a parameter is not valid, or if a regular expression is too large.
    pub fn label_names(parameters: &Parameters) -> error::Result<Self> {
        Self::read(parameters, List::LabelNames, None)
    }

    /// Reads a request for the values of a label, whose name may be escaped.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if the name is empty, if a parameter is not valid, or if a regular expression is too large.
    pub fn label_values(parameters: &Parameters, name: String) -> error::Result<Self> {
        let name = unescape(&name).unwrap_or(name);
        let is_empty = name.is_empty();
        let request = Self::read(parameters, List::LabelValues(name), None)?;
        match is_empty {
            true => Err(RequestError::invalid("invalid label name: \"\"")),
            false => Ok(request),
        }
    }

    fn read(
        parameters: &Parameters,
        list: List,
        selectors: Option<Vec<Vec<Matcher>>>,
    ) -> error::Result<Self> {
        let limit = parameters.limit()?;
        let range = parameters.range()?;
        let has_range = !(parameters.text("start").is_empty() && parameters.text("end").is_empty());
        Ok(Self {
            list,
            selectors: selectors.map_or_else(|| parameters.selectors(), Ok)?,
            range: has_range.then_some(range),
            limit,
            text: parameters.selectors_text(),
        })
    }
}

impl SeriesRequest for ListRequest {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        None
    }

    fn write(&self, view: &SeriesView<'_>, _: Duration, out: &mut dyn Write) -> Result<()> {
        let Self {
            selectors,
            range,
            limit,
            ..
        } = self;
        let put_text = |text: &String, out: &mut Vec<u8>| put_json_text(text, out);
        match &self.list {
            List::Series => write(&view.series(selectors, *range, *limit)?, put_labels, out),
            List::LabelNames => write(&view.label_names(selectors, *range, *limit)?, put_text, out),
            List::LabelValues(name) => write(
                &view.label_values(name, selectors, *range, *limit)?,
                put_text,
                out,
            ),
        }
    }
}

fn write<T>(found: &Listed<T>, put: impl Fn(&T, &mut Vec<u8>), out: &mut dyn Write) -> Result<()> {
    let warnings = found.is_cut.then(|| TRUNCATED.to_owned());
    write_list(&found.items, put, warnings.as_slice(), out)
}
