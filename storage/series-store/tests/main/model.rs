//! Thousands of random steps, compared with a naive model: writes, overwrites, late points, deletes, seals, moves
//! between tiers and files, folds, policies that hide points, restarts and drops.
//!
//! The seed is printed. `TIDELINE_SEED` replays a failure, and `TIDELINE_STEPS` makes the run longer.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_model::{
    Clock, FieldId, ManualClock, SegmentId, TableName, TableSpec, Tier, TimeRange, TimelineId, Timestamp,
    Value,
};
use tideline_series_store::manifest::Segment;
use tideline_series_store::window::{COLD_LEVEL, cold_boundary};
use tideline_series_store::{
    Delete, Order, Rewrite, RewriteCause, RewriteCost, Seen, SeriesStore, StoreError, Table, Throttle,
};

use crate::fixture::{Point, Rows, TestBackend, archived_table, read, timeline, tiny, write};

/// Number of steps of one run on one backend.
const STEPS: usize = 1_000;
const TIMELINES: u64 = 12;
const FIELDS: [&str; 7] = [
    "float",
    "signed",
    "unsigned",
    "boolean",
    "string",
    "histogram",
    "mixed",
];

#[test]
fn a_store_answers_as_a_plain_map_would() {
    let seed = tideline_testkit::seed("model");
    let steps = tideline_testkit::rounds("TIDELINE_STEPS", STEPS, 20 * STEPS);
    for (name, test_backend) in TestBackend::all() {
        println!("model: {name}, {steps} steps");
        Run::new(seed, &test_backend).steps(steps);
    }
}

#[test]
fn a_store_on_a_cluster_answers_as_a_plain_map_would() {
    let Some(test_backend) = TestBackend::cluster() else {
        return;
    };
    let seed = tideline_testkit::seed("model on a cluster");
    let steps = tideline_testkit::rounds("TIDELINE_CLUSTER_STEPS", 100, 5_000);
    Run::new(seed, &test_backend).steps(steps);
}

/// Small random generator (SplitMix64), so that a seed determines the whole run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Throttle that never waits.
struct Unhurried;

impl Throttle for Unhurried {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

type Model = BTreeMap<(TimelineId, i64), BTreeMap<&'static str, Value>>;

struct Run<'a> {
    chance: Chance,
    test_backend: &'a TestBackend,
    store: SeriesStore,
    table: Arc<Table>,
    model: Model,
    now: i64,
    clock: ManualClock,
}

impl<'a> Run<'a> {
    fn new(seed: u64, test_backend: &'a TestBackend) -> Self {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let (store, _) = test_backend.open_at(&tiny(), &clock);
        let name = TableName::new("metrics").expect("a valid name");
        let table = store.create_table(name, archived_table()).expect("a new table");
        Self {
            chance: Chance(seed),
            test_backend,
            store,
            table,
            model: Model::new(),
            now: 1_000_000,
            clock,
        }
    }

    fn steps(mut self, steps: usize) {
        for step in 0..steps {
            match self.chance.below(1_000) {
                0..=4 => self.restart(),
                5..=19 => self.store.seal().expect("a seal"),
                20..=21 => self.drop_table(),
                22..=49 => self.delete(),
                50..=75 => self.rewrite(),
                76..=81 => self.copy(),
                82..=85 => self.evict(),
                86..=89 => self.restore(),
                90..=92 => self.purge(),
                180..=205 => self.cut(),
                93..=96 => self.change_policy(),
                97..=179 => self.check_one(),
                _ => self.write(),
            }
            if step % 250 == 249 {
                self.check_all();
            }
        }
        self.restart();
        self.check_all();
        self.purge();
        self.check_all();
    }

    /// Deletes points of some timelines in a time range; sometimes also removes the timelines.
    fn delete(&mut self) {
        let removes_timelines = self.chance.below(5) == 0;
        let mut timelines: Vec<TimelineId> = (0..=self.chance.below(3))
            .map(|_| timeline(self.chance.below(TIMELINES)))
            .collect();
        timelines.sort_unstable();
        timelines.dedup();
        let start = self.now - self.chance.below(3_000) as i64;
        let range = match self.chance.below(4) {
            _ if removes_timelines => TimeRange::ALL,
            0 => TimeRange::ALL,
            1 => TimeRange::new(i64::MIN + 1, start),
            _ => TimeRange::new(start, start + 1 + self.chance.below(1_000) as i64),
        };
        let delete = Delete {
            timelines: timelines.clone(),
            range,
            removes_timelines,
        };
        self.store.delete(&self.table, delete).expect("a delete");
        self.model
            .retain(|(id, at), _| !(timelines.contains(id) && range.contains(*at)));
    }

    /// Rewrites up to five segments of any tiers into one. Nothing changes if their write order forbids it or they have
    /// no common window.
    fn rewrite(&mut self) {
        let segments = self.segments();
        if segments.is_empty() {
            return;
        }
        let first = self.chance.below(segments.len() as u64) as usize;
        let count = 1 + self.chance.below(5) as usize;
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: segments.into_iter().skip(first).take(count).collect(),
            tier: Tier::ALL[self.chance.below(3) as usize],
            cause: RewriteCause::Fold,
        };
        match self.store.rewrite(&rewrite, &mut Unhurried) {
            Ok(_) | Err(StoreError::Interleaved { .. } | StoreError::NoCommonWindow) => {}
            Err(error) => panic!("{rewrite:?}: {error}"),
        }
    }

    /// Cuts up to three segments at the start of a cold window near the points of the first one. Nothing changes if
    /// the write order or the position of the cut forbids it.
    fn cut(&mut self) {
        let tier = [Tier::Hot, Tier::Cold][self.chance.below(2) as usize];
        let wide = self.with(|segment| segment.tier == tier && segment.window.level > COLD_LEVEL);
        if wide.is_empty() {
            return;
        }
        let first = self.chance.below(wide.len() as u64) as usize;
        let inputs = &wide[first..(first + 1 + self.chance.below(3) as usize).min(wide.len())];
        let survey = self.store.survey();
        let all = survey.tables.iter().flat_map(|table| &table.segments);
        let of = all.filter(|have| inputs.contains(&have.segment.id));
        let of: Vec<_> = of.map(|have| Arc::clone(&have.segment)).collect();
        let (first, last) = (of[0].first, of[0].last);
        let at = first + self.chance.below((last - first + 1) as u64) as i64;
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: inputs.to_vec(),
            tier: Tier::Cold,
            cause: RewriteCause::Cut(cold_boundary(at, tiny().window_nanos)),
        };
        match self.store.rewrite(&rewrite, &mut Unhurried) {
            Ok(_)
            | Err(StoreError::Interleaved { .. } | StoreError::NoCommonWindow | StoreError::Cut { .. }) => {}
            Err(error) => panic!("{rewrite:?}: {error}"),
        }
    }

    /// Copies a segment into files while it stays in the cold tier. Possible only for a cold segment without deleted
    /// points.
    fn copy(&mut self) {
        let segments = self.segments();
        if segments.is_empty() {
            return;
        }
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: vec![segments[self.chance.below(segments.len() as u64) as usize]],
            tier: Tier::Archive,
            cause: RewriteCause::Copy,
        };
        match self.store.rewrite(&rewrite, &mut Unhurried) {
            Ok(made) => assert!(made.outputs.iter().any(|output| output.copy.is_some())),
            Err(StoreError::NoCopy(_)) => {}
            Err(error) => panic!("{rewrite:?}: {error}"),
        }
    }

    /// Replaces segments with their copies.
    fn evict(&mut self) {
        let segments = self.segments();
        let copies = self.with(|segment| segment.copy.is_some());
        let evicted = self.store.evict(self.table.id(), &segments).expect("they leave");
        assert_eq!((evicted.segments, evicted.stay), (copies.len() as u64, 0));
        assert_eq!(self.with(|segment| segment.copy.is_some()), []);
    }

    /// Restores an archived segment into the cold tier, and sometimes evicts all copies afterwards.
    fn restore(&mut self) {
        let archived = self.with(|segment| segment.tier == Tier::Archive);
        if archived.is_empty() {
            return;
        }
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: vec![archived[self.chance.below(archived.len() as u64) as usize]],
            tier: Tier::Cold,
            cause: RewriteCause::Restore(self.now + 1_000),
        };
        let made = self
            .store
            .rewrite(&rewrite, &mut Unhurried)
            .expect("it comes back");
        for output in made.outputs {
            assert_eq!(
                (output.tier, output.stays_until),
                (Tier::Cold, Some(self.now + 1_000))
            );
        }
        if self.chance.below(2) == 0 {
            self.evict();
        }
    }

    /// Returns the matching segments in write order.
    fn with(&self, is_wanted: impl Fn(&Segment) -> bool) -> Vec<SegmentId> {
        let survey = self.store.survey();
        let of_table = survey
            .tables
            .iter()
            .filter(|table| table.table.id() == self.table.id());
        let mut segments: Vec<_> = of_table.flat_map(|table| &table.segments).collect();
        segments.sort_by_key(|have| have.segment.written.newest);
        let wanted = segments.iter().filter(|have| is_wanted(&have.segment));
        wanted.map(|have| have.segment.id).collect()
    }

    /// Purges all segments with pending deletes, and checks that no segment has a pending delete afterwards.
    fn purge(&mut self) {
        self.store.seal().expect("a seal");
        let survey = self.store.survey();
        for of_table in &survey.tables {
            for segment in of_table.segments.iter().filter(|segment| segment.has_deletes) {
                let rewrite = Rewrite {
                    table: of_table.table.id(),
                    inputs: vec![segment.segment.id],
                    tier: segment.segment.tier,
                    cause: RewriteCause::Purge,
                };
                self.store.rewrite(&rewrite, &mut Unhurried).expect("a purge");
            }
        }
        let survey = self.store.survey();
        assert!(
            survey
                .tables
                .iter()
                .all(|table| table.segments.iter().all(|have| !have.has_deletes))
        );
    }

    fn change_policy(&mut self) {
        let mut spec = TableSpec::clone(&self.table.spec());
        spec.policy.retention = match self.chance.below(3) {
            0 => None,
            _ => Some(100 + self.chance.below(5_000) as i64),
        };
        spec.policy.hot_ttl = Some(1 + self.chance.below(3_000) as i64);
        self.store.alter_table("metrics", spec).expect("a policy");
    }

    /// Returns the segments of the table in write order.
    fn segments(&self) -> Vec<SegmentId> {
        self.with(|_| true)
    }

    /// Returns the first timestamp that has not expired.
    fn visible_from(&self) -> i64 {
        let age = self.table.spec().policy.visible_age();
        age.map_or(i64::MIN, |age| self.clock.now().nanos().saturating_sub(age))
    }

    fn write(&mut self) {
        let count = 1 + self.chance.below(60);
        let one_shape = self.chance.below(2) == 0;
        let shape = self.chance.next();
        let mut points: Vec<Point> = Vec::new();
        for _ in 0..count {
            let id = timeline(self.chance.below(TIMELINES));
            let timestamp = self.instant();
            // The order of two shapes with the same timestamp in one delta is undefined, so the second row of the pair
            // is not written.
            if points.iter().any(|(have, at, _)| (*have, *at) == (id, timestamp)) {
                continue;
            }
            let shape = if one_shape { shape } else { self.chance.next() };
            points.push((id, timestamp, self.fields(shape)));
        }
        let known = |id: &TimelineId| self.model.keys().any(|(have, _)| have == id);
        let mut new: Vec<TimelineId> = points
            .iter()
            .map(|(id, ..)| *id)
            .filter(|id| !known(id))
            .collect();
        new.sort_unstable();
        new.dedup();
        write(&self.store, &self.table, &points, &new).expect("a write");
        for (id, timestamp, fields) in points {
            self.model.entry((id, timestamp)).or_default().extend(fields);
        }
    }

    /// Returns a timestamp: mostly live, sometimes slightly late or repeated, rarely far in the past or future.
    fn instant(&mut self) -> i64 {
        match self.chance.below(100) {
            0..=9 => self.now - self.chance.below(500) as i64,
            10..=11 => self.chance.below(2_000_000) as i64 - 500_000,
            12 => i64::MAX - 1 - self.chance.below(3) as i64,
            13 => i64::MIN + 2 + self.chance.below(3) as i64,
            _ => {
                self.now += self.chance.below(20) as i64;
                // The clock follows the newest points.
                let behind = self.now - self.clock.now().nanos();
                self.clock.advance(behind.max(0));
                self.now
            }
        }
    }

    fn fields(&mut self, shape: u64) -> Vec<(&'static str, Value)> {
        let wanted = FIELDS
            .iter()
            .enumerate()
            .filter(|(at, _)| shape >> at & 1 == 1 || shape % 6 == *at as u64);
        let names: Vec<&'static str> = wanted.map(|(_, name)| *name).collect();
        names
            .into_iter()
            .map(|name| (name, self.value(name, shape >> 8)))
            .collect()
    }

    fn value(&mut self, field: &str, shape: u64) -> Value {
        let bits = self.chance.next();
        let small = bits % 100;
        match field {
            "float" if small < 5 => Value::Float(f64::from_bits(bits)),
            "float" => Value::Float(small as f64 / 10.0),
            "signed" if small < 5 => Value::Signed(bits as i64),
            "signed" => Value::Signed(small as i64 - 50),
            "unsigned" => Value::Unsigned(if small < 5 { bits } else { small }),
            "boolean" => Value::Boolean(bits & 1 == 1),
            "string" => Value::String("x".repeat((bits % 12) as usize).into()),
            "histogram" => Value::Histogram(bits.to_le_bytes()[..(bits % 9) as usize].into()),
            _ => match shape % 3 {
                0 => Value::Float(small as f64),
                1 => Value::Signed(small as i64),
                _ => Value::Unsigned(small),
            },
        }
    }

    fn restart(&mut self) {
        self.store.close().expect("a clean close");
        let (store, _) = self.test_backend.open_at(&tiny(), &self.clock);
        self.table = store.table("metrics").expect("the table survives");
        self.store = store;
    }

    fn drop_table(&mut self) {
        self.store.drop_table("metrics").expect("a drop");
        let name = TableName::new("metrics").expect("a valid name");
        self.table = self
            .store
            .create_table(name, archived_table())
            .expect("the same name again");
        self.model.clear();
    }

    fn expected(&self, id: TimelineId, range: TimeRange, fields: Option<&[FieldId]>, order: Order) -> Rows {
        let visible = self.visible_from();
        let rows = self.model.range((id, i64::MIN)..=(id, i64::MAX));
        let mut rows: Rows = rows
            .filter(|((_, at), _)| range.contains(*at) && *at >= visible)
            .map(|((_, at), cells)| {
                let numbered = cells.iter().map(|(name, value)| {
                    (
                        self.table.schema().field(name).expect("a written field"),
                        value.clone(),
                    )
                });
                let mut cells: Vec<_> = numbered
                    .filter(|(field, _)| fields.is_none_or(|fields| fields.contains(field)))
                    .collect();
                cells.sort_by_key(|(field, _)| *field);
                (*at, cells)
            })
            .filter(|(_, cells)| !cells.is_empty())
            .collect();
        if order == Order::Descending {
            rows.reverse();
        }
        rows
    }

    fn check_one(&mut self) {
        let id = timeline(self.chance.below(TIMELINES));
        let start = self.now - self.chance.below(3_000) as i64;
        let range = TimeRange::new(start, start + self.chance.below(2_000) as i64);
        let order = if self.chance.below(2) == 0 {
            Order::Ascending
        } else {
            Order::Descending
        };
        let wanted = FIELDS[self.chance.below(FIELDS.len() as u64) as usize];
        let fields = self.table.schema().field(wanted).map(|field| vec![field]);
        let found = read(&self.store, &self.table, &[id], range, fields.as_deref(), order);
        assert_eq!(
            found[0],
            self.expected(id, range, fields.as_deref(), order),
            "{id} {range:?} {wanted}"
        );
    }

    fn check_all(&mut self) {
        let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
        ids.sort_unstable();
        let all = TimeRange::ALL;
        let found = read(&self.store, &self.table, &ids, all, None, Order::Ascending);
        for (id, rows) in ids.iter().zip(found) {
            assert_eq!(
                rows,
                self.expected(*id, all, None, Order::Ascending),
                "all of {id}"
            );
            self.check_latest(*id, &rows);
        }
    }

    fn check_latest(&self, id: TimelineId, rows: &Rows) {
        let mut newest: BTreeMap<FieldId, (i64, Value)> = BTreeMap::new();
        for (at, cells) in rows {
            newest.extend(cells.iter().map(|(field, value)| (*field, (*at, value.clone()))));
        }
        let expected = self.table.schema().fields_of("m");
        let latest = self
            .store
            .latest(&self.table, id, &expected)
            .expect("latest values");
        let latest: BTreeMap<_, _> = latest
            .into_iter()
            .map(|field| (field.field, (field.timestamp, field.value)))
            .collect();
        assert_eq!(latest, newest, "latest of {id}");
        let span = rows.first().zip(rows.last()).map(|(first, last)| Seen {
            first: first.0,
            last: last.0,
        });
        let mut seen = self.store.seen(&self.table, &[id]).expect("a span")[0];
        if let Some((seen, span)) = seen.as_mut().zip(span)
            && (self.visible_from()..=span.first).contains(&seen.first)
        {
            // If older points have expired, the span may begin anywhere between the first visible time and the
            // oldest remaining point.
            seen.first = span.first;
        }
        assert_eq!(seen, span, "span of {id}");
    }
}
