//! Conversion of YAML to JSON, for tests that check configuration files and third-party documents.

use serde_json::{Map, Number, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Parses all YAML documents of a text.
///
/// # Errors
///
/// Returns an error if the text is not YAML, or contains a value without a JSON equivalent, such as a key that is not
/// a text, or a number that is not finite.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    let documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    documents.iter().map(to_json).collect()
}

fn to_json(yaml: &Yaml) -> Result<Value, String> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => Value::Bool(*value),
        Yaml::Integer(value) => Value::from(*value),
        Yaml::Real(text) => {
            let number = text.parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| format!("{text:?} is not a JSON number"))?)
        }
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Array(items) => items.iter().map(to_json).collect::<Result<_, _>>()?,
        Yaml::Hash(members) => {
            let member = |(key, value): (&Yaml, &Yaml)| {
                let key = key
                    .as_str()
                    .ok_or_else(|| format!("the key {key:?} is not a text"))?;
                Ok((key.to_owned(), to_json(value)?))
            };
            Value::Object(
                members
                    .iter()
                    .map(member)
                    .collect::<Result<Map<_, _>, String>>()?,
            )
        }
        Yaml::Alias(_) | Yaml::BadValue => return Err(format!("{yaml:?} has no JSON equivalent")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_become_json() {
        let text = "a: [1, -2.5, yes please, \"3\"]\nb:\n  c: null\n  d: true\n---\nsecond";
        let wanted = [
            json!({"a": [1, -2.5, "yes please", "3"], "b": {"c": null, "d": true}}),
            json!("second"),
        ];
        assert_eq!(parse(text).expect("YAML"), wanted);
        parse("a: [1").expect_err("it is not closed");
        parse("1: a").expect_err("its key is a number");
    }
}
