//! Values of query results.

use std::sync::Arc;

use tideline_histogram::Histogram;

use crate::labels::Labels;

/// Value of a query result.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryValue {
    /// Number at a timestamp.
    Scalar {
        /// Timestamp in milliseconds.
        time: i64,
        /// Number.
        value: f64,
    },
    /// String at a timestamp.
    String {
        /// Timestamp in milliseconds.
        time: i64,
        /// String.
        value: String,
    },
    /// One sample per series, in the order of evaluation, which functions such as `sort` determine.
    Vector(Vec<Sample>),
    /// Series with their samples, sorted by labels.
    Matrix(Vec<Series>),
}

/// Sample of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels of the series.
    pub labels: Labels,
    /// Timestamp in milliseconds.
    pub time: i64,
    /// Float or histogram.
    pub value: Point,
}

/// Series with its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Labels of the series.
    pub labels: Labels,
    /// Floats by rising timestamp in milliseconds.
    pub floats: Vec<(i64, f64)>,
    /// Histograms by rising timestamp in milliseconds.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}

/// Value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Point {
    /// Float.
    Float(f64),
    /// Histogram.
    Histogram(Arc<Histogram>),
}
