//! What an evaluation ends in.

use std::sync::Arc;

use tideline_histogram::Histogram;

use crate::labels::Labels;

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryValue {
    /// A number at an instant, in milliseconds.
    Scalar {
        /// The instant.
        time: i64,
        /// The number.
        value: f64,
    },
    /// A text at an instant.
    String {
        /// The instant.
        time: i64,
        /// The text.
        value: String,
    },
    /// One sample a series; sorted if the expression sorts.
    Vector(Vec<Sample>),
    /// Samples of series, sorted by labels.
    Matrix(Vec<Series>),
}

/// A sample of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The series.
    pub labels: Labels,
    /// The instant, in milliseconds.
    pub time: i64,
    /// The value.
    pub value: Point,
}

/// A series with its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The series.
    pub labels: Labels,
    /// Its numbers by rising instants, in milliseconds.
    pub floats: Vec<(i64, f64)>,
    /// Its histograms by rising instants, in milliseconds.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}

/// A value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Point {
    /// A number.
    Float(f64),
    /// A histogram.
    Histogram(Arc<Histogram>),
}
