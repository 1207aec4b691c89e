//! Parser of expressions: recursive descent from text to steps.
//!
//! Length and nesting depth are limited, so no input can exhaust the stack.

use super::{Binary, DEPTH_MAX, Expression, Input, Scope, Step, TEXT_BYTES_MAX, Unary};
use crate::budget::within;
use crate::error::{QueryError, Result};
use crate::function::{Function, Percentile};

const UNARY: [(&str, Unary); 8] = [
    ("abs", Unary::Abs),
    ("ceil", Unary::Ceil),
    ("exp", Unary::Exp),
    ("floor", Unary::Floor),
    ("ln", Unary::Ln),
    ("log10", Unary::Log10),
    ("round", Unary::Round),
    ("sqrt", Unary::Sqrt),
];
const BINARY: [(&str, Binary); 4] = [
    ("coalesce", Binary::Coalesce),
    ("max", Binary::Max),
    ("min", Binary::Min),
    ("pow", Binary::Power),
];

impl Expression {
    /// Parses an expression. Syntax errors state the position in characters, counted from 1.
    pub(crate) fn parse(text: &str, scope: Scope) -> Result<Self> {
        within("bytes of an expression", TEXT_BYTES_MAX, text.len() as u64)?;
        let mut parser = Parser {
            text,
            at: 0,
            scope,
            depth: 0,
            expression: Self {
                inputs: Vec::new(),
                steps: Vec::new(),
            },
        };
        parser.sum()?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.wrong("an operator or the end"));
        }
        if parser.expression.inputs.is_empty() {
            let what = match scope {
                Scope::Points => "field",
                Scope::Windows => "aggregate such as mean(usage)",
            };
            return Err(QueryError::Invalid(format!(
                "the expression {text:?} names no {what}"
            )));
        }
        Ok(parser.expression)
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Position in bytes.
    at: usize,
    scope: Scope,
    depth: u64,
    expression: Expression,
}

impl<'t> Parser<'t> {
    fn sum(&mut self) -> Result<()> {
        self.depth += 1;
        within("expressions inside one another", DEPTH_MAX, self.depth)?;
        self.product()?;
        while let Some(binary) = self.operator(&[('+', Binary::Add), ('-', Binary::Subtract)]) {
            self.product()?;
            self.step(Step::Binary(binary));
        }
        self.depth -= 1;
        Ok(())
    }

    fn product(&mut self) -> Result<()> {
        const OPERATORS: [(char, Binary); 3] = [
            ('*', Binary::Multiply),
            ('/', Binary::Divide),
            ('%', Binary::Remainder),
        ];
        self.factor()?;
        while let Some(binary) = self.operator(&OPERATORS) {
            self.factor()?;
            self.step(Step::Binary(binary));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<()> {
        let mut is_negative = false;
        while self.take('-') {
            is_negative = !is_negative;
        }
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.sum()?;
                self.expect(')')?;
            }
            Some('0'..='9' | '.') => self.number()?,
            Some('"') => {
                let name = self.quoted()?;
                self.field(name)?;
            }
            Some(c) if is_name_start(c) => self.named()?,
            _ => return Err(self.wrong("a number, a name or \"(\"")),
        }
        if is_negative {
            self.step(Step::Unary(Unary::Negate));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let rest = &self.text[self.at..];
        let mut end = rest.len();
        let mut before = ' ';
        for (at, c) in rest.char_indices() {
            let is_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            if !(is_sign || c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E')) {
                end = at;
                break;
            }
            before = c;
        }
        let number: f64 = rest[..end]
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| self.wrong("a finite number"))?;
        self.at += end;
        self.step(Step::Number(number));
        Ok(())
    }

    /// Parses a field, a function or an aggregate.
    fn named(&mut self) -> Result<()> {
        let begin = self.at;
        let name = self.name();
        if self.peek() != Some('(') {
            return self.at_field(begin, name.to_owned());
        }
        self.at += 1;
        if self.scope == Scope::Windows
            && let Some(function) = aggregate(name)
            && let Some(field) = self.only_field()
        {
            self.input(Input::Aggregate(function, field));
            return Ok(());
        }
        let unary = UNARY.iter().find(|(have, _)| *have == name);
        let binary = BINARY.iter().find(|(have, _)| *have == name);
        if unary.is_none() && binary.is_none() {
            self.at = begin;
            return Err(self.wrong(match self.scope {
                Scope::Points => "a function such as abs or max",
                Scope::Windows => "a function such as abs, or an aggregate of one field such as mean(usage)",
            }));
        }
        self.sum()?;
        if let Some((_, unary)) = unary {
            self.step(Step::Unary(*unary));
        } else if let Some((_, binary)) = binary {
            self.expect(',')?;
            self.sum()?;
            self.step(Step::Binary(*binary));
        }
        self.expect(')')
    }

    fn field(&mut self, name: String) -> Result<()> {
        let begin = self.at;
        self.at_field(begin, name)
    }

    fn at_field(&mut self, begin: usize, name: String) -> Result<()> {
        if self.scope == Scope::Windows {
            self.at = begin;
            return Err(self.wrong("an aggregate of a field such as mean(usage)"));
        }
        self.input(Input::Field(name));
        Ok(())
    }

    /// Parses a field followed by a closing parenthesis; advances only if both are present.
    fn only_field(&mut self) -> Option<String> {
        let begin = self.at;
        let name = match self.peek() {
            Some('"') => self.quoted().ok(),
            Some(c) if is_name_start(c) => Some(self.name().to_owned()),
            _ => None,
        };
        let name = name.filter(|_| self.take(')'));
        if name.is_none() {
            self.at = begin;
        }
        name
    }

    fn name(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn quoted(&mut self) -> Result<String> {
        let mut name = String::new();
        let rest = &self.text[self.at + 1..];
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 2;
                    return Ok(name);
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        self.at = self.text.len();
        Err(self.wrong("a closing \""))
    }

    fn input(&mut self, input: Input) {
        let inputs = &mut self.expression.inputs;
        let position = inputs.iter().position(|have| *have == input).unwrap_or_else(|| {
            inputs.push(input);
            inputs.len() - 1
        });
        self.step(Step::Input(position));
    }

    fn step(&mut self, step: Step) {
        self.expression.steps.push(step);
    }

    fn operator(&mut self, operators: &[(char, Binary)]) -> Option<Binary> {
        let found = operators.iter().find(|(sign, _)| self.peek() == Some(*sign));
        self.at += usize::from(found.is_some());
        found.map(|(_, binary)| *binary)
    }

    /// Skips whitespace and returns the next character.
    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, sign: char) -> bool {
        let is_there = self.peek() == Some(sign);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, sign: char) -> Result<()> {
        if self.take(sign) {
            return Ok(());
        }
        Err(self.wrong(&format!("{:?}", sign.to_string())))
    }

    fn wrong(&mut self, expected: &str) -> QueryError {
        let found = match self.peek() {
            Some(c) => format!("{:?}", c.to_string()),
            None => "its end".into(),
        };
        let position = self.text[..self.at].chars().count() + 1;
        QueryError::Invalid(format!(
            "the expression {:?}: {expected} is expected at character {position}, and not {found}",
            self.text
        ))
    }
}

/// Returns the aggregate function with this name, such as `mean` or `percentile_99.9`; `None` for other names.
fn aggregate(name: &str) -> Option<Function> {
    if let Some(percent) = name.strip_prefix("percentile_") {
        return Percentile::new(percent.parse().ok()?).map(Function::Percentile);
    }
    Function::PLAIN
        .into_iter()
        .find(|function| function.name() == name)
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, scope: Scope) -> String {
        Expression::parse(text, scope).expect_err(text).to_string()
    }

    #[test]
    fn an_aggregate_is_a_function_of_one_field() {
        let read = |text: &str| Expression::parse(text, Scope::Windows).expect(text).inputs;
        let field = |function, name: &str| Input::Aggregate(function, name.into());
        assert_eq!(
            read("max(max(a), min(\"b\\\" c\")) / count(a) * max(a)"),
            [
                field(Function::Max, "a"),
                field(Function::Min, "b\" c"),
                field(Function::Count, "a")
            ]
        );
        let percentile = Function::Percentile(Percentile::new(99.9).expect("a share"));
        assert_eq!(read("percentile_99.9(a.b)"), [field(percentile, "a.b")]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, said) in [
            ("", "at character 1, and not its end"),
            ("a +", "at character 4, and not its end"),
            (
                "a b",
                "an operator or the end is expected at character 3, and not \"b\"",
            ),
            ("(a", "\")\" is expected at character 3"),
            ("a + * b", "at character 5, and not \"*\""),
            ("max(a)", "\",\" is expected at character 6, and not \")\""),
            ("abs(a, b)", "\")\" is expected at character 6"),
            (
                "über + median(a)",
                "a function such as abs or max is expected at character 8",
            ),
            ("1 + 2", "names no field"),
            ("1.2.3 + a", "a finite number is expected at character 1"),
            ("\"a", "a closing \""),
            ("a ^ 2", "at character 3, and not \"^\""),
        ] {
            let found = error(text, Scope::Points);
            assert!(found.contains(said), "{found}");
        }
        for (text, said) in [
            (
                "usage",
                "an aggregate of a field such as mean(usage) is expected at character 1",
            ),
            ("mean(a) + b", "at character 11"),
            ("mean(a + b)", "an aggregate of one field"),
        ] {
            let found = error(text, Scope::Windows);
            assert!(found.contains(said), "{found}");
        }
        let deep = "(".repeat(10_000);
        assert!(error(&deep, Scope::Points).contains("bytes of an expression"));
        let deep = format!("{}a{}", "(".repeat(100), ")".repeat(100));
        assert!(error(&deep, Scope::Points).contains("inside one another"));
    }
}
