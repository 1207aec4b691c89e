//! Survey of the stored rows of a table or index: sizes, widths, partitions, and delete markers by key range.
//!
//! A survey reads the parts in key order. Each step reads a page of single rows and a page of blocks. Most blocks are
//! counted by their headers alone. A block is decoded if it holds rows of several partitions. In addition, one of
//! [`SAMPLED_BLOCKS`] blocks is decoded to measure the sizes of keys, and the numbers and sizes of columns.
//!
//! Memory is bounded: a survey keeps the largest partitions, and at most about 128 key ranges per part. If a part has
//! more ranges, neighboring ones are joined, and the number of rows and delete markers per range is doubled. Rows in
//! the buffer and in archived parts are not counted.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tideline_backend::{Direction, PageLimit, Partition, Row};
use tideline_key_codec::layout::KeyLayout;
use tideline_model::{KeyRange, TableId};

use crate::block::Block;
use crate::blocks::{BlockError, Blocks};
use crate::codec;
use crate::division::{ALL_PARTS, RECORD};
use crate::error::{Damage, Result, WideError};
use crate::fragments::Head;
use crate::mutation::ColumnName;
use crate::read::ROWS_BUCKET;
use crate::state::Part;
use crate::store::WideStore;

/// Number of largest partitions in the result.
pub const PARTITIONS_LISTED: usize = 100;
/// Number of partitions that are kept during a survey.
const PARTITIONS_KEPT: usize = 1_000;
/// Number of key ranges of a part at which ranges are joined.
const RANGES_MAX: usize = 128;
/// Maximum number of columns that are measured.
const COLUMNS_KEPT: usize = 1_000;
/// Number of largest columns in the result.
pub const COLUMNS_LISTED: usize = 20;
/// Distance between the blocks that are decoded as a sample. The first blocks, up to this number, are all decoded.
const SAMPLED_BLOCKS: u64 = 8;
/// Distance between the single rows whose columns are measured. The first rows, up to this number, are all measured.
const SAMPLED_ROWS: u64 = 64;
/// Number of kept widths (columns per row) at which every second one is dropped.
const WIDTHS_MAX: usize = 20_000;
/// Limit of the single rows that one step reads. [`STEP_BLOCKS`] is the limit of the blocks.
const STEP_ROWS: PageLimit = PageLimit {
    rows_max: 2_000,
    bytes_max: 1 << 20,
};
const STEP_BLOCKS: PageLimit = PageLimit {
    rows_max: 256,
    bytes_max: 1 << 20,
};

/// Stored rows of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionSize {
    /// Stored key of one of the rows.
    pub key: Vec<u8>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
}

/// Stored rows of a key range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SurveyedRange {
    /// Number of the part.
    pub part: i32,
    /// First key. The range ends at the start of the next range of the same part.
    pub start: Vec<u8>,
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that are not packed.
    pub single_rows: u64,
    /// Number of delete markers.
    pub markers: u64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
}

impl SurveyedRange {
    /// Returns the share of delete markers among the rows and markers of the range, from 0 to 1.
    pub fn marker_ratio(&self) -> f64 {
        match self.rows + self.markers {
            0 => 0.0,
            entries => self.markers as f64 / entries as f64,
        }
    }
}

/// Size of a column in the measured rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSize {
    /// The column.
    pub name: ColumnName<'static>,
    /// Bytes of its versions before packing.
    pub bytes: u64,
    /// Bytes that are passed to the storage engine. Packed values count after compression; the sizes of columns that
    /// are compressed together are estimated.
    pub stored_bytes: u64,
}

/// Bytes of a column in the measured rows.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    bytes: u64,
    stored: u64,
}

/// Result of a survey.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowSurvey {
    /// Number of stored rows. A packed row that a newer single row or a delete marker hides is also counted, until its
    /// block is packed again.
    pub rows: u64,
    /// Number of rows that are not packed, including rows in fragments.
    pub single_rows: u64,
    /// Number of rows that are stored in fragments.
    pub large_rows: u64,
    /// Number of delete markers.
    pub markers: u64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
    /// Bytes that are passed to the storage engine: blocks, single rows and fragments.
    pub stored_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of rows whose keys and columns were measured.
    pub measured_rows: u64,
    /// Bytes of the measured keys.
    pub key_bytes: u64,
    /// Largest key in bytes.
    pub key_bytes_max: u64,
    /// Median number of columns of the measured rows.
    pub columns_median: u64,
    /// Largest number of columns of a measured row. The number is estimated for rows in fragments.
    pub columns_max: u64,
    /// Largest columns of a sample of the rows, largest first. Rows in fragments are not in the sample.
    pub columns: Vec<ColumnSize>,
    /// Bytes of all columns of the rows in the sample.
    pub column_bytes: u64,
    /// Number of partitions. A partition whose rows are in several parts counts once per part.
    pub partition_count: u64,
    /// Largest partitions, largest first.
    pub partitions: Vec<PartitionSize>,
    /// Consecutive key ranges.
    pub ranges: Vec<SurveyedRange>,
}

/// Survey in progress.
#[derive(Debug)]
pub struct Survey {
    table: TableId,
    layout: KeyLayout,
    /// Numbers of the parts that are left, the current one first.
    parts: VecDeque<i32>,
    /// Key at which the next step begins.
    next: Vec<u8>,
    found: RowSurvey,
    /// Partitions of the current part that may have further rows.
    open: BTreeMap<Vec<u8>, PartitionSize>,
    /// Largest partitions without further rows, by the prefix of their keys.
    largest: HashMap<Vec<u8>, PartitionSize>,
    /// Number of rows and delete markers at which a range is full.
    range_entries: u64,
    widths: Vec<u64>,
    /// Bytes of each column in the measured rows.
    columns: HashMap<ColumnName<'static>, Measured>,
    /// One of this number of widths is kept for the median.
    width_step: u64,
}

/// Work of one step of a survey.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SurveyStep {
    /// Number of rows that were counted.
    pub rows: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// True if the survey is complete.
    pub is_done: bool,
}

impl WideStore {
    /// Begins a survey of the stored rows of a table, or of the entries of an index, whose keys have this layout.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table or index does not exist.
    pub fn begin_survey(&self, table: TableId, layout: KeyLayout) -> Result<Survey> {
        let rules = self.rules(table)?;
        let state = self.state();
        let stored = state
            .parts_of(table, ALL_PARTS)
            .filter(|part| !part.is_archived());
        let numbers = stored.map(Part::number);
        let parts = numbers.filter(|number| rules.keeps(*number) && *number != RECORD);
        Ok(Survey {
            table,
            layout,
            parts: parts.collect(),
            next: Vec::new(),
            found: RowSurvey::default(),
            open: BTreeMap::new(),
            largest: HashMap::new(),
            range_entries: 64,
            widths: Vec::new(),
            columns: HashMap::new(),
            width_step: 1,
        })
    }

    /// Executes the next step of a survey.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist any more, [`WideError::Damaged`] if stored bytes are damaged,
    /// and the errors of the backend and of the lease.
    pub fn survey_step(&self, survey: &mut Survey) -> Result<SurveyStep> {
        self.rules(survey.table)?;
        self.log.check_lease()?;
        let Some(number) = survey.parts.front().copied() else {
            return Ok(SurveyStep {
                is_done: true,
                ..SurveyStep::default()
            });
        };
        let state = self.state();
        let part = state.parts.get(&(survey.table, number));
        let Some(part) = part.filter(|part| !part.is_archived()) else {
            // The part was dropped or archived meanwhile.
            survey.end_part();
            return Ok(survey.step_of(0, 0));
        };
        let backend = self.log.backend().as_ref();
        let rest = KeyRange {
            start: survey.next.clone(),
            end: None,
        };
        let singles = backend.scan(
            Partition::part(part.at, ROWS_BUCKET),
            &rest,
            Direction::Ascending,
            STEP_ROWS,
        )?;
        let blocks = match part.detail.has_blocks() {
            true => {
                let blocks = self
                    .blocks(part.at)
                    .scan(&rest, Direction::Ascending, STEP_BLOCKS);
                blocks.map_err(|error| error.of(survey.table))?
            }
            false => tideline_backend::Page {
                rows: Vec::new(),
                next: None,
            },
        };
        let end_of = |page: &tideline_backend::Page| {
            let last = page.next.as_ref().and(page.rows.last());
            last.map(|row| row.key.clone())
        };
        let horizon = end_of(&singles).into_iter().chain(end_of(&blocks)).min();
        let is_reached = |row: &Row| horizon.as_ref().is_none_or(|horizon| row.key <= *horizon);
        let before = (survey.found.rows, survey.found.stored_bytes);
        let (mut singles, mut blocks) = (
            singles.rows.into_iter().filter(is_reached).peekable(),
            blocks.rows.into_iter().filter(is_reached).peekable(),
        );
        loop {
            // Blocks and single rows are counted in key order, so that ranges are consecutive.
            let is_block = match (singles.peek(), blocks.peek()) {
                (None, None) => break,
                (Some(single), Some(block)) => block.key < single.key,
                (single, _) => single.is_none(),
            };
            let table = survey.table;
            if is_block {
                if let Some(block) = blocks.next() {
                    let blocks = self.blocks(part.at);
                    survey
                        .add_block(blocks, number, &block)
                        .map_err(|error| error.of(table))?;
                }
            } else if let Some(single) = singles.next() {
                self.add_single(survey, part, &single)?;
            }
        }
        match horizon {
            Some(horizon) => {
                survey.next = [&horizon[..], &[0]].concat();
                survey.close_partitions(Some(&horizon));
            }
            None => survey.end_part(),
        }
        let (rows, bytes) = before;
        Ok(survey.step_of(rows, bytes))
    }

    fn add_single(&self, survey: &mut Survey, part: &Part, single: &Row) -> Result<()> {
        let table = survey.table;
        let damaged = |reason| WideError::Damaged { table, reason };
        let stored = (single.key.len() + single.value.len()) as u64;
        survey.found.stored_bytes += stored;
        if codec::is_delete(&single.value) {
            survey.found.markers += 1;
            survey.add_to_range(part.number(), &single.key, |range| range.markers += 1);
            return Ok(());
        }
        let (mut bytes, mut columns) = (stored, None);
        match Head::decode(&single.value).map_err(damaged)? {
            None => {
                columns = Some(codec::column_count(&single.value).map_err(damaged)?);
                if is_sampled(survey.found.single_rows, SAMPLED_ROWS) {
                    survey.measure_columns(&single.value, None).map_err(damaged)?;
                }
            }
            Some(head) => {
                survey.found.large_rows += 1;
                survey.found.stored_bytes += head.bytes;
                bytes = single.key.len() as u64 + head.bytes;
                // A row that is rewritten during the survey is not measured.
                let first = self.read_fragments(part.at, &single.key, &head, &[0])?;
                if let Some(first) = first.as_ref().and_then(|fragments| fragments.first()) {
                    let in_first = codec::column_count(first).map_err(damaged)?;
                    let share = head.bytes as f64 / first.len().max(1) as f64;
                    columns = Some((in_first as f64 * share).round() as u64);
                }
            }
        }
        survey.found.single_rows += 1;
        survey.add_rows(part.number(), &single.key, 1, bytes, 1);
        if let Some(columns) = columns {
            survey.measure(single.key.len(), columns);
        }
        survey.add_to_partition(&single.key, 1, bytes).map_err(damaged)
    }
}

/// Returns true if the element at this position is in a sample: the first `every` elements, and then one of `every`.
fn is_sampled(position: u64, every: u64) -> bool {
    position <= every || position.is_multiple_of(every)
}

impl Survey {
    /// Returns the result of a survey that is complete.
    pub fn finish(mut self) -> RowSurvey {
        let mut partitions: Vec<PartitionSize> = self.largest.drain().map(|(_, size)| size).collect();
        partitions.sort_by(|one, other| (other.bytes, &one.key).cmp(&(one.bytes, &other.key)));
        partitions.truncate(PARTITIONS_LISTED);
        self.found.partitions = partitions;
        let columns = self.columns.drain().map(|(name, measured)| ColumnSize {
            name,
            bytes: measured.bytes,
            stored_bytes: measured.stored,
        });
        let mut columns: Vec<ColumnSize> = columns.collect();
        columns.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
        columns.truncate(COLUMNS_LISTED);
        self.found.columns = columns;
        let middle = self.widths.len() / 2;
        if !self.widths.is_empty() {
            self.found.columns_median = *self.widths.select_nth_unstable(middle).1;
        }
        self.found
    }

    fn step_of(&self, rows: u64, bytes: u64) -> SurveyStep {
        SurveyStep {
            rows: self.found.rows.saturating_sub(rows),
            bytes_read: self.found.stored_bytes.saturating_sub(bytes),
            is_done: self.parts.is_empty(),
        }
    }

    fn partition_of(&self, key: &[u8]) -> std::result::Result<Vec<u8>, Damage> {
        let length = self.layout.partition_len(key);
        let length = length.map_err(|_| Damage("the key of a row is damaged"))?;
        Ok(key[..length].to_vec())
    }

    fn add_block(&mut self, blocks: Blocks<'_>, part: i32, row: &Row) -> std::result::Result<(), BlockError> {
        let block = blocks.open(&row.value)?;
        let (rows, bytes) = (block.rows as u64, block.bytes as u64);
        self.found.blocks += 1;
        self.found.stored_bytes += (row.key.len() + row.value.len()) as u64;
        self.add_rows(part, block.first, rows, bytes, 0);
        // The key of a block is an upper bound, and not always the key of one of its rows.
        let is_one = row.key.starts_with(&self.partition_of(block.first)?);
        if is_one {
            self.add_to_partition(block.first, rows, bytes)?;
        }
        let is_sample = is_sampled(self.found.blocks, SAMPLED_BLOCKS);
        if is_one && !is_sample {
            return Ok(());
        }
        let mut of_block = HashMap::new();
        for (key, value) in block.all_rows()? {
            self.measure(key.len(), codec::column_count(&value)?);
            if is_sample {
                self.measure_columns(&value, Some(&mut of_block))?;
            }
            if !is_one {
                self.add_to_partition(&key, 1, (key.len() + value.len()) as u64)?;
            }
        }
        if is_sample {
            self.measure_stored(&block, of_block)?;
        }
        Ok(())
    }

    fn add_to_partition(&mut self, key: &[u8], rows: u64, bytes: u64) -> std::result::Result<(), Damage> {
        let size = self.open.entry(self.partition_of(key)?);
        let size = size.or_insert_with(|| PartitionSize {
            key: key.to_vec(),
            ..PartitionSize::default()
        });
        size.rows += rows;
        size.bytes += bytes;
        Ok(())
    }

    fn add_rows(&mut self, part: i32, key: &[u8], rows: u64, bytes: u64, singles: u64) {
        self.found.rows += rows;
        self.found.bytes += bytes;
        self.add_to_range(part, key, |range| {
            range.rows += rows;
            range.single_rows += singles;
            range.bytes += bytes;
        });
    }

    /// Adds the sizes of the columns of a row to the result and, if the row is in a block, to `of_block`. A row that is
    /// not in a block takes the same number of bytes when stored.
    fn measure_columns(
        &mut self,
        row: &[u8],
        mut of_block: Option<&mut HashMap<ColumnName<'static>, u64>>,
    ) -> std::result::Result<(), Damage> {
        let row = codec::decode(row)?;
        for column in row.columns {
            let bytes = codec::column_bytes(row.time, &column) as u64;
            self.found.column_bytes += bytes;
            let name = column.name.into_owned();
            if let Some(of_block) = of_block.as_deref_mut() {
                *of_block.entry(name.clone()).or_default() += bytes;
            }
            let is_single = of_block.is_none();
            if let Some(measured) = self.measured(name) {
                measured.bytes += bytes;
                measured.stored += if is_single { bytes } else { 0 };
            }
        }
        Ok(())
    }

    /// Adds the stored sizes of the columns of a block. `rest` has the bytes of these columns before packing. Some rows
    /// are stored whole, not split into columns: their stored bytes are divided among the columns in proportion to the
    /// bytes that each column has in these rows.
    fn measure_stored(
        &mut self,
        block: &Block<'_>,
        mut rest: HashMap<ColumnName<'static>, u64>,
    ) -> std::result::Result<(), Damage> {
        let sizes = block.sizes()?;
        for column in sizes.columns {
            if let Some(rest) = rest.get_mut(&column.name) {
                *rest = rest.saturating_sub(column.bytes);
            }
            if let Some(measured) = self.measured(column.name) {
                measured.stored += column.stored;
            }
        }
        let all = rest.values().sum::<u64>().max(1) as f64;
        for (name, bytes) in rest {
            if let Some(measured) = self.measured(name) {
                measured.stored += (sizes.whole as f64 * bytes as f64 / all).round() as u64;
            }
        }
        Ok(())
    }

    /// Returns the entry of a column; `None` if too many columns are measured.
    fn measured(&mut self, name: ColumnName<'static>) -> Option<&mut Measured> {
        let is_full = self.columns.len() >= COLUMNS_KEPT;
        match self.columns.entry(name) {
            Entry::Vacant(_) if is_full => None,
            entry => Some(entry.or_default()),
        }
    }

    fn measure(&mut self, key_bytes: usize, columns: u64) {
        let found = &mut self.found;
        found.measured_rows += 1;
        found.key_bytes += key_bytes as u64;
        found.key_bytes_max = found.key_bytes_max.max(key_bytes as u64);
        found.columns_max = found.columns_max.max(columns);
        if found.measured_rows.is_multiple_of(self.width_step) {
            self.widths.push(columns);
        }
        if self.widths.len() >= WIDTHS_MAX {
            let mut number = 0;
            self.widths.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.width_step *= 2;
        }
    }

    /// Changes the last range. If the last range is full or belongs to another part, first adds a range that begins
    /// with `key`.
    fn add_to_range(&mut self, part: i32, key: &[u8], change: impl FnOnce(&mut SurveyedRange)) {
        let ranges = &mut self.found.ranges;
        let is_open = ranges
            .last()
            .is_some_and(|last| last.part == part && last.rows + last.markers < self.range_entries);
        if !is_open {
            let of_part = ranges.iter().filter(|range| range.part == part).count();
            if of_part >= RANGES_MAX {
                self.range_entries *= 2;
                halve(ranges);
            }
            ranges.push(SurveyedRange {
                part,
                start: key.to_vec(),
                ..SurveyedRange::default()
            });
        }
        if let Some(last) = ranges.last_mut() {
            change(last);
        }
    }

    /// Closes the partitions of a part that cannot have keys above `reached`. Closes all of them if `reached` is
    /// `None`.
    fn close_partitions(&mut self, reached: Option<&[u8]>) {
        while let Some(first) = self.open.first_entry() {
            if reached.is_some_and(|reached| reached.starts_with(first.key())) {
                break;
            }
            let (prefix, closed) = first.remove_entry();
            self.found.partition_count += 1;
            match self.largest.get_mut(&prefix) {
                Some(known) => {
                    known.rows += closed.rows;
                    known.bytes += closed.bytes;
                }
                None => {
                    self.largest.insert(prefix, closed);
                }
            }
            if self.largest.len() > 2 * PARTITIONS_KEPT {
                let mut sizes: Vec<u64> = self.largest.values().map(|size| size.bytes).collect();
                let (_, least, _) =
                    sizes.select_nth_unstable_by(PARTITIONS_KEPT, |one, other| other.cmp(one));
                let least = *least;
                self.largest.retain(|_, size| size.bytes > least);
            }
        }
    }

    fn end_part(&mut self) {
        self.close_partitions(None);
        self.parts.pop_front();
        self.next.clear();
    }
}

/// Joins pairs of neighboring ranges of one part.
fn halve(ranges: &mut Vec<SurveyedRange>) {
    let mut joined: Vec<SurveyedRange> = Vec::with_capacity(ranges.len());
    let mut can_join = false;
    for range in ranges.drain(..) {
        match joined
            .last_mut()
            .filter(|last| can_join && last.part == range.part)
        {
            Some(last) => {
                last.rows += range.rows;
                last.single_rows += range.single_rows;
                last.markers += range.markers;
                last.bytes += range.bytes;
                can_join = false;
            }
            None => {
                joined.push(range);
                can_join = true;
            }
        }
    }
    *ranges = joined;
}
