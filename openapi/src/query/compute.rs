//! Arithmetic in queries.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Named arithmetic expression: `+ - * / %`, parentheses, numbers, names and functions.
///
/// In expressions on points, names are fields: `used / (used + free) * 100`. In expressions on windows, names are
/// aggregates of fields: `max(latency) - percentile_95(latency)`. A field name with other characters than letters,
/// digits, `_` and `.` must be in double quotes. Functions of one value: `abs`, `ceil`, `exp`, `floor`, `ln`,
/// `log10`, `round`, `sqrt`. Functions of two values: `min`, `max`, `pow`, and `coalesce`, which returns the first
/// value, or the second if the first is missing.
///
/// All numbers are doubles: integers beyond 2⁵³ are rounded, and nothing overflows. A missing value, a division by
/// zero and any result that is not finite are `null`. An expression on `null` is `null`, except for `coalesce`. The
/// result of `%` has the sign of its left operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "busy", "expression": "usage_user + usage_system"}))]
pub struct Computation {
    /// Name of the result. It must not be the name of a field of the table or of another column of the result.
    pub name: String,
    /// Expression.
    pub expression: String,
}
