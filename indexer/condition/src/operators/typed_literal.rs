//! Values on the command line: text, or a number or boolean if the subject supports it and the text parses as one.
//! Numbers for columns keep all digits.

use serde_json::Value;

use crate::condition::Subject;
use crate::literal::{self, Literal};

/// Parses a value. Attributes, fields and columns may be numbers and booleans; quotes force text.
pub(super) fn parse(subject: &Subject, text: &str) -> Literal {
    if !matches!(
        subject,
        Subject::Attribute(_) | Subject::Field(_) | Subject::Column(_)
    ) {
        return Literal::Text(text.to_owned());
    }
    match serde_json::from_str(text) {
        Ok(Value::Bool(boolean)) => Literal::Boolean(boolean),
        Ok(Value::String(text)) => Literal::Text(text),
        Ok(Value::Number(_)) if matches!(subject, Subject::Column(_)) => {
            literal::column(text).unwrap_or_else(|_| Literal::Text(text.to_owned()))
        }
        Ok(Value::Number(number)) => {
            let signed = number.as_i64().map(Literal::Signed);
            let unsigned = || number.as_u64().map(Literal::Unsigned);
            let float = || number.as_f64().map(Literal::Float);
            let number = signed.or_else(unsigned).or_else(float);
            number.unwrap_or_else(|| Literal::Text(text.to_owned()))
        }
        _ => Literal::Text(text.to_owned()),
    }
}

/// Writes a value so that [`parse`] returns it again; `None` if no text does.
pub(super) fn write(subject: &Subject, literal: &Literal) -> Option<String> {
    if let Literal::Text(text) = literal
        && parse(subject, text) == *literal
    {
        return Some(text.clone());
    }
    let text = serde_json::to_string(literal).ok()?;
    (parse(subject, &text) == *literal).then_some(text)
}
