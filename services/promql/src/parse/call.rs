//! Parser of function calls and aggregations.
//!
//! `sum` and other aggregation names are also valid metric names; the caller distinguishes them by the next token.

use super::{Fault, Node, Parsed, Parser};
use crate::ast::{Aggregate, AggregateOp, Call, Expr};
use crate::function;
use crate::lex::{Keyword, Token, TokenKind, unquote};
use crate::quote::{quote, quote_bytes};

/// Labels of `by` or `without`, and true for `without`.
type Grouping = (Vec<String>, bool);

impl Parser<'_> {
    /// Parses a function call after the function's name.
    pub(super) fn call(&mut self, name: Token) -> Parsed<Node> {
        let (arguments, depth) = self.arguments()?;
        let text = self.text_of(name);
        let Some(function) = function::find(text) else {
            let message = format!("unknown function with name {}", quote(text));
            return Err(self.error(name.at, message));
        };
        let at = self.since(name.at.start);
        let call = Call {
            function,
            arguments,
            at,
        };
        self.deeper(Expr::Call(call), depth, name.at)
    }

    /// Parses arguments in parentheses. Also returns the depth of the deepest argument; 0 without
    /// arguments.
    fn arguments(&mut self) -> Parsed<(Vec<Expr>, usize)> {
        self.expect(TokenKind::LeftParen)?;
        let mut arguments = Vec::new();
        let mut depth = 0;
        if self.accept(TokenKind::RightParen) {
            return Ok((arguments, depth));
        }
        loop {
            let node = self.expression(0)?;
            depth = depth.max(node.depth);
            arguments.push(*node.expr);
            if self.kind() != TokenKind::Comma {
                self.expect(TokenKind::RightParen)?;
                return Ok((arguments, depth));
            }
            let comma = self.advance().at;
            if !self.kind().begins_expression() && self.kind() != TokenKind::Fault {
                let message = "trailing commas not allowed in function call args";
                return Err(self.error(comma, message));
            }
        }
    }

    /// Parses an aggregation after the operator's name.
    pub(super) fn aggregate(&mut self, op: AggregateOp, name: Token) -> Parsed<Node> {
        let parts = self.aggregate_parts();
        let ((grouping, is_without), arguments, depth) = self.within("aggregation", "", parts)?;
        let at = self.since(name.at.start);
        if arguments.is_empty() {
            return Err(self.error(at, "no arguments for aggregate expression provided"));
        }
        let got = arguments.len();
        let mut arguments = arguments.into_iter();
        let parameter = if op.takes_parameter() {
            arguments.next()
        } else {
            None
        };
        let wanted = 1 + usize::from(op.takes_parameter());
        let (Some(expr), true) = (arguments.next(), got == wanted) else {
            let message = format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, got {got}"
            );
            return Err(self.error(at, message));
        };
        let aggregate = Aggregate {
            op,
            expr,
            parameter,
            grouping,
            is_without,
            at,
        };
        self.deeper(Expr::Aggregate(Box::new(aggregate)), depth, name.at)
    }

    /// Parses grouping and arguments. The grouping is optional, before or after the arguments.
    fn aggregate_parts(&mut self) -> Parsed<(Grouping, Vec<Expr>, usize)> {
        let before = self.grouping()?;
        let (arguments, depth) = self.arguments()?;
        let grouping = match before {
            Some(grouping) => Some(grouping),
            None => self.grouping()?,
        };
        if grouping.is_none() {
            self.no_fault()?;
        }
        Ok((grouping.unwrap_or_default(), arguments, depth))
    }

    fn grouping(&mut self) -> Parsed<Option<Grouping>> {
        let is_without = match self.kind() {
            TokenKind::Keyword(Keyword::By) => false,
            TokenKind::Keyword(Keyword::Without) => true,
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some((self.labels()?, is_without)))
    }

    /// Parses labels in parentheses; a trailing comma is allowed.
    pub(super) fn labels(&mut self) -> Parsed<Vec<String>> {
        const CONTEXT: &str = "grouping opts";
        let open = self.expect(TokenKind::LeftParen);
        self.within(CONTEXT, "\"(\"", open)?;
        let mut labels = Vec::new();
        while !self.accept(TokenKind::RightParen) {
            let label = self.label();
            labels.push(self.within(CONTEXT, "label", label)?);
            if self.accept(TokenKind::Comma) {
                continue;
            }
            let close = self.expect(TokenKind::RightParen);
            self.within(CONTEXT, "\",\" or \")\"", close)?;
            break;
        }
        Ok(labels)
    }

    fn label(&mut self) -> Parsed<String> {
        if self.kind().is_label_name() {
            let label = self.advance();
            return Ok(self.text_of(label).to_owned());
        }
        if self.kind() != TokenKind::String {
            return Err(Fault::Unexpected);
        }
        let token = self.advance();
        let bytes = unquote(self.text_of(token));
        let shown = quote_bytes(&bytes);
        let label = String::from_utf8(bytes).ok().filter(|label| !label.is_empty());
        label.ok_or_else(|| self.error(token.at, format!("invalid label name for grouping: {shown}")))
    }
}
