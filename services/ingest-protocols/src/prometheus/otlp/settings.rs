//! Settings of the translation of OTLP metrics. Names, meanings and defaults are those of the section `otlp` of
//! Prometheus' configuration, except for `delta_temporality` and `target_info_interval`, which Prometheus does not
//! have.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Settings of the translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// Translation of metric and label names.
    pub translation_strategy: TranslationStrategy,
    /// Resource attributes that become labels of every series of the resource. Default: none.
    pub promote_resource_attributes: Vec<String>,
    /// True if all resource attributes become labels, except those in `ignore_resource_attributes`. Default false.
    pub promote_all_resource_attributes: bool,
    /// Resource attributes that do not become labels if `promote_all_resource_attributes` is true. Default: none.
    pub ignore_resource_attributes: Vec<String>,
    /// True if `target_info` keeps `service.name`, `service.namespace` and `service.instance.id`, in addition to
    /// `job` and `instance`. Default false.
    pub keep_identifying_resource_attributes: bool,
    /// True if name, version, schema URL and attributes of the scope become labels. Default false.
    pub promote_scope_metadata: bool,
    /// True if histograms with explicit bounds are stored as native histograms with custom buckets. Default false: such
    /// histograms are stored as classic series.
    pub convert_histograms_to_nhcb: bool,
    /// True if label names that begin with one underscore get the prefix `key`. Applies to strategies that escape
    /// names. Default true.
    pub label_name_underscore_sanitization: bool,
    /// True if adjacent underscores of label names are kept. Applies to strategies that escape names. Default true.
    pub label_name_preserve_multiple_underscores: bool,
    /// Treatment of points with delta temporality. Default [`DeltaTemporality::Refuse`].
    pub delta_temporality: DeltaTemporality,
    /// Longest time between two samples of `target_info` within the time range of a resource. Default 150 s: half of
    /// the lookback of queries.
    pub target_info_interval: Duration,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self {
            translation_strategy: TranslationStrategy::default(),
            promote_resource_attributes: Vec::new(),
            promote_all_resource_attributes: false,
            ignore_resource_attributes: Vec::new(),
            keep_identifying_resource_attributes: false,
            promote_scope_metadata: false,
            convert_histograms_to_nhcb: false,
            label_name_underscore_sanitization: true,
            label_name_preserve_multiple_underscores: true,
            delta_temporality: DeltaTemporality::default(),
            target_info_interval: Duration::from_secs(150),
        }
    }
}

impl OtlpSettings {
    /// Returns true if a resource attribute becomes a label of every series of the resource.
    pub(super) fn promotes(&self, attribute: &[u8]) -> bool {
        let has = |list: &[String]| list.iter().any(|name| name.as_bytes() == attribute);
        match self.promote_all_resource_attributes {
            true => !has(&self.ignore_resource_attributes),
            false => has(&self.promote_resource_attributes),
        }
    }
}

/// Translation of metric and label names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TranslationStrategy {
    /// Characters other than letters, digits, underscores and (in metric names) colons become underscores; metric names
    /// get suffixes for unit and type.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Characters are replaced as with `UnderscoreEscapingWithSuffixes`; metric names get no suffixes.
    UnderscoreEscapingWithoutSuffixes,
    /// Characters are kept; metric names get suffixes for unit and type.
    NoUtf8EscapingWithSuffixes,
    /// Names are kept as they are.
    NoTranslation,
}

impl TranslationStrategy {
    /// All strategies with their names in configurations.
    const NAMES: [(Self, &'static str); 4] = [
        (
            Self::UnderscoreEscapingWithSuffixes,
            "UnderscoreEscapingWithSuffixes",
        ),
        (
            Self::UnderscoreEscapingWithoutSuffixes,
            "UnderscoreEscapingWithoutSuffixes",
        ),
        (Self::NoUtf8EscapingWithSuffixes, "NoUTF8EscapingWithSuffixes"),
        (Self::NoTranslation, "NoTranslation"),
    ];

    /// Returns true if characters that the classic names do not allow are replaced.
    pub(super) fn escapes(self) -> bool {
        matches!(
            self,
            Self::UnderscoreEscapingWithSuffixes | Self::UnderscoreEscapingWithoutSuffixes
        )
    }

    /// Returns true if metric names get suffixes for unit and type.
    pub(super) fn adds_suffixes(self) -> bool {
        matches!(
            self,
            Self::UnderscoreEscapingWithSuffixes | Self::NoUtf8EscapingWithSuffixes
        )
    }
}

impl fmt::Display for TranslationStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(strategy, _)| strategy == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for TranslationStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(strategy, _)| *strategy).ok_or_else(|| {
            let names = Self::NAMES.map(|(_, name)| name).join(", ");
            format!("{text:?} is not one of {names}")
        })
    }
}

/// Treatment of points with delta temporality: differences since the previous point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaTemporality {
    /// Such points are rejected: functions of counters would give wrong results.
    #[default]
    Refuse,
    /// Such points are stored as they are, with the metric type `unknown`. Queries must add up the values with
    /// `sum_over_time`.
    Store,
}

impl fmt::Display for DeltaTemporality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::Store => "store",
        })
    }
}

impl FromStr for DeltaTemporality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "store" => Ok(Self::Store),
            _ => Err(format!("{text:?} is neither refuse nor store")),
        }
    }
}
