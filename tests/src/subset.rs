//! Comparison of a response with an expected subset: members that are not listed may have any value.
//!
//! - An object must have every expected member; other members are ignored.
//! - An array must have as many elements as expected, each matching the expected element at its index. With `"..."` as
//!   the last expected element, the array may be longer.
//! - Numbers are compared by value: `1` equals `1.0`. Numbers are equal within a relative difference of 1e-12.
//! - A text in angle brackets is a pattern: `<any>`, `<text>`, `<number>`, `<positive>`, `<array>`,
//!   `<object>`, `<absent>` (only as a member), and `<has …>` for a text that contains these words.

use serde_json::Value;

/// Relative tolerance of doubles: sums are compensated, not exact.
const TOLERANCE: f64 = 1e-12;

/// Checks that `actual` contains `expected`.
///
/// # Errors
///
/// Returns the first difference, with its path.
pub fn holds(actual: &Value, expected: &Value) -> Result<(), String> {
    compare(actual, expected, &mut String::from("$"))
}

fn compare(actual: &Value, expected: &Value, path: &mut String) -> Result<(), String> {
    match (actual, expected) {
        (_, Value::String(pattern)) if pattern.starts_with('<') && pattern.ends_with('>') => {
            match matches_pattern(actual, &pattern[1..pattern.len() - 1]) {
                true => Ok(()),
                false => Err(differs(path, actual, expected)),
            }
        }
        (Value::Object(actual), Value::Object(expected)) => {
            for (name, expected) in expected {
                let mark = path.len();
                path.push('.');
                path.push_str(name);
                match (actual.get(name), expected.as_str()) {
                    (None, Some("<absent>")) => {}
                    (None, _) => return Err(format!("{path} is missing, expected {expected}")),
                    (Some(actual), _) => compare(actual, expected, path)?,
                }
                path.truncate(mark);
            }
            Ok(())
        }
        (Value::Array(actual), Value::Array(expected)) => {
            let goes_on = expected.last().is_some_and(|last| last == "...");
            let named = &expected[..expected.len() - usize::from(goes_on)];
            let fits = if goes_on {
                actual.len() >= named.len()
            } else {
                actual.len() == named.len()
            };
            if !fits {
                let shown = Value::Array(actual.iter().take(20).cloned().collect());
                let (found, wanted) = (actual.len(), named.len());
                return Err(format!("{path} has {found} elements, not {wanted}: {shown}"));
            }
            for (index, (actual, expected)) in actual.iter().zip(named).enumerate() {
                let mark = path.len();
                path.push_str(&format!("[{index}]"));
                compare(actual, expected, path)?;
                path.truncate(mark);
            }
            Ok(())
        }
        (Value::Number(a), Value::Number(b)) if a == b => Ok(()),
        (Value::Number(a), Value::Number(b)) if close(a.as_f64(), b.as_f64()) => Ok(()),
        _ if actual == expected => Ok(()),
        _ => Err(differs(path, actual, expected)),
    }
}

/// Returns true if two doubles are equal within the tolerance.
pub fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
        _ => false,
    }
}

fn matches_pattern(actual: &Value, pattern: &str) -> bool {
    match pattern {
        "any" => true,
        "text" => actual.is_string(),
        "number" => actual.is_number(),
        "positive" => actual.as_f64().is_some_and(|number| number > 0.0),
        "array" => actual.is_array(),
        "object" => actual.is_object(),
        "absent" => false,
        other => match other.strip_prefix("has ") {
            Some(words) => actual.as_str().is_some_and(|text| text.contains(words)),
            None => panic!("unknown pattern <{other}>"),
        },
    }
}

fn differs(path: &str, actual: &Value, expected: &Value) -> String {
    let shown: String = actual.to_string().chars().take(500).collect();
    format!("{path} is {shown}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_named_is_free_and_what_is_named_must_be_there() {
        let response = json!({"points": 2, "rejects": [], "rows": [1, 2.0, 3], "id": "abc"});
        let good = [
            json!({}),
            json!({"points": 2.0}),
            json!({"rows": [1, 2, 3], "rejects": []}),
            json!({"rows": [1, "..."], "error": "<absent>"}),
            json!({"id": "<has b>", "points": "<positive>", "rows": "<array>"}),
        ];
        for expected in &good {
            assert_eq!(holds(&response, expected), Ok(()), "{expected}");
        }
        let bad = [
            json!({"points": 3}),
            json!({"missing": "<any>"}),
            json!({"rows": [1, 2]}),
            json!({"rows": [1, 2, 4]}),
            json!({"rows": [1, 2, 3, 4, "..."]}),
            json!({"id": "<absent>"}),
            json!({"rejects": [1]}),
            json!([]),
        ];
        for expected in &bad {
            assert!(holds(&response, expected).is_err(), "{expected}");
        }
    }

    #[test]
    fn a_failure_names_its_place() {
        let told = holds(&json!({"a": [{"b": 1}]}), &json!({"a": [{"b": 2}]}));
        assert_eq!(told, Err("$.a[0].b is 1, expected 2".into()));
    }
}
