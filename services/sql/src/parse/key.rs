//! Parser of the columns of a primary key or of an index.
//!
//! A key lists columns, and modifiers in the syntax of functions: `hash_prefix(a, b, 4)`, `bucket(a, 16)`,
//! `reverse(a)`, `splice(a, pad(b, 8), '#')` and `generated(a)`. A computed column has the name after `AS`. Without
//! `AS`, it has the name of its function; if this name is taken, a number is appended.

use sqlparser::tokenizer::Token;
use tideline_engine::model::ColumnType;
use tideline_engine::model::wide::{
    Bucket, Generated, HashPrefix, KeyOrder, KeySource, LogicalColumn, Reverse, Splice, SplicedColumn,
};

use super::cursor::Cursor;
use crate::error::{Position, Result, SqlError};
use crate::statement::Name;

/// Column of the key, as written in the statement.
pub(super) struct KeyPart {
    at: Position,
    /// Name of the function of a modifier, in lower case; `None` for a plain column.
    pub(super) modifier: Option<String>,
    arguments: Vec<Argument>,
    /// Name after `AS`.
    pub(super) alias: Option<Name>,
    pub(super) order: KeyOrder,
}

/// Argument of a modifier.
enum Argument {
    Column(Name),
    /// `pad(column, digits)`.
    Padded(Name, u64),
    Number(u64),
    Text(String),
}

/// Parses the columns of a key in parentheses.
pub(super) fn parts(cursor: &mut Cursor<'_>) -> Result<Vec<KeyPart>> {
    cursor.expect_token(&Token::LParen)?;
    let mut parts = Vec::new();
    loop {
        let name = cursor.name("a key column")?;
        let mut part = KeyPart::plain(name.clone());
        if cursor.token(&Token::LParen) {
            part.modifier = Some(name.text.to_ascii_lowercase());
            part.arguments = arguments(cursor)?;
            if cursor.word("AS") {
                part.alias = Some(cursor.name("the name of the computed column")?);
            }
        }
        if cursor.word("DESC") {
            part.order = KeyOrder::Descending;
        } else {
            cursor.word("ASC");
        }
        parts.push(part);
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(parts)
}

fn arguments(cursor: &mut Cursor<'_>) -> Result<Vec<Argument>> {
    let mut arguments = Vec::new();
    loop {
        arguments.push(if let Some(number) = cursor.whole_number() {
            Argument::Number(number)
        } else if let Some(text) = cursor.text() {
            Argument::Text(text)
        } else {
            let name = cursor.name("a column, a number or a text")?;
            match name.text.eq_ignore_ascii_case("pad") && cursor.token(&Token::LParen) {
                false => Argument::Column(name),
                true => {
                    let column = cursor.name("the padded column")?;
                    cursor.expect_token(&Token::Comma)?;
                    let digits = cursor
                        .whole_number()
                        .ok_or_else(|| cursor.expected("a number of digits"))?;
                    cursor.expect_token(&Token::RParen)?;
                    Argument::Padded(column, digits)
                }
            }
        });
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(arguments)
}

impl KeyPart {
    pub(super) fn plain(name: Name) -> Self {
        Self {
            at: name.at,
            modifier: None,
            arguments: vec![Argument::Column(name)],
            alias: None,
            order: KeyOrder::Ascending,
        }
    }

    /// Returns the column names in the arguments, and the number in the last argument.
    fn hashed(&self, form: &str) -> Result<(Vec<String>, u64)> {
        let wrong = || SqlError::invalid(self.at, format!("expected {form}"));
        let (Argument::Number(number), columns) = self.arguments.split_last().ok_or_else(wrong)? else {
            return Err(wrong());
        };
        let names = columns.iter().map(|argument| match argument {
            Argument::Column(name) => Ok(name.text.clone()),
            _ => Err(wrong()),
        });
        Ok((names.collect::<Result<_>>()?, *number))
    }

    fn single(&self, form: &str) -> Result<&Name> {
        match self.arguments.as_slice() {
            [Argument::Column(name)] => Ok(name),
            _ => Err(SqlError::invalid(self.at, format!("expected {form}"))),
        }
    }

    /// Converts the part to a stored column of the key. Also returns the name of the column, unless it is computed.
    /// `declared` is called for each logical column of the part and returns its type.
    pub(super) fn to_spec(
        &self,
        declared: &mut dyn FnMut(&Name) -> Result<ColumnType>,
    ) -> Result<(KeySource, Option<String>)> {
        let narrow = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let Some(modifier) = &self.modifier else {
            let name = self.single("a column")?;
            return Ok((KeySource::Type(declared(name)?), Some(name.text.clone())));
        };
        let source = match modifier.as_str() {
            "hash_prefix" => {
                let (of, hex) = self.hashed("hash_prefix(column, …, digits)")?;
                let hex = u8::try_from(hex).unwrap_or(u8::MAX);
                KeySource::HashPrefix(HashPrefix { of, hex })
            }
            "bucket" => {
                let (of, count) = self.hashed("bucket(column, …, count)")?;
                KeySource::Bucket(Bucket {
                    of,
                    count: narrow(count),
                })
            }
            "reverse" => {
                let name = self.single("reverse(column)")?;
                let of = LogicalColumn {
                    name: name.text.clone(),
                    column_type: declared(name)?,
                };
                KeySource::Reverse(Reverse { of })
            }
            "generated" => {
                let name = self.single("generated(column)")?;
                if declared(name)? != ColumnType::I64 {
                    return Err(SqlError::invalid(
                        name.at,
                        "a generated column has the type BIGINT",
                    ));
                }
                return Ok((KeySource::Generated(Generated {}), Some(name.text.clone())));
            }
            "splice" => KeySource::Splice(self.splice(declared)?),
            _ => {
                return Err(SqlError::invalid(
                    self.at,
                    format!(
                        "{modifier} is not a key modifier; use hash_prefix, bucket, reverse, splice or generated"
                    ),
                ));
            }
        };
        Ok((source, None))
    }

    fn splice(&self, declared: &mut dyn FnMut(&Name) -> Result<ColumnType>) -> Result<Splice> {
        let wrong = || {
            SqlError::invalid(
                self.at,
                "expected splice(column or pad(column, digits), …, 'delimiter')",
            )
        };
        let mut columns = Vec::new();
        let mut delimiter = ',';
        for (position, argument) in self.arguments.iter().enumerate() {
            let (name, pad) = match argument {
                Argument::Column(name) => (name, None),
                Argument::Padded(name, digits) => (name, Some(u8::try_from(*digits).unwrap_or(u8::MAX))),
                Argument::Text(text) if position + 1 == self.arguments.len() && text.chars().count() == 1 => {
                    delimiter = text.chars().next().unwrap_or(',');
                    continue;
                }
                Argument::Text(text) if position + 1 == self.arguments.len() => {
                    return Err(SqlError::invalid(
                        self.at,
                        format!("the delimiter of splice is one character; found the text {text:?}"),
                    ));
                }
                _ => return Err(wrong()),
            };
            columns.push(SplicedColumn {
                name: name.text.clone(),
                column_type: declared(name)?,
                pad,
            });
        }
        Ok(Splice { columns, delimiter })
    }
}
