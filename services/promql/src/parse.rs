//! Turns text into an expression, by hand: precedence climbing over the tokens of [`lex`](crate::lex).
//!
//! | module | parses |
//! |---|---|
//! | `expression` | operators, parentheses, literals, and what stands behind an expression |
//! | `selector` | metric names and conditions in braces |
//! | `call` | functions and aggregations |
//! | `matching` | what stands between an operator and its right side |
//! | `duration` | durations and their arithmetic |
//! | `number` | what a number says |
//!
//! The first fault ends parsing. Its message is the one that Prometheus gives: where several things were begun, the
//! innermost that has a message of its own says what it expected.
//!
//! Neither how deep a text nests nor how long a chain of operators is can exhaust the stack: see [`DEPTH_MAX`].

mod call;
mod duration;
mod expression;
mod matching;
mod number;
mod selector;

pub(crate) use duration::SECONDS_MAX;
pub use duration::{DurationError, parse_duration};

use tideline_pattern::PatternBudget;

use crate::ast::{Expr, TextRange};
use crate::check::check;
use crate::error::ParseError;
use crate::lex::{LexError, Lexer, Token, TokenKind};
use crate::matcher::Matcher;

/// How deep an expression may be: each operator, call, selector and pair of parentheses is one deeper than what it
/// holds. The left sides of a chain of operators count too, because the tree is as deep as the chain is long. Whoever
/// walks the tree may recurse.
pub const DEPTH_MAX: usize = 200;

/// How long the text of a query may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Parses and checks an expression. Compiles no regular expression: their sizes are estimated and added up.
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text)?;
    let parsed = parser.whole_expression();
    let mut expr = parser.end(parsed)?;
    check(&mut expr, text)?;
    Ok(expr)
}

/// Parses the selector of series that an API takes as `match[]`. It may be one that selects all: to refuse that is the
/// API's.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    let mut parser = Parser::new(text)?;
    let parsed = parser.whole_selector();
    parser.end(parsed)
}

/// Reads tokens, one ahead.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The token that comes next.
    token: Token,
    /// Why there is none, if its kind is [`TokenKind::Fault`].
    fault: Option<LexError>,
    /// Behind the token before.
    last_end: usize,
    /// How many expressions have been begun and not ended.
    depth: usize,
    /// Regular expressions of all selectors.
    patterns: PatternBudget,
}

/// Why something could not be parsed.
enum Fault {
    /// The token that comes next does not fit; what has been begun may say more.
    Unexpected,
    /// Something that is wrong whatever is around it.
    Error(Box<ParseError>),
}

type Parsed<T> = Result<T, Fault>;

/// An expression, and how deep it is. Boxed, so that the frames of functions that call each other stay small.
struct Node {
    expr: Box<Expr>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!(
                "the query has {} bytes, at most {TEXT_BYTES_MAX} are allowed",
                text.len()
            );
            return Err(ParseError::new(text, TextRange::default(), message));
        }
        let mut parser = Self {
            text,
            lexer: Lexer::new(text),
            token: Token {
                kind: TokenKind::End,
                at: TextRange::default(),
            },
            fault: None,
            last_end: 0,
            depth: 0,
            patterns: PatternBudget::default(),
        };
        parser.advance();
        Ok(parser)
    }

    fn whole_expression(&mut self) -> Parsed<Expr> {
        if self.kind() == TokenKind::End {
            return Err(self.error(TextRange::default(), "no expression found in input"));
        }
        let node = self.expression(0)?;
        self.expect(TokenKind::End)?;
        Ok(*node.expr)
    }

    fn whole_selector(&mut self) -> Parsed<Vec<Matcher>> {
        let selector = self.selector()?;
        self.expect(TokenKind::End)?;
        Ok(selector.matchers)
    }

    /// Gives a fault that nothing inside has explained its words.
    fn end<T>(&self, parsed: Parsed<T>) -> Result<T, ParseError> {
        parsed.map_err(|fault| match fault {
            Fault::Unexpected => self.unexpected("", ""),
            Fault::Error(error) => *error,
        })
    }

    fn kind(&self) -> TokenKind {
        self.token.kind
    }

    /// Takes the token, and looks at the next.
    fn advance(&mut self) -> Token {
        let taken = self.token;
        self.last_end = taken.at.end;
        match self.lexer.next() {
            Ok(token) => self.token = token,
            Err(error) => {
                self.token = Token {
                    kind: TokenKind::Fault,
                    at: error.at,
                };
                self.fault = Some(error);
            }
        }
        taken
    }

    fn accept(&mut self, kind: TokenKind) -> bool {
        let is_there = self.kind() == kind;
        if is_there && kind != TokenKind::End {
            self.advance();
        }
        is_there
    }

    fn expect(&mut self, kind: TokenKind) -> Parsed<()> {
        if self.accept(kind) {
            Ok(())
        } else {
            Err(Fault::Unexpected)
        }
    }

    /// Fails where the text itself is faulty next: that is said before what is wrong with the meaning of what stands
    /// before.
    fn no_fault(&self) -> Parsed<()> {
        if self.kind() == TokenKind::Fault {
            Err(Fault::Unexpected)
        } else {
            Ok(())
        }
    }

    fn text_of(&self, token: Token) -> &'a str {
        &self.text[token.at.start..token.at.end]
    }

    /// From a place to behind the token before.
    fn since(&self, start: usize) -> TextRange {
        TextRange {
            start,
            end: self.last_end,
        }
    }

    fn error(&self, at: TextRange, message: impl Into<String>) -> Fault {
        Fault::Error(Box::new(ParseError::new(self.text, at, message)))
    }

    /// That the token that comes next is not what is expected here.
    fn unexpected(&self, context: &str, expected: &str) -> ParseError {
        if let Some(fault) = &self.fault {
            return ParseError::new(self.text, fault.at, fault.message.clone());
        }
        let mut message = format!("unexpected {}", self.kind().describe(self.text_of(self.token)));
        if !context.is_empty() {
            message.push_str(" in ");
            message.push_str(context);
        }
        if !expected.is_empty() {
            message.push_str(", expected ");
            message.push_str(expected);
        }
        ParseError::new(self.text, self.token.at, message)
    }

    /// Says of a token that does not fit where it stands and what was expected there.
    fn within<T>(&self, context: &str, expected: &str, parsed: Parsed<T>) -> Parsed<T> {
        parsed.map_err(|fault| match fault {
            Fault::Unexpected => Fault::Error(Box::new(self.unexpected(context, expected))),
            Fault::Error(_) => fault,
        })
    }

    fn too_deep(&self, at: TextRange) -> Fault {
        self.error(
            at,
            format!("the expression is nested deeper than {DEPTH_MAX} levels"),
        )
    }
}
