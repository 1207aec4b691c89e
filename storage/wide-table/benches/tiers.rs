//! Cost of the life of one part: its moves to the cold tier and to the archive, reads from each tier, and its
//! restoration.
//!
//! ```sh
//! cargo bench -p tideline-wide-table
//! ```
//!
//! The part holds one month: a million rows with ten columns, about 150 bytes per row in JSON. CPU time is the time of
//! all threads of the process, including the threads of the storage engine. The archive is a directory.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_archive::{Archive, ArchiveSettings};
use tideline_backend::{Direction, PageLimit};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::tuple::{Decimal, KeyValue};
use tideline_log::manifest::{TableRow, put_table};
use tideline_log::{LogSettings, LogThreads, Opening};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{
    KeyRange, ManualClock, TableId, TableModel, TableName, TableSpec, Tier, Timestamp, WideSpec,
};
use tideline_wide_table::{
    Action, CellValue, Column, ColumnName, Image, MoveEnd, MoveProgress, PartToArchive, RowWrite, Settings,
    WideModel, WideReplay, WideStore, WriteOptions,
};

const TABLE: TableId = TableId(1);
const ROWS: u64 = 1_000_000;
const BATCH: u64 = 2_000;
/// Number of customers over which the rows are spread.
const CUSTOMERS: u64 = 1_000;
/// 2026-10-01T00:00:00Z.
const START: i64 = 1_790_812_800 * NANOS_PER_SECOND;
/// Time between two rows. All rows are in one month.
const STEP: i64 = 2 * NANOS_PER_SECOND;
/// Limit of a page.
const PAGE: PageLimit = PageLimit {
    rows_max: 5_000,
    bytes_max: 1 << 20,
};

type BenchResult<T> = Result<T, Box<dyn Error>>;

fn main() -> BenchResult<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let backend = FjallBackend::open(&folder.path().join("data"), FjallOptions::default())?;
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START + ROWS as i64 * STEP));
    let opening = Opening::begin(Arc::new(backend), Arc::new(clock), LogSettings::default())?;
    let replay = WideReplay::new(opening.manifest(), opening.rows(), opening.trusted_now())?;
    let log = opening.replay(&mut [&mut replay.clone()])?.open()?;
    let archive = Archive::open(ArchiveSettings::new(folder.path().join("temporary")))?;
    let store = WideStore::open(&log, &replay, Some(Arc::new(archive)), Settings::default());
    let store = Arc::new(store);
    let model = Arc::new(WideModel(Arc::clone(&store)));
    let threads = LogThreads::start(Arc::clone(&log), vec![model]);
    let bench = Bench {
        spec: spec()?,
        store,
        threads,
    };
    bench.create()?;
    measured("write and flush", || bench.fill())?;
    measured("read all, hot", || bench.read())?;
    let number = bench.store.parts_in_tiers(TABLE)[0].number;
    measured("hot to cold", || {
        let (threads, place) = (&bench.threads, (TABLE, number));
        let moved = bench
            .store
            .move_table_part(threads, place, Tier::Cold, &mut |_, _| Ok(None), &mut on);
        is_moved(&moved?)
    })?;
    let target = folder.path().join("target");
    std::fs::create_dir_all(&target)?;
    measured("cold to archive", || {
        bench.archive(number, format!("file://{}", target.display()))
    })?;
    println!(
        "  {:.1} bytes per row in the archive",
        bytes_below(&target)? as f64 / ROWS as f64
    );
    measured("read all, archive", || bench.read())?;
    measured("archive to cold", || {
        let restored = bench.store.restore_part(TABLE, number, i64::MAX, &mut on);
        is_moved(&restored?)
    })?;
    bench.threads.stop();
    bench.threads.log().backend().close()?;
    Ok(())
}

struct Bench {
    spec: TableSpec,
    store: Arc<WideStore>,
    threads: LogThreads,
}

impl Bench {
    fn create(&self) -> BenchResult<()> {
        let name = TableName::new("orders")?;
        self.threads.log().edit_shared(|manifest| {
            let row = TableRow::new(TABLE, name.clone(), self.spec.clone(), 0, 0);
            let changes = vec![put_table(&row)];
            manifest.tables.insert(TABLE, row);
            changes
        })?;
        Ok(())
    }

    fn fill(&self) -> BenchResult<()> {
        let wide = self.spec.wide.as_deref().ok_or("a wide table")?;
        let layout = KeyLayout::new(&wide.key, true)?;
        let write = |number: u64| -> BenchResult<RowWrite<'static>> {
            let at = Timestamp::from_nanos(START + number as i64 * STEP)?;
            let customer = format!("customer-{:04}", number % CUSTOMERS);
            let mut key = Vec::new();
            layout.encode(
                &[KeyValue::from(&customer[..]), KeyValue::Timestamp(at)],
                &mut key,
            )?;
            let time = START + number as i64;
            Ok(RowWrite {
                key: key.into(),
                partition: 1,
                time,
                action: Action::Put(columns(number, time)?),
                condition: None,
                image: Image::None,
            })
        };
        for from in (0..ROWS).step_by(BATCH as usize) {
            let rows = (from..from + BATCH).map(write).collect::<BenchResult<Vec<_>>>()?;
            let options = WriteOptions::default();
            self.store
                .write(&self.threads, TABLE, &rows, &options, &|_| None)?;
        }
        Ok(self.threads.flush()?)
    }

    /// Reads all rows in pages.
    fn read(&self) -> BenchResult<()> {
        let (mut rest, mut rows) = (Some(KeyRange::ALL), 0);
        while let Some(range) = rest {
            let page = self.store.page(TABLE, &range, Direction::Ascending, PAGE)?;
            rows += page.rows.len() as u64;
            rest = page.next;
        }
        match rows == ROWS {
            true => Ok(()),
            false => Err(format!("{rows} rows, not {ROWS}").into()),
        }
    }

    fn archive(&self, number: i32, target: String) -> BenchResult<()> {
        let part = PartToArchive {
            table: TABLE,
            number,
            spec: &self.spec,
            origin: "0123456789abcdef".to_owned(),
            names: (TableName::new("orders")?, "2026-10".to_owned()),
            target,
        };
        let flush = || Ok(self.threads.flush()?);
        is_moved(&self.store.archive_part(&part, &flush, &mut on)?)
    }
}

fn spec() -> BenchResult<TableSpec> {
    let columns = [
        ("state", "string"),
        ("city", "string"),
        ("total", "decimal"),
        ("items", "u64"),
        ("weight", "f64"),
        ("paid", "bool"),
        ("placed", "timestamp"),
        ("note", "string"),
        ("agent", "i64"),
        ("code", "string"),
    ];
    let columns = columns.iter().zip(1..);
    let columns = columns.map(|((name, of), number)| json!({"name": name, "type": of, "number": number}));
    let wide = json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": columns.collect::<Vec<_>>(),
        "parts": {"by": "at", "every": "month"},
    });
    let wide: WideSpec = serde_json::from_value(wide)?;
    Ok(TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(wide)),
        ..TableSpec::default()
    })
}

/// Returns the columns of a row. They are the same as in the group `rows` of `tideline-bench`.
fn columns(number: u64, time: i64) -> BenchResult<Vec<Column<'static>>> {
    const STATES: [&str; 4] = ["open", "paid", "sent", "done"];
    const CITIES: [&str; 5] = ["Hamburg", "Lisbon", "Osaka", "Lagos", "Lima"];
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let values = [
        CellValue::String(STATES[mixed as usize % 4].into()),
        CellValue::String(CITIES[mixed as usize % 5].into()),
        CellValue::Decimal(Decimal::new((mixed % 100_000).into(), 2)?),
        CellValue::U64(mixed % 20),
        CellValue::F64((mixed % 90) as f64 + 0.5),
        CellValue::Bool(mixed.is_multiple_of(3)),
        CellValue::Timestamp(Timestamp::from_nanos(START + number as i64 * NANOS_PER_SECOND)?),
        CellValue::String(format!("order {mixed:08x}").into()),
        CellValue::I64((mixed % 500) as i64),
        CellValue::String(format!("{:06}", mixed % 1_000_000).into()),
    ];
    let columns = values.into_iter().zip(1..);
    Ok(columns
        .map(|(value, number)| Column::with(ColumnName::Declared(number), time, value))
        .collect())
}

fn on(_: &MoveProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn is_moved(end: &MoveEnd) -> BenchResult<()> {
    match end {
        MoveEnd::Moved(_) => Ok(()),
        other => Err(format!("the part was not moved: {other:?}").into()),
    }
}

fn bytes_below(folder: &std::path::Path) -> BenchResult<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let (entry, about) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        bytes += if about.is_dir() {
            bytes_below(&entry)?
        } else {
            about.len()
        };
    }
    Ok(bytes)
}

/// Runs `work` and prints its cost.
fn measured(what: &str, work: impl FnOnce() -> BenchResult<()>) -> BenchResult<()> {
    let (wall, cpu) = (Instant::now(), cpu()?);
    work()?;
    let (wall, cpu) = (wall.elapsed(), self::cpu()? - cpu);
    println!(
        "{what}: {:.2} s, CPU {:.2} s, {:.2} M rows per CPU-second",
        wall.as_secs_f64(),
        cpu.as_secs_f64(),
        ROWS as f64 / cpu.as_secs_f64() / 1e6,
    );
    Ok(())
}

/// Returns the CPU time of this process so far.
fn cpu() -> BenchResult<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |at: usize| {
        after_name
            .split_whitespace()
            .nth(at)
            .and_then(|ticks| ticks.parse::<u64>().ok())
    };
    // User and system time, in units of 10 ms.
    let ticks = field(11).zip(field(12)).map_or(0, |(user, system)| user + system);
    Ok(Duration::from_millis(10 * ticks))
}
