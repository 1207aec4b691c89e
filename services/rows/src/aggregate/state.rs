//! State of one function over the values of one column in one group.
//!
//! Sums, deviations and percentiles of numbers are computed as in aggregates of points. Decimals are added exactly.

use std::cmp::Ordering;

use hashbrown::HashMap;
use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::rows::CellValue;
use tideline_query::accumulate::deviation::Deviation;
use tideline_query::accumulate::percentile::Percentiles;
use tideline_query::accumulate::scalar::Scalar;
use tideline_query::accumulate::sum::Sum;
use tideline_query::{Function, ValueRef};

use super::value::{compare, decode, encode, heap_bytes};

/// Estimated bytes of an entry in a map of distinct values that may be half empty. The bytes of the value are added to
/// this number.
const ENTRY_BYTES: u64 = 64;

/// State of a function.
#[derive(Debug)]
pub(super) enum State {
    Count(u64),
    /// Number of occurrences of each value, by its canonical bytes, for `count_distinct` and `mode`.
    Tally(HashMap<Box<[u8]>, u64>, TallyResult),
    Sum(Total),
    Mean(Total, u64),
    StdDev(Deviation),
    /// Smallest value, or largest value if the order is `Greater`.
    Extreme(Option<CellValue<'static>>, Ordering),
    /// Lowest and highest value.
    Spread(Option<(CellValue<'static>, CellValue<'static>)>),
    Percentile(Percentiles),
    /// Key and value of the row with the smallest key, or with the largest key if the order is `Greater`.
    Edge(Option<(Vec<u8>, CellValue<'static>)>, Ordering),
}

/// Result of a tally: the number of distinct values, or the most frequent value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TallyResult {
    Distinct,
    Mode,
}

/// Exact sum of values of one type.
#[derive(Debug)]
pub(super) enum Total {
    /// Integers or doubles.
    Numbers(Sum),
    /// Decimals: one sum for each number of decimal places. `None` after an overflow.
    Decimals(Option<Vec<(u8, i128)>>),
    /// Times, in nanoseconds.
    Times(i128),
}

/// Error: the exact result does not fit its type.
#[derive(Debug)]
pub(super) struct Overflow;

impl State {
    /// Returns the empty state of a function over values of a type; `None` if the function is not possible for this
    /// type.
    pub(super) fn new(function: Function, column_type: ColumnType) -> Option<Self> {
        use ColumnType as Type;
        let is_number = matches!(column_type, Type::I64 | Type::U64 | Type::F64 | Type::Decimal);
        let is_time = column_type == Type::Timestamp;
        let has_order = column_type != Type::Json;
        let total = || match column_type {
            Type::Decimal => Total::Decimals(Some(Vec::new())),
            Type::Timestamp => Total::Times(0),
            _ => Total::Numbers(Sum::default()),
        };
        Some(match function {
            Function::Count => Self::Count(0),
            Function::CountDistinct if has_order => Self::Tally(HashMap::new(), TallyResult::Distinct),
            Function::Mode if has_order => Self::Tally(HashMap::new(), TallyResult::Mode),
            Function::Sum if is_number => Self::Sum(total()),
            Function::Mean if is_number || is_time => Self::Mean(total(), 0),
            Function::StdDev if is_number => Self::StdDev(Deviation::default()),
            Function::Min if has_order => Self::Extreme(None, Ordering::Less),
            Function::Max if has_order => Self::Extreme(None, Ordering::Greater),
            Function::Spread if is_number => Self::Spread(None),
            Function::First if has_order => Self::Edge(None, Ordering::Less),
            Function::Last if has_order => Self::Edge(None, Ordering::Greater),
            Function::Percentile(percentile) if is_number => {
                Self::Percentile(Percentiles::new(percentile, 1))
            }
            _ => return None,
        })
    }

    /// Returns the type of the result of a function over values of a type.
    pub(super) fn result_type(function: Function, column_type: ColumnType) -> ColumnType {
        use ColumnType as Type;
        match (function, column_type) {
            (Function::Count | Function::CountDistinct, _) | (Function::Spread, Type::I64 | Type::U64) => {
                Type::U64
            }
            (Function::Mean, Type::Timestamp) => Type::Timestamp,
            (Function::Mean | Function::StdDev | Function::Percentile(_), _) => Type::F64,
            (_, column_type) => column_type,
        }
    }

    /// Adds a value whose content is not read. Returns false if the function needs the content.
    pub(super) fn add_unread(&mut self) -> bool {
        match self {
            Self::Count(count) => {
                *count += 1;
                true
            }
            _ => false,
        }
    }

    /// Adds the value of the row with this key. Returns the number of bytes by which the state has grown. `scratch` is
    /// a reused buffer.
    pub(super) fn add(&mut self, value: &CellValue<'_>, key: &[u8], scratch: &mut Vec<u8>) -> u64 {
        match self {
            Self::Count(count) => {
                *count += 1;
                0
            }
            Self::Tally(tally, _) => {
                scratch.clear();
                encode(value, scratch);
                if let Some(count) = tally.get_mut(scratch.as_slice()) {
                    *count += 1;
                    return 0;
                }
                tally.insert(scratch.as_slice().into(), 1);
                ENTRY_BYTES + scratch.len() as u64
            }
            Self::Sum(total) => {
                total.add(value);
                0
            }
            Self::Mean(total, count) => {
                total.add(value);
                *count += 1;
                0
            }
            Self::StdDev(deviation) => {
                if let Some(number) = number_of(value) {
                    deviation.add(number);
                }
                0
            }
            Self::Extreme(found, order) => match found {
                Some(known) if !is_before(value, known, *order) => 0,
                _ => replace(found, value),
            },
            Self::Spread(found) => {
                match found {
                    None => *found = Some((value.clone().into_owned(), value.clone().into_owned())),
                    Some((low, high)) => {
                        if is_before(value, low, Ordering::Less) {
                            *low = value.clone().into_owned();
                        }
                        if is_before(value, high, Ordering::Greater) {
                            *high = value.clone().into_owned();
                        }
                    }
                }
                0
            }
            Self::Percentile(percentiles) => {
                let before = percentiles.held();
                percentiles.push(0, number_of(value).map_or(f64::NAN, Scalar::as_f64));
                percentiles.held().saturating_sub(before)
            }
            Self::Edge(found, order) => match found {
                Some((known, _)) if key.cmp(known) != *order => 0,
                _ => {
                    let grown = key.len() as u64 + heap_bytes(value);
                    let before = found.take();
                    *found = Some((key.to_vec(), value.clone().into_owned()));
                    before.map_or(grown, |(key, value)| {
                        grown.saturating_sub(key.len() as u64 + heap_bytes(&value))
                    })
                }
            },
        }
    }

    /// Returns the result; `None` if the function has no result for the values.
    pub(super) fn result(&self, column_type: ColumnType) -> Result<Option<CellValue<'static>>, Overflow> {
        Ok(match self {
            Self::Count(count) => Some(CellValue::U64(*count)),
            Self::Tally(tally, TallyResult::Distinct) => Some(CellValue::U64(tally.len() as u64)),
            Self::Tally(tally, TallyResult::Mode) => {
                let counted = tally
                    .iter()
                    .filter_map(|(bytes, count)| Some((decode(bytes, column_type)?, *count)));
                let most = counted.reduce(|one, other| {
                    let order = one.1.cmp(&other.1).then_with(|| compare(&other.0, &one.0));
                    if order == Ordering::Less { other } else { one }
                });
                most.map(|(value, _)| value)
            }
            Self::Sum(total) => total.exact()?,
            Self::Mean(_, 0) => None,
            Self::Mean(total, count) => Some(total.mean(*count)?),
            Self::StdDev(deviation) => deviation.get().and_then(float),
            Self::Extreme(found, _) => found.clone(),
            Self::Spread(found) => match found {
                None => None,
                Some((low, high)) => Some(distance(low, high)?),
            },
            Self::Percentile(percentiles) => percentiles.get(0).and_then(float),
            Self::Edge(found, _) => found.as_ref().map(|(_, value)| value.clone()),
        })
    }

    /// Returns an error if the result does not fit its type.
    pub(super) fn check(&self, column_type: ColumnType) -> Result<(), Overflow> {
        match self {
            Self::Sum(_) | Self::Mean(..) | Self::Spread(_) => self.result(column_type).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns true if the result is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        matches!(self, Self::Percentile(percentiles) if percentiles.is_estimate(0))
    }
}

impl Total {
    fn add(&mut self, value: &CellValue<'_>) {
        match (self, value) {
            (Self::Numbers(sum), value) => {
                if let Some(number) = number_of(value) {
                    sum.add(number);
                }
            }
            (Self::Decimals(sums), CellValue::Decimal(number)) => {
                let Some(known) = sums else { return };
                let of_scale = known.iter_mut().find(|(scale, _)| *scale == number.scale());
                match of_scale {
                    None => known.push((number.scale(), number.mantissa())),
                    Some((_, sum)) => match sum.checked_add(number.mantissa()) {
                        Some(added) => *sum = added,
                        None => *sums = None,
                    },
                }
            }
            (Self::Times(sum), CellValue::Timestamp(time)) => *sum += i128::from(time.nanos()),
            _ => {}
        }
    }

    /// Returns the sum as a decimal; 0 without values.
    fn decimal(sums: Option<&Vec<(u8, i128)>>) -> Result<Decimal, Overflow> {
        let sums = sums.ok_or(Overflow)?;
        let scale = sums.iter().map(|(scale, _)| *scale).max().unwrap_or(0);
        let mut total = 0_i128;
        for (known, sum) in sums {
            let factor = 10_i128.checked_pow(u32::from(scale - known)).ok_or(Overflow)?;
            let shifted = sum.checked_mul(factor).ok_or(Overflow)?;
            total = total.checked_add(shifted).ok_or(Overflow)?;
        }
        Decimal::new(total, scale).map_err(|_| Overflow)
    }

    fn exact(&self) -> Result<Option<CellValue<'static>>, Overflow> {
        match self {
            Self::Numbers(sum) => match sum.total().map_err(|_| Overflow)? {
                None => Ok(None),
                Some(ValueRef::Signed(sum)) => Ok(Some(CellValue::I64(sum))),
                Some(ValueRef::Unsigned(sum)) => Ok(Some(CellValue::U64(sum))),
                Some(value) => Ok(float(value)),
            },
            Self::Decimals(Some(sums)) if sums.is_empty() => Ok(None),
            Self::Decimals(sums) => Ok(Some(CellValue::Decimal(Self::decimal(sums.as_ref())?))),
            // Times have no sum.
            Self::Times(_) => Ok(None),
        }
    }

    /// Returns the mean of `count` values; `count` is at least 1.
    fn mean(&self, count: u64) -> Result<CellValue<'static>, Overflow> {
        Ok(match self {
            Self::Numbers(sum) => CellValue::F64(sum.as_f64() / count as f64),
            Self::Decimals(sums) => CellValue::F64(Self::decimal(sums.as_ref())?.to_f64() / count as f64),
            Self::Times(sum) => {
                let mean = sum.div_euclid(i128::from(count));
                let mean = i64::try_from(mean).map_err(|_| Overflow)?;
                CellValue::Timestamp(Timestamp::from_nanos_clamped(mean))
            }
        })
    }
}

/// Returns true if `value` comes before `known` in the given order. NaN comes after every other value in both orders.
fn is_before(value: &CellValue<'_>, known: &CellValue<'_>, order: Ordering) -> bool {
    let is_nan = |value: &CellValue<'_>| matches!(value, CellValue::F64(number) if number.is_nan());
    match (is_nan(value), is_nan(known)) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => compare(value, known) == order,
    }
}

/// Replaces the known value. Returns the number of bytes by which it has grown.
fn replace(known: &mut Option<CellValue<'static>>, value: &CellValue<'_>) -> u64 {
    let before = known.as_ref().map_or(0, heap_bytes);
    *known = Some(value.clone().into_owned());
    heap_bytes(value).saturating_sub(before)
}

/// Returns the difference between two numbers of one type.
fn distance(low: &CellValue<'_>, high: &CellValue<'_>) -> Result<CellValue<'static>, Overflow> {
    Ok(match (low, high) {
        (CellValue::I64(low), CellValue::I64(high)) => CellValue::U64(high.abs_diff(*low)),
        (CellValue::U64(low), CellValue::U64(high)) => CellValue::U64(high - low),
        (CellValue::Decimal(low), CellValue::Decimal(high)) => {
            let (mut total, negated) = (Total::Decimals(Some(Vec::new())), low.mantissa().checked_neg());
            total.add(&CellValue::Decimal(*high));
            let negated = Decimal::new(negated.ok_or(Overflow)?, low.scale()).map_err(|_| Overflow)?;
            total.add(&CellValue::Decimal(negated));
            let Total::Decimals(sums) = &total else {
                return Err(Overflow);
            };
            CellValue::Decimal(Total::decimal(sums.as_ref())?)
        }
        (CellValue::F64(low), CellValue::F64(high)) => CellValue::F64(high - low),
        _ => return Err(Overflow),
    })
}

/// Converts a number to a scalar, and a decimal to the nearest double; `None` for other values.
fn number_of(value: &CellValue<'_>) -> Option<Scalar> {
    Some(match value {
        CellValue::I64(number) => Scalar::Signed(*number),
        CellValue::U64(number) => Scalar::Unsigned(*number),
        CellValue::F64(number) => Scalar::Float(*number),
        CellValue::Decimal(number) => Scalar::Float(number.to_f64()),
        _ => return None,
    })
}

fn float(value: ValueRef<'_>) -> Option<CellValue<'static>> {
    match value {
        ValueRef::Float(number) => Some(CellValue::F64(number)),
        _ => None,
    }
}
