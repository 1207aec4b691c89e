//! Expected contents of the fixture store, as text that can be read and compared.
//!
//! ```text
//! table default
//! timeline {"measurement":"cpu","tags":{"host":"a"},"attributes":{"owner":"storage"}}
//! 1709251200000000000 {"usage":1.5}
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use tideline_model::Value;
use tideline_tests::reading::{self, Fields};

use super::story::{Point, Step};

/// All stored data, by table.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expected(pub(super) BTreeMap<String, BTreeMap<Identity, Timeline>>);

/// Measurement and tags.
pub(super) type Identity = (String, BTreeMap<String, String>);

/// Attributes and points of a timeline.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Timeline {
    pub(super) attributes: BTreeMap<String, Json>,
    pub(super) points: BTreeMap<i64, Fields>,
}

/// Heading line of a timeline.
#[derive(Serialize, Deserialize)]
struct Heading {
    measurement: String,
    tags: BTreeMap<String, String>,
    attributes: BTreeMap<String, Json>,
}

impl Expected {
    /// Returns the contents that follow from the steps: fields merge, and the newest value wins.
    pub(super) fn of(steps: &[Step]) -> Self {
        let mut expected = Self::default();
        for step in steps {
            match step {
                Step::Write(table, points) => points.iter().for_each(|point| expected.write(table, point)),
                Step::Attributes(host, changes) => expected.set_attributes(host, changes),
                Step::CreateTable(_) | Step::Seal => {}
            }
        }
        expected
    }

    pub(super) fn write(&mut self, table: &str, point: &Point) {
        let identity = (point.measurement.to_owned(), point.tags.clone());
        let timelines = self.0.entry(table.to_owned()).or_default();
        let points = &mut timelines.entry(identity).or_default().points;
        points.entry(point.time).or_default().extend(point.fields.clone());
    }

    fn set_attributes(&mut self, host: &str, changes: &Json) {
        let timelines = self.0.entry("default".to_owned()).or_default();
        let (_, timeline) = timelines
            .iter_mut()
            .find(|((_, tags), _)| tags.get("host").is_some_and(|known| known == host))
            .expect("attributes are set on timelines that are there");
        for (key, value) in changes.as_object().expect("changes are an object") {
            match value {
                Json::Null => timeline.attributes.remove(key),
                value => timeline.attributes.insert(key.clone(), value.clone()),
            };
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (table, timelines) in &self.0 {
            let _ = writeln!(text, "table {table}");
            for ((measurement, tags), timeline) in timelines {
                let heading = Heading {
                    measurement: measurement.clone(),
                    tags: tags.clone(),
                    attributes: timeline.attributes.clone(),
                };
                let heading = serde_json::to_string(&heading).expect("plain data");
                let _ = writeln!(text, "timeline {heading}");
                for (time, fields) in &timeline.points {
                    let _ = writeln!(text, "{time} {}", cells(fields));
                }
            }
        }
        text
    }

    /// Parses the output of [`Self::to_text`].
    ///
    /// # Panics
    ///
    /// Panics if the text has another form.
    pub(super) fn parse(text: &str) -> Self {
        let mut expected = Self::default();
        let mut table = String::new();
        let mut identity = Identity::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').expect("a line begins with a word");
            if word == "table" {
                rest.clone_into(&mut table);
                continue;
            }
            let timelines = expected.0.entry(table.clone()).or_default();
            if word == "timeline" {
                let heading: Heading = serde_json::from_str(rest).expect("a heading is JSON");
                identity = (heading.measurement, heading.tags);
                timelines.entry(identity.clone()).or_default().attributes = heading.attributes;
            } else {
                let time = word.parse().expect("a point begins with its time");
                let timeline = timelines
                    .get_mut(&identity)
                    .expect("a point is below its timeline");
                timeline.points.insert(time, fields(rest));
            }
        }
        expected
    }
}

/// Formats the fields as a JSON object, with values as in a response.
fn cells(fields: &Fields) -> String {
    let cells: Vec<String> = fields
        .iter()
        .map(|(name, value)| {
            let cell = match value {
                Value::Float(value) => format!("{value:?}"),
                Value::Signed(value) => value.to_string(),
                Value::Unsigned(value) => value.to_string(),
                Value::Boolean(value) => value.to_string(),
                Value::String(value) => Json::from(value.as_ref()).to_string(),
                Value::Histogram(_) => unreachable!("the story has none"),
            };
            format!("{}:{cell}", Json::from(name.as_str()))
        })
        .collect();
    format!("{{{}}}", cells.join(","))
}

fn fields(cells: &str) -> Fields {
    let cells: BTreeMap<String, &RawValue> = serde_json::from_str(cells).expect("the fields are JSON");
    cells
        .into_iter()
        .filter_map(|(name, cell)| Some((name, reading::value(cell.get())?)))
        .collect()
}
