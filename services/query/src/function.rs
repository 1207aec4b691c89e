//! The aggregate functions, and which types each suits.

use std::fmt;

use tideline_model::ValueKind;

/// Computes one value from the values of a field in one window of one group.
///
/// | function | of | gives | without a value in the window |
/// |---|---|---|---|
/// | `count` | any | unsigned | 0 |
/// | `sum` | numbers | their type, exact; float when types are mixed | absent |
/// | `mean` | numbers | float | absent |
/// | `min`, `max` | numbers, booleans | the value itself | absent |
/// | `first`, `last` | any | the value itself | absent |
/// | `increase` | numbers | their type, exact; float when types are mixed | absent |
/// | `rate` | numbers | float, per second | absent |
///
/// **Not a number.** NaN is a value: it is counted, it can be first or last, and it makes a sum or a mean NaN.
/// `min` and `max` pass over it unless there is nothing else; `increase` and `rate` do not see it.
///
/// **Sums.** Integers are added in 128 bits; a sum that does not fit its type is an error. Floats are added
/// with compensation (Neumaier), so that order and tiers do not matter within 1e-12 relative.
///
/// **Ties.** Where several timelines of a group have a value at the first instant, `first` takes that of the
/// lowest timeline id, `last` that of the highest at the last instant. Of numbers that are equal but differ in
/// type or sign of zero, `min` and `max` take the same one whatever the order.
///
/// **Counters.** A step goes from one point of a timeline to its next; it belongs to the window of the later
/// point, so the point before a window counts for its first step, as long as it lies in the queried range, and
/// the steps of all windows add up to those of the whole range. A value below the one before means that the
/// counter began again at zero: the step is then the new value (a negative one counts as zero). `increase` adds
/// the steps of all timelines of the group and does not extrapolate; a window without a step has none.
/// `rate` is `increase` over the seconds of the window that lie in the queried range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// How many values.
    Count,
    /// All values added.
    Sum,
    /// The arithmetic mean.
    Mean,
    /// The lowest.
    Min,
    /// The highest; of booleans, true is above false.
    Max,
    /// The one of the earliest point.
    First,
    /// The one of the latest point.
    Last,
    /// How much a counter grew for each second.
    Rate,
    /// How much a counter grew.
    Increase,
}

impl Function {
    /// Every function, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Count,
        Self::Sum,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::First,
        Self::Last,
        Self::Rate,
        Self::Increase,
    ];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::First => "first",
            Self::Last => "last",
            Self::Rate => "rate",
            Self::Increase => "increase",
        }
    }

    /// The function of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }

    /// Whether it can be computed from what stretches of time come to, instead of the points themselves.
    pub const fn takes_summaries(self) -> bool {
        !matches!(self, Self::Rate | Self::Increase)
    }

    /// Whether it can be computed from values of a kind.
    pub const fn suits(self, kind: ValueKind) -> bool {
        match self {
            Self::Count | Self::First | Self::Last => true,
            Self::Min | Self::Max => !matches!(kind, ValueKind::String),
            Self::Sum | Self::Mean | Self::Rate | Self::Increase => matches!(kind, ValueKind::Number),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
