//! Reader of the file of timelines of a segment: identities of its timelines, and locations of their rows.
//!
//! Every run is checked against the file list of the segment, so that a damaged or foreign file cannot refer to rows
//! outside the segment.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use tideline_chunk::SequenceSpan;
use tideline_model::{Identity, SequenceNumber, TimelineId};

use super::local;
use crate::copy::ArchiveCopy;
use crate::directory::NUMBERS;
use crate::error::Result;
use crate::extent::Extent;
use crate::target::Target;

/// Columns of the file.
const COLUMNS: [&str; 15] = [
    "timeline",
    "first",
    "last",
    NUMBERS[0],
    NUMBERS[1],
    NUMBERS[2],
    NUMBERS[3],
    NUMBERS[4],
    NUMBERS[5],
    NUMBERS[6],
    "object",
    "measurement",
    "tags.key_value.key",
    "tags.key_value.value",
    "attributes",
];
/// Index of the first integer column. The integer columns are the two timestamps, followed by [`NUMBERS`].
const INTEGERS_AT: usize = 1;
const INTEGERS: usize = 2 + NUMBERS.len();
const MEASUREMENT_AT: usize = 11;
const KEYS_AT: usize = 12;
const VALUES_AT: usize = 13;
const ATTRIBUTES_AT: usize = 14;
/// Maximum number of rows decoded at once; limits the memory.
const BATCH_ROWS: usize = 1_024;

/// File of timelines of a segment on the local disk, with verified content.
#[derive(Debug)]
pub struct TimelinesFile {
    target: Arc<Target>,
    copy: Arc<ArchiveCopy>,
    file: File,
}

/// Run of a timeline in the files of a segment, with the metadata of the timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineRun {
    /// Id of the timeline.
    pub id: TimelineId,
    /// Location of its rows.
    pub extent: Extent,
    /// Identity of the timeline; `None` if it was unknown when the file was written.
    pub identity: Option<Identity>,
    /// Attributes of the timeline as JSON; `None` if the file has none.
    pub attributes: Option<String>,
}

/// Iterator over the runs of a file, ordered by timeline, then time. Ends after the first error.
pub struct TimelineRuns {
    target: Arc<Target>,
    copy: Arc<ArchiveCopy>,
    reader: SerializedFileReader<File>,
    next_group: usize,
    columns: Option<Columns>,
    batch: std::vec::IntoIter<TimelineRun>,
    /// Timeline and last timestamp of the previous run.
    before: Option<(TimelineId, i64)>,
    has_failed: bool,
}

/// Column readers of one row group.
struct Columns {
    left: usize,
    ids: ColumnReaderImpl<FixedLenByteArrayType>,
    integers: Vec<ColumnReaderImpl<Int64Type>>,
    measurements: ColumnReaderImpl<ByteArrayType>,
    keys: ColumnReaderImpl<ByteArrayType>,
    values: ColumnReaderImpl<ByteArrayType>,
    attributes: ColumnReaderImpl<ByteArrayType>,
}

impl TimelinesFile {
    pub(crate) fn fetch(target: Arc<Target>, copy: Arc<ArchiveCopy>, directory: &Path) -> Result<Self> {
        let file = local::fetch(&target, &copy.timelines, directory)?;
        Ok(Self { target, copy, file })
    }

    /// Returns an iterator over all runs. Only one iterator may be in use at a time.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Damaged`](crate::ArchiveError::Damaged) if the content is not a file of timelines.
    pub fn runs(&self) -> Result<TimelineRuns> {
        let reader = local::open(&self.file, &[&COLUMNS]);
        let reader =
            reader.map_err(|error| self.target.damaged(&self.copy.timelines.key, error.to_string()))?;
        Ok(TimelineRuns {
            target: Arc::clone(&self.target),
            copy: Arc::clone(&self.copy),
            reader,
            next_group: 0,
            columns: None,
            batch: Vec::new().into_iter(),
            before: None,
            has_failed: false,
        })
    }
}

impl std::fmt::Debug for TimelineRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TimelineRuns({})", self.copy.timelines.key)
    }
}

impl Iterator for TimelineRuns {
    type Item = Result<TimelineRun>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.has_failed {
                return None;
            }
            if let Some(run) = self.batch.next() {
                let checked = self.check(&run);
                return Some(self.checked(checked.map(|()| run)));
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(self.checked(Err(error))),
            }
        }
    }
}

impl TimelineRuns {
    fn checked<T>(&mut self, outcome: ParquetResult<T>) -> Result<T> {
        outcome.map_err(|error| {
            self.has_failed = true;
            self.target.damaged(&self.copy.timelines.key, error.to_string())
        })
    }

    /// Decodes the next rows. Returns `false` at the end.
    fn fill(&mut self) -> ParquetResult<bool> {
        loop {
            if let Some(columns) = self.columns.as_mut().filter(|columns| columns.left > 0) {
                self.batch = columns.read()?.into_iter();
                return Ok(true);
            }
            if self.next_group == self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.get_row_group(self.next_group)?;
            self.next_group += 1;
            self.columns = Some(Columns::open(group.as_ref())?);
        }
    }

    /// Checks that a run is inside its file and after the previous run.
    fn check(&mut self, run: &TimelineRun) -> ParquetResult<()> {
        let TimelineRun { id, extent, .. } = run;
        let wrong = |what: &str| {
            Err(ParquetError::General(format!(
                "the run of timeline {id} at {} {what}",
                extent.first
            )))
        };
        if self.before.is_some_and(|before| before >= (*id, extent.first)) {
            return wrong("is not after the previous run");
        }
        self.before = Some((*id, extent.last));
        let Some(file) = self.copy.files.get(extent.file as usize) else {
            return wrong("is in a file that the segment does not have");
        };
        let end = extent.row.checked_add(u64::from(extent.rows));
        let points = extent.points;
        let fits = end.is_some_and(|end| end <= file.rows)
            && (file.first..=extent.last).contains(&extent.first)
            && extent.last <= file.last
            && points > 0
            && (points == extent.rows || (file.shared && points < extent.rows));
        match fits {
            true => Ok(()),
            false => wrong("is not inside its file"),
        }
    }
}

impl Columns {
    fn open(group: &dyn RowGroupReader) -> ParquetResult<Self> {
        let integers = INTEGERS_AT..INTEGERS_AT + INTEGERS;
        let rows = usize::try_from(group.metadata().num_rows())?;
        Ok(Self {
            left: rows,
            ids: local::column(group, 0)?,
            integers: integers
                .map(|at| local::column(group, at))
                .collect::<ParquetResult<_>>()?,
            measurements: local::column(group, MEASUREMENT_AT)?,
            keys: local::column(group, KEYS_AT)?,
            values: local::column(group, VALUES_AT)?,
            attributes: local::column(group, ATTRIBUTES_AT)?,
        })
    }

    fn read(&mut self) -> ParquetResult<Vec<TimelineRun>> {
        let rows = self.left.min(BATCH_ROWS);
        self.left -= rows;
        let mut ids: Vec<FixedLenByteArray> = Vec::with_capacity(rows);
        let (read, ..) = self.ids.read_records(rows, None, None, &mut ids)?;
        local::whole(read, rows)?;
        let mut integers: Vec<Vec<i64>> = Vec::with_capacity(INTEGERS);
        for reader in &mut self.integers {
            let mut values = Vec::with_capacity(rows);
            let (read, ..) = reader.read_records(rows, None, None, &mut values)?;
            local::whole(read, rows)?;
            integers.push(values);
        }
        let measurements = local::texts(&mut self.measurements, rows)?;
        let mut keys = lists(&mut self.keys, rows)?.into_iter();
        let mut values = lists(&mut self.values, rows)?.into_iter();
        let attributes = local::texts(&mut self.attributes, rows)?;
        let mut runs = Vec::with_capacity(rows);
        for (row, (measurement, attributes)) in measurements.iter().zip(attributes).enumerate() {
            let number = |nth: usize| integers[nth][row];
            let (keys, values) = (keys.next().unwrap_or_default(), values.next().unwrap_or_default());
            let identity = measurement.as_ref().map(|name| identity(name, &keys, &values));
            let id = <[u8; 16]>::try_from(ids[row].data());
            runs.push(TimelineRun {
                id: TimelineId(id.map_err(|_| ParquetError::General("an id is not 16 bytes long".into()))?),
                extent: extent(&number)?,
                identity: identity.transpose()?,
                attributes: attributes
                    .as_ref()
                    .map(|json| local::text(json).map(str::to_owned))
                    .transpose()?,
            });
        }
        Ok(runs)
    }
}

/// Reads `rows` lists of strings.
fn lists(reader: &mut ColumnReaderImpl<ByteArrayType>, rows: usize) -> ParquetResult<Vec<Vec<ByteArray>>> {
    let (mut levels, mut repeats, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), Some(&mut repeats), &mut texts)?;
    local::whole(read, rows)?;
    let mut texts = texts.into_iter();
    let mut lists: Vec<Vec<ByteArray>> = Vec::with_capacity(rows);
    for (level, repeat) in levels.into_iter().zip(repeats) {
        if repeat == 0 {
            lists.push(Vec::new());
        }
        if let Some(list) = lists.last_mut().filter(|_| level > 0) {
            list.extend(texts.next());
        }
    }
    Ok(lists)
}

fn identity(measurement: &ByteArray, keys: &[ByteArray], values: &[ByteArray]) -> ParquetResult<Identity> {
    if keys.len() != values.len() {
        return Err(ParquetError::General("a tag has no key or no value".into()));
    }
    let tag = |(key, value)| Ok((local::text(key)?.to_owned(), local::text(value)?.to_owned()));
    let tags = keys.iter().zip(values).map(tag).collect::<ParquetResult<_>>()?;
    Identity::new(local::text(measurement)?.to_owned(), tags)
        .map_err(|error| ParquetError::General(error.to_string()))
}

fn extent(number: &dyn Fn(usize) -> i64) -> ParquetResult<Extent> {
    let small = |nth: usize| u32::try_from(number(nth)).map_err(ParquetError::from);
    // Sequence numbers are unsigned, but stored as signed integers.
    let (lowest, highest) = (number(7) as u64, number(8) as u64);
    if lowest > highest {
        return Err(ParquetError::General(
            "the lowest sequence number of a run is above the highest".into(),
        ));
    }
    Ok(Extent {
        first: number(0),
        last: number(1),
        file: small(2)?,
        row: u64::try_from(number(3))?,
        rows: small(4)?,
        points: small(5)?,
        values: small(6)?,
        sequences: SequenceSpan {
            lowest: SequenceNumber(lowest),
            highest: SequenceNumber(highest),
        },
    })
}
