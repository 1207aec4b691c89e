//! Golden manifest rows of every format. Existing databases contain rows of these formats, so every build must be able
//! to read them.
//!
//! Rows of the current format must also be written byte for byte as before.

use tideline_backend::{Epoch, ManifestRow};
use tideline_model::feed::{MessageSettings, rows_of};
use tideline_model::{
    FeedSpec, InboxEntries, InboxSpec, PartsSpec, Schedule, SearchAnalyzer, TableModel, TableName, TableSpec,
};

use super::*;

/// Rows of version 1.
const GOLDEN_1: [(ManifestKind, &str); 3] = [
    (
        ManifestKind::Segment,
        r#"{"format":1,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":1,"sealed_to":42,"next_segment":8,"next_table":2}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":1,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5},"created":77}"#,
    ),
];

/// Rows of version 2.
const GOLDEN_2: [(ManifestKind, &str); 3] = [
    (
        ManifestKind::Segment,
        r#"{"format":2,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"cold","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"largest_sources":[["00ff00ff00ff00ff",6]]}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":2,"sealed_to":42,"next_segment":8,"next_table":2,"trusted_now":9}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":2,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":9,"timeline_ttl":null,"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":"continuous","move_bytes_per_second":7,"timelines_per_minute":8}},"created":77,"policy_changed":78}"#,
    ),
];

/// Rows of version 3.
const GOLDEN_3: [(ManifestKind, &str); 3] = [
    (
        ManifestKind::Segment,
        r#"{"format":3,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"archive":{"target":"default","files":[{"key":"default/_shared/day=1970-01-01/ab-7-cd.parquet","bytes":900,"sha256":"cd","index_from":700,"rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json"}}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":3,"sealed_to":42,"next_segment":8,"next_table":2,"trusted_now":9,"origin":171}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":3,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":9,"archive":{"target":"default","after":5,"schedule":"continuous"},"timeline_ttl":null,"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":"continuous","move_bytes_per_second":7,"timelines_per_minute":8}},"created":77,"policy_changed":78}"#,
    ),
];

/// Rows of version 4.
const GOLDEN_4: [(ManifestKind, &str); 3] = [
    (
        ManifestKind::Segment,
        r#"{"format":4,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"archive":{"target":"default","files":[{"key":"default/_shared/day=1970-01-01/ab-7-cd.parquet","bytes":900,"sha256":"cd","index_from":700,"rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json","attached":"foreign"},"archived":77,"replaces":["default/_segments/cd-5-02.json"]}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":4,"sealed_to":42,"next_segment":8,"next_table":2,"trusted_now":9,"origin":171}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":4,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":9,"archive":{"target":"default","after":5,"schedule":"continuous","keep_cold":2,"keep":8},"timeline_ttl":null,"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":"continuous","move_bytes_per_second":7,"timelines_per_minute":8}},"created":77,"policy_changed":78,"adopted":[{"target":"default","table":"old","origin":"cd"}]}"#,
    ),
];

/// Cold segment with a copy, version 4.
const GOLDEN_4_COPY: (ManifestKind, &str) = (
    ManifestKind::Segment,
    r#"{"format":4,"id":6,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":2,"points":4,"values":5,"bytes":8,"tier":"cold","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"copy":{"format":4,"id":7,"group":5,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":10,"archive":{"target":"default","files":[{"key":"default/_shared/day=1970-01-01/ab-7-cd.parquet","bytes":900,"sha256":"cd","index_from":700,"rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json"},"archived":70},"stays_until":80}"#,
);

/// Rows of version 5.
const GOLDEN_5: [(ManifestKind, &str); 3] = [
    (
        ManifestKind::Segment,
        r#"{"format":5,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"archive":{"target":"default","files":[{"key":"default/_shared/day=1970-01-01/ab-7-cd.parquet","bytes":900,"sha256":"cd","index_from":700,"rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json","attached":"foreign"},"archived":77,"replaces":["default/_segments/cd-5-02.json"]}"#,
    ),
    (
        ManifestKind::Cursor,
        r#"{"format":5,"sealed_to":42,"next_segment":8,"next_table":2,"trusted_now":9,"origin":171}"#,
    ),
    (
        ManifestKind::Table,
        r#"{"format":5,"id":1,"name":"default","spec":{"source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":9,"archive":{"target":"default","after":5,"schedule":"continuous","keep_cold":2,"keep":8},"timeline_ttl":null,"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":"continuous","move_bytes_per_second":7,"timelines_per_minute":8}},"created":77,"policy_changed":78,"adopted":[{"target":"default","table":"old","origin":"cd"}]}"#,
    ),
];

/// Cold segment with a copy, version 5.
const GOLDEN_5_COPY: (ManifestKind, &str) = (
    ManifestKind::Segment,
    r#"{"format":5,"id":6,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":2,"points":4,"values":5,"bytes":8,"tier":"cold","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"copy":{"format":5,"id":7,"group":5,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":10,"archive":{"target":"default","files":[{"key":"default/_shared/day=1970-01-01/ab-7-cd.parquet","bytes":900,"sha256":"cd","index_from":700,"rows":5,"first":-9,"last":12,"shared":true}],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json"},"archived":70},"stays_until":80}"#,
);

/// Segment whose files and replaced descriptions are in separate lists, version 5.
const GOLDEN_5_LISTED: (ManifestKind, &str) = (
    ManifestKind::Segment,
    r#"{"format":5,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"tier":"archive","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11,"archive":{"target":"default","files":[],"timelines":{"key":"default/_segments/ab-7-ef.timelines.parquet","bytes":90,"sha256":"ef","index_from":70,"rows":3,"first":-9,"last":12},"sidecar":"default/_segments/ab-7-01.json","list":{"items":512,"pages":2,"sha256":"99","bytes":900000}},"archived":77,"replaces_list":{"items":700,"pages":1,"sha256":"88"}}"#,
);

/// Segment in buckets, version 6.
const GOLDEN_6_BUCKETS: (ManifestKind, &str) = (
    ManifestKind::Segment,
    r#"{"format":6,"id":7,"group":3,"table":1,"window":{"level":2,"index":-5},"first":-9,"last":12,"timelines":2,"chunks":3,"points":4,"values":5,"bytes":6,"bucket_bits":3,"tier":"cold","written":{"oldest":{"sequence":3,"seal":4},"newest":{"sequence":9,"seal":6}},"deletes_applied":11}"#,
);

/// Table whose parts have schedules and a rate of jobs, version 21.
const GOLDEN_21_PART_JOBS: (ManifestKind, &str) = (
    ManifestKind::Table,
    r#"{"format":21,"id":2,"name":"rows","spec":{"model":"wide","source_tags":["host"],"durability":"synced","write_past":null,"write_future":5,"policy":{"hot_ttl":1,"cold_ttl":null,"retention":null,"archive":null,"timeline_ttl":null,"migrate":"continuous","expire":"continuous","move_bytes_per_second":null,"timelines_per_minute":null},"wide":{"key":[{"name":"k","type":"u64"},{"name":"at","type":"timestamp"}],"next_column":1,"max_versions":1,"version_guard":null,"parts":{"by":"at","every":"month","keep":90,"hot":30,"writable":40,"archive":{"target":"default","after":60,"schedule":{"cron":{"expression":"0 4 * * *","time_zone":"UTC"}}},"migrate":{"cron":{"expression":"0 3 * * *","time_zone":"Europe/Berlin"}},"expire":{"cron":{"expression":"0 5 * * *","time_zone":"UTC"}},"move_bytes_per_second":7,"first":-3}}},"created":77,"policy_changed":78}"#,
);

/// Returns a row of version 5 as the current build writes it.
fn in_version_6(golden: &str) -> String {
    golden.replace(r#""format":5"#, r#""format":6"#)
}

fn read(rows: &[(ManifestKind, &str)]) -> Result<ManifestState> {
    let row = |(kind, detail): &(ManifestKind, &str)| ManifestRow {
        kind: *kind,
        name: Bytes::new(),
        detail: Bytes::copy_from_slice(detail.as_bytes()),
    };
    ManifestState::read(&Manifest {
        epoch: Epoch(1),
        version: 9,
        rows: rows.iter().map(row).collect(),
    })
}

#[test]
fn golden_rows_of_version_1_read_back() {
    let state = read(&GOLDEN_1).expect("rows of version 1");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    assert_eq!(
        (segment.window, segment.range(), segment.tier),
        (Window { level: 2, index: -5 }, TimeRange::new(-9, 13), Tier::Hot)
    );
    let rank = WriteRank { sequence: 0, seal: 7 };
    assert_eq!(segment.written, WriteSpan::of(rank));
    assert_eq!(state.common.cursor.sealed_to, SequenceNumber(42));
    assert_eq!(
        state.common.tables[&TableId(1)].spec.policy,
        tideline_model::Policy::default()
    );
}

#[test]
fn golden_rows_of_version_2_read_back() {
    let state = read(&GOLDEN_2).expect("rows of version 2");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    assert_eq!((segment.tier, segment.archive.as_ref()), (Tier::Cold, None));
    assert_eq!(segment.deletes_applied, SequenceNumber(11));
    let policy = &state.common.tables[&TableId(1)].spec.policy;
    assert_eq!((policy.retention, policy.archive.as_ref()), (Some(9), None));
    assert_eq!(state.common.cursor.origin, None);
}

#[test]
fn golden_rows_of_version_3_read_back() {
    let state = read(&GOLDEN_3).expect("rows of version 3");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    let files = segment.archive.as_ref().expect("it is in files");
    assert!(files.is_owned() && segment.replaces.is_empty());
    assert_eq!(segment.reference().tier, Tier::Cold);
    assert_eq!(
        (
            state.common.cursor.origin,
            state.common.tables[&TableId(1)].adopted.len()
        ),
        (Some(171), 0)
    );
    let policy = &state.common.tables[&TableId(1)].spec.policy;
    let archive = policy.archive.as_ref().expect("it has one");
    assert_eq!((archive.after, archive.keep_cold, archive.keep), (5, None, None));
    assert!(segment.archived.is_none() && segment.copy.is_none());
}

#[test]
fn golden_rows_of_version_4_read_back() {
    let written = read(&GOLDEN_5).expect("rows of version 5");
    let state = read(&GOLDEN_4).expect("rows of version 4");
    assert_eq!(
        (state.segments, state.common.cursor),
        (written.segments, written.common.cursor)
    );
    assert_eq!(state.common.tables, written.common.tables);
    let state = read(&[GOLDEN_4_COPY]).expect("a row of version 4");
    let segment = &state.segments[&TableId(1)][&SegmentId(6)];
    let ManifestChange::Put(row) = put_segment(segment) else {
        panic!("a put")
    };
    assert_eq!(
        std::str::from_utf8(&row.detail).expect("text"),
        in_version_6(GOLDEN_5_COPY.1),
        "the copy in it is of the same format"
    );
}

#[test]
fn a_golden_row_with_lists_reads_back_and_is_written_the_same() {
    let state = read(&[GOLDEN_5_LISTED]).expect("a row of version 5");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    let ManifestChange::Put(row) = put_segment(segment) else {
        panic!("a put")
    };
    let written = std::str::from_utf8(&row.detail).expect("text");
    assert_eq!(written, in_version_6(GOLDEN_5_LISTED.1));
    let files = segment.archive.as_ref().expect("it is in files");
    assert_eq!((files.count(), files.bytes()), (513, 900_090));
    assert!(files.whole().is_none() && segment.replaces_list.is_some());
}

#[test]
fn golden_rows_of_version_5_read_back_and_are_written_the_same() {
    let state = read(&GOLDEN_5).expect("rows of version 5");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    let table = &state.common.tables[&TableId(1)];
    let written = [
        put_segment(segment),
        put_cursor(&state.common.cursor),
        put_table(table),
    ];
    for (change, (_, golden)) in written.iter().zip(GOLDEN_5) {
        let ManifestChange::Put(row) = change else {
            panic!("a put")
        };
        let written = std::str::from_utf8(&row.detail).expect("text");
        assert_eq!(written, in_version_6(golden));
    }
    assert!(!segment.archive.as_ref().expect("it is in files").is_owned());
}

#[test]
fn a_golden_row_with_a_copy_reads_back_and_is_written_the_same() {
    let state = read(&[GOLDEN_5_COPY]).expect("a row of version 5");
    let segment = &state.segments[&TableId(1)][&SegmentId(6)];
    let ManifestChange::Put(row) = put_segment(segment) else {
        panic!("a put")
    };
    let written = std::str::from_utf8(&row.detail).expect("text");
    assert_eq!(written, in_version_6(GOLDEN_5_COPY.1));
    assert_eq!((segment.tier, segment.stays_until), (Tier::Cold, Some(80)));
    let parts: Vec<SegmentId> = segment.parts().map(|part| part.id).collect();
    assert_eq!(parts, [SegmentId(6), SegmentId(7)]);
    let evicted = segment.evicted().expect("it has a copy");
    assert_eq!((evicted.id, evicted.tier), (SegmentId(7), Tier::Archive));
    assert_eq!(
        evicted.deletes_applied,
        SequenceNumber(11),
        "what was purged stays so"
    );
}

#[test]
fn a_golden_row_with_buckets_reads_back_and_is_written_the_same() {
    let state = read(&[GOLDEN_6_BUCKETS]).expect("a row of version 6");
    let segment = &state.segments[&TableId(1)][&SegmentId(7)];
    assert_eq!((segment.bucket_bits, segment.partitions().count()), (3, 8));
    let ManifestChange::Put(row) = put_segment(segment) else {
        panic!("a put")
    };
    assert_eq!(
        std::str::from_utf8(&row.detail).expect("text"),
        GOLDEN_6_BUCKETS.1
    );
}

#[test]
fn a_golden_table_with_schedules_of_parts_reads_back_and_is_written_the_same() {
    let (_, golden) = GOLDEN_21_PART_JOBS;
    let state = read(&[GOLDEN_21_PART_JOBS]).expect("a row of version 21");
    let row = &state.common.tables[&TableId(2)];
    let parts = row.spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
    let parts = parts.expect("a division into parts");
    let cron = |expression: &str, time_zone: &str| Schedule::Cron {
        expression: expression.to_owned(),
        time_zone: time_zone.to_owned(),
    };
    let archive = parts.archive.as_ref().expect("an archive");
    assert_eq!(archive.schedule, cron("0 4 * * *", "UTC"));
    assert_eq!(parts.migrate, cron("0 3 * * *", "Europe/Berlin"));
    assert_eq!(parts.expire, cron("0 5 * * *", "UTC"));
    assert_eq!((parts.move_bytes_per_second, parts.first), (Some(7), -3));
    let written =
        |spec: &TableSpec| stored_row(&TableRow::new(row.id, row.name.clone(), spec.clone(), 77, 78));
    assert_eq!(written(&row.spec), golden);

    // Each of the settings alone needs the format. Without all of them, the table has the format of its ages.
    let with = |change: &dyn Fn(&mut PartsSpec)| {
        let mut spec = row.spec.clone();
        let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
        let parts = parts.expect("a division into parts");
        let archive = parts.archive.as_mut().expect("an archive");
        archive.schedule = Schedule::Continuous;
        parts.migrate = Schedule::Continuous;
        parts.expire = Schedule::Continuous;
        parts.move_bytes_per_second = None;
        change(parts);
        written(&spec)
    };
    let daily = || cron("0 3 * * *", "UTC");
    for text in [
        with(&|parts| parts.migrate = daily()),
        with(&|parts| parts.expire = daily()),
        with(&|parts| parts.archive.as_mut().expect("an archive").schedule = daily()),
        with(&|parts| parts.move_bytes_per_second = Some(7)),
    ] {
        assert!(text.starts_with(r#"{"format":21,"#), "{text}");
    }
    let text = with(&|_| {});
    assert!(text.starts_with(r#"{"format":10,"#), "{text}");
}

#[test]
fn a_row_of_a_later_format_is_refused_by_name() {
    let later = [(ManifestKind::Cursor, r#"{"format":20,"whatever":true}"#)];
    let error = read(&later).expect_err("a later format").to_string();
    assert_eq!(
        error,
        "stored cursor row cannot be read: format 20 is not supported by this build"
    );
}

/// Returns the stored form of the row of a table.
fn stored_row(row: &TableRow) -> String {
    let ManifestChange::Put(stored) = put_table(row) else {
        panic!("a put")
    };
    String::from_utf8(stored.detail.to_vec()).expect("text")
}

/// Returns the stored row of a table with these settings, which reads back as the same row.
fn stored_table(spec: TableSpec) -> String {
    let row = TableRow::new(TableId(2), TableName::new("rows").expect("a name"), spec, 77, 78);
    let text = stored_row(&row);
    let state = read(&[(ManifestKind::Table, &text)]).expect("a row of this version");
    assert_eq!(state.common.tables[&TableId(2)], row);
    text
}

#[test]
fn a_table_of_another_model_reads_back() {
    let spec = TableSpec {
        model: TableModel::Wide,
        ..TableSpec::default()
    };
    let text = stored_table(spec);
    assert!(
        text.starts_with(r#"{"format":6,"id":2,"name":"rows","spec":{"model":"wide","source_tags":"#),
        "{text}"
    );
}

#[test]
fn a_table_with_indexes_has_a_later_format() {
    let wide = r#"{"key":[{"name":"k","type":"u64"}],"indexes":[{"id":9,"name":"i","key":[{"name":"n","type":"i64"}],"state":{"building":{"next":"00ff"}}}]}"#;
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_str(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    let text = stored_table(spec);
    assert!(text.starts_with(r#"{"format":7,"id":2,"name":"rows""#), "{text}");
    let index = r#""indexes":[{"id":9,"name":"i","key":[{"name":"n","type":"i64"}],"covers":{"columns":[]},"scope":"global","state":{"building":{"next":"00ff"}}}]"#;
    assert!(text.contains(index), "{text}");
}

#[test]
fn a_table_with_indexes_of_one_tier_has_a_later_format() {
    for indexes in [
        r#""indexes":[{"id":9,"name":"i","key":[{"name":"n","type":"i64"}],"covers":{"columns":[]},"scope":"global","tier":"cold","state":"ready"}]"#,
        r#""search_indexes":[{"id":9,"name":"i","columns":[{"column":"n","as":"number"}],"tier":"hot"}]"#,
    ] {
        let wide = format!(r#"{{"key":[{{"name":"k","type":"u64"}}],{indexes}}}"#);
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(serde_json::from_str(&wide).expect("valid settings")),
            ..TableSpec::default()
        };
        let text = stored_table(spec);
        assert!(text.starts_with(r#"{"format":13,"id":2,"#), "{text}");
        assert!(text.contains(indexes), "{text}");
    }
}

#[test]
fn a_table_with_a_search_index_of_several_shards_has_a_later_format() {
    for (index, format) in [
        (
            r#""search_indexes":[{"id":9,"name":"i","columns":[{"column":"k","as":"number"}],"shards":4,"routing":["k"]}]"#,
            22,
        ),
        (
            r#""search_indexes":[{"id":9,"name":"i","columns":[{"column":"k","as":"number"}]}]"#,
            8,
        ),
    ] {
        let wide = format!(r#"{{"key":[{{"name":"k","type":"u64"}}],{index}}}"#);
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(serde_json::from_str(&wide).expect("valid settings")),
            ..TableSpec::default()
        };
        let text = stored_table(spec);
        assert!(
            text.starts_with(&format!(r#"{{"format":{format},"id":2,"#)),
            "{text}"
        );
        assert!(text.contains(index), "{text}");
        assert!(read(&[(ManifestKind::Table, &text)]).is_ok(), "{text}");
        let later = text.replace(&format!(r#""format":{format},"#), r#""format":24,"#);
        assert!(read(&[(ManifestKind::Table, &later)]).is_err(), "a later format");
    }
}

#[test]
fn a_table_with_column_groups_has_a_later_format() {
    let wide = r#"{"key":[{"name":"k","type":"u64"}],"columns":[{"name":"n","type":"i64"}],"ttl":{"after":5,"of":"cell"},"large_values":8,"groups":[{"id":9,"name":"g","columns":["n","x*"]}]}"#;
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_str(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    let text = stored_table(spec);
    assert!(text.starts_with(r#"{"format":14,"id":2,"#), "{text}");
    assert!(
        text.contains(r#""groups":[{"id":9,"name":"g","columns":["n","x*"]}]"#),
        "{text}"
    );
    let later = text.replace(r#"{"format":14,"#, r#"{"format":20,"#);
    let refused = read(&[(ManifestKind::Table, &later)]).map(|_| ());
    assert!(refused.is_err(), "a later format is refused");
}

#[test]
fn a_table_with_cut_values_has_a_later_format() {
    let wide = r#"{"key":[{"name":"k","type":"u64"}],"columns":[],"large_values":8,"cut_values":true,"groups":[{"id":9,"name":"g","columns":["x*"]}]}"#;
    for (wide, format) in [
        (wide.to_owned(), 16),
        (wide.replace(r#","cut_values":true"#, ""), 14),
    ] {
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(serde_json::from_str(&wide).expect("valid settings")),
            ..TableSpec::default()
        };
        let text = stored_table(spec);
        assert!(
            text.starts_with(&format!(r#"{{"format":{format},"id":2,"#)),
            "{text}"
        );
        assert_eq!(text.contains("cut_values"), format == 16, "{text}");
    }
}

#[test]
fn a_table_of_the_server_has_a_later_format() {
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_str(r#"{"key":[{"name":"k","type":"u64"}]}"#).expect("valid settings")),
        is_system: true,
        ..TableSpec::default()
    };
    let text = stored_table(spec);
    assert!(text.starts_with(r#"{"format":16,"id":2,"#), "{text}");
    assert!(text.contains(r#""is_system":true"#), "{text}");
}

#[test]
fn a_feed_table_with_a_fan_out_or_copies_has_a_later_format() {
    let plain = InboxSpec {
        push_max: 3,
        fan_out_max: 0,
        entries: InboxEntries::Reference,
    };
    let (fan_out, copies) = (
        InboxSpec {
            fan_out_max: 9,
            ..plain
        },
        InboxSpec {
            entries: InboxEntries::Copy,
            ..plain
        },
    );
    for (inboxes, format) in [(plain, 15), (fan_out, 17), (copies, 17)] {
        let feed = FeedSpec {
            inboxes: Some(inboxes),
            ..FeedSpec::default()
        };
        let spec = TableSpec {
            model: TableModel::Feed,
            feed: Some(feed),
            wide: Some(Box::new(rows_of(feed, MessageSettings::default()))),
            ..TableSpec::default()
        };
        let text = stored_table(spec);
        assert!(
            text.starts_with(&format!(r#"{{"format":{format},"id":2,"#)),
            "{text}"
        );
        // A table of earlier builds has neither setting.
        let has_new = text.contains("fan_out_max") || text.contains("entries") || text.contains("copy");
        assert_eq!(has_new, format == 17, "{text}");
    }
}

#[test]
fn a_feed_table_and_parts_by_generated_ids_have_a_later_format() {
    let feed = TableSpec {
        model: TableModel::Feed,
        feed: Some(FeedSpec::default()),
        wide: Some(Box::new(rows_of(FeedSpec::default(), MessageSettings::default()))),
        ..TableSpec::default()
    };
    let wide = r#"{"key":[{"name":"k","type":"u64"},{"name":"n","generated":{}}],"parts":{"by":"n","every":"month"}}"#;
    let wide = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_str(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    for spec in [feed, wide] {
        let text = stored_table(spec);
        assert!(text.starts_with(r#"{"format":15,"id":2,"#), "{text}");
    }
}

#[test]
fn a_table_whose_searches_older_builds_would_misread_has_a_later_format() {
    let analyzed = TableSpec {
        attribute_analyzers: [("title".to_owned(), SearchAnalyzer::Ngram(3))].into(),
        ..TableSpec::default()
    };
    let wide = r#"{"key":[{"name":"k","type":"u64"}],"columns":[{"name":"n","type":"i64"}],"ttl":{"after":5,"of":"cell"},"search_indexes":[{"id":9,"name":"i","columns":[{"column":"n","as":"number"}]}]}"#;
    let cells = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_str(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    for spec in [analyzed, cells] {
        let text = stored_table(spec);
        assert!(text.starts_with(r#"{"format":12,"id":2,"#), "{text}");
    }
}
