//! The aggregate functions, and which types each suits.

use std::fmt;

use tideline_engine::model::ValueKind;

/// Computes one value from the values of a field in one window of one group.
///
/// | function | of | gives | without a value in the window |
/// |---|---|---|---|
/// | `count`, `count_distinct` | any | unsigned | 0 |
/// | `sum` | numbers | their type, exact; float when types are mixed | absent |
/// | `mean`, `stddev` | numbers | float | absent |
/// | `min`, `max` | numbers, booleans | the value itself | absent |
/// | `spread` | numbers | unsigned between integers, exact; else float | absent |
/// | `first`, `last`, `mode` | any | the value itself | absent |
/// | `delta` | numbers | signed between integers, exact; else float | absent |
/// | `percentile` | numbers | float | absent |
/// | `increase` | numbers | their type, exact; float when types are mixed | absent |
/// | `rate` | numbers | float, per second | absent |
/// | `integral` | numbers | float, value × seconds | see below |
/// | `time_weighted_mean` | numbers | float | see below |
///
/// **Not a number.** NaN is a value: it is counted, it can be first, last or mode, and it makes a sum, a mean, a
/// deviation or a difference NaN. `min`, `max` and `spread` pass over it unless there is nothing else; `percentile`,
/// `increase`, `rate`, `integral` and `time_weighted_mean` do not see it.
///
/// **Sums.** Integers are added in 128 bits; a sum that does not fit its type is an error. Floats are added
/// with compensation (Neumaier), so that order and tiers do not matter within 1e-12 relative. The same holds of
/// `stddev`, the standard deviation of the population, which is computed with pairs of doubles, where the squares of
/// distances from the mean are doubles: between 1e-150 and 1e150.
///
/// **Ties.** Where several timelines of a group have a value at the first instant, `first` takes that of the
/// lowest timeline id, `last` that of the highest at the last instant. Of numbers that are equal but differ in
/// type or sign of zero, `min` and `max` take the same one whatever the order. Of several values that occur most
/// often, `mode` is the lowest.
///
/// **Equal values.** For `count_distinct` and `mode`, numbers of any type are equal if their exact values are, and so
/// are all NaN; texts are compared byte by byte.
///
/// **Histograms.** Values that are native histograms can be counted, and the first and the last be taken.
///
/// **Percentiles.** With the n values in rising order, numbered from 0, percentile p is the value at h = (n − 1)·p/100,
/// interpolated between the ranks next to h where it is not whole. Up to
/// [`EXACT_VALUES_MAX`](crate::accumulate::percentile::EXACT_VALUES_MAX) values in one cell it is exact (integers
/// beyond 2⁵³ count as the nearest double); beyond, each of the values next to h is known within 1/512 of itself, and
/// the [summary](crate::Summary::estimated) names the column.
///
/// **Differences.** `delta` is the last value of a timeline in the window less its first, added over the timelines of
/// the group; it takes no drop for a restart. Between integers, a sum that no signed integer holds is an error.
///
/// **Counters.** A step goes from one point of a timeline to its next; it belongs to the window of the later
/// point, so the point before a window counts for its first step, as long as it lies in the queried range, and
/// the steps of all windows add up to those of the whole range. A value below the one before means that the
/// counter began again at zero: the step is then the new value (a negative one counts as zero). `increase` adds
/// the steps of all timelines of the group and does not extrapolate; a window without a step has none.
/// `rate` is `increase` over the seconds of the window that lie in the queried range.
///
/// **Areas.** A straight line is drawn from one point of a timeline to its next, inside the queried range; nothing is
/// drawn before the first or behind the last. `integral` is the area under these lines in the window, in value ×
/// seconds, added over the timelines: the integrals of all windows add up to that of the whole range. A window that lies
/// between two points has one without a point of its own, and one that no line crosses has none. `time_weighted_mean`
/// is the area over the seconds that have a line; where no line crosses, it is the mean of the points there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// How many values.
    Count,
    /// How many different values.
    CountDistinct,
    /// All values added.
    Sum,
    /// The arithmetic mean.
    Mean,
    /// The standard deviation of the population.
    StdDev,
    /// The lowest.
    Min,
    /// The highest; of booleans, true is above false.
    Max,
    /// The highest less the lowest.
    Spread,
    /// The value below which a share of the values lies.
    Percentile(Percentile),
    /// The value that occurs most often.
    Mode,
    /// The one of the earliest point.
    First,
    /// The one of the latest point.
    Last,
    /// The last less the first.
    Delta,
    /// How much a counter grew for each second.
    Rate,
    /// How much a counter grew.
    Increase,
    /// The area under the values.
    Integral,
    /// The mean over time instead of over points.
    TimeWeightedMean,
}

/// A share in percent, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Percentile {
    /// The bits of a double that is not negative: they are ordered as it is.
    bits: u64,
}

impl Percentile {
    /// This share; `None` for what is not from 0 to 100.
    pub fn new(percent: f64) -> Option<Self> {
        // Adding zero takes the sign from −0.0.
        (0.0..=100.0).contains(&percent).then(|| Self {
            bits: (percent + 0.0).to_bits(),
        })
    }

    /// The share in percent.
    pub fn percent(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

impl Function {
    /// Every function without a parameter, in the order of the documentation.
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

    /// Its name on the wire, without a parameter.
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

    /// Whether it counts values, so that no value makes 0.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Count | Self::CountDistinct)
    }

    /// Whether it can be computed from what stretches of time come to, instead of the points themselves.
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

    /// What it gives for values of a kind.
    pub const fn gives(self, kind: ValueKind) -> ValueKind {
        match self {
            Self::Min | Self::Max | Self::First | Self::Last | Self::Mode => kind,
            _ => ValueKind::Number,
        }
    }

    /// Whether it can be computed from values of a kind.
    pub const fn suits(self, kind: ValueKind) -> bool {
        match self {
            Self::Count | Self::First | Self::Last => true,
            Self::CountDistinct | Self::Mode => !matches!(kind, ValueKind::Histogram),
            Self::Min | Self::Max => matches!(kind, ValueKind::Number | ValueKind::Boolean),
            _ => matches!(kind, ValueKind::Number),
        }
    }
}

/// The name, with its parameter: `mean`, `percentile_99.9`.
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
