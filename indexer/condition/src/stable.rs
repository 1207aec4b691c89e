//! Encoding of conditions that is identical in every build. A page token is valid only for a condition with the same
//! bytes.
//!
//! Numbers have a fixed width, texts and lists have a length prefix, and each alternative has a permanent code.
//! Conditions with equal bytes therefore match the same records. The codes differ between timelines and values for
//! compatibility with existing tokens. Rows use the codes of values, and their leaves are JSON.

use std::ops::Bound;

use tideline_model::ValueType;

use crate::condition::{Condition, Subject};
use crate::domain::Domain;
use crate::literal::{LatLon, Literal};
use crate::operators::{Exists, Test};

/// Code of everything without a permanent code: an operator (the JSON of its leaf follows), a saved search, or a
/// literal of a type that fields do not have.
const BY_JSON: u8 = 255;

/// Encoder of a condition.
#[derive(Debug)]
pub struct StableBytes {
    bytes: Vec<u8>,
    domain: Domain,
}

/// Encodes a condition. Its times must be resolved.
pub fn stable_bytes(condition: &Condition, domain: Domain) -> Vec<u8> {
    let bytes = Vec::new();
    let mut stable = StableBytes { bytes, domain };
    stable.condition(condition);
    stable.bytes
}

impl StableBytes {
    /// Appends a code.
    pub(crate) fn choice(&mut self, number: u8) {
        self.bytes.push(number);
    }

    /// Appends a number.
    pub(crate) fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Appends a text.
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends the degrees of a position.
    pub(crate) fn lat_lon(&mut self, lat_lon: LatLon) {
        self.number(lat_lon.lat.to_bits());
        self.number(lat_lon.lon.to_bits());
    }

    /// Appends literals.
    pub(crate) fn literals(&mut self, literals: &[Literal]) {
        self.number(literals.len() as u64);
        literals.iter().for_each(|literal| self.literal(literal));
    }

    /// Appends a literal.
    pub(crate) fn literal(&mut self, literal: &Literal) {
        match self.domain {
            Domain::Timelines => self.attribute(literal),
            Domain::Values | Domain::Rows => self.value(literal),
        }
    }

    /// Appends a bound of a range.
    pub(crate) fn bound(&mut self, bound: &Bound<Literal>) {
        match (self.domain, bound) {
            (Domain::Timelines, Bound::Unbounded) => self.choice(0),
            (Domain::Timelines, Bound::Included(literal)) => {
                self.choice(1);
                self.double(literal);
            }
            (Domain::Timelines, Bound::Excluded(literal)) => {
                self.choice(2);
                self.double(literal);
            }
            (Domain::Values | Domain::Rows, Bound::Included(literal)) => {
                self.choice(0);
                self.value(literal);
            }
            (Domain::Values | Domain::Rows, Bound::Excluded(literal)) => {
                self.choice(1);
                self.value(literal);
            }
            (Domain::Values | Domain::Rows, Bound::Unbounded) => self.choice(2),
        }
    }

    fn condition(&mut self, condition: &Condition) {
        // Codes of `And`, `Or`, `Not` and a leaf. Saved searches use `BY_JSON`.
        let [and, or, not, leaf] = match self.domain {
            Domain::Timelines => [1, 2, 3, 4],
            Domain::Values | Domain::Rows => [0, 1, 2, 3],
        };
        match condition {
            Condition::All if self.domain == Domain::Timelines => self.choice(0),
            Condition::All => self.all(and, &[]),
            Condition::And(conditions) => self.all(and, conditions),
            Condition::Or(conditions) => self.all(or, conditions),
            Condition::Not(inner) => {
                self.choice(not);
                self.condition(inner);
            }
            Condition::Saved(name) => {
                self.choice(BY_JSON);
                self.text(name);
            }
            Condition::Leaf { subject, test } => {
                let is_absent = matches!(test, Test::Exists(Exists(false)));
                if is_absent {
                    self.choice(not);
                }
                self.choice(leaf);
                self.subject(subject);
                match test.code(self.domain) {
                    Some(code) => {
                        self.choice(code);
                        test.encode(self);
                    }
                    None => {
                        self.choice(BY_JSON);
                        self.text(&serde_json::to_string(condition).unwrap_or_default());
                    }
                }
            }
        }
    }

    fn all(&mut self, choice: u8, conditions: &[Condition]) {
        self.choice(choice);
        self.number(conditions.len() as u64);
        conditions.iter().for_each(|inner| self.condition(inner));
    }

    fn subject(&mut self, subject: &Subject) {
        match subject {
            Subject::Measurement => self.choice(0),
            Subject::Source => self.choice(1),
            Subject::Tag(key) => {
                self.choice(2);
                self.text(key);
            }
            Subject::Attribute(key) => {
                self.choice(3);
                self.text(key);
            }
            Subject::Id => self.choice(4),
            Subject::FirstSeen => self.choice(5),
            Subject::LastSeen => self.choice(6),
            Subject::Any => self.choice(7),
            // All subjects of conditions on values are fields, so fields need no code in that domain.
            Subject::Field(name) => {
                if self.domain == Domain::Timelines {
                    self.choice(8);
                }
                self.text(name);
            }
            // The same applies to the columns of conditions on rows.
            Subject::Column(name) => {
                if self.domain != Domain::Rows {
                    self.choice(9);
                }
                self.text(name);
            }
        }
    }

    fn attribute(&mut self, literal: &Literal) {
        match literal {
            Literal::Text(text) => {
                self.choice(0);
                self.text(text);
            }
            Literal::Float(_) | Literal::Signed(_) | Literal::Unsigned(_) => {
                self.choice(1);
                self.double(literal);
            }
            Literal::Boolean(boolean) => {
                self.choice(2);
                self.choice(u8::from(*boolean));
            }
            Literal::Time { .. } => {
                self.choice(3);
                self.number(literal.as_time().unwrap_or_default().nanos() as u64);
            }
            Literal::Point(lat_lon) => {
                self.choice(4);
                self.lat_lon(*lat_lon);
            }
            Literal::Texts(texts) => {
                self.choice(5);
                self.number(texts.len() as u64);
                texts.iter().for_each(|text| self.text(text));
            }
            Literal::Numbers(numbers) => {
                self.choice(6);
                self.number(numbers.len() as u64);
                numbers.iter().for_each(|number| self.number(number.to_bits()));
            }
            Literal::Digits(digits) => {
                self.choice(7);
                self.text(digits);
            }
            // Only conditions on rows contain these literals, and the leaves of rows are JSON.
            Literal::Typed(_) | Literal::Forms(_) => {
                self.choice(8);
                self.text(&serde_json::to_string(literal).unwrap_or_default());
            }
        }
    }

    fn value(&mut self, literal: &Literal) {
        match literal {
            Literal::Float(value) => {
                self.choice(ValueType::Float.code());
                self.number(value.to_bits());
            }
            Literal::Signed(value) => {
                self.choice(ValueType::Signed.code());
                self.number(*value as u64);
            }
            Literal::Unsigned(value) => {
                self.choice(ValueType::Unsigned.code());
                self.number(*value);
            }
            Literal::Boolean(value) => {
                self.choice(ValueType::Boolean.code());
                self.choice(u8::from(*value));
            }
            Literal::Text(value) => {
                self.choice(ValueType::String.code());
                self.text(value);
            }
            // Fields do not have values of these types. `BY_JSON` differs from all type codes, which are lower.
            Literal::Digits(_)
            | Literal::Time { .. }
            | Literal::Point(_)
            | Literal::Texts(_)
            | Literal::Numbers(_)
            | Literal::Typed(_)
            | Literal::Forms(_) => {
                self.choice(BY_JSON);
                self.attribute(literal);
            }
        }
    }

    fn double(&mut self, literal: &Literal) {
        self.number(literal.as_f64().unwrap_or(f64::NAN).to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// Page tokens outlive a build, so the bytes must never change.
    #[test]
    fn bytes_stay_as_they_were() {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let condition = |domain, json| json::from_str(domain, json).expect(json);
        let values = condition(
            Domain::Values,
            r#"{"or":[{"field":"n","between":[5,-1.5]},{"field":"s","exists":false},{"field":"s","gte":"x"}]}"#,
        );
        let expected = [
            &[1][..],
            &3u64.to_le_bytes(),
            &[3],
            &text("n"),
            &[3, 0, ValueType::Signed.code()],
            &5u64.to_le_bytes(),
            &[0, ValueType::Float.code()],
            &(-1.5f64).to_bits().to_le_bytes(),
            &[2, 3],
            &text("s"),
            &[4, 3],
            &text("s"),
            &[3, 0, ValueType::String.code()],
            &text("x"),
            &[2],
        ];
        assert_eq!(stable_bytes(&values, Domain::Values), expected.concat());
        let timelines = condition(
            Domain::Timelines,
            r#"{"and":[{"tag":"a","exists":false},{"tag":"a","phrase":"b c","distance":2},
                {"attribute":"n","gt":1},{"property":"any","text":"b"},
                {"attribute":"p","near":{"lat":1,"lon":2,"meters":3}}]}"#,
        );
        let number = |number: f64| number.to_bits().to_le_bytes();
        let expected = [
            &[1][..],
            &5u64.to_le_bytes(),
            &[3, 4, 2],
            &text("a"),
            &[6, 4, 2],
            &text("a"),
            &[10, 2, 1],
            &text("b c"),
            &[4, 3],
            &text("n"),
            &[11, 2],
            &number(1.0),
            &[0, 4, 7, 10, 0, 0],
            &text("b"),
            &[4, 3],
            &text("p"),
            &[12, 0],
            &number(1.0),
            &number(2.0),
            &number(3.0),
        ];
        assert_eq!(stable_bytes(&timelines, Domain::Timelines), expected.concat());
        let leaf = r#"{"column":"s","exists":false}"#;
        let rows = condition(Domain::Rows, &format!(r#"{{"or":[{leaf}]}}"#));
        let expected = [
            &[1][..],
            &1u64.to_le_bytes(),
            &[2, 3],
            &text("s"),
            &[BY_JSON],
            &text(leaf),
        ];
        assert_eq!(stable_bytes(&rows, Domain::Rows), expected.concat());
    }
}
