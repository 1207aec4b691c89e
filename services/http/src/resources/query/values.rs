//! Conversion of the fill of a request to the fill of a query.

use tideline_engine::model::Value;
use tideline_openapi::Scalar;
use tideline_openapi::query::Fill;
use tideline_query as query;

/// 2⁵³: doubles represent all integers of smaller magnitude exactly.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Converts the fill of windows without a value; `None` omits such windows.
pub(super) fn to_fill(fill: Fill) -> Option<query::Fill> {
    Some(match fill {
        Fill::None => return None,
        Fill::Null => query::Fill::Null,
        Fill::Linear => query::Fill::Linear,
        Fill::Previous(reach) => query::Fill::Previous { reach: reach.0 },
        Fill::Value(value) => query::Fill::Value(match value {
            Scalar::Text(text) => Value::String(text.into()),
            Scalar::Boolean(boolean) => Value::Boolean(boolean),
            // An integral number fills integer columns with an integer.
            Scalar::Number(number) if number.fract() == 0.0 && number.abs() < EXACT_INTEGERS => {
                Value::Signed(number as i64)
            }
            Scalar::Number(number) => Value::Float(number),
        }),
    })
}
