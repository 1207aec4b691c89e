//! Fuzz target for the rows of the manifest: arbitrary bytes, or valid rows with arbitrary edits. The valid rows
//! together have all JSON members. Reading returns an error or a manifest and never panics. A manifest is unchanged
//! after it is encoded and read again, and so is the description of a segment.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tideline_backend::{Epoch, Manifest, ManifestChange, ManifestKind, ManifestRow};
use tideline_log::manifest::put_job;
use tideline_series_store::Segment;
use tideline_series_store::manifest::{ManifestState, put_cursor, put_segment, put_table};

/// Valid rows that together have all JSON members of segments, the cursor and tables.
const ROWS: [(ManifestKind, &str); 5] = [
    (
        ManifestKind::Segment,
        r#"{"format":6,"id":6,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":2,"points":4,"values":5,"bytes":8,"bucket_bits":3,"tier":"cold","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"largest_sources":[["00ff00ff00ff00ff",6]],"copy":{"format":6,"id":7,"group":5,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":10,"archive":{"target":"default","files":[{"key":"a.parquet","bytes":900,"sha256":"cd","index_from":700,"index_sha256":"ab","rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"b.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"c.json"},"archived":70},"stays_until":80}"#,
    ),
    (
        ManifestKind::Segment,
        r#"{"format":6,"id":8,"group":4,"table":2,"window":{"level":0,"index":5},"first":9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"archive":{"target":"default","files":[],"timelines":{"key":"b.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"c.json","attached":"foreign","list":{"items":3,"pages":1,"sha256":"01","bytes":9}},"archived":77,"replaces":["d.json"],"replaces_list":{"items":2,"pages":1,"sha256":"02"}}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":6,"sealed_to":42,"next_segment":8,"next_table":2,"trusted_now":9,"trusted_settled":8,"origin":171,"sequences_from":5,"counted":true}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":6,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":9,"archive":{"target":"default","after":5,"schedule":"continuous","keep_cold":2,"keep":8},"timeline_ttl":null,"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":"continuous","move_bytes_per_second":7,"timelines_per_minute":8}},"created":77,"policy_changed":78,"adopted":[{"target":"default","table":"old","origin":"cd"}],"counts":{"timelines":3,"fields":4,"next_field":5}}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":6,"id":2,"name":"rows","spec":{"model":"wide","source_tags":[],"durability":"buffered","write_past":1,"write_future":null},"created":77}"#,
    ),
];

/// Row of the manifest.
#[derive(Debug, Arbitrary)]
enum Row {
    /// Arbitrary content. The number selects the kind.
    Raw(u8, Vec<u8>),
    /// Edited row. The first number selects one of [`ROWS`]; the number of each edit selects the member to replace.
    Edited(u8, Vec<(u8, Replacement)>),
}

/// New value of a member.
#[derive(Debug, Arbitrary)]
enum Replacement {
    /// The member is removed; an item of a list becomes null.
    Absent,
    Null,
    Boolean(bool),
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Text(String),
    List,
    Object,
    /// The value of another member; null if an earlier edit has removed that member.
    Other(u8),
}

/// Appends the JSON pointers of all values below `value`.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (format!("{at}/{name}"), value))
            .collect(),
        Value::Array(items) => (0..)
            .map(|index: usize| format!("{at}/{index}"))
            .zip(items)
            .collect(),
        _ => Vec::new(),
    };
    for (pointer, value) in below {
        pointers(value, &pointer, out);
        out.push(pointer);
    }
}

/// Replaces or removes one value of a row, unless an earlier edit has already removed it.
fn edit(row: &mut Value, pointers: &[String], member: u8, replacement: &Replacement) {
    let pointer = |member: u8| &pointers[usize::from(member) % pointers.len()];
    let other = match replacement {
        Replacement::Other(other) => row.pointer(pointer(*other)).cloned(),
        _ => None,
    };
    let (parent, name) = pointer(member).rsplit_once('/').expect("a pointer has a slash");
    let Some(parent) = row.pointer_mut(parent) else {
        return;
    };
    if let (Replacement::Absent, Some(members)) = (replacement, parent.as_object_mut()) {
        members.remove(name);
        return;
    }
    let Some(value) = parent.pointer_mut(&format!("/{name}")) else {
        return;
    };
    *value = match replacement {
        Replacement::Absent | Replacement::Null => Value::Null,
        Replacement::Boolean(boolean) => (*boolean).into(),
        Replacement::Unsigned(number) => (*number).into(),
        Replacement::Signed(number) => (*number).into(),
        Replacement::Double(number) => (*number).into(),
        Replacement::Text(text) => text.as_str().into(),
        Replacement::List => Value::Array(Vec::new()),
        Replacement::Object => Value::Object(serde_json::Map::new()),
        Replacement::Other(_) => other.unwrap_or_default(),
    };
}

/// Returns the row as stored.
fn stored(row: Row, name: usize) -> ManifestRow {
    let (kind, detail) = match row {
        Row::Raw(kind, detail) => (
            ManifestKind::ALL[usize::from(kind) % ManifestKind::ALL.len()],
            detail,
        ),
        Row::Edited(base, edits) => {
            let (kind, text) = ROWS[usize::from(base) % ROWS.len()];
            let mut row = serde_json::from_str(text).expect("JSON");
            let mut all = Vec::new();
            pointers(&row, "", &mut all);
            for (member, replacement) in &edits {
                edit(&mut row, &all, *member, replacement);
            }
            (kind, serde_json::to_vec(&row).expect("JSON always serialises"))
        }
    };
    ManifestRow {
        kind,
        name: name.to_be_bytes().to_vec().into(),
        detail: detail.into(),
    }
}

/// Reads arbitrary bytes as the description of a segment. A valid description must read back as the same segment.
fn describe(detail: &[u8]) {
    let Ok(description) = serde_json::from_slice::<Value>(detail) else {
        return;
    };
    let Ok(segment) = Segment::described(&description) else {
        return;
    };
    let _ = (segment.range(), segment.deletes_from(), segment.sequences_end());
    let again = serde_json::to_value(&segment).expect("plain structures always serialise");
    assert_eq!(
        Segment::described(&again).expect("what was written can be read"),
        segment
    );
}

fn read(rows: Vec<ManifestRow>) -> tideline_series_store::Result<ManifestState> {
    ManifestState::read(&Manifest {
        epoch: Epoch(1),
        version: 9,
        rows,
    })
}

fuzz_target!(|rows: Vec<Row>| {
    let rows: Vec<ManifestRow> = (0..).zip(rows).map(|(name, row)| stored(row, name)).collect();
    rows.iter().for_each(|row| describe(&row.detail));
    let Ok(state) = read(rows) else { return };
    let common = &state.common;
    let jobs = common.jobs.iter().map(|(name, detail)| put_job(name, detail));
    let tables = common.tables.values().map(put_table);
    let segments = state.segments.values().flat_map(|segments| segments.values());
    let segments = segments.map(|segment| put_segment(segment));
    let changes = jobs
        .chain(tables)
        .chain(segments)
        .chain([put_cursor(&common.cursor)]);
    let written = changes.map(|change| match change {
        ManifestChange::Put(row) => row,
        ManifestChange::Remove(..) => panic!("a put"),
    });
    let again = read(written.collect()).expect("what was written can be read");
    assert_eq!(again.segments, state.segments);
    assert_eq!(again.common.tables, common.tables);
    assert_eq!(again.common.jobs, common.jobs);
    assert_eq!(
        (again.common.version, again.common.cursor),
        (common.version, common.cursor)
    );
});
