//! Parser of series selectors: metric names and label matchers.
//!
//! Regular expressions are validated here, and their estimated sizes are added up for the whole query.

use tideline_pattern::PatternError;

use super::{Fault, Parsed, Parser};
use crate::ast::{Bounds, Shift, TextRange, VectorSelector};
use crate::labels::METRIC_NAME;
use crate::lex::{Token, TokenKind, unquote};
use crate::matcher::{MatchOp, Matcher};

const CONTEXT: &str = "label matching";

impl Parser<'_> {
    /// Parses a name, braces, or both.
    pub(super) fn selector(&mut self) -> Parsed<VectorSelector> {
        if self.kind().is_metric_name() {
            let name = self.advance();
            self.selector_of(name)
        } else if self.kind() == TokenKind::LeftBrace {
            let start = self.token.at.start;
            let matchers = self.braces()?;
            Ok(assembled(None, matchers, self.since(start)))
        } else {
            Err(Fault::Unexpected)
        }
    }

    /// Parses a selector after its name.
    pub(super) fn selector_of(&mut self, name: Token) -> Parsed<VectorSelector> {
        let mut matchers = match self.kind() {
            TokenKind::LeftBrace => self.braces()?,
            _ => Vec::new(),
        };
        let name_text = self.text_of(name).to_owned();
        matchers.push(self.equal(METRIC_NAME, &name_text));
        Ok(assembled(Some(name_text), matchers, self.since(name.at.start)))
    }

    fn braces(&mut self) -> Parsed<Vec<Matcher>> {
        self.advance();
        let mut matchers = Vec::new();
        while !self.accept(TokenKind::RightBrace) {
            matchers.push(self.matcher()?);
            if self.accept(TokenKind::Comma) {
                continue;
            }
            let close = self.expect(TokenKind::RightBrace);
            self.within(CONTEXT, "\",\" or \"}\"", close)?;
            break;
        }
        Ok(matchers)
    }

    fn matcher(&mut self) -> Parsed<Matcher> {
        let name = match self.kind() {
            TokenKind::Identifier | TokenKind::String => self.advance(),
            _ => return self.within(CONTEXT, "identifier or \"}\"", Err(Fault::Unexpected)),
        };
        let op = match self.kind() {
            TokenKind::Equal => MatchOp::Equal,
            TokenKind::NotEqual => MatchOp::NotEqual,
            TokenKind::EqualRegex => MatchOp::Regex,
            TokenKind::NotEqualRegex => MatchOp::NotRegex,
            _ if name.kind == TokenKind::String => {
                return Ok(self.equal(METRIC_NAME, &self.said(name)));
            }
            _ => return self.within(CONTEXT, "label matching operator", Err(Fault::Unexpected)),
        };
        self.advance();
        if self.kind() != TokenKind::String {
            return self.within(CONTEXT, "string", Err(Fault::Unexpected));
        }
        let value = self.advance();
        let label = match name.kind {
            TokenKind::String => self.said(name),
            _ => self.text_of(name).to_owned(),
        };
        let matcher = Matcher::new(label, op, self.said(value)).and_then(|matcher| {
            if let Some(pattern) = matcher.pattern() {
                self.patterns.take(&matcher.value, pattern.bytes())?;
            }
            Ok(matcher)
        });
        matcher.map_err(|error| {
            let at = TextRange {
                start: name.at.start,
                end: value.at.end,
            };
            self.error(at, reason(&error))
        })
    }

    fn equal(&self, name: &str, value: &str) -> Matcher {
        Matcher::new(name, MatchOp::Equal, value).expect("equality needs no regular expression")
    }

    /// Decodes a string token. Bytes that are not UTF-8 cannot match any label value and are replaced.
    fn said(&self, token: Token) -> String {
        let bytes = unquote(self.text_of(token));
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

fn assembled(name: Option<String>, matchers: Vec<Matcher>, at: TextRange) -> VectorSelector {
    VectorSelector {
        name,
        matchers,
        shift: Shift::default(),
        bounds: Bounds::Plain,
        may_match_all: false,
        at,
    }
}

/// Returns the message of an error. A syntax error is reduced to its last line, because the preceding lines repeat
/// the expression and mark the position.
fn reason(error: &PatternError) -> String {
    let text = error.to_string();
    match error {
        PatternError::Invalid(_) => {
            let line = text.lines().last().unwrap_or_default();
            format!("error parsing regexp: {}", line.trim_start_matches("error: "))
        }
        _ => text,
    }
}
