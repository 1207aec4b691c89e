//! Validation of aggregation parameters.

use super::super::{Scalar, Scope};
use crate::annotations::Annotation;
use crate::ast::{AggregateOp, TextRange};
use crate::error::{PromqlError, Result};
use crate::math;
use crate::number::general;
use crate::plan::Aggregate;

/// Range of a parameter over all steps. As in Prometheus, a NaN among the values makes both ends NaN. Only a positive
/// infinite `max` and a negative infinite `min` take precedence over NaN.
#[derive(Debug, Clone, Copy)]
struct Extent {
    min: f64,
    max: f64,
    has_nan: bool,
}

impl Scope<'_> {
    /// Validates the parameter's values: invalid ones cause an error or an annotation, depending on the
    /// operator.
    pub(super) fn check_parameter(&self, aggregate: &Aggregate<'_>, parameter: &Scalar) -> Result<()> {
        let Some(node) = &aggregate.parameter else {
            return Ok(());
        };
        let steps = match parameter {
            Scalar::Constant(_) => 1,
            Scalar::Steps(values) => values.len(),
        };
        let mut extent = Extent {
            min: f64::MAX,
            max: -f64::MAX,
            has_nan: false,
        };
        for step in 0..steps {
            self.check_now_and_then(step)?;
            let value = parameter.at(step);
            extent.min = math::min(extent.min, value);
            extent.max = math::max(extent.max, value);
            extent.has_nan |= value.is_nan();
        }
        match aggregate.op {
            AggregateOp::TopK | AggregateOp::BottomK | AggregateOp::LimitK => check_count(extent),
            AggregateOp::LimitRatio => self.check_ratio(extent, node.at),
            AggregateOp::Quantile => {
                self.check_quantile_of(extent, node.at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_ratio(&self, extent: Extent, at: TextRange) -> Result<()> {
        if extent.has_nan {
            return Err(PromqlError::Execution("Ratio value is NaN".to_owned()));
        }
        let wrong = [
            (extent.max > 1.0, extent.max, 1.0),
            (extent.min < -1.0, extent.min, -1.0),
        ];
        for (_, given, used) in wrong.into_iter().filter(|(is_wrong, ..)| *is_wrong) {
            self.annotate(&Annotation::InvalidRatio { given, used }, at);
        }
        Ok(())
    }

    fn check_quantile_of(&self, extent: Extent, at: TextRange) {
        let wrong = [
            (extent.has_nan, f64::NAN),
            (extent.max > 1.0, extent.max),
            (extent.min < 0.0, extent.min),
        ];
        for (_, value) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
            self.annotate(&Annotation::InvalidQuantile(value), at);
        }
    }
}

fn check_count(extent: Extent) -> Result<()> {
    let message = match extent {
        Extent { max, .. } if max < 1.0 => return Ok(()),
        Extent { has_nan: true, .. } => "Parameter value is NaN".to_owned(),
        Extent { min, .. } if min <= i64::MIN as f64 => {
            format!("Scalar value {} underflows int64", general(min))
        }
        Extent { max, .. } if max >= i64::MAX as f64 => {
            format!("Scalar value {} overflows int64", general(max))
        }
        _ => return Ok(()),
    };
    Err(PromqlError::Execution(message))
}
