//! Position in the tokens of a statement.
//!
//! Keywords are compared without regard to case. A quoted word is always a name, never a keyword.

use sqlparser::ast::{DataType, Expr};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{NESTING_MAX, Parameters, is_reserved};
use crate::error::{Position, Result, SqlError};
use crate::literal::Literal;
use crate::statement::Name;

/// SQL dialect: names in backticks or double quotes, texts in single quotes.
static DIALECT: GenericDialect = GenericDialect;

/// Position in the tokens of a statement, and the parameters.
pub(super) struct Cursor<'p> {
    parser: Parser<'static>,
    parameters: &'p Parameters,
    /// True if a hint allows the statement to read the whole table.
    pub(super) allow_scan: bool,
    /// Position after the last token.
    end: Position,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(tokens: Vec<TokenWithSpan>, parameters: &'p Parameters, allow_scan: bool) -> Self {
        let end = tokens
            .last()
            .map_or(Position { line: 1, column: 1 }, |token| token.span.end.into());
        let parser = Parser::new(&DIALECT).with_recursion_limit(NESTING_MAX);
        Self {
            parser: parser.with_tokens_with_locations(tokens),
            parameters,
            allow_scan,
            end,
        }
    }

    fn peek(&self) -> &TokenWithSpan {
        self.parser.peek_token_ref()
    }

    /// Returns the position of the next token.
    pub(super) fn at(&self) -> Position {
        match self.peek().token {
            Token::EOF => self.end,
            _ => self.peek().span.into(),
        }
    }

    /// Returns a description of the next token for error messages.
    pub(super) fn found(&self) -> String {
        match &self.peek().token {
            Token::EOF => "the end of the statement".to_owned(),
            token => {
                let text = token.to_string();
                let short: String = text.chars().take(40).collect();
                match short.len() == text.len() {
                    true => format!("`{text}`"),
                    false => format!("`{short}…`"),
                }
            }
        }
    }

    /// Creates the error of an unexpected token.
    pub(super) fn expected(&self, what: &str) -> SqlError {
        SqlError::invalid(self.at(), format!("expected {what}, found {}", self.found()))
    }

    /// Returns true if the next token is this word without quotes.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }

    /// Returns true if the token at this position after the next token is this word without quotes.
    pub(super) fn is_word_at(&self, position: usize, word: &str) -> bool {
        matches!(&self.parser.peek_nth_token_ref(position).token, Token::Word(next)
            if next.quote_style.is_none() && next.value.eq_ignore_ascii_case(word))
    }

    /// Returns true if the token at this position after the next token is `token`.
    pub(super) fn is_token_at(&self, position: usize, token: &Token) -> bool {
        self.parser.peek_nth_token_ref(position).token == *token
    }

    /// Returns true if the next token can be a name: it is quoted, or it is a word that is not reserved.
    pub(super) fn is_name(&self) -> bool {
        matches!(&self.peek().token, Token::Word(next) if next.quote_style.is_some() || !is_reserved(&next.value))
    }

    /// Skips the next token if it is this word. Returns true if it was skipped.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        if is_next {
            self.parser.next_token();
        }
        is_next
    }

    /// Skips the next tokens if they are these words. Returns true if they were skipped.
    pub(super) fn words(&mut self, words: &[&str]) -> bool {
        let mut numbered = words.iter().enumerate();
        let is_next = numbered.all(|(position, word)| self.is_word_at(position, word));
        if is_next {
            words.iter().for_each(|_| {
                self.parser.next_token();
            });
        }
        is_next
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        match self.word(word) {
            true => Ok(()),
            false => Err(self.expected(word)),
        }
    }

    pub(super) fn is_token(&self, token: &Token) -> bool {
        self.is_token_at(0, token)
    }

    /// Skips the next token if it is `token`. Returns true if it was skipped.
    pub(super) fn token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        match self.token(token) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{token}`"))),
        }
    }

    /// Reads a name, which must not be followed by a period. `what` describes the name in error messages.
    pub(super) fn name(&mut self, what: &str) -> Result<Name> {
        let at = self.at();
        match &self.peek().token {
            Token::Word(word) => {
                let text = word.value.clone();
                self.parser.next_token();
                if self.is_token(&Token::Period) {
                    return Err(SqlError::invalid(
                        at,
                        format!(
                            "{text:?} is followed by a period; a name has one part, and a name that contains a period \
                             is in backticks"
                        ),
                    ));
                }
                Ok(Name { text, at })
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Reads a text in single quotes; `None` if the next token is not such a text.
    pub(super) fn text(&mut self) -> Option<String> {
        let Token::SingleQuotedString(text) = &self.peek().token else {
            return None;
        };
        let text = text.clone();
        self.parser.next_token();
        Some(text)
    }

    /// Reads a whole number; `None` if the next token is not a whole number of at most 64 bits.
    pub(super) fn whole_number(&mut self) -> Option<u64> {
        let Token::Number(digits, false) = &self.peek().token else {
            return None;
        };
        let number = digits.parse().ok()?;
        self.parser.next_token();
        Some(number)
    }

    /// Parses an expression.
    pub(super) fn expression(&mut self) -> Result<Expr> {
        let at = self.at();
        self.parser.parse_expr().map_err(|error| to_error(&error, at))
    }

    /// Parses the type of a column.
    pub(super) fn data_type(&mut self) -> Result<DataType> {
        let at = self.at();
        self.parser
            .parse_data_type()
            .map_err(|error| to_error(&error, at))
    }

    /// Returns the parameter for a placeholder with this name.
    pub(super) fn parameter(&self, name: &str, at: Position) -> Result<Literal> {
        let number = name
            .strip_prefix('?')
            .and_then(|number| number.parse::<usize>().ok());
        let value = number.and_then(|number| self.parameters.get(number));
        let missing = || SqlError::invalid(at, format!("the placeholder {name} is not supported; use ?"));
        value
            .map(|json| Literal::from_parameter(json, at))
            .ok_or_else(missing)
    }

    /// Checks that no token is left.
    pub(super) fn end(&self) -> Result<()> {
        match self.is_token(&Token::EOF) {
            true => Ok(()),
            false => Err(self.expected("the end of the statement")),
        }
    }
}

/// Converts an error of the parser. If its message ends with a position, this is the position of the error. Otherwise,
/// the position is `at`.
fn to_error(error: &ParserError, at: Position) -> SqlError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            return SqlError::OverLimit {
                message: format!(
                    "{at}the expression is nested more than {NESTING_MAX} levels deep; remove parentheses, or send \
                     several statements"
                ),
                limit: NESTING_MAX as u64,
                actual: NESTING_MAX as u64 + 1,
            };
        }
    };
    let Some((message, position)) = text.rsplit_once(" at Line: ") else {
        return SqlError::invalid(at, lower_first(text));
    };
    let position = position.split_once(", Column: ").and_then(|(line, column)| {
        Some(Position {
            line: line.parse().ok()?,
            column: column.parse().ok()?,
        })
    });
    SqlError::invalid(position.unwrap_or(at), lower_first(message))
}

/// Adapts a parser message to the wording of the other messages.
fn lower_first(message: &str) -> String {
    message
        .replacen("Expected: ", "expected ", 1)
        .replacen("found: EOF", "found the end of the statement", 1)
}
