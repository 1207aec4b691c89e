//! Estimated counts with an interval: exact for small results, sampled for large ones.
//!
//! 1. Rows are counted until the limit of exact counts is reached. If the ranges end before the limit, the count is
//!    exact.
//! 2. Otherwise, the ranges are the first strata of a sample. The keys of a range form a radix tree over half bytes. A
//!    stratum is estimated by random descents in this tree. At each node, a descent chooses one of the `n` branches. It
//!    ends at a range of at most [`LEAF_ROWS`] rows, and counts these rows. This count, multiplied by the `n` of every
//!    node on the path, is an unbiased estimate (D. E. Knuth, *Estimating the efficiency of backtrack programs*, 1975).
//! 3. The stratum with the largest standard error is repeatedly replaced by its branches, until the total standard
//!    error is small or the limit of the effort is reached. The error of a stratum is assumed to be at least a quarter
//!    of its estimate, because a few descents can agree by chance. The interval is the sum of the estimates ± 3
//!    standard errors. Its lower end is at least the number of rows that were counted.
//!
//! The interval describes the spread of the samples. It is not a guarantee: if a dense range is below a rarely chosen
//! branch, the true count can be outside the interval. The random numbers are seeded by the request, so a repeated
//! request on the same rows returns the same estimate. Between them, a flush can change the number of rows that a page
//! reads, and thus the point at which sampling ends; the estimate can then differ.

use std::sync::Arc;

use tideline_engine::backend::Direction;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::model::KeyRange;
use tideline_engine::rows::ScannedRow;
use tideline_engine::{Engine, WideTable};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, RowsError};
use crate::read::Scan;

/// Maximum number of rows of a leaf. A descent ends at a leaf and counts its rows.
const LEAF_ROWS: usize = 64;
/// Number of descents for each stratum.
const DESCENTS: usize = 4;
/// Minimum standard error of a stratum, as a share of its estimate. Without a minimum, a few descents that agree by
/// chance would result in an error of 0.
const STRATUM_ERROR_MIN: f64 = 0.25;
/// Maximum depth of a descent, in branches. A descent that reaches this depth ends, and counts its range as one row.
const DEPTH_MAX: usize = 64;
/// Number of strata at which no further stratum is replaced by its branches. This bounds the memory of an estimate.
const STRATA_MAX: usize = 512;
/// Relative standard error at which sampling ends.
const ERROR_MIN: f64 = 0.01;
/// Number of standard errors by which the interval extends on each side of an estimate.
const ERRORS_IN_INTERVAL: f64 = 3.0;
/// Cost of a read in addition to the cost of its rows, in rows.
const READ_COST: u64 = 10;

/// Effort of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EstimateEffort {
    /// Number of read rows up to which a count is exact.
    pub exact_rows: u64,
    /// Cost at which sampling ends. Each read row costs 1, and each read costs 10 more.
    pub sampled_rows: u64,
}

impl EstimateEffort {
    /// Effort of a count. Rows are counted exactly as long as this reads fewer rows than a sample costs.
    pub const COUNT: Self = Self {
        exact_rows: 200_000,
        sampled_rows: 200_000,
    };
    /// Effort of an explanation.
    pub const EXPLAIN: Self = Self {
        exact_rows: 2_000,
        sampled_rows: 30_000,
    };
}

/// Estimated number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Number of matching rows.
    pub count: u64,
    /// Lower end of the interval.
    pub low: u64,
    /// Upper end of the interval.
    pub high: u64,
    /// Number of rows that were read, including deleted rows.
    pub scanned: u64,
    /// True if all rows were counted.
    pub is_exact: bool,
}

impl Estimate {
    /// Result for a read that is refused.
    pub(crate) const NOTHING: Self = Self {
        count: 0,
        low: 0,
        high: 0,
        scanned: 0,
        is_exact: true,
    };
}

/// Part of the ranges that is estimated separately.
struct Stratum {
    branches: Vec<KeyRange>,
    mean: f64,
    /// Square of the standard error of the mean.
    variance: f64,
}

/// Node of the tree of keys. It represents the rows of a range.
enum Node {
    /// At most [`LEAF_ROWS`] rows; holds the number of matching rows.
    Leaf(u64),
    /// More than [`LEAF_ROWS`] rows; holds the ranges of the branches.
    Branches(Vec<KeyRange>),
}

struct Sampler<'s> {
    engine: &'s Engine,
    table: &'s Arc<WideTable>,
    scan: &'s Scan,
    is_stopped: &'s dyn Fn() -> bool,
    scanned: u64,
    cost: u64,
    random: u64,
}

impl Scan {
    /// Estimates the number of matching rows.
    ///
    /// # Errors
    ///
    /// The errors of [`count`](Self::count).
    pub fn estimate(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        effort: EstimateEffort,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Estimate> {
        let mut sampler = Sampler {
            engine,
            table,
            scan: self,
            is_stopped,
            scanned: 0,
            cost: 0,
            random: xxh3_64(&self.terms) | 1,
        };
        let counted = match sampler.count(effort.exact_rows)? {
            (count, true) => {
                return Ok(Estimate {
                    count,
                    low: count,
                    high: count,
                    scanned: sampler.scanned,
                    is_exact: true,
                });
            }
            (counted, false) => counted,
        };
        let (exact, strata) = sampler.sample(effort.sampled_rows)?;
        let mean = exact as f64 + strata.iter().map(|stratum| stratum.mean).sum::<f64>();
        let error = strata.iter().map(|stratum| stratum.variance).sum::<f64>().sqrt();
        let least = counted.max(exact);
        let count = (mean.round() as u64).max(least);
        Ok(Estimate {
            count,
            low: ((mean - ERRORS_IN_INTERVAL * error).max(0.0) as u64).clamp(least, count),
            high: ((mean + ERRORS_IN_INTERVAL * error).ceil() as u64).max(count),
            scanned: sampler.scanned,
            is_exact: false,
        })
    }
}

impl Sampler<'_> {
    /// Counts the matching rows of all ranges. Returns the count, and true if the end of the ranges was reached before
    /// the limit.
    fn count(&mut self, limit: u64) -> Result<(u64, bool)> {
        let mut count = 0;
        for range in &self.scan.ranges.ranges {
            let mut rows = self.begin(range.clone(), Direction::Ascending, usize::MAX);
            while let Some(ScannedRow { row, .. }) = rows.next_row()? {
                if (self.is_stopped)() {
                    return Err(RowsError::Cancelled);
                }
                count += u64::from(self.scan.matches(self.table, &row)?);
                if self.scanned + rows.scanned() > limit {
                    self.scanned += rows.scanned();
                    return Ok((count, false));
                }
            }
            self.scanned += rows.scanned();
        }
        Ok((count, true))
    }

    /// Samples all ranges. Returns the number of matching rows in ranges that were counted completely, and the strata
    /// of the other ranges.
    fn sample(&mut self, cost_max: u64) -> Result<(u64, Vec<Stratum>)> {
        let mut exact = 0;
        let mut strata = Vec::new();
        for range in self.scan.ranges.ranges.clone() {
            exact += self.add(&range, &mut strata)?;
        }
        while self.cost < cost_max && strata.len() < STRATA_MAX {
            let mean = exact as f64 + strata.iter().map(|stratum| stratum.mean).sum::<f64>();
            let variance = strata.iter().map(|stratum| stratum.variance).sum::<f64>();
            if variance.sqrt() <= ERROR_MIN * mean {
                break;
            }
            let worst = strata
                .iter()
                .enumerate()
                .max_by(|one, other| one.1.variance.total_cmp(&other.1.variance));
            let Some((worst, _)) = worst else { break };
            let stratum = strata.swap_remove(worst);
            for branch in stratum.branches {
                exact += self.add(&branch, &mut strata)?;
            }
        }
        Ok((exact, strata))
    }

    /// Adds a range as a stratum and returns 0. If the range is small enough to be counted, adds no stratum and returns
    /// the number of its matching rows.
    fn add(&mut self, range: &KeyRange, strata: &mut Vec<Stratum>) -> Result<u64> {
        let branches = match self.node(range)? {
            Node::Leaf(count) => return Ok(count),
            Node::Branches(branches) => branches,
        };
        let mut samples = [0.0; DESCENTS];
        for sample in &mut samples {
            *sample = self.descend(&branches)?;
        }
        let count = DESCENTS as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        strata.push(Stratum {
            branches,
            mean,
            variance: (squares / (count - 1.0) / count).max((STRATUM_ERROR_MIN * mean).powi(2)),
        });
        Ok(0)
    }

    /// Estimates the number of matching rows in branches by one random descent.
    fn descend(&mut self, branches: &[KeyRange]) -> Result<f64> {
        let mut factor = branches.len() as f64;
        let mut range = branches[self.below(branches.len())].clone();
        for _ in 0..DEPTH_MAX {
            match self.node(&range)? {
                Node::Leaf(count) => return Ok(factor * count as f64),
                Node::Branches(branches) => {
                    factor *= branches.len() as f64;
                    range = branches[self.below(branches.len())].clone();
                }
            }
        }
        Ok(factor)
    }

    /// Reads the first rows of a range. If the range has at most [`LEAF_ROWS`] rows, counts the matching rows.
    /// Otherwise, determines the branches of the range.
    fn node(&mut self, range: &KeyRange) -> Result<Node> {
        let rows = self.read(range, Direction::Ascending, LEAF_ROWS + 1)?;
        if rows.len() <= LEAF_ROWS {
            let mut count = 0;
            for row in &rows {
                count += u64::from(self.scan.matches(self.table, &row.row)?);
            }
            return Ok(Node::Leaf(count));
        }
        let first = rows[0].position.clone();
        let last = self.read(range, Direction::Descending, 1)?;
        let last = last
            .first()
            .map_or_else(|| first.clone(), |row| row.position.clone());
        let common = common_halves(&first, &last);
        let mut branches = Vec::new();
        let mut next = Some(first);
        while let Some(key) = next {
            let end = after_half(&key, common);
            let rest = match end.clone() {
                Some(end) => KeyRange {
                    start: end,
                    end: range.end.clone(),
                },
                None => {
                    branches.push(KeyRange {
                        start: key.to_vec(),
                        end: range.end.clone(),
                    });
                    break;
                }
            };
            branches.push(KeyRange {
                start: key.to_vec(),
                end,
            });
            let rows = self.read(&rest, Direction::Ascending, 1)?;
            next = rows.into_iter().next().map(|row| row.position);
        }
        if let (Some(last), Some(end)) = (branches.last_mut(), &range.end)
            && last.end.as_ref().is_none_or(|own| own > end)
        {
            last.end = Some(end.clone());
        }
        Ok(Node::Branches(branches))
    }

    fn read(&mut self, range: &KeyRange, direction: Direction, rows_max: usize) -> Result<Vec<ScannedRow>> {
        if (self.is_stopped)() {
            return Err(RowsError::Cancelled);
        }
        let is_empty = range.end.as_ref().is_some_and(|end| *end <= range.start);
        if is_empty {
            return Ok(Vec::new());
        }
        let mut scan = self.begin(range.clone(), direction, rows_max);
        let mut rows = Vec::new();
        while rows.len() < rows_max
            && let Some(row) = scan.next_row()?
        {
            rows.push(row);
        }
        self.scanned += scan.scanned();
        self.cost += scan.scanned() + READ_COST;
        Ok(rows)
    }

    fn begin<'e>(
        &self,
        range: KeyRange,
        direction: Direction,
        wanted: usize,
    ) -> tideline_engine::rows::RowScan<'e>
    where
        Self: 'e,
    {
        let ranges = Ranges {
            ranges: vec![range],
            is_ordered: true,
        };
        let scan = self.engine.scan_rows(
            Arc::clone(self.table),
            self.scan.path.clone(),
            ranges,
            direction,
            None,
            wanted,
        );
        scan.in_parts(self.scan.parts.clone())
            .with_groups(self.scan.tested)
    }

    /// Returns a random number below `bound`, by xorshift. Samples must be evenly distributed, but need not be
    /// unpredictable.
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }
}

/// Returns the length of the common prefix of two keys, in half bytes.
fn common_halves(one: &[u8], other: &[u8]) -> usize {
    let bytes = one
        .iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count();
    match (one.get(bytes), other.get(bytes)) {
        (Some(one), Some(other)) if one >> 4 == other >> 4 => 2 * bytes + 1,
        _ => 2 * bytes,
    }
}

/// Returns the first key after all keys that begin with the first `common + 1` half bytes of `key`. If `key` has only
/// `common` half bytes, returns the next key after `key` itself. Returns `None` if no such key exists.
fn after_half(key: &[u8], common: usize) -> Option<Vec<u8>> {
    let byte = common / 2;
    let Some(own) = key.get(byte) else {
        return Some([key, &[0]].concat());
    };
    let step = if common.is_multiple_of(2) { 0x10 } else { 0x01 };
    let floor = own & !(step - 1);
    match floor.checked_add(step) {
        Some(next) => Some([&key[..byte], &[next]].concat()),
        None => KeyRange::prefix(&key[..byte]).end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_half_bytes() {
        assert_eq!(common_halves(b"a1", b"a2"), 3);
        assert_eq!(common_halves(b"a1", b"b2"), 1);
        assert_eq!(common_halves(b"a", b"ab"), 2);
        assert_eq!(common_halves(&[0x10], &[0x20]), 0);
        assert_eq!(after_half(&[0x61, 0x31, 9], 3), Some(vec![0x61, 0x32]));
        assert_eq!(after_half(&[0x61, 0x31, 9], 2), Some(vec![0x61, 0x40]));
        assert_eq!(after_half(&[0x61, 0xff], 3), Some(vec![0x62]));
        assert_eq!(after_half(&[0xff, 0xff], 3), None);
        assert_eq!(after_half(&[0x61], 2), Some(vec![0x61, 0]));
    }
}
