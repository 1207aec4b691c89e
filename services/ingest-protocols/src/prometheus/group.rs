//! The groups that a writer of samples fills: one for each shape that its rows have.

use tideline_model::{ColumnData, Measurements, PointGroup, ValueKind, ValueType};

/// The field of a number.
pub const VALUE_FIELD: &str = "value";
/// The field of a native histogram.
pub const HISTOGRAM_FIELD: &str = "histogram";
/// The field of the time at which a counter or histogram started to count, in milliseconds since the epoch.
pub const START_FIELD: &str = "_start";
/// The field of an exemplar: `{"labels":{…},"value":…}` at the exemplar's own time.
pub const EXEMPLAR_FIELD: &str = "_exemplar";

/// Whether a field accompanies samples: start timestamps or exemplars, by name and kind of values. Other data may have fields of
/// these names with other values.
pub fn is_sample_detail(field: &str, kind: ValueKind) -> bool {
    matches!(
        (field, kind),
        (START_FIELD, ValueKind::Number) | (EXEMPLAR_FIELD, ValueKind::String)
    )
}

/// Rows of a large body, and how many more it gets room for at once.
const ROWS_MANY: usize = 1 << 16;
const ROWS_AT_ONCE: usize = 1 << 20;

/// The shapes that rows can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Number = 0,
    NumberStart = 1,
    Exemplar = 2,
    Histogram = 3,
    HistogramStart = 4,
}

/// How many shapes there are.
pub(super) const SHAPES: usize = 5;
/// The place of a group that was not opened, or of a name in a group without it.
pub(super) const NONE: u32 = u32::MAX;

/// A group that is being filled.
#[derive(Debug)]
pub(super) struct OpenGroup {
    /// Its measurements are still to be set.
    pub(super) rows: PointGroup,
    /// The names of its metrics.
    names: Vec<Box<str>>,
    /// For each row the place of its name; empty while there is only one.
    name_of_row: Vec<u32>,
}

/// The start time of a row, in the second column where its shape has one.
#[inline]
pub(super) fn push_start(group: &mut PointGroup, start: Option<i64>) {
    if let (Some(start), Some(ColumnData::Signed(starts))) = (start, group.columns.get_mut(1)) {
        starts.push(start);
    }
}

impl OpenGroup {
    pub(super) fn new(shape: Shape) -> Self {
        let fields: &[(&str, ValueType)] = match shape {
            Shape::Number => &[(VALUE_FIELD, ValueType::Float)],
            Shape::NumberStart => &[(VALUE_FIELD, ValueType::Float), (START_FIELD, ValueType::Signed)],
            Shape::Histogram => &[(HISTOGRAM_FIELD, ValueType::Histogram)],
            Shape::HistogramStart => &[
                (HISTOGRAM_FIELD, ValueType::Histogram),
                (START_FIELD, ValueType::Signed),
            ],
            Shape::Exemplar => &[(EXEMPLAR_FIELD, ValueType::String)],
        };
        let rows = PointGroup {
            measurements: "".into(),
            fields: fields.iter().map(|(field, _)| (*field).into()).collect(),
            columns: fields.iter().map(|(_, kind)| ColumnData::new(*kind)).collect(),
            timelines: Vec::new(),
            timestamps: Vec::new(),
            lines: Vec::new(),
        };
        Self {
            rows,
            names: Vec::new(),
            name_of_row: Vec::new(),
        }
    }

    /// Makes room for rows where there is none. The columns of a large body would leave as much again behind where they
    /// grew by doubling: they take at once what `rows_left` may need.
    pub(super) fn make_room(&mut self, items_expected: usize, rows_left: usize) {
        let rows = self.rows.rows();
        let more = match rows {
            0 => items_expected,
            ROWS_MANY.. => rows.max(ROWS_AT_ONCE),
            _ => rows,
        };
        self.rows.reserve(more.min(rows_left));
    }

    /// Gives the row that comes now a name, whose place here, once it has one, is `place`.
    #[inline]
    pub(super) fn name_row(&mut self, name: &str, place: &mut u32) {
        if *place == NONE {
            *place = self.names.len() as u32;
            self.names.push(name.into());
            // While there is one name, all rows have it.
            if self.names.len() == 2 {
                self.name_of_row.resize(self.rows.rows(), 0);
            }
        }
        if self.names.len() > 1 {
            self.name_of_row.push(*place);
        }
    }

    /// The group with the measurement of each row.
    pub(super) fn close(self) -> PointGroup {
        PointGroup {
            measurements: Measurements::of_rows(self.names, self.name_of_row),
            ..self.rows
        }
    }
}
