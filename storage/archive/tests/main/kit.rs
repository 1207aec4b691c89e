//! Shared helpers of the tests: an archive in a directory, generated timelines, and runs of points.
//!
//! Points are compared as single values, because a run may be read back in several parts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_archive::{
    Archive, ArchiveCopy, ArchiveSettings, Description, Extent, Fields, SegmentTarget, ShapeField,
    TargetOptions, TimelineMetadata,
};
use tideline_chunk::{Presence, Run, RunColumn, SequenceSpan};
use tideline_model::{
    ColumnData, FieldId, Identity, SegmentId, SequenceNumber, TableName, TimelineId, ValueType,
};

/// Metadata of generated timelines.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) metadata: HashMap<TimelineId, Arc<Identity>>,
    /// Fields of each measurement.
    pub(crate) fields: BTreeMap<String, Vec<ShapeField>>,
}

impl Known {
    /// Adds a timeline whose id is derived from `number`.
    pub(crate) fn timeline(&mut self, number: u64, measurement: &str, tags: &[(&str, &str)]) -> TimelineId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        id[8..].copy_from_slice(&number.to_be_bytes());
        let tags = tags.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let identity = Identity::new(measurement.into(), tags.collect()).expect("valid");
        self.metadata.insert(TimelineId(id), Arc::new(identity));
        TimelineId(id)
    }

    /// Adds a field to a measurement, or another type to a field.
    pub(crate) fn field(&mut self, measurement: &str, id: u32, name: &str, of: ValueType) {
        let fields = self.fields.entry(measurement.into()).or_default();
        match fields.iter_mut().find(|field| field.id == FieldId(id)) {
            Some(field) if field.types.contains(&of) => {}
            Some(field) => field.types.push(of),
            None => fields.push(ShapeField {
                id: FieldId(id),
                name: name.into(),
                types: vec![of],
            }),
        }
    }

    pub(crate) fn id_of(&self, name: &str) -> Option<FieldId> {
        self.fields
            .values()
            .flatten()
            .find(|field| field.name == name)
            .map(|field| field.id)
    }
}

impl TimelineMetadata for Known {
    fn identity(&self, id: TimelineId) -> Option<Arc<Identity>> {
        self.metadata.get(&id).cloned()
    }

    fn attributes(&self, id: TimelineId) -> Option<String> {
        id.low().is_multiple_of(2).then(|| r#"{"owner":"me"}"#.to_owned())
    }

    fn tag_keys(&self, measurement: &str) -> Vec<String> {
        let of = self
            .metadata
            .values()
            .filter(|identity| identity.measurement() == measurement);
        let mut keys: Vec<String> = of
            .flat_map(|identity| identity.tags())
            .map(|(key, _)| key.clone())
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

impl Fields for Known {
    fn of_measurement(&self, measurement: &str) -> Vec<ShapeField> {
        self.fields.get(measurement).cloned().unwrap_or_default()
    }

    fn name(&self, id: FieldId) -> Option<String> {
        let mut all = self.fields.values().flatten();
        all.find(|field| field.id == id).map(|field| field.name.clone())
    }
}

/// Opens an archive with its temporary files and footers in a directory.
pub(crate) fn archive(directory: &Path) -> Archive {
    archive_with(directory, HashMap::new())
}

pub(crate) fn archive_with(directory: &Path, targets: HashMap<String, (String, TargetOptions)>) -> Archive {
    Archive::open(ArchiveSettings {
        disk_cache: Some((directory.join("footers"), 16 << 20)),
        footers_bytes_max: 16 << 20,
        targets,
        ..ArchiveSettings::new(directory.join("temporary"))
    })
    .expect("it opens")
}

/// Creates a directory and returns its address as a target.
pub(crate) fn in_directory(directory: &Path) -> String {
    let files = directory.join("files");
    std::fs::create_dir_all(&files).expect("made");
    format!("file://{}", files.display())
}

pub(crate) fn segment_target(target: &str) -> SegmentTarget {
    SegmentTarget {
        origin: "feedc0de".into(),
        table: TableName::new("default").expect("valid"),
        segment: SegmentId(7),
        target: target.into(),
    }
}

pub(crate) fn sequences() -> SequenceSpan {
    SequenceSpan {
        lowest: SequenceNumber(3),
        highest: SequenceNumber(9),
    }
}

/// Runs by timeline.
pub(crate) type Points = BTreeMap<TimelineId, Vec<Run>>;

/// Writes points and their description. Returns the metadata of the files and the extents.
pub(crate) fn write(
    archive: &Archive,
    target: &str,
    known: &Known,
    points: &Points,
) -> (Arc<ArchiveCopy>, Vec<(TimelineId, Extent)>) {
    let segment_target = segment_target(target);
    let mut writer = archive
        .writer(segment_target.clone(), known, known)
        .expect("it begins");
    let sent = writer.sent();
    for (id, runs) in points {
        for run in runs {
            writer.add(*id, run, sequences()).expect("added");
        }
    }
    let mut written = writer.finish(&mut || true).expect("it is written and verified");
    let description = Description {
        format: tideline_archive::FORMAT,
        table: segment_target.table.clone(),
        spec: None,
        fields: Some(written.fields.clone()),
        segment: serde_json::json!({"id": 7}),
        archive: written.copy.clone(),
    };
    written.copy.sidecar = archive
        .describe(&segment_target, &description, &sent)
        .expect("described");
    let extents = written.extents.collect::<Result<_, _>>().expect("they read back");
    (Arc::new(written.copy), extents)
}

/// Reads all runs, grouped by timeline.
pub(crate) fn read(
    archive: &Archive,
    copy: &Arc<ArchiveCopy>,
    extents: &[(TimelineId, Extent)],
    known: &Known,
    ahead: u64,
) -> BTreeMap<TimelineId, Vec<Run>> {
    let mut reader = archive.reader(copy, None, ahead).expect("it opens");
    let mut all: BTreeMap<TimelineId, Vec<Run>> = BTreeMap::new();
    for (id, extent) in extents {
        let run = reader
            .read(extent, &|name: &str| known.id_of(name))
            .expect("it reads");
        assert_eq!(run.values(), extent.values as usize);
        run.check().expect("it is a run");
        all.entry(*id).or_default().push(run);
    }
    all
}

/// Timestamp with its values, each as field, type code and bytes.
pub(crate) type FlatPoint = (i64, Vec<(FieldId, u8, Vec<u8>)>);

/// Converts runs to single values, with the exact bits of numbers, in order.
pub(crate) fn flat(runs: &[Run]) -> Vec<FlatPoint> {
    let mut rows = Vec::new();
    for run in runs {
        for (row, time) in run.timestamps.iter().enumerate() {
            let mut values = Vec::new();
            for column in &run.columns {
                if column.presence.contains(row) {
                    let at = column.presence.rank(row);
                    let bytes = match &column.values {
                        ColumnData::Float(values) => values[at].to_bits().to_be_bytes().to_vec(),
                        ColumnData::Signed(values) => values[at].to_be_bytes().to_vec(),
                        ColumnData::Unsigned(values) => values[at].to_be_bytes().to_vec(),
                        ColumnData::Boolean(values) => vec![u8::from(values[at])],
                        ColumnData::String(values) => values.get(at).as_bytes().to_vec(),
                        ColumnData::Histogram(values) => values.get(at).to_vec(),
                    };
                    values.push((column.field, column.values.value_type().code(), bytes));
                }
            }
            rows.push((*time, values));
        }
    }
    rows
}

/// Returns a run with one dense histogram column. The bytes are arbitrary, because nothing decodes them.
pub(crate) fn histograms(start: i64, step: i64, count: usize, field: u32) -> Run {
    let stored: Vec<Vec<u8>> = (0..count)
        .map(|row| (0..row % 40).map(|at| (at * 7 + row) as u8 | 0x80).collect())
        .collect();
    Run {
        timestamps: (0..count).map(|row| start + step * row as i64).collect(),
        columns: vec![RunColumn {
            field: FieldId(field),
            presence: Presence::All,
            values: ColumnData::Histogram(stored.iter().map(Vec::as_slice).collect()),
        }],
    }
}

/// Returns a run with one dense float column.
pub(crate) fn floats(start: i64, step: i64, count: usize, field: u32, value: impl Fn(usize) -> f64) -> Run {
    Run {
        timestamps: (0..count).map(|row| start + step * row as i64).collect(),
        columns: vec![RunColumn {
            field: FieldId(field),
            presence: Presence::All,
            values: ColumnData::Float((0..count).map(value).collect()),
        }],
    }
}
