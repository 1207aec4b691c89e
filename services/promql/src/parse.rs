//! Parser: converts a text to an expression, by precedence climbing over the tokens of [`lex`](crate::lex).
//!
//! | module | parses |
//! |---|---|
//! | `expression` | operators, parentheses, literals, suffixes of expressions |
//! | `selector` | metric names and label matchers |
//! | `call` | function calls and aggregations |
//! | `matching` | vector matching between an operator and its right operand |
//! | `duration` | durations and duration expressions |
//! | `number` | values of number literals |
//!
//! The first error ends parsing. Messages of syntax errors equal those of Prometheus: the innermost active rule that
//! defines a message determines it.
//!
//! Neither deep nesting nor long chains of operators can overflow the stack: see [`DEPTH_MAX`].

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

/// Maximum depth of an expression. Each operator, call, selector and pair of parentheses is one level above
/// its operands. In a chain of operators, the left operands count as well, because the tree is as deep as the
/// chain is long. The limit makes recursion over the tree safe.
pub const DEPTH_MAX: usize = 200;

/// Maximum length of a query in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Parses and checks an expression. Regular expressions are not compiled; their total compiled size is
/// estimated and limited.
///
/// # Errors
///
/// Returns a [`ParseError`] for the first syntax or type error. Also returns one if the text exceeds
/// [`TEXT_BYTES_MAX`], the expression exceeds [`DEPTH_MAX`], or a regular expression exceeds its limits.
///
/// # Examples
///
/// ```
/// use tideline_promql::parse;
///
/// let expr = parse("sum  by(host) (rate(requests_total{code=~'5..'} [5m]))")?;
/// assert_eq!(expr.to_string(), r#"sum by (host) (rate(requests_total{code=~"5.."}[5m]))"#);
///
/// let error = parse("rate(requests_total)").expect_err("rate takes a range vector");
/// assert_eq!((error.line, error.column), (1, 6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text)?;
    let parsed = parser.whole_expression();
    let mut expr = parser.end(parsed)?;
    check(&mut expr, text)?;
    Ok(expr)
}

/// Parses a series selector, such as the API parameter `match[]`. The selector may match all series; the API
/// must reject that case if necessary.
///
/// # Errors
///
/// Returns a [`ParseError`] for the first syntax error, and if the text exceeds [`TEXT_BYTES_MAX`] or a
/// regular expression exceeds its limits.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    let mut parser = Parser::new(text)?;
    let parsed = parser.whole_selector();
    parser.end(parsed)
}

/// Parser state with one token of lookahead.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// Next token.
    token: Token,
    /// Lexical error, if the next token is [`TokenKind::Fault`].
    fault: Option<LexError>,
    /// End of the previous token.
    last_end: usize,
    /// Number of open expressions.
    depth: usize,
    /// Memory budget of the regular expressions in all selectors.
    patterns: PatternBudget,
}

/// Reason why a rule failed.
enum Fault {
    /// Next token that does not fit. An enclosing rule may supply a more specific message.
    Unexpected,
    /// Final error, independent of the enclosing rules.
    Error(Box<ParseError>),
}

type Parsed<T> = Result<T, Fault>;

/// Expression with its depth. The expression is boxed, so that the stack frames of recursive functions stay small.
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

    /// Converts the result of the outermost rule to the public error type. A fault without a message receives a
    /// general message.
    fn end<T>(&self, parsed: Parsed<T>) -> Result<T, ParseError> {
        parsed.map_err(|fault| match fault {
            Fault::Unexpected => self.unexpected("", ""),
            Fault::Error(error) => *error,
        })
    }

    fn kind(&self) -> TokenKind {
        self.token.kind
    }

    /// Consumes the next token and reads one more.
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

    /// Fails if the next token is a lexical error. A lexical error takes precedence over semantic errors of the
    /// preceding tokens.
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

    /// Returns the range from a position to the end of the previous token.
    fn since(&self, start: usize) -> TextRange {
        TextRange {
            start,
            end: self.last_end,
        }
    }

    fn error(&self, at: TextRange, message: impl Into<String>) -> Fault {
        Fault::Error(Box::new(ParseError::new(self.text, at, message)))
    }

    /// Creates the error for an unexpected next token; for a lexical error, returns that error.
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

    /// Adds context and expectation to the error of an unexpected token.
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
