//! Aggregate functions and the kinds of values that they support.
//!
//! The rules of all functions are documented on [`Function`]; the accumulators implement them.

use std::fmt;

use tideline_engine::model::ValueKind;

/// Aggregate function: computes one value from the values of a field in one window of one group.
///
/// | function | input | result | window without a value |
/// |---|---|---|---|
/// | `count`, `count_distinct` | any | unsigned | 0 |
/// | `sum` | numbers | type of the input, exact; float for mixed types | absent |
/// | `mean`, `stddev` | numbers | float | absent |
/// | `min`, `max` | numbers, booleans | the value itself | absent |
/// | `spread` | numbers | unsigned between integers, exact (float above 64 bits); otherwise float | absent |
/// | `first`, `last`, `mode` | any | the value itself | absent |
/// | `delta` | numbers | signed between integers, exact; otherwise float | absent |
/// | `percentile` | numbers | float | absent |
/// | `increase` | numbers | type of the input, exact; float for mixed types | absent |
/// | `rate` | numbers | float, per second | absent |
/// | `integral` | numbers | float, value × seconds | see below |
/// | `time_weighted_mean` | numbers | float | see below |
///
/// **NaN.** NaN is a value: it is counted, and it can be the first, the last or the mode. A sum, a mean or a standard
/// deviation of values with a NaN is NaN. `delta` is NaN if the first or the last value is NaN. `min`, `max` and
/// `spread` skip NaN unless there is no other value. `percentile`, `increase`, `rate`, `integral` and
/// `time_weighted_mean` ignore NaN.
///
/// **Sums.** Integers are added in 128 bits. A sum that does not fit its type is omitted, and the
/// [summary](crate::Summary::overflowed) names the column. Floats are added with compensation (Neumaier). The order of
/// the values and their distribution over tiers therefore change the result by at most 1e-12 (relative). The same
/// accuracy holds for `stddev`, the population standard deviation, which is computed in double-double arithmetic. The
/// distances between different values must be from 1e-150 to 1e150, because their squares must be in the range of
/// doubles.
///
/// **Ties.** If several timelines of a group have a value at the first timestamp, `first` returns the value of the
/// lowest timeline id; `last` returns the value of the highest id at the last timestamp. Numbers can be equal but
/// differ in type or in the sign of zero: `min` and `max` then return the same number in any order of input. If several
/// values occur most often, `mode` returns the lowest.
///
/// **Equal values.** For `count_distinct` and `mode`, numbers of any type are equal if their exact values are, and
/// all NaN are equal. Strings are compared byte by byte.
///
/// **Histograms.** For native histograms only `count`, `first` and `last` are available.
///
/// **Percentiles.** Let the n values be sorted in ascending order and numbered from 0. Percentile p is the value at
/// h = (n − 1)·p/100, interpolated between the two ranks next to h if h is not whole. The result is exact for up to
/// [`EXACT_VALUES_MAX`](crate::accumulate::percentile::EXACT_VALUES_MAX) values in one window (integers beyond 2⁵³
/// count as the nearest double). For more values, the value at each rank next to h is estimated with a relative error
/// of at most 1/512, and the [summary](crate::Summary::estimated) names the column.
///
/// **Differences.** `delta` is the last value of a timeline in the window minus its first, summed over the timelines of
/// the group. A decrease is not treated as a counter reset. If the values are integers and the sum does not fit a
/// signed integer, the sum is omitted, and the [summary](crate::Summary::overflowed) names the column.
///
/// **Counters.** A step goes from one point of a timeline to the next and counts in the window of the later point. The
/// first step of a window starts at the last point before the window, if that point is in the queried range. The steps
/// of all windows therefore add up to the steps of the whole range. A value below the previous one means that the
/// counter was reset to zero: the step is then the new value (zero if that is negative). `increase` adds the steps of
/// all timelines of the group and does not extrapolate; a window without a step has no value. `rate` is `increase`
/// divided by the seconds of the window that are in the queried range.
///
/// **Areas.** A straight line connects each point of a timeline in the queried range to the next; there is no line
/// before the first point or after the last. `integral` is the area under these lines in the window, in value ×
/// seconds, summed over the timelines; the integrals of all windows add up to the integral of the whole range. A window
/// between two points has an integral even if it contains no point; a window that contains no part of a line has no
/// integral. `time_weighted_mean` is the area divided by the seconds that are covered by a line; if the window contains
/// no part of a line, the result is the mean of the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// Number of values.
    Count,
    /// Number of distinct values.
    CountDistinct,
    /// Sum of the values.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Population standard deviation.
    StdDev,
    /// Lowest value.
    Min,
    /// Highest value; true is above false.
    Max,
    /// Highest minus lowest value.
    Spread,
    /// Value below which a percentage of the values is found.
    Percentile(Percentile),
    /// Most frequent value.
    Mode,
    /// Value of the earliest point.
    First,
    /// Value of the latest point.
    Last,
    /// Last minus first value.
    Delta,
    /// Growth of a counter per second.
    Rate,
    /// Growth of a counter.
    Increase,
    /// Area under the values.
    Integral,
    /// Mean over time instead of over points.
    TimeWeightedMean,
}

/// Percentile rank in percent, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Percentile {
    /// Bits of a non-negative double; they sort like the double.
    bits: u64,
}

impl Percentile {
    /// Returns the percentile rank; `None` if the number is not from 0 to 100.
    pub fn new(percent: f64) -> Option<Self> {
        // Adding zero removes the sign of −0.0.
        (0.0..=100.0).contains(&percent).then(|| Self {
            bits: (percent + 0.0).to_bits(),
        })
    }

    /// Returns the rank in percent.
    pub fn percent(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

impl Function {
    /// All functions without a parameter, in the order of the variants.
    pub const PLAIN: [Self; 16] = [
        Self::Count,
        Self::CountDistinct,
        Self::Sum,
        Self::Mean,
        Self::StdDev,
        Self::Min,
        Self::Max,
        Self::Spread,
        Self::Mode,
        Self::First,
        Self::Last,
        Self::Delta,
        Self::Rate,
        Self::Increase,
        Self::Integral,
        Self::TimeWeightedMean,
    ];

    /// Returns the name on the wire, without a parameter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::CountDistinct => "count_distinct",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::StdDev => "stddev",
            Self::Min => "min",
            Self::Max => "max",
            Self::Spread => "spread",
            Self::Percentile(_) => "percentile",
            Self::Mode => "mode",
            Self::First => "first",
            Self::Last => "last",
            Self::Delta => "delta",
            Self::Rate => "rate",
            Self::Increase => "increase",
            Self::Integral => "integral",
            Self::TimeWeightedMean => "time_weighted_mean",
        }
    }

    /// Returns true if the function counts values. Its result is 0 if there are no values.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Count | Self::CountDistinct)
    }

    /// Returns true if the function can be computed from summaries of time spans instead of points.
    pub const fn takes_summaries(self) -> bool {
        matches!(
            self,
            Self::Count
                | Self::Sum
                | Self::Mean
                | Self::Min
                | Self::Max
                | Self::Spread
                | Self::First
                | Self::Last
                | Self::Delta
        )
    }

    /// Returns the kind of the result for input values of `kind`.
    pub const fn gives(self, kind: ValueKind) -> ValueKind {
        match self {
            Self::Min | Self::Max | Self::First | Self::Last | Self::Mode => kind,
            _ => ValueKind::Number,
        }
    }

    /// Returns true if the function supports values of a kind.
    pub const fn suits(self, kind: ValueKind) -> bool {
        match self {
            Self::Count | Self::First | Self::Last => true,
            Self::CountDistinct | Self::Mode => !matches!(kind, ValueKind::Histogram),
            Self::Min | Self::Max => matches!(kind, ValueKind::Number | ValueKind::Boolean),
            _ => matches!(kind, ValueKind::Number),
        }
    }
}

/// Writes the name with its parameter: `mean`, `percentile_99.9`.
impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Percentile(percentile) => write!(f, "_{}", percentile.percent()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_shares_and_show_what_was_asked() {
        for wrong in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Percentile::new(wrong), None, "{wrong}");
        }
        let shown = |percent| Percentile::new(percent).map(|p| Function::Percentile(p).to_string());
        assert_eq!(shown(95.0).as_deref(), Some("percentile_95"));
        assert_eq!(shown(99.9).as_deref(), Some("percentile_99.9"));
        assert_eq!(shown(-0.0).as_deref(), Some("percentile_0"));
    }
}
