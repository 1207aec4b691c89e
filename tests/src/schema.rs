//! Validation of values against schemas of an OpenAPI document.
//!
//! The check supports the part of JSON Schema that the OpenAPI document of Prometheus uses.

use serde_json::Value;

/// Returns all violations of the schema, each with its path in the value; empty if the value is valid.
///
/// References (`$ref`) are resolved in `document`. The keywords in `SILENT` are ignored. An unknown keyword is also
/// a violation: ignoring it would make the check worthless.
pub fn violations(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Check { document }.check(schema, value, "$", &mut found);
    found
}

/// Keywords that are ignored.
const SILENT: [&str; 6] = ["description", "example", "examples", "format", "default", "title"];

struct Check<'a> {
    document: &'a Value,
}

impl Check<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let Some(keywords) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                found.push(format!("{path}: nothing is allowed here"));
            }
            return;
        };
        for (keyword, rule) in keywords {
            if !SILENT.contains(&keyword.as_str()) {
                self.check_keyword(schema, keyword, rule, value, path, found);
            }
        }
    }

    fn check_keyword(
        &self,
        schema: &Value,
        keyword: &str,
        rule: &Value,
        value: &Value,
        path: &str,
        found: &mut Vec<String>,
    ) {
        let mut wrong = |problem: String| found.push(format!("{path}: {problem}"));
        let number = |rule: &Value| rule.as_u64().unwrap_or_default() as usize;
        match keyword {
            "$ref" => {
                let pointer = rule.as_str().unwrap_or_default().trim_start_matches('#');
                match self.document.pointer(pointer) {
                    Some(schema) => self.check(schema, value, path, found),
                    None => wrong(format!("{pointer} does not exist in the document")),
                }
            }
            "type" if !has_type(rule, value) => wrong(format!("{value} is not of type {rule}")),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                wrong(format!("{value} is not one of {rule}"));
            }
            "minItems" if value.as_array().is_some_and(|items| items.len() < number(rule)) => {
                wrong(format!("fewer than {rule} items"));
            }
            "maxItems" if value.as_array().is_some_and(|items| items.len() > number(rule)) => {
                wrong(format!("more than {rule} items"));
            }
            "minimum" if value.as_f64() < rule.as_f64() && value.is_number() => {
                wrong(format!("{value} is below {rule}"));
            }
            "required" => {
                let missing = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                missing
                    .filter(|name| value.is_object() && value.get(name).is_none())
                    .for_each(|name| wrong(format!("{name} is missing")));
            }
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check(rule, item, &format!("{path}[{at}]"), found);
                }
            }
            "properties" => {
                for (name, schema) in rule.as_object().into_iter().flatten() {
                    if let Some(member) = value.get(name) {
                        self.check(schema, member, &format!("{path}.{name}"), found);
                    }
                }
            }
            "additionalProperties" => {
                let named = &schema["properties"];
                for (name, member) in value.as_object().into_iter().flatten() {
                    if named.get(name).is_none() {
                        self.check(rule, member, &format!("{path}.{name}"), found);
                    }
                }
            }
            "anyOf" | "oneOf" => {
                let choices = rule.as_array().map_or(&[][..], Vec::as_slice);
                let tried: Vec<Vec<String>> = choices
                    .iter()
                    .map(|choice| violations(self.document, choice, value))
                    .collect();
                let met = tried.iter().filter(|problems| problems.is_empty()).count();
                if met == 0 {
                    let nearest = tried.into_iter().min_by_key(Vec::len).unwrap_or_default();
                    wrong(format!("matches no schema of {keyword}; closest: {nearest:?}"));
                } else if keyword == "oneOf" && met > 1 {
                    wrong(format!("matches {met} schemas of oneOf"));
                }
            }
            "not" if violations(self.document, rule, value).is_empty() => {
                wrong("matches a schema under `not`".into());
            }
            "type" | "enum" | "minItems" | "maxItems" | "minimum" | "not" => {}
            unknown => wrong(format!("the keyword {unknown} is not supported")),
        }
    }
}

fn has_type(rule: &Value, value: &Value) -> bool {
    if let Some(any) = rule.as_array() {
        return any.iter().any(|rule| has_type(rule, value));
    }
    match rule.as_str().unwrap_or_default() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_held_to_every_keyword() {
        let document = json!({"components": {"Pair": {
            "type": "array", "minItems": 2, "maxItems": 2,
            "items": {"oneOf": [{"type": "number"}, {"type": "string"}]}
        }}});
        let schema = json!({
            "type": "object", "required": ["kind"], "additionalProperties": false,
            "properties": {
                "kind": {"enum": ["a", "b"]},
                "pair": {"$ref": "#/components/Pair"},
                "count": {"type": "integer", "minimum": 0},
                "either": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}
            }
        });
        let wrong = |value: Value| violations(&document, &schema, &value).len();
        assert_eq!(
            wrong(json!({"kind": "a", "pair": [1, "2"], "count": 3, "either": null})),
            0
        );
        for bad in [
            json!([]),
            json!({}),
            json!({"kind": "c"}),
            json!({"kind": "a", "more": 1}),
            json!({"kind": "a", "pair": [1]}),
            json!({"kind": "a", "pair": [1, 2, 3]}),
            json!({"kind": "a", "pair": [1, null]}),
            json!({"kind": "a", "count": -1}),
            json!({"kind": "a", "count": 1.5}),
            json!({"kind": "a", "either": "x"}),
        ] {
            assert!(wrong(bad.clone()) > 0, "{bad}");
        }
        assert!(!violations(&document, &json!({"contains": {}}), &json!([])).is_empty());
    }
}
