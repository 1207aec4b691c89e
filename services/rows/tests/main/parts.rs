//! Tests of tables that are divided into parts by time. The results are compared with a naive model.
//!
//! Rows are written, updated and deleted at random. Parts are dropped, become too old, are closed for writes, move
//! between the tiers during writes, and move into the archive and back. The row buffer is flushed, and the database is
//! checked and reopened. Every read must return the rows of the model: scans in both directions, ranges, conditions,
//! reads of one tier, secondary indexes and searches. There is one index of each kind for all tiers, and one for each
//! tier. Finally, the archive is attached to an empty database, and the random steps continue there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use tideline_engine::archive::layout::named;
use tideline_engine::archive::rows::PartTarget;
use tideline_engine::archive::{FORMAT, SentObjects};
use tideline_engine::backend::memory::Character;
use tideline_engine::indexes::BuildEnd;
use tideline_engine::large::ValueBytes;
use tideline_engine::model::{
    PartPeriod, PartsArchive, PartsSpec, Schedule, TableId, TableName, Tier, Timestamp,
};
use tideline_engine::moves::OrphanSearch;
use tideline_engine::parts::TablePart;
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_engine::{AttachRequest, EngineError, ErrorKind};
use tideline_openapi::row::{DeleteRows, RowStatus, RowsBody, ScanDirection, ScanRows};
use tideline_openapi::row_explain::ExplainRows;
use tideline_openapi::row_search::CreateSearchIndex;
use tideline_rows::explain::explain;
use tideline_rows::large::{PutOutcome, PutSettings, ValueCell, put};
use tideline_rows::read::{ScanTerms, delete};
use tideline_rows::rekey::{Rekey, RekeyProgress};
use tideline_rows::write::{reads_only_hot_rows, write};
use tideline_rows::{PageLimits, RowsError, Scan, Selection, WriteSettings};
use tideline_testkit::{Random, rounds, seeds};

use crate::database::{Database, OpenBackend, SECOND, START, TABLE, fjall, memory};

const DAY: i64 = 86_400 * SECOND;
/// Maximum age of written rows, relative to the current time.
const SPAN: i64 = 300 * DAY;
/// Time that passes before hidden parts are dropped.
const PURGE_DELAY: i64 = DAY;
const HOSTS: [&str; 3] = ["a", "b", "web-1"];
const STATES: [&str; 3] = ["new", "open", "done"];
/// Tiers that the indexes cover. Each index is named after its tier.
const TIERS: [&str; 3] = ["all", "hot", "cold"];

/// Key of a row: host and time.
type Key = (&'static str, i64);

/// State and size of each row.
type Rows = BTreeMap<Key, (Option<&'static str>, Option<i64>)>;

/// State of the model: the rows, and the settings of the parts, which determine the visible rows.
struct Model {
    rows: Rows,
    parts: PartsSpec,
    /// Numbers of the parts in the archive.
    archived: BTreeSet<i32>,
    /// Numbers of the parts in the cold tier and in the archive.
    cold: BTreeSet<i32>,
    /// Times until which restored parts are not archived again.
    held: BTreeMap<i32, i64>,
    /// For each part, the rows in its newest files, and the number of the first part of the table when the files were
    /// written.
    files: BTreeMap<i32, (Rows, i32)>,
}

impl Model {
    fn first(&self, now: i64) -> i32 {
        self.parts.visible_from(now)
    }

    fn is_visible(&self, at: i64, now: i64) -> bool {
        self.parts.every.number_of(at) >= self.first(now)
    }

    /// Returns true if a read of a tier returns rows with this time.
    fn is_in(&self, tier: &str, at: i64) -> bool {
        match tier {
            "all" => true,
            tier => (tier == "cold") == self.cold.contains(&self.parts.every.number_of(at)),
        }
    }

    fn is_writable(&self, at: i64, now: i64) -> bool {
        let number = self.parts.every.number_of(at);
        let is_held = self.held.get(&number).is_some_and(|until| now < *until);
        !self.archived.contains(&number) && (is_held || number >= self.parts.writable_from(now))
    }

    /// Drops the parts with lower numbers.
    fn drop_before(&mut self, first: i32) {
        self.parts.first = self.parts.first.max(first);
        let (every, first) = (self.parts.every, self.parts.first);
        self.rows.retain(|(_, at), _| every.number_of(*at) >= first);
        self.archived.retain(|number| *number >= first);
        self.cold.retain(|number| *number >= first);
        self.held.retain(|number, _| *number >= first);
    }
}

struct Lab {
    database: Database,
    model: Model,
    is_descending: bool,
}

/// Returns the age at which parts are archived. It is below the age at which parts are dropped.
fn archived_after(keep: Option<i64>) -> i64 {
    keep.map_or(2 * SPAN, |keep| keep - DAY)
}

fn text(at: i64) -> String {
    Timestamp::from_nanos_clamped(at).to_rfc3339()
}

impl Lab {
    fn new(open: OpenBackend, random: &mut Random) -> Self {
        let is_descending = random.is(50);
        let every = random.of(&PartPeriod::ALL);
        // In a key that begins with the time, the keys of a part are consecutive; in the other layout, they are not.
        let is_time_first = random.is(30);
        let at =
            json!({"name": "at", "type": "timestamp", "order": if is_descending { "desc" } else { "asc" }});
        let host = json!({"name": "host", "type": "string"});
        let key = match is_time_first {
            true => json!([{"name": "spread", "bucket": {"of": ["host"], "count": 2}}, at, host]),
            false => json!([host, at]),
        };
        let group = |columns: &[&str]| json!({"name": columns[0], "columns": columns});
        let groups = match random.below(4) {
            0 => json!([]),
            1 => json!([group(&["st*"])]),
            2 => json!([group(&["size"])]),
            _ => json!([group(&["state"]), group(&["size"])]),
        };
        let keep = random.is(50).then_some(100 * DAY);
        let parts = PartsSpec {
            by: "at".to_owned(),
            every,
            keep,
            hot: None,
            writable: random.is(30).then_some(90 * DAY),
            archive: None,
            migrate: Schedule::Continuous,
            expire: Schedule::Continuous,
            move_bytes_per_second: None,
            first: i32::MIN,
        };
        let database = Database::new(
            open,
            &json!({
                "key": key,
                "columns": [
                    {"name": "state", "type": "string", "number": 1},
                    {"name": "size", "type": "i64", "number": 2},
                ],
                "version_guard": null,
                "parts": parts,
                "groups": groups,
            }),
        );
        let model = Model {
            rows: BTreeMap::new(),
            parts,
            archived: BTreeSet::new(),
            cold: BTreeSet::new(),
            held: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        let mut spec = database.table().table().spec().as_ref().clone();
        let settings = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
        let archive = PartsArchive {
            target: database.target(),
            after: archived_after(keep),
            schedule: Schedule::Continuous,
        };
        settings.expect("it is divided").archive = Some(archive.clone());
        database.engine().alter_table(TABLE, spec).expect("it is changed");
        let mut model = model;
        model.parts.archive = Some(archive);
        Self {
            database,
            model,
            is_descending,
        }
    }

    /// Returns the time that determines which parts are visible. It follows jumps of the clock only after some time.
    fn now(&self) -> i64 {
        self.database.engine().store().trusted_now().now.nanos()
    }

    fn time(&self, random: &mut Random) -> i64 {
        // Times are chosen from few values, so that rows are written again.
        self.now()
            - (random.below((SPAN / DAY) as u64) as i64) * DAY
            - (random.below(3) as i64) * 3_600 * SECOND
    }

    fn write(&mut self, random: &mut Random) {
        let (now, mut rows, mut expected) = (self.now(), Vec::new(), Vec::new());
        let mut keys = BTreeSet::new();
        for _ in 0..1 + random.below(20) {
            let key = (random.of(&HOSTS), self.time(random));
            if !keys.insert(key) {
                continue;
            }
            let is_visible = self.model.is_visible(key.1, now);
            let (op, state, size) = match random.below(5) {
                0 => ("delete", None, None),
                1 => ("update", None, Some(random.below(9) as i64)),
                _ => ("put", Some(random.of(&STATES)), Some(random.below(9) as i64)),
            };
            let is_taken = (is_visible || op == "delete") && self.model.is_writable(key.1, now);
            expected.push(match is_taken {
                true => RowStatus::Written,
                false => RowStatus::Refused,
            });
            let mut row = json!({"op": op, "key": {"host": key.0, "at": text(key.1)}});
            if op != "delete" {
                row["columns"] = json!({"size": size});
            }
            if let Some(state) = state {
                row["columns"]["state"] = json!(state);
            }
            rows.push(row);
            if is_taken {
                match op {
                    "delete" => drop(self.model.rows.remove(&key)),
                    "update" => self.model.rows.entry(key).or_default().1 = size,
                    _ => drop(self.model.rows.insert(key, (state, size))),
                }
            }
        }
        let body: RowsBody = serde_json::from_value(json!({"rows": rows})).expect("rows");
        let settings = WriteSettings {
            is_independent: true,
            ..WriteSettings::default()
        };
        let table = self.database.table();
        // Either all rows of a write to one partition are written or none. Each row is therefore written separately.
        for (row, expected) in body.rows.iter().zip(expected) {
            let row = std::slice::from_ref(row);
            let written = write(self.database.engine(), &table, row, b"", &settings).expect("a write");
            assert_eq!(written.rows[0].status, expected, "{:?}", written.rows[0]);
            if expected == RowStatus::Refused {
                let reason = written.rows[0].reason.as_deref().unwrap_or_default();
                let said = [
                    "oldest part that is kept",
                    "oldest part that can be written",
                    "is in the archive",
                ];
                assert!(said.iter().any(|said| reason.contains(said)), "{reason}");
            }
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(20) {
            0 => self.delete_range(random),
            1 | 2 => self.database.engine().seal().expect("it is flushed"),
            3 => {
                self.database.close();
                self.database.check_stored();
                self.database.open();
            }
            4 => {
                let before = self.now() - random.below((SPAN / DAY) as u64) as i64 * DAY;
                let is_preview = random.is(50);
                let listed = self
                    .database
                    .engine()
                    .table_parts(&self.database.table())
                    .expect("parts");
                let dropped = self.database.engine().drop_parts(
                    TABLE,
                    Timestamp::from_nanos_clamped(before),
                    is_preview,
                );
                let dropped = dropped.expect("they are dropped");
                let old = listed.into_iter().filter(|part| part.end.nanos() <= before);
                assert_eq!(dropped, old.collect::<Vec<_>>());
                if !is_preview {
                    self.model.drop_before(self.model.parts.every.number_of(before));
                }
            }
            5 => {
                self.database.clock.advance(random.below(20) as i64 * DAY);
            }
            6 => {
                let table = self.database.table().table().points().id();
                let first = self.model.first(self.now() - PURGE_DELAY);
                let dropped = self.database.engine().drop_old_parts(table);
                if dropped.expect("they are dropped") > 0 {
                    assert!(self.model.parts.keep.is_some());
                    self.model.drop_before(first);
                }
            }
            7 => self.change_ages(random),
            8 | 9 => self.move_part(random),
            10 | 11 => self.archive_part(random),
            12 => self.restore_parts(random),
            _ => self.write(random),
        }
    }

    /// Changes the ages of the parts. A preview must report the effects of the change beforehand.
    fn change_ages(&mut self, random: &mut Random) {
        let keep = random.of(&[None, Some(60 * DAY), Some(200 * DAY)]);
        let writable = random.of(&[None, None, Some(50 * DAY)]);
        let hot = random.of(&[None, Some(40 * DAY)]);
        let change = |parts: &mut PartsSpec| {
            (parts.keep, parts.writable, parts.hot) = (keep, writable, hot);
            let archive = parts.archive.as_mut().expect("it has an archive");
            archive.after = archived_after(keep);
        };
        let engine = self.database.engine();
        let listed = || engine.table_parts(&self.database.table()).expect("parts");
        let before = listed();
        let preview = engine.preview_parts(&self.database.table(), |spec| {
            let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
            change(parts.expect("it is divided"));
            Ok(())
        });
        let preview = preview.expect("a preview");
        assert_eq!(before, listed(), "a preview changes nothing");
        let mut spec = self.database.table().table().spec().as_ref().clone();
        let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
        change(parts.expect("it is divided"));
        engine.alter_table(TABLE, spec).expect("it is changed");
        change(&mut self.model.parts);
        let after = listed();
        let changed = |is_in: &dyn Fn(&TablePart, &TablePart) -> bool| -> Vec<TablePart> {
            let pairs = before.iter().zip(&after);
            let found = pairs.filter(|(before, after)| is_in(before, after));
            found.map(|(before, _)| before.clone()).collect()
        };
        assert_eq!(
            preview.close,
            changed(&|before, after| before.is_writable && !after.is_writable)
        );
        assert_eq!(
            preview.open,
            changed(&|before, after| !before.is_writable && after.is_writable)
        );
        assert_eq!(
            preview.hide,
            changed(&|before, after| before.is_visible && !after.is_visible)
        );
        assert_eq!(
            preview.show,
            changed(&|before, after| !before.is_visible && after.is_visible)
        );
        let due = engine.due_parts(self.now());
        let is_due = |part: &TablePart, tier: Tier| {
            let mut due = due.iter();
            due.any(|due| due.tier == tier && due.name == part.name)
        };
        // Rows that are not flushed yet move only after their flush, so the preview and the due parts are compared for
        // stored parts only.
        let stored = |mut parts: Vec<TablePart>| {
            parts.retain(|part| part.tier.is_some());
            parts
        };
        let archived = changed(&|before, _| is_due(before, Tier::Archive));
        assert_eq!(stored(preview.archive), archived);
        let migrated = changed(&|before, _| {
            let is_hot = before.tier == Some(Tier::Hot);
            is_hot && is_due(before, Tier::Cold) && !archived.contains(before)
        });
        assert_eq!(stored(preview.migrate), migrated);
        let first = self.model.first(self.now() - PURGE_DELAY);
        let every = self.model.parts.every;
        let dropped = changed(&|before, _| every.number_of(before.start.nanos()) < first);
        assert_eq!(preview.drop, dropped);
    }

    /// Moves a part to another tier. Rows of all parts are written and flushed during the move.
    fn move_part(&mut self, random: &mut Random) {
        let (now, every) = (self.now(), self.model.parts.every);
        let table = self.database.table().table().points().id();
        let number = every.number_of(self.time(random));
        let tier = random.of(&[Tier::Hot, Tier::Cold, Tier::Cold]);
        let mut rows = BTreeMap::new();
        for _ in 0..random.below(4) * 5 {
            let key = (random.of(&HOSTS), self.time(random));
            if self.model.is_visible(key.1, now) && self.model.is_writable(key.1, now) {
                rows.insert(key, (Some(random.of(&STATES)), Some(random.below(9) as i64)));
            }
        }
        let put = |((host, at), (state, size)): (&Key, &(Option<&str>, Option<i64>))| json!({"op": "put", "key": {"host": host, "at": text(*at)}, "columns": {"state": state, "size": size}});
        let puts: Vec<Value> = rows.iter().map(put).collect();
        let (database, stops) = (&self.database, random.is(10));
        let mut is_written = rows.is_empty();
        let mut meanwhile = |_: &MoveProgress| {
            if !std::mem::replace(&mut is_written, true) {
                database.write(&json!(puts));
                database.engine().seal().expect("it is flushed");
            }
            match stops {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let moved = database
            .engine()
            .move_table_part(table, number, tier, &mut meanwhile);
        let end = moved.expect("it is moved");
        assert!(stops || end != MoveEnd::Stopped);
        if is_written {
            self.model.rows.extend(rows);
        }
        if matches!(end, MoveEnd::Moved(_)) {
            match tier {
                Tier::Hot if !self.model.archived.contains(&number) => drop(self.model.cold.remove(&number)),
                Tier::Hot => {}
                _ => drop(self.model.cold.insert(number)),
            }
            let parts = database.engine().table_parts(&database.table()).expect("parts");
            let mut parts = parts.into_iter();
            let part = parts.find(|part| every.number_of(part.start.nanos()) == number);
            let tier = match self.model.archived.contains(&number) {
                // Only the entries of the part in secondary indexes have moved.
                true => Tier::Archive,
                false => tier,
            };
            assert_eq!(part.and_then(|part| part.tier), Some(tier));
        }
    }

    /// Moves a part into the archive.
    fn archive_part(&mut self, random: &mut Random) {
        let every = self.model.parts.every;
        let engine = self.database.engine();
        engine.seal().expect("it is flushed");
        let stored = engine.table_parts(&self.database.table()).expect("parts");
        if stored.is_empty() {
            return;
        }
        let part = &stored[random.below(stored.len() as u64) as usize];
        let number = every.number_of(part.start.nanos());
        let table = self.database.table().table().points().id();
        let stops = random.is(10);
        let mut step = |_: &MoveProgress| match stops {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let moved = engine.archive_table_part(table, number, &mut step);
        let end = moved.expect("it is archived");
        assert!(stops || end != MoveEnd::Stopped);
        let parts = engine.table_parts(&self.database.table()).expect("parts");
        let mut parts = parts.into_iter();
        let part = parts.find(|part| every.number_of(part.start.nanos()) == number);
        let tier = part.and_then(|part| part.tier);
        let is_archived = tier == Some(Tier::Archive);
        // A part first moves to the cold tier. If its archiving is stopped, it stays there.
        if tier == Some(Tier::Cold) || is_archived {
            self.model.cold.insert(number);
        }
        assert_eq!(
            is_archived,
            matches!(end, MoveEnd::Moved(_)) || self.model.archived.contains(&number)
        );
        if is_archived {
            self.model.archived.insert(number);
            self.model.held.remove(&number);
            if matches!(end, MoveEnd::Moved(_)) {
                let rows = self.model.rows.iter();
                let rows = rows.filter(|((_, at), _)| every.number_of(*at) == number);
                let rows = rows.map(|(key, row)| (*key, *row)).collect();
                self.model.files.insert(number, (rows, self.model.parts.first));
            }
            self.check_files();
        } else {
            // A part whose archiving was stopped is closed. This change of the settings opens it again.
            let id = self.database.table().table().spec();
            let mut spec = id.as_ref().clone();
            let settings = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
            let archive = settings.and_then(|parts| parts.archive.as_mut());
            archive.expect("it has an archive").after -= SECOND;
            let after = self.model.parts.archive.as_mut();
            after.expect("it has an archive").after -= SECOND;
            engine.alter_table(TABLE, spec).expect("it is changed");
        }
    }

    /// Verifies all files of the parts that are described at the target.
    fn check_files(&self) {
        let (archive, target) = (self.database.archive(), self.database.target());
        for (key, described) in archive.described_rows(&target).expect("it is listed") {
            let described = described.expect("it is read");
            let verified = archive
                .verify_rows(&target, &key, described.all_files())
                .expect("it is read");
            assert!(verified.is_sound(), "{verified:?}");
        }
    }

    /// Restores the archived parts that end after a random time.
    fn restore_parts(&mut self, random: &mut Random) {
        let every = self.model.parts.every;
        let from = self.time(random);
        let until = self.now() + 30 * DAY;
        let engine = self.database.engine();
        let parts = engine.table_parts(&self.database.table()).expect("parts");
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.retain(|part| {
            let is_restorable = part.tier == Some(Tier::Archive) || part.held_until.is_some();
            is_restorable && part.end.nanos() > from
        });
        let restored = engine.restore_parts(
            &self.database.table(),
            &parts,
            Timestamp::from_nanos_clamped(until),
            &mut |_| ControlFlow::Continue(()),
        );
        restored.expect("they are restored");
        for part in parts {
            let number = every.number_of(part.start.nanos());
            self.model.archived.remove(&number);
            self.model.held.insert(number, until);
        }
    }

    /// Deletes the rows of a host in a range of time.
    fn delete_range(&mut self, random: &mut Random) {
        if self.database.table().layout().buckets().is_some() {
            return;
        }
        let (host, from) = (random.of(&HOSTS), self.time(random));
        let to = from + random.below(60) as i64 * DAY;
        let request: DeleteRows = serde_json::from_value(json!({
            "prefix": {"host": host},
            "range": {"column": "at", "from": text(from), "to": text(to)},
        }))
        .expect("a request");
        let engine = self.database.engine();
        let parts = engine.table_parts(&self.database.table()).expect("parts");
        let every = self.model.parts.every;
        let reached = every.number_of(from)..=every.number_of(to.saturating_sub(1));
        let closed = self.model.parts.writable_from(self.now());
        let is_closed = parts.iter().any(|part| {
            let number = every.number_of(part.start.nanos());
            let is_held = self
                .model
                .held
                .get(&number)
                .is_some_and(|until| self.now() < *until);
            let is_open = number >= closed || is_held;
            let is_archived = self.model.archived.contains(&number);
            from < to && reached.contains(&number) && (!is_open || is_archived)
        });
        let deleted = delete(engine, &self.database.table(), &request, None, &|| false);
        if is_closed {
            let error = deleted.expect_err("a part is closed").to_string();
            let said = ["closed for writes", "in the archive"];
            assert!(said.iter().any(|said| error.contains(said)), "{error}");
            return;
        }
        deleted.expect("they are deleted");
        self.model
            .rows
            .retain(|(of, at), _| *of != host || !(from..to).contains(at));
    }

    /// Returns the keys of the rows of a scan, which is read in pages, and the number of rows that were read.
    fn scan(&self, request: &Value, page_rows: u64) -> (Vec<Key>, u64) {
        let found = self.try_scan(request, page_rows);
        found.unwrap_or_else(|error| panic!("{request}: {error}"))
    }

    fn try_scan(&self, request: &Value, page_rows: u64) -> Result<(Vec<Key>, u64), RowsError> {
        let request: ScanRows = serde_json::from_value(request.clone()).expect("a request");
        let (engine, table, selection) = (
            self.database.engine(),
            self.database.table(),
            Selection::default(),
        );
        let (mut keys, mut scanned, mut token) = (Vec::new(), 0, None);
        loop {
            let terms = ScanTerms {
                index: request.index.as_deref(),
                prefix: &request.prefix,
                range: request.range.as_ref(),
                direction: request.direction,
                filter: request.filter.as_ref(),
                tier: request.tier,
                page_token: token.as_deref(),
                allow_scan: request.allow_scan,
            };
            let scan = Scan::new(engine, &table, &terms, &selection)?;
            let limits = PageLimits {
                rows: Some(page_rows),
                scanned: None,
                bytes: None,
            };
            let page = scan.page(engine, &table, &selection, limits, &|| false, &mut |row| {
                keys.push(self.check_row(row));
                Ok(())
            });
            let page = page?;
            scanned += page.scanned;
            token = page.next;
            if token.is_none() {
                return Ok((keys, scanned));
            }
        }
    }

    /// Compares the columns of a row with the model. Returns the key of the row.
    fn check_row(&self, row: &[u8]) -> Key {
        let row: Value = serde_json::from_slice(row).expect("JSON");
        let host = HOSTS
            .iter()
            .find(|host| row["key"]["host"] == **host)
            .expect("a host");
        let at = row["key"]["at"].as_str().and_then(Timestamp::parse_rfc3339);
        let key = (*host, at.expect("a time").nanos());
        let (state, size) = self
            .model
            .rows
            .get(&key)
            .unwrap_or_else(|| panic!("{row} was not written"));
        assert_eq!(row["columns"]["state"].as_str(), *state, "{row}");
        assert_eq!(row["columns"]["size"].as_i64(), *size, "{row}");
        key
    }

    /// Returns the keys of the visible rows for which `passes` returns true, in the order of the primary key without
    /// its bucket.
    fn expected(&self, passes: impl Fn(&Key, Option<&str>) -> bool) -> Vec<Key> {
        let now = self.now();
        let rows = self.model.rows.iter();
        let rows = rows.filter(|(key, (state, _))| self.model.is_visible(key.1, now) && passes(key, *state));
        let mut keys: Vec<Key> = rows.map(|(key, _)| *key).collect();
        let is_time_first = self.database.table().layout().buckets().is_some();
        keys.sort_by_key(|(host, at)| {
            let at = if self.is_descending { -at } else { *at };
            match is_time_first {
                true => (at, *host, 0),
                false => (0, *host, at),
            }
        });
        keys
    }

    fn check(&self, random: &mut Random) {
        let page_rows = random.of(&[1, 7, 1_000]);
        for direction in [ScanDirection::Forward, ScanDirection::Backward] {
            let in_order = |mut keys: Vec<Key>| {
                if direction == ScanDirection::Backward {
                    keys.reverse();
                }
                keys
            };
            let (all, _) = self.scan(&json!({"allow_scan": true, "direction": direction}), page_rows);
            assert_eq!(all, in_order(self.expected(|_, _| true)));

            let (from, days) = (self.time(random), random.below(60) as i64);
            let to = from + days * DAY;
            let filter = json!({"and": [{"column": "at", "gte": text(from), "lt": text(to)}, {"column": "state", "exists": true}]});
            let request = json!({"allow_scan": true, "direction": direction, "where": filter});
            let (found, _) = self.scan(&request, page_rows);
            assert_eq!(
                found,
                in_order(self.expected(|(_, at), state| (from..to).contains(at) && state.is_some()))
            );
            if self.database.table().layout().buckets().is_none() {
                let host = random.of(&HOSTS);
                let request = json!({
                    "prefix": {"host": host}, "direction": direction,
                    "range": {"column": "at", "from": text(from), "to": text(to)},
                });
                let (found, _) = self.scan(&request, page_rows);
                assert_eq!(
                    found,
                    in_order(self.expected(|(of, at), _| *of == host && (from..to).contains(at)))
                );
            }
        }
        self.check_tiers(random, page_rows);
        let parts = self
            .database
            .engine()
            .table_parts(&self.database.table())
            .expect("parts");
        let (every, now) = (self.model.parts.every, self.now());
        for part in &parts {
            let number = every.number_of(part.start.nanos());
            assert_eq!(part.name, every.part_name(number));
            assert!(number >= self.model.parts.first, "{part:?} was dropped");
            assert_eq!(part.is_visible, number >= self.model.first(now), "{part:?}");
        }
        let listed: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        for (_, at) in self.model.rows.keys() {
            let name = every.part_name(every.number_of(*at));
            assert!(listed.contains(name.as_str()), "{name} is missing in {listed:?}");
        }
    }

    /// Checks reads of each tier: scans without an index, and reads and searches through each index.
    fn check_tiers(&self, random: &mut Random, page_rows: u64) {
        self.database.settle();
        let state = random.of(&STATES);
        let from = self.time(random);
        let to = from + (1 + random.below(60) as i64) * DAY;
        for tier in ["all", "hot", "cold"] {
            let (found, _) = self.scan(&json!({"allow_scan": true, "tier": tier}), page_rows);
            assert_eq!(
                found,
                self.expected(|(_, at), _| self.model.is_in(tier, *at)),
                "{tier}"
            );
            for covered in TIERS {
                let context = format!("tier {tier} by the index of {covered}");
                for span in [i64::MIN..i64::MAX, from..to] {
                    let is_found = |(_, at): &Key, of: Option<&str>| {
                        of == Some(state) && span.contains(at) && self.model.is_in(tier, *at)
                    };
                    let mut expected = self.expected(is_found);
                    expected.sort_unstable();
                    let mut request = json!({"index": covered, "prefix": {"state": state}, "tier": tier});
                    if span.start != i64::MIN {
                        request["where"] =
                            json!({"column": "at", "gte": text(span.start), "lt": text(span.end)});
                    }
                    match self.try_scan(&request, page_rows) {
                        Ok((mut found, _)) => {
                            found.sort_unstable();
                            assert_eq!(found, expected, "{context}, {request}");
                        }
                        Err(error) => {
                            let error = error.to_string();
                            assert!(
                                error.contains(&format!("covers only the tier {covered}")),
                                "{error}"
                            );
                            assert_ne!(covered, tier, "{error}");
                            assert!(
                                self.has_part_without(covered, tier, &span),
                                "{context}, {request}"
                            );
                        }
                    }
                }
                self.check_search(covered, tier, state);
            }
        }
    }

    /// Returns true if a visible part in the time span is in the tier `tier`, but not in the tier `covered` of an
    /// index.
    fn has_part_without(&self, covered: &str, tier: &str, span: &std::ops::Range<i64>) -> bool {
        let parts = self.database.engine().table_parts(&self.database.table());
        let parts = parts.expect("parts").into_iter().filter(|part| part.is_visible);
        let every = self.model.parts.every;
        let numbers = every.number_of(span.start)..=every.number_of(span.end);
        let mut starts = parts.map(|part| part.start.nanos());
        starts.any(|start| {
            let is_in = |tier| self.model.is_in(tier, start);
            numbers.contains(&every.number_of(start)) && is_in(tier) && !is_in(covered)
        })
    }

    /// Checks a search of the tier `tier` in the search index of the tier `covered`.
    fn check_search(&self, covered: &str, tier: &str, state: &str) {
        let seen = match tier {
            "all" => covered,
            tier => tier,
        };
        let request = json!({"index": covered, "where": {"column": "state", "equals": state}, "limit": 50, "tier": tier});
        if covered != "all" && seen != covered {
            let error = self
                .database
                .page(&request)
                .expect_err("it is refused")
                .to_string();
            assert!(error.contains("covers only the tier"), "{error}");
            return;
        }
        let expected = self.expected(|(_, at), of| of == Some(state) && self.model.is_in(seen, *at));
        let (rows, total) = self.database.search(&request);
        let context = format!("a search of {tier} in the index of {covered}");
        assert_eq!(rows.len(), expected.len(), "{context}");
        assert_eq!(total as usize, expected.len(), "the total of {context}");
        let (_, end) = self.database.page(&request).expect("a page");
        let seen = serde_json::from_value(json!(seen)).expect("tiers");
        assert_eq!(end.tier.unwrap_or_default(), seen, "{context}");
    }

    /// Creates a secondary index and a search index for all tiers, and for each tier. Builds the secondary indexes.
    fn create_indexes(&self) {
        let engine = self.database.engine();
        for tier in TIERS {
            let index = json!({"name": tier, "key": [{"name": "state", "type": "string"}], "tier": tier});
            let index = serde_json::from_value(index).expect("an index");
            engine.create_index(TABLE, index).expect("it is created");
        }
        self.build_indexes();
        let columns = json!([{"column": "state", "as": "keyword"}, {"column": "at", "as": "time"}]);
        for tier in TIERS {
            let index = json!({"name": tier, "columns": columns, "tier": tier});
            self.database.create_search_index(&index, false);
        }
    }

    fn build_indexes(&self) {
        let engine = self.database.engine();
        for building in engine.building_indexes() {
            let built = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
            assert!(matches!(built, Ok(BuildEnd::Ready(_))), "{built:?}");
        }
    }

    /// Attaches the archive to an empty database, and returns that database. Some parts are attached by name first.
    fn attached(&self, open: OpenBackend, random: &mut Random) -> Self {
        let database = Database::empty(open, self.now());
        let every = self.model.parts.every;
        let first = self.model.files.last_key_value().expect("a part is archived").1.1;
        let files = self.model.files.range(first..);
        let all: BTreeSet<String> = files
            .clone()
            .map(|(number, _)| every.part_name(*number))
            .collect();
        let some = all.iter().filter(|_| random.is(50)).cloned().collect();
        let verify = random.is(50);
        let attach = |parts: Vec<String>| {
            let request = AttachRequest {
                target: self.database.target(),
                table: TableName::new(TABLE).ok(),
                rename: None,
                origin: None,
                own: false,
                parts,
                verify,
            };
            let engine = database.engine();
            let plan = engine.plan_attach(&request).expect("a plan");
            let (progress, is_done) = engine.attach(&plan, &mut |_| true).expect("it is attached");
            assert!(is_done && progress.problem_count == 0, "{progress:?}");
            progress
        };
        let progress = attach(some);
        let rest = attach(Vec::new());
        assert_eq!(progress.parts_attached + rest.parts_attached, all.len() as u64);
        let again = attach(Vec::new());
        assert_eq!((again.parts, again.known), (0, all.len() as u64), "{again:?}");
        let parts = database.table().settings().parts.clone().expect("it is divided");
        let lab = Self {
            model: Model {
                rows: files.clone().flat_map(|(_, (rows, _))| rows.clone()).collect(),
                archived: files.clone().map(|(number, _)| *number).collect(),
                cold: files.map(|(number, _)| *number).collect(),
                held: BTreeMap::new(),
                files: BTreeMap::new(),
                parts,
            },
            database,
            is_descending: self.is_descending,
        };
        match lab.database.table().indexes().is_empty() {
            true => lab.create_indexes(),
            false => lab.build_indexes(),
        }
        lab
    }
}

fn run(open: OpenBackend, seed: u64, steps: usize) -> Lab {
    let mut random = Random::new(seed);
    let mut lab = Lab::new(open, &mut random);
    let created_at = random.below(steps as u64 / 2) as usize;
    let mut is_created = false;
    for number in 0..steps {
        if number >= created_at && !is_created {
            is_created = true;
            lab.create_indexes();
        }
        lab.step(&mut random);
        if is_created && number % 8 == 7 {
            lab.check(&mut random);
        }
    }
    lab.check(&mut random);
    lab
}

/// Runs random steps, attaches the archive to an empty database, and continues the steps there.
fn run_and_attach(open: OpenBackend, elsewhere: OpenBackend, seed: u64) {
    let mut lab = run(open, seed, rounds("TIDELINE_PARTS_STEPS", 60, 600));
    let mut random = Random::new(seed);
    while lab.model.files.is_empty() {
        lab.write(&mut random);
        lab.archive_part(&mut random);
    }
    let mut attached = lab.attached(elsewhere, &mut random);
    attached.check(&mut random);
    for number in 0..rounds("TIDELINE_PARTS_STEPS", 60, 600) / 3 {
        attached.step(&mut random);
        if number % 8 == 7 {
            attached.check(&mut random);
        }
    }
    attached.check(&mut random);
    attached.database.close();
    lab.database.close();
    lab.database.check_stored();
}

#[test]
fn random_reads_of_divided_tables_equal_a_naive_model_in_memory() {
    for seed in seeds("random_reads_of_divided_tables_equal_a_naive_model_in_memory", 2) {
        for character in [Character::Embedded, Character::Distributed] {
            run_and_attach(memory(character), memory(character), seed);
        }
    }
}

#[test]
fn random_reads_of_divided_tables_equal_a_naive_model_on_fjall() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in seeds("random_reads_of_divided_tables_equal_a_naive_model_on_fjall", 1) {
        let data = folder.path().join(seed.to_string());
        let elsewhere = folder.path().join(format!("{seed}-attached"));
        run_and_attach(
            Box::new(move || fjall(&data)),
            Box::new(move || fjall(&elsewhere)),
            seed,
        );
    }
}

/// Streams a value of 3 MiB to a column of a row.
fn stream(database: &Database, cell: &ValueCell) {
    stream_bytes(database, cell, &vec![7; 3 << 20]);
}

/// Streams a value to a column of a row.
fn stream_bytes(database: &Database, cell: &ValueCell, mut content: &[u8]) {
    let written = put(
        database.engine(),
        &database.table(),
        cell,
        &PutSettings::default(),
        &mut content,
        &|| false,
    );
    assert!(matches!(written, Ok(PutOutcome::Written(_))), "{written:?}");
}

/// Returns the size of a streamed value.
fn streamed_bytes(database: &Database, cell: &ValueCell) -> Result<Option<u64>, EngineError> {
    let table = database.table();
    let value = database
        .engine()
        .open_value(&table, &cell.key, &cell.column, None)?;
    Ok(value.map(|value| value.bytes))
}

/// Moves the part of the month of a time into the archive.
fn archive_month(database: &Database, at: i64) {
    archive_month_with(database, at, &mut |_| ControlFlow::Continue(()));
}

/// Moves the part of the month of a time into the archive. Calls `proceed` during the work.
fn archive_month_with(
    database: &Database,
    at: i64,
    proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
) {
    let mut spec = database.table().table().spec().as_ref().clone();
    let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
    parts.expect("it is divided").archive = Some(PartsArchive {
        target: database.target(),
        after: 50 * DAY,
        schedule: Schedule::Continuous,
    });
    database.engine().alter_table(TABLE, spec).expect("it is changed");
    database.engine().seal().expect("it is flushed");
    let id = database.table().table().points().id();
    let number = PartPeriod::Month.number_of(at);
    let moved = database.engine().archive_table_part(id, number, proceed);
    assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
}

fn attach_request(from: &Database) -> AttachRequest {
    AttachRequest {
        target: from.target(),
        table: TableName::new(TABLE).ok(),
        rename: None,
        origin: None,
        own: false,
        parts: Vec::new(),
        verify: true,
    }
}

/// Replaces the description at the target with that of an earlier build, which did not copy streamed values.
fn describe_without_values(database: &Database) {
    let (archive, target) = (database.archive(), database.target());
    for (key, described) in archive.described_rows(&target).expect("it is listed") {
        let mut described = described.expect("it is read");
        let object = named(&key).expect("a name");
        let part = PartTarget {
            origin: object.origin.to_owned(),
            table: described.table.clone(),
            name: described.name.clone(),
            part: object.number,
            target: target.clone(),
        };
        let values = described.values.take().expect("it has values");
        (described.format, described.streamed_values) = (FORMAT, 1);
        let sent = SentObjects::default();
        archive
            .describe_rows(&part, &described, &sent)
            .expect("it is written");
        let files = values.files.iter().map(|file| file.key.as_str());
        let removed = archive.remove_objects(&target, std::iter::once(key.as_str()).chain(files));
        removed.expect("they are removed");
    }
}

/// Values of the test of archived values: the name of the row, the column, and the size. A group of pieces in the files
/// has about 4 MiB.
const VALUES: [(&str, &str, usize); 4] = [
    ("small", "photo", 65_537),
    ("medium", "photo", 1 << 20),
    ("large", "photo", (5 << 20) + 5),
    ("packed", "log", (1 << 20) + 1),
];

/// Returns the row and column of each value, and its content.
fn cells_of(database: &Database, at: i64) -> Vec<(ValueCell, Vec<u8>)> {
    let cells = VALUES.iter().map(|(host, column, bytes)| {
        let key = serde_json::from_value(json!({"host": host, "at": text(at)})).expect("a key");
        let cell = ValueCell::new(&database.table(), &key, column).expect("a column");
        let mut random = Random::new(*bytes as u64);
        let content: Vec<u8> = match *column {
            "log" => vec![b'x'; *bytes],
            _ => (0..*bytes).map(|_| random.next() as u8).collect(),
        };
        (cell, content)
    });
    cells.collect()
}

fn open_value(database: &Database, cell: &ValueCell) -> Result<ValueBytes, EngineError> {
    let engine = database.engine();
    let opened = engine.open_value(&database.table(), &cell.key, &cell.column, None)?;
    Ok(opened.expect("the row has the value"))
}

/// Reads all values of the test of archived values, as a whole and in ranges.
fn check_values(database: &Database, cells: &[(ValueCell, Vec<u8>)], context: &str) {
    for (cell, expected) in cells {
        let value = open_value(database, cell).expect("it is opened");
        let mut read = Vec::new();
        loop {
            let bytes = value.at(read.len() as u64).expect("it is read");
            if bytes.is_empty() {
                break;
            }
            read.extend_from_slice(&bytes);
        }
        assert!(read == *expected, "{context}: {} bytes", expected.len());
        let last = expected.len() - 1;
        for start in [last, last / 2, 65_535, 1, last + 1] {
            let value = open_value(database, cell).expect("it is opened");
            let bytes = value.at(start as u64).expect("it is read");
            assert_eq!(bytes.is_empty(), start > last, "{context}");
            assert!(expected[start..].starts_with(&bytes), "{context}: from {start}");
        }
    }
}

fn removed_values(database: &Database) -> u64 {
    let id = database.table().table().points().id();
    let removed = database
        .engine()
        .remove_unnamed_values(id, &mut |_| ControlFlow::Continue(()));
    removed.expect("they are removed").expect("it ends").removed
}

/// Restores all parts. `next` is the result of `proceed` after each step. Returns the number of restored parts; `None`
/// if the work was stopped.
fn restore_all(database: &Database, next: ControlFlow<()>) -> Option<u64> {
    let parts = database.engine().table_parts(&database.table()).expect("parts");
    let parts: Vec<_> = parts.into_iter().collect();
    let until = Timestamp::from_nanos_clamped(START + 30 * DAY);
    let mut proceed = |_: &MoveProgress| next;
    let restored = database
        .engine()
        .restore_parts(&database.table(), &parts, until, &mut proceed);
    restored.expect("it is restored").map(|(count, _)| count)
}

/// Returns a database with the values of the test of archived values, which are all in one part.
fn with_values(at: i64) -> (Database, Vec<(ValueCell, Vec<u8>)>) {
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [
            {"name": "photo", "type": "binary"}, {"name": "log", "type": "binary", "compression": "zstd"}
        ],
        "parts": {"by": "at", "every": "month"},
    });
    let database = Database::new(memory(Character::Embedded), &wide);
    let cells = cells_of(&database, at);
    for (cell, content) in &cells {
        stream_bytes(&database, cell, content);
    }
    (database, cells)
}

#[test]
fn files_of_a_running_archiving_are_not_removed_as_orphans() {
    let at = START - 100 * DAY;
    let (mut database, cells) = with_values(at);
    let search = OrphanSearch {
        target: database.target(),
        origin: None,
    };
    let (mut seen, mut removed) = (0, 0);
    archive_month_with(&database, at, &mut |_| {
        let store = database.engine().store();
        let orphans = store.find_orphans(&search).expect("they are listed");
        seen += orphans.named;
        let of_search = store.remove_orphans(&search.target, &orphans, &mut |_| true);
        removed += of_search.expect("they are removed").0;
        ControlFlow::Continue(())
    });
    assert!(seen > 0, "no file was at the target during the work");
    assert_eq!(removed, 0);
    assert_eq!(removed_values(&database), VALUES.len() as u64);
    check_values(&database, &cells, "archived");
    let orphans = database.engine().store().find_orphans(&search);
    assert!(orphans.expect("they are listed").found.is_empty());
    database.close();
    assert_eq!(database.check_stored(), [""; 0]);
}

#[test]
fn streamed_values_move_to_the_archive_and_back_with_their_rows() {
    let at = START - 100 * DAY;
    let (mut source, cells) = with_values(at);
    archive_month(&source, at);
    check_values(&source, &cells, "archived");

    // The values are in files of their own, and the pieces are no longer needed.
    let (archive, target) = (source.archive(), source.target());
    let described = archive.described_rows(&target).expect("it is listed");
    let [(key, Ok(described))] = &described[..] else {
        panic!("{described:?}");
    };
    assert_eq!(described.streamed_values, 0);
    let values = described.value_files();
    assert!(!values.is_empty());
    let is_sound = || {
        let verified = archive.verify_rows(&target, key, described.all_files());
        verified.expect("they are read").is_sound()
    };
    assert!(is_sound());
    assert_eq!(removed_values(&source), VALUES.len() as u64);
    check_values(&source, &cells, "without pieces");
    assert_eq!(removed_values(&source), 0);
    source.close();
    source.open();
    check_values(&source, &cells, "reopened");

    // Damage is found by reads and by the verification.
    let directory = target.strip_prefix("file://").expect("a directory");
    let path = std::path::Path::new(directory).join(&values[0].key);
    let intact = std::fs::read(&path).expect("a file");
    let mut damaged = intact.clone();
    damaged[1_000] ^= 1;
    std::fs::write(&path, damaged).expect("it is written");
    let opened = open_value(&source, &cells[0].0);
    let error = opened.expect_err("it is damaged").to_string();
    assert!(error.contains("checksum"), "{error}");
    assert!(!is_sound());
    std::fs::write(&path, intact).expect("it is written");

    let attached = Database::empty(memory(Character::Embedded), START);
    let plan = attached
        .engine()
        .plan_attach(&attach_request(&source))
        .expect("a plan");
    let attach = attached.engine().attach(&plan, &mut |_| true);
    let (progress, is_done) = attach.expect("it is attached");
    assert!(is_done && progress.problem_count == 0, "{progress:?}");
    check_values(&attached, &cells, "attached");
    assert_eq!(removed_values(&attached), 0);

    // The pieces of an interrupted restore are removed.
    assert_eq!(restore_all(&attached, ControlFlow::Break(())), None);
    assert!(removed_values(&attached) > 0);
    check_values(&attached, &cells, "after an interrupted restore");

    // A restored part does not need the files.
    for database in [&source, &attached] {
        assert_eq!(restore_all(database, ControlFlow::Continue(())), Some(1));
        check_values(database, &cells, "restored");
        assert_eq!(removed_values(database), 0);
    }
    std::fs::remove_file(&path).expect("it is removed");
    for mut database in [source, attached] {
        check_values(&database, &cells, "restored, without files");
        database.close();
        assert_eq!(database.check_stored(), [""; 0]);
    }
}

#[test]
fn streamed_values_that_the_archive_lacks_are_reported_and_are_not_damage() {
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "photo", "type": "binary"}],
        "parts": {"by": "at", "every": "month"},
    });
    let mut source = Database::new(memory(Character::Embedded), &wide);
    let at = START - 100 * DAY;
    let key = |host: &str| json!({"host": host, "at": text(at)});
    let cell_of = |database: &Database, host: &str| {
        let members = serde_json::from_value(key(host)).expect("a key");
        ValueCell::new(&database.table(), &members, "photo").expect("a column")
    };
    source.write(&json!([{"op": "put", "key": key("plain"), "columns": {"note": "a"}}]));
    let cell = cell_of(&source, "streamed");
    stream(&source, &cell);
    archive_month(&source, at);
    assert!(matches!(streamed_bytes(&source, &cell), Ok(Some(_))));
    describe_without_values(&source);

    let mut attached = Database::empty(memory(Character::Embedded), START);
    let request = attach_request(&source);
    let engine = attached.engine();
    let plan = engine.plan_attach(&request).expect("a plan");
    let (progress, is_done) = engine.attach(&plan, &mut |_| true).expect("it is attached");
    assert!(is_done && progress.rows == 2, "{progress:?}");
    assert_eq!(progress.problem_count, 1, "{progress:?}");
    assert!(
        progress.problems[0].contains(": 1 streamed values"),
        "{progress:?}"
    );
    let is_reported = |database: &Database| match streamed_bytes(database, &cell) {
        Err(error) => error.kind() == ErrorKind::Gone && error.to_string().contains("was not in the archive"),
        Ok(_) => false,
    };
    assert!(is_reported(&attached));

    // A copy names the reason, and copies the other rows.
    let mut spec = attached.table().table().spec().as_ref().clone();
    if let Some(wide) = spec.wide.as_deref_mut() {
        wide.parts = None;
    }
    let name = TableName::new("copy").expect("a name");
    engine.create_table(name, spec).expect("a table");
    let into = engine.wide_table("copy").expect("it exists");
    let rekey = Rekey::new(attached.table(), into, false).expect("a copy");
    let (copied, _) = rekey.run(engine, &mut |_| true).expect("it is copied");
    assert_eq!((copied.written, copied.refused), (1, 1), "{copied:?}");
    let refusal = copied.first_refusal.unwrap_or_default();
    assert!(refusal.contains("was not in the archive"), "{refusal}");

    // In the restored part, values of this database are stored.
    let mut proceed = |_: &MoveProgress| ControlFlow::Continue(());
    let parts = engine.table_parts(&attached.table()).expect("parts");
    let parts: Vec<_> = parts.into_iter().collect();
    let until = Timestamp::from_nanos_clamped(START + 30 * DAY);
    let restored = engine.restore_parts(&attached.table(), &parts, until, &mut proceed);
    assert!(matches!(restored, Ok(Some((1, _)))), "{restored:?}");
    let other = cell_of(&attached, "other");
    stream(&attached, &other);
    assert!(matches!(streamed_bytes(&attached, &other), Ok(Some(_))));
    assert!(is_reported(&attached));
    engine.seal().expect("it is flushed");
    attached.close();
    let notes = attached.check_stored();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains(": 1 streamed values are not here"), "{notes:?}");
    source.close();
    assert_eq!(source.check_stored(), [""; 0]);
}

#[test]
fn only_attachments_to_the_source_prevent_a_copy_from_being_recorded() {
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "parts": {"by": "at", "every": "month"},
    });
    let source = Database::new(memory(Character::Embedded), &wide);
    let times = [START - 150 * DAY, START - 100 * DAY];
    let rows =
        times.map(|at| json!({"op": "put", "key": {"host": "a", "at": text(at)}, "columns": {"note": "a"}}));
    source.write(&json!(rows));
    times.iter().for_each(|at| archive_month(&source, *at));
    let database = Database::empty(memory(Character::Embedded), START);
    let engine = database.engine();
    let attach = |at: i64, name: Option<&str>| {
        let request = AttachRequest {
            rename: name.map(|name| TableName::new(name).expect("a name")),
            parts: vec![PartPeriod::Month.part_name(PartPeriod::Month.number_of(at))],
            ..attach_request(&source)
        };
        let plan = engine.plan_attach(&request).expect("a plan");
        let (progress, _) = engine.attach(&plan, &mut |_| true).expect("it is attached");
        let attached = (progress.parts_attached, progress.problem_count);
        assert_eq!(attached, (1, 0), "{progress:?}");
    };
    attach(times[0], None);
    let mut spec = database.table().table().spec().as_ref().clone();
    if let Some(wide) = spec.wide.as_deref_mut() {
        wide.parts = None;
    }
    let name = TableName::new("copy").expect("a name");
    engine.create_table(name, spec).expect("a table");
    let (from, into) = (database.table(), engine.wide_table("copy").expect("it exists"));
    let begin = || engine.begin_row_copy(&from, &into).expect("it begins");

    let copy = begin();
    attach(times[0], Some("other"));
    assert!(engine.end_row_copy(&copy).expect("it ends"));
    let copy = begin();
    assert!(!copy.is_first());
    attach(times[1], None);
    assert!(!engine.end_row_copy(&copy).expect("it ends"));
    // The attachment has removed what was recorded.
    let copy = begin();
    assert!(copy.is_first());
    assert!(engine.end_row_copy(&copy).expect("it ends"));
    drop((from, into));
    for mut database in [source, database] {
        database.close();
        database.check_stored();
    }
}

#[test]
fn a_copy_refuses_streamed_values_of_a_dropped_part_at_once_and_copies_the_other_rows() {
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "photo", "type": "binary"}],
    });
    let mut database = Database::new(memory(Character::Embedded), &wide);
    let key = |days: i64| json!({"host": "a", "at": text(START - days * DAY)});
    for days in [100, 1] {
        let members = serde_json::from_value(key(days)).expect("a key");
        let cell = ValueCell::new(&database.table(), &members, "photo").expect("a column");
        stream(&database, &cell);
    }
    database.write(&json!([{"op": "put", "key": key(2), "columns": {"note": "a"}}]));
    let engine = database.engine();
    let mut spec = database.table().table().spec().as_ref().clone();
    if let Some(wide) = spec.wide.as_deref_mut() {
        let parts = json!({"by": "at", "every": "day"});
        wide.parts = Some(serde_json::from_value(parts).expect("parts"));
        wide.large_values = None;
    }
    let name = TableName::new("copy").expect("a name");
    engine.create_table(name, spec).expect("a table");
    let before = Timestamp::from_nanos_clamped(START - 50 * DAY);
    engine
        .drop_parts("copy", before, false)
        .expect("they are dropped");
    let into = engine.wide_table("copy").expect("it exists");
    let rekey = Rekey::new(database.table(), into, false).expect("a copy");
    let mut steps = 0;
    let mut step = |_: &RekeyProgress| {
        steps += 1;
        true
    };
    let (copied, is_complete) = rekey.run(engine, &mut step).expect("it is copied");
    assert!(is_complete && steps == 0, "{steps} further attempts: {copied:?}");
    assert_eq!((copied.written, copied.refused), (2, 1), "{copied:?}");
    let refusal = copied.first_refusal.unwrap_or_default();
    assert!(refusal.contains("was dropped"), "{refusal}");
    drop(rekey);
    database.close();
    database.check_stored();
}

#[test]
fn only_the_parts_of_a_condition_or_a_range_are_read() {
    let mut random = Random::new(1);
    let mut lab = Lab::new(memory(Character::Embedded), &mut random);
    while lab.database.table().layout().buckets().is_some() || lab.model.parts.keep.is_some() {
        lab = Lab::new(memory(Character::Embedded), &mut random);
    }
    let row = |at: i64| json!({"op": "put", "key": {"host": "a", "at": text(at)}});
    let rows: Vec<Value> = (0..300).map(|day| row(START - day * DAY)).collect();
    lab.database.write(&json!(rows));
    for day in 0..300 {
        lab.model.rows.insert(("a", START - day * DAY), (None, None));
    }
    for is_flushed in [false, true] {
        if is_flushed {
            lab.database.engine().seal().expect("it is flushed");
        }
        let (from, to) = (text(START - 42 * DAY), text(START - 41 * DAY));
        for request in [
            json!({"allow_scan": true, "where": {"column": "at", "gte": from, "lt": to}}),
            json!({"prefix": {"host": "a"}, "range": {"column": "at", "from": from, "to": to}}),
        ] {
            let (found, scanned) = lab.scan(&request, 1_000);
            assert_eq!(found, [("a", START - 42 * DAY)]);
            assert!(scanned <= 31, "{request} has read {scanned} rows");
            let read: ExplainRows = serde_json::from_value(json!({"scan": request})).expect("a request");
            let (engine, table) = (lab.database.engine(), lab.database.table());
            let explained = explain(engine, &table, &read, &|| false).expect("an explanation");
            let parts = explained.parts.expect("it is divided");
            let every = lab.model.parts.every;
            let name = every.part_name(every.number_of(START - 42 * DAY));
            assert_eq!(parts.first, Some(name));
            assert!(parts.read <= 2 && parts.of > 5, "{parts:?}");
        }
        // A range of keys that does not limit the time reads the first rows of all parts.
        let (found, _) = lab.scan(&json!({"prefix": {"host": "a"}}), 1_000);
        assert_eq!(found, lab.expected(|_, _| true));
    }
}

#[test]
fn divisions_that_do_not_fit_the_table_are_refused() {
    let database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}, {"name": "n", "type": "i64"}],
            "parts": {"by": "at", "every": "day"},
        }),
    );
    let engine = database.engine();
    let refused = |change: &dyn Fn(&mut PartsSpec)| {
        let mut spec = database.table().table().spec().as_ref().clone();
        change(
            spec.wide
                .as_mut()
                .and_then(|wide| wide.parts.as_mut())
                .expect("it is divided"),
        );
        engine
            .alter_table(TABLE, spec)
            .expect_err("it is refused")
            .to_string()
    };
    assert!(refused(&|parts| parts.every = PartPeriod::Month).contains("fixed when a table is created"));
    assert!(refused(&|parts| parts.by = "n".to_owned()).contains("fixed when a table is created"));
    assert!(refused(&|parts| parts.keep = Some(0)).contains("longer than 0s"));
    let future = Timestamp::from_nanos_clamped(START + DAY);
    let error = engine
        .drop_parts(TABLE, future, false)
        .expect_err("it is refused")
        .to_string();
    assert!(error.contains("in the future"), "{error}");
    let mut spec = database.table().table().spec().as_ref().clone();
    for (by, said) in [("n", "the key has at"), ("missing", "the key has at")] {
        let parts = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut());
        parts.expect("it is divided").by = by.to_owned();
        let name = TableName::new("other").expect("a name");
        let error = engine
            .create_table(name, spec.clone())
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn an_attachment_whose_sharded_indexes_need_too_much_memory_is_refused() {
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "parts": {"by": "at", "every": "month"},
    });
    let source = Database::new(memory(Character::Embedded), &wide);
    let at = START - 100 * DAY;
    source.write(&json!([{"op": "put", "key": {"host": "a", "at": text(at)}, "columns": {"note": "a"}}]));
    let index = json!({"name": "all", "columns": [{"column": "host", "as": "keyword"}], "shards": 7});
    source.create_search_index(&index, false);
    source.settle();
    archive_month(&source, at);

    let mut attached = Database::empty(memory(Character::Embedded), START);
    let engine = attached.engine();
    let plan = engine.plan_attach(&attach_request(&source)).expect("a plan");
    let before = engine.memory().used_bytes();
    engine.memory().set_limit(before + 100_000_000);
    let refused = engine.attach(&plan, &mut |_| true);
    assert!(matches!(refused, Err(EngineError::Memory(_))), "{refused:?}");
    assert!(engine.wide_table(TABLE).is_err(), "no table was created");
    engine.memory().set_limit(before + 200_000_000);
    let (progress, is_done) = engine.attach(&plan, &mut |_| true).expect("it is attached");
    assert!(is_done && progress.rows == 1, "{progress:?}");
    attached.settle();
    attached.close();
}

#[test]
fn writes_that_compile_patterns_or_reach_cold_parts_do_not_only_read_hot_rows() {
    let parts = json!({"by": "at", "every": "month"});
    let wide = |key: Value, parts: &Value| json!({"key": key, "parts": parts});
    let host = json!({"name": "host", "type": "string"});
    let key = json!([host, {"name": "at", "type": "timestamp"}]);
    let database = Database::new(memory(Character::Embedded), &wide(key, &parts));
    let reads_hot = |database: &Database, condition: Value| {
        let key = json!({"host": "a", "at": text(START)});
        let row = json!({"op": "put", "key": key, "columns": {"note": "a"}, "condition": condition});
        let body: RowsBody = serde_json::from_value(json!({"rows": [row]})).expect("rows");
        reads_only_hot_rows(database.engine(), &database.table(), &body.rows)
    };
    let exists = json!({"exists": true});
    let note = |mut test: Value| {
        test["column"] = json!("note");
        test
    };
    for (test, is_hot) in [
        (json!({"equals": "a"}), true),
        (json!({"prefix": "a"}), true),
        (json!({"wildcard": "a*b"}), false),
        (json!({"regex": "a+"}), false),
        (json!({"fuzzy": "abc"}), false),
        (json!({"text": "abc"}), false),
        (json!({"phrase": "abc"}), false),
    ] {
        let nested = json!({"and": [{"or": [{"not": note(test.clone())}]}]});
        for filter in [note(test), nested] {
            let condition = json!({"where": filter});
            assert_eq!(reads_hot(&database, condition.clone()), is_hot, "{condition}");
        }
    }
    assert!(reads_hot(&database, exists.clone()));
    let at = START - 100 * DAY;
    database.write(&json!([{"op": "put", "key": {"host": "a", "at": text(at)}, "columns": {"note": "a"}}]));
    archive_month(&database, at);
    assert!(!reads_hot(&database, exists.clone()), "a part is in the archive");

    let generated = json!([host, {"name": "id", "generated": {}}]);
    let database = Database::new(memory(Character::Embedded), &wide(generated, &Value::Null));
    assert!(!reads_hot(&database, exists), "other writes wait for the ids");
}

#[test]
fn only_divided_tables_have_tiers() {
    let mut database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
            "columns": [{"name": "state", "type": "string", "number": 1}],
        }),
    );
    database
        .write(&json!([{"op": "put", "key": {"host": "a", "at": text(START)}, "columns": {"state": "new"}}]));
    let engine = database.engine();
    let index = json!({"name": "by_state", "key": [{"name": "state", "type": "string"}], "tier": "cold"});
    let index = serde_json::from_value(index).expect("an index");
    let refused = engine.create_index(TABLE, index).expect_err("it is refused");
    assert!(refused.to_string().contains("divided into parts"), "{refused}");
    let search = json!({"name": "all", "columns": [{"column": "state", "as": "keyword"}], "tier": "hot"});
    let search: CreateSearchIndex = serde_json::from_value(search).expect("an index");
    let refused = engine.create_search_index(TABLE, search.into(), false);
    let refused = refused.expect_err("it is refused").to_string();
    assert!(refused.contains("divided into parts"), "{refused}");
    let scan: ScanRows =
        serde_json::from_value(json!({"allow_scan": true, "tier": "hot"})).expect("a request");
    let explained: ExplainRows = serde_json::from_value(json!({"scan": scan})).expect("a request");
    let refused = explain(engine, &database.table(), &explained, &|| false);
    let refused = refused.expect_err("it is refused").to_string();
    assert!(refused.contains("divided into parts"), "{refused}");
    database.close();
}

#[test]
fn an_index_of_one_tier_is_explained() {
    let mut random = Random::new(7);
    let mut lab = Lab::new(memory(Character::Embedded), &mut random);
    while lab.model.parts.keep.is_some() || lab.model.parts.writable.is_some() {
        lab = Lab::new(memory(Character::Embedded), &mut random);
    }
    let row = |days: i64| json!({"op": "put", "key": {"host": "a", "at": text(START - days * DAY)}, "columns": {"state": "new", "size": 1}});
    lab.database.write(&json!([row(0), row(100)]));
    lab.database.engine().seal().expect("it is flushed");
    lab.create_indexes();
    // A part does not move before the search indexes that cover only the other tier are open.
    lab.database.settle();
    let table = lab.database.table();
    let number = lab.model.parts.every.number_of(START - 100 * DAY);
    let id = table.table().points().id();
    let moved = lab
        .database
        .engine()
        .move_table_part(id, number, Tier::Cold, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
    let explained = |scan: Value| {
        let read: ExplainRows = serde_json::from_value(json!({"scan": scan})).expect("a request");
        explain(lab.database.engine(), &table, &read, &|| false).expect("an explanation")
    };
    let by = |index: &str, tier: &str| {
        explained(json!({"index": index, "prefix": {"state": "new"}, "tier": tier}))
    };
    for (index, tier, rows) in [
        ("hot", "hot", 1),
        ("cold", "cold", 1),
        ("all", "cold", 1),
        ("all", "all", 2),
    ] {
        let explained = by(index, tier);
        assert!(explained.is_allowed, "{index} {tier}: {explained:?}");
        assert_eq!(explained.estimated_rows, rows, "{index} {tier}");
        assert_eq!(explained.index_tier.is_some(), index != "all", "{index}");
        let parts = explained.parts.expect("it is divided");
        assert_eq!((parts.read, parts.of), (rows, 2), "{index} {tier}");
    }
    for (index, tier, rows) in [
        ("hot", "hot", 1),
        ("cold", "all", 1),
        ("all", "cold", 1),
        ("all", "all", 2),
    ] {
        let search = json!({"index": index, "where": {"column": "state", "equals": "new"}, "tier": tier});
        let read: ExplainRows = serde_json::from_value(json!({"search": search})).expect("a request");
        let explained = explain(lab.database.engine(), &table, &read, &|| false).expect("an explanation");
        assert_eq!(explained.estimated_rows, rows, "a search of {index} {tier}");
        let parts = explained.parts.expect("it is divided");
        assert_eq!((parts.read, parts.of), (rows, 2), "a search of {index} {tier}");
    }
    for (index, tier) in [("hot", "all"), ("cold", "all"), ("hot", "cold"), ("cold", "hot")] {
        let explained = by(index, tier);
        assert!(!explained.is_allowed, "{index} {tier}");
        let said = format!("covers only the tier {index}");
        assert!(
            explained.advice.iter().any(|advice| advice.contains(&said)),
            "{:?}",
            explained.advice
        );
    }
    lab.database.close();
}

#[test]
fn builds_read_only_the_parts_of_their_tier_and_wait_for_an_unreachable_archive() {
    let at = START - 100 * DAY;
    let mut database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
            "columns": [{"name": "state", "type": "string", "number": 1}],
            "version_guard": null,
            "parts": {"by": "at", "every": "month"},
        }),
    );
    let row =
        |at: i64| json!({"op": "put", "key": {"host": "a", "at": text(at)}, "columns": {"state": "new"}});
    database.write(&json!([row(at), row(START)]));
    archive_month(&database, at);
    let target = database.target();
    let target = target.strip_prefix("file://").expect("a folder").to_owned();
    let away = format!("{target}-away");
    database.close();
    std::fs::rename(&target, &away).expect("it is renamed");
    database.open();

    let index = json!({"name": "hot", "key": [{"name": "state", "type": "string"}], "tier": "hot"});
    let index = serde_json::from_value(index).expect("an index");
    database
        .engine()
        .create_index(TABLE, index)
        .expect("it is created");
    for building in database.engine().building_indexes() {
        let built = database
            .engine()
            .build_index(&building, &mut |_| ControlFlow::Continue(()));
        assert!(
            matches!(&built, Ok(BuildEnd::Ready(done)) if done.rows == 1),
            "{built:?}"
        );
    }
    let columns = json!([{"column": "state", "as": "keyword"}]);
    database.create_search_index(&json!({"name": "hot", "columns": columns, "tier": "hot"}), false);
    database.settle();
    let status_of = |database: &Database, name: &str| {
        let table = database.table();
        let mut specs = table.settings().search_indexes.iter();
        let spec = specs.find(|spec| spec.name == name).expect("it exists");
        let status = database.engine().search_index_status(TableId(spec.id));
        status.map(|(status, _)| status).unwrap_or_default()
    };
    let status = status_of(&database, "hot");
    assert_eq!((status.rows_read, status.last_error), (1, None));

    database.create_search_index(&json!({"name": "all", "columns": columns}), false);
    let begun = std::time::Instant::now();
    while !status_of(&database, "all").is_waiting {
        assert!(
            begun.elapsed().as_secs() < 60,
            "{:?}",
            status_of(&database, "all")
        );
        std::thread::yield_now();
    }
    // The index has not failed, so it is not opened again.
    database.engine().follow_searches();
    let status = status_of(&database, "all");
    assert!(status.is_waiting && status.last_error.is_some(), "{status:?}");
    std::fs::rename(&away, &target).expect("it is renamed");
    database.settle();
    let status = status_of(&database, "all");
    assert!(!status.is_waiting, "{status:?}");
    assert_eq!(
        (status.rows_read, status.documents, status.last_error),
        (2, 2, None)
    );
    database.close();
}

#[test]
fn a_table_has_a_bounded_number_of_parts() {
    let mut database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
            "columns": [{"name": "day", "type": "i64", "number": 1}],
            "parts": {"by": "at", "every": "day"},
        }),
    );
    let index = json!({"name": "by_day", "key": [{"name": "day", "type": "i64"}]});
    let index = serde_json::from_value(index).expect("an index");
    database
        .engine()
        .create_index(TABLE, index)
        .expect("it is created");
    let write_days = |database: &Database, days: std::ops::Range<i64>| {
        let row = |day: i64| {
            json!({"op": "put", "key": {"host": format!("h{day}"), "at": text(START - day * DAY)},
                "columns": {"day": day}})
        };
        let rows: Vec<Value> = days.map(row).collect();
        let body: RowsBody = serde_json::from_value(json!({"rows": rows})).expect("rows");
        let (table, settings) = (database.table(), WriteSettings::default());
        let written = write(database.engine(), &table, &body.rows, b"", &settings).expect("a write");
        written.rows.last().expect("a row").clone()
    };
    let parts = |database: &Database| {
        let parts = database.engine().table_parts(&database.table());
        parts.expect("parts").len()
    };
    assert_eq!(write_days(&database, 0..1_000).status, RowStatus::Written);
    for round in 0..2 {
        let refused = write_days(&database, 1_000..1_001);
        assert_eq!(refused.status, RowStatus::Refused);
        let reason = refused.reason.expect("a reason");
        assert!(reason.contains("1000 parts already"), "{reason}");
        assert_eq!(write_days(&database, 5..6).status, RowStatus::Written);
        if round == 0 {
            // The flush publishes the parts of the table and of its index. They are too many for one edit of the
            // manifest.
            database.engine().seal().expect("it is flushed");
        }
        // The parts are counted again after a restart.
        database.close();
        database.open();
        assert_eq!(parts(&database), 1_000);
    }
    let before = Timestamp::from_nanos_clamped(START - 100 * DAY);
    let dropped = database.engine().drop_parts(TABLE, before, false);
    assert_eq!(dropped.expect("they are dropped").len(), 899);
    assert_eq!(parts(&database), 101);
    assert_eq!(write_days(&database, 5..6).status, RowStatus::Written);
    assert_eq!(write_days(&database, 200..201).status, RowStatus::Refused);
    // The dropped parts are freed in the background after a flush.
    database.engine().seal().expect("it is flushed");
    let begun = std::time::Instant::now();
    let stored = || {
        let table = database.engine().tables().into_iter();
        let mut table = table.filter(|table| table.name().as_str() == TABLE);
        database.engine().part_count(&table.next().expect("the table"))
    };
    while stored() != Some(101) {
        assert!(begun.elapsed().as_secs() < 60, "{:?} parts are stored", stored());
        std::thread::yield_now();
    }
    database.close();
    database.open();
    assert_eq!(parts(&database), 101);
}
