//! Arithmetic, as questions state it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A name and the arithmetic that gives its values: `+ - * / %`, parentheses, numbers, names and functions.
///
/// Of points, names are fields: `used / (used + free) * 100`. Of windows, they are aggregates of fields:
/// `max(latency) - percentile_95(latency)`. A field whose name has other characters than letters, digits, `_` and `.` stands
/// in double quotes. Functions: `abs`, `ceil`, `exp`, `floor`, `ln`, `log10`, `round`, `sqrt` of one value; `min`, `max`,
/// `pow`, and `coalesce` (the first value, or where there is none the second) of two.
///
/// All numbers are doubles: integers beyond 2⁵³ are rounded to them, and nothing overflows. A missing value, a division by
/// zero and whatever else is no finite number is no value: `null`, and so is all that is made of it but by `coalesce`. `%`
/// takes the sign of its left side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "busy", "expression": "usage_user + usage_system"}))]
pub struct Computation {
    /// What the result is called: not like a field of the table, or a column of the answer.
    pub name: String,
    /// The arithmetic.
    pub expression: String,
}
