//! Groups that a sample writer fills, one per shape of rows.
//!
//! Rows of many metrics share one group. A group records the metric of each row only if it has several metrics.

use tideline_model::{ColumnData, Measurements, PointGroup, ValueKind, ValueType};

/// Field of a float sample.
pub const VALUE_FIELD: &str = "value";
/// Field of a native histogram.
pub const HISTOGRAM_FIELD: &str = "histogram";
/// Field of the start timestamp of a counter or histogram, in milliseconds since the epoch.
pub const START_FIELD: &str = "_start";
/// Field of an exemplar: `{"labels":{…},"value":…}`, stored at the exemplar's own timestamp.
pub const EXEMPLAR_FIELD: &str = "_exemplar";

/// Returns true if a field holds start timestamps or exemplars of samples, given its name and value kind. A field of
/// the same name with values of another kind is ordinary data.
pub fn is_sample_detail(field: &str, kind: ValueKind) -> bool {
    matches!(
        (field, kind),
        (START_FIELD, ValueKind::Number) | (EXEMPLAR_FIELD, ValueKind::String)
    )
}

/// Number of rows from which a group counts as large.
const ROWS_MANY: usize = 1 << 16;
/// Minimum number of rows that are reserved at once for a large group.
const ROWS_AT_ONCE: usize = 1 << 20;

/// Shapes of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Number = 0,
    NumberStart = 1,
    Exemplar = 2,
    Histogram = 3,
    HistogramStart = 4,
}

/// Number of shapes.
pub(super) const SHAPES: usize = 5;
/// Placeholder for the index of a group that was not opened, or of a name that a group does not have.
pub(super) const NONE: u32 = u32::MAX;

/// Group that is being filled.
#[derive(Debug)]
pub(super) struct OpenGroup {
    /// Rows; the measurements are set by [`OpenGroup::close`].
    pub(super) rows: PointGroup,
    /// Metric names of the rows, each name once.
    names: Vec<Box<str>>,
    /// Index into `names` for each row; empty while there is only one name.
    name_of_row: Vec<u32>,
}

/// Appends `start`, if it is given, to the second column of the group.
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

    /// Reserves memory for more rows, but for at most `rows_left`. A large group grows in larger steps, because
    /// repeated doubling would leave freed buffers with about the total size of the group.
    pub(super) fn make_room(&mut self, items_expected: usize, rows_left: usize) {
        let rows = self.rows.rows();
        let more = match rows {
            0 => items_expected,
            ROWS_MANY.. => rows.max(ROWS_AT_ONCE),
            _ => rows,
        };
        self.rows.reserve(more.min(rows_left));
    }

    /// Sets the name of the next row. `index` is the index of the name in this group; it is assigned on first use.
    #[inline]
    pub(super) fn name_row(&mut self, name: &str, index: &mut u32) {
        if *index == NONE {
            *index = self.names.len() as u32;
            self.names.push(name.into());
            // While there is one name, it applies to all rows.
            if self.names.len() == 2 {
                self.name_of_row.resize(self.rows.rows(), 0);
            }
        }
        if self.names.len() > 1 {
            self.name_of_row.push(*index);
        }
    }

    /// Returns the group with the measurement of each row.
    pub(super) fn close(self) -> PointGroup {
        PointGroup {
            measurements: Measurements::of_rows(self.names, self.name_of_row),
            ..self.rows
        }
    }
}
