//! Parser of operators, parentheses, literals and suffixes: ranges, `offset`, `@`, `anchored`, `smoothed`.
//!
//! Recursive functions are kept small, and rarely needed ones are not inlined, so that nesting takes little
//! stack.

use super::duration::as_value;
use super::{DEPTH_MAX, Fault, Node, Parsed, Parser};
use crate::ast::{
    AtModifier, Binary, BinaryOp, Bounds, DurationValue, Expr, MatrixSelector, NumberLiteral, Paren, Shift,
    StringLiteral, Subquery, TextRange, Unary, VectorSelector,
};
use crate::lex::{Keyword, TokenKind, unquote};

/// Binding strength of `^`. Operators within the operand of a sign must bind at least as tightly.
const POWER: u8 = 6;

/// Returns the binary operator of a token and its binding strength.
fn binary_op(kind: TokenKind) -> Option<(BinaryOp, u8)> {
    Some(match kind {
        TokenKind::Or => (BinaryOp::Or, 1),
        TokenKind::And => (BinaryOp::And, 2),
        TokenKind::Unless => (BinaryOp::Unless, 2),
        TokenKind::EqualEqual => (BinaryOp::Equal, 3),
        TokenKind::NotEqual => (BinaryOp::NotEqual, 3),
        TokenKind::Less => (BinaryOp::Less, 3),
        TokenKind::LessEqual => (BinaryOp::LessEqual, 3),
        TokenKind::Greater => (BinaryOp::Greater, 3),
        TokenKind::GreaterEqual => (BinaryOp::GreaterEqual, 3),
        TokenKind::TrimUpper => (BinaryOp::TrimUpper, 3),
        TokenKind::TrimLower => (BinaryOp::TrimLower, 3),
        TokenKind::Add => (BinaryOp::Add, 4),
        TokenKind::Subtract => (BinaryOp::Subtract, 4),
        TokenKind::Multiply => (BinaryOp::Multiply, 5),
        TokenKind::Divide => (BinaryOp::Divide, 5),
        TokenKind::Modulo => (BinaryOp::Modulo, 5),
        TokenKind::Atan2 => (BinaryOp::Atan2, 5),
        TokenKind::Power => (BinaryOp::Power, POWER),
        _ => return None,
    })
}

impl Parser<'_> {
    /// Parses an expression of operators that bind at least as tightly as `min`.
    pub(super) fn expression(&mut self, min: u8) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.too_deep(self.token.at));
        }
        let mut left = self.signed()?;
        while let Some((op, binding)) = binary_op(self.kind()).filter(|(_, binding)| *binding >= min) {
            left = self.binary(left, op, binding)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Parses an operator and its right operand. Functions such as this one are not inlined, so that a nesting level
    /// takes stack only for the functions called at this level.
    #[inline(never)]
    fn binary(&mut self, left: Node, op: BinaryOp, binding: u8) -> Parsed<Node> {
        let at = self.advance().at;
        let (return_bool, matching) = self.matching()?;
        let right = self.expression(if op == BinaryOp::Power {
            binding
        } else {
            binding + 1
        })?;
        let depth = left.depth.max(right.depth);
        let binary = Binary {
            op,
            left: *left.expr,
            right: *right.expr,
            return_bool,
            matching: Some(matching),
        };
        self.deeper(Expr::Binary(Box::new(binary)), depth, at)
    }

    /// Creates a node one level above its deepest operand. Fails if the node exceeds [`DEPTH_MAX`].
    pub(super) fn deeper(&self, expr: Expr, depth: usize, at: TextRange) -> Parsed<Node> {
        let depth = depth + 1;
        if depth > DEPTH_MAX {
            Err(self.too_deep(at))
        } else {
            Ok(Node {
                expr: Box::new(expr),
                depth,
            })
        }
    }

    fn signed(&mut self) -> Parsed<Node> {
        let is_negative = match self.kind() {
            TokenKind::Add => false,
            TokenKind::Subtract => true,
            _ => return self.with_suffixes(),
        };
        let sign = self.advance().at;
        let node = self.expression(POWER)?;
        let at = TextRange {
            start: sign.start,
            end: node.expr.at().end,
        };
        match *node.expr {
            Expr::Number(number) => Ok(Node::leaf(Expr::Number(NumberLiteral {
                value: if is_negative { -number.value } else { number.value },
                at,
                ..number
            }))),
            expr => {
                let unary = Unary {
                    is_negative,
                    expr,
                    at,
                };
                self.deeper(Expr::Unary(Box::new(unary)), node.depth, sign)
            }
        }
    }

    fn with_suffixes(&mut self) -> Parsed<Node> {
        let mut node = self.primary()?;
        loop {
            match self.kind() {
                TokenKind::LeftBracket => node = self.brackets(node)?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(&mut node.expr)?,
                TokenKind::At => self.at_modifier(&mut node.expr)?,
                TokenKind::Keyword(Keyword::Anchored) => self.bounds(&mut node.expr, Bounds::Anchored)?,
                TokenKind::Keyword(Keyword::Smoothed) => self.bounds(&mut node.expr, Bounds::Smoothed)?,
                _ => return Ok(node),
            }
        }
    }

    fn primary(&mut self) -> Parsed<Node> {
        match self.kind() {
            TokenKind::Number | TokenKind::Duration => Ok(Node::leaf(Expr::Number(self.literal()?))),
            TokenKind::String => Ok(self.string()),
            TokenKind::LeftParen => self.paren(),
            TokenKind::LeftBrace => Ok(Node::leaf(Expr::Vector(self.selector()?))),
            kind if kind.is_metric_name() => self.word(),
            _ => Err(Fault::Unexpected),
        }
    }

    #[inline(never)]
    fn string(&mut self) -> Node {
        let token = self.advance();
        let literal = string_literal(self.text_of(token), token.at);
        Node::leaf(Expr::String(literal))
    }

    #[inline(never)]
    fn paren(&mut self) -> Parsed<Node> {
        let start = self.advance().at.start;
        let inner = self.expression(0)?;
        self.expect(TokenKind::RightParen)?;
        let at = self.since(start);
        let paren = Paren {
            expr: *inner.expr,
            at,
        };
        self.deeper(Expr::Paren(Box::new(paren)), inner.depth, at)
    }

    /// Parses an expression that begins with a word. The next token determines whether the expression is
    /// an aggregation, a call or a selector.
    fn word(&mut self) -> Parsed<Node> {
        let word = self.advance();
        match (word.kind, self.kind()) {
            (
                TokenKind::Aggregate(op),
                TokenKind::LeftParen | TokenKind::Keyword(Keyword::By | Keyword::Without),
            ) => self.aggregate(op, word),
            (
                TokenKind::Identifier
                | TokenKind::Keyword(
                    Keyword::Start
                    | Keyword::End
                    | Keyword::Step
                    | Keyword::Range
                    | Keyword::MaxOf
                    | Keyword::MinOf,
                ),
                TokenKind::LeftParen,
            ) => self.call(word),
            _ => Ok(Node::leaf(Expr::Vector(self.selector_of(word)?))),
        }
    }

    /// Parses `[range]` or `[range:step]` after an expression.
    #[inline(never)]
    fn brackets(&mut self, node: Node) -> Parsed<Node> {
        const DURATION: &str = "number, duration, step(), or range()";
        let open = self.advance().at.start;
        let range = self.positive_duration();
        let range = self.within("subquery or range selector", DURATION, range)?;
        if self.accept(TokenKind::RightBracket) {
            return self.matrix(node, range, open);
        }
        let colon = self.expect(TokenKind::Colon);
        self.within("subquery or range", "\":\" or \"]\"", colon)?;
        let step = if self.kind() == TokenKind::RightBracket {
            None
        } else {
            let step = self.positive_duration();
            let expected = "number, duration, step(), range(), or \"]\"";
            Some(self.within("subquery selector", expected, step)?)
        };
        let close = self.expect(TokenKind::RightBracket);
        self.within("subquery selector", "\"]\"", close)?;
        let at = self.since(node.expr.at().start);
        let subquery = Subquery {
            expr: *node.expr,
            range,
            step,
            shift: Shift::default(),
            at,
        };
        self.deeper(Expr::Subquery(Box::new(subquery)), node.depth, at)
    }

    fn matrix(&mut self, node: Node, range: DurationValue, open: usize) -> Parsed<Node> {
        let at = self.since(node.expr.at().start);
        let fault = match *node.expr {
            Expr::Vector(selector) => {
                if selector.shift.offset.is_some() {
                    "no offset modifiers allowed before range"
                } else if selector.shift.at.is_some() {
                    "no @ modifiers allowed before range"
                } else {
                    let matrix = MatrixSelector { selector, range, at };
                    return Ok(Node::leaf(Expr::Matrix(matrix)));
                }
            }
            _ => "ranges only allowed for vector selectors",
        };
        Err(self.error(self.since(open), fault))
    }

    fn offset(&mut self, expr: &mut Expr) -> Parsed<()> {
        self.advance();
        let offset = self.offset_duration();
        let offset = self.within("offset", "number, duration, step(), or range()", offset)?;
        let at = expr.at();
        let end = self.last_end;
        let Some((shift, range)) = shift_of(expr) else {
            let message = "offset modifier must be preceded by an instant vector selector or range vector selector \
                           or a subquery";
            return Err(self.error(at, message));
        };
        if shift.offset.is_some() {
            return Err(self.error(at, "offset may not be set multiple times"));
        }
        // Prometheus treats an offset of zero like no offset.
        shift.offset = Some(as_value(offset)).filter(|offset| *offset != DurationValue::Fixed(0));
        range.end = end;
        Ok(())
    }

    fn at_modifier(&mut self, expr: &mut Expr) -> Parsed<()> {
        self.advance();
        let modifier = self.instant(expr);
        let modifier = self.within("@", "timestamp", modifier)?;
        let at = expr.at();
        let end = self.last_end;
        let Some((shift, range)) = shift_of(expr) else {
            let message = "@ modifier must be preceded by an instant vector selector or range vector selector \
                           or a subquery";
            return Err(self.error(at, message));
        };
        if shift.at.is_some() {
            return Err(self.error(at, "@ <timestamp> may not be set multiple times"));
        }
        shift.at = Some(modifier);
        range.end = end;
        Ok(())
    }

    /// Parses the argument of `@`.
    fn instant(&mut self, expr: &Expr) -> Parsed<AtModifier> {
        let preprocessor = match self.kind() {
            TokenKind::Keyword(Keyword::Start) => Some(AtModifier::Start),
            TokenKind::Keyword(Keyword::End) => Some(AtModifier::End),
            _ => None,
        };
        if let Some(modifier) = preprocessor {
            self.advance();
            self.expect(TokenKind::LeftParen)?;
            self.expect(TokenKind::RightParen)?;
            return Ok(modifier);
        }
        let seconds = self.signed_literal()?.value;
        if !(seconds > i64::MIN as f64 && seconds < i64::MAX as f64) {
            let shown = if seconds.is_finite() {
                format!("{seconds:.6}")
            } else {
                crate::number::plain(seconds)
            };
            let message = format!("timestamp out of bounds for @ modifier: {shown}");
            return Err(self.error(expr.at(), message));
        }
        Ok(AtModifier::Instant((seconds * 1000.0).round() as i64))
    }

    fn bounds(&mut self, expr: &mut Expr, bounds: Bounds) -> Parsed<()> {
        self.advance();
        let word = if bounds == Bounds::Anchored {
            "anchored"
        } else {
            "smoothed"
        };
        let selector = match expr {
            Expr::Vector(selector) => selector,
            Expr::Matrix(matrix) => &mut matrix.selector,
            Expr::Subquery(subquery) => {
                let message = format!("{word} modifier is not supported for subqueries");
                return Err(self.error(subquery.at, message));
            }
            _ => return Err(self.error(expr.at(), format!("{word} modifier not implemented"))),
        };
        if selector.bounds != Bounds::Plain && selector.bounds != bounds {
            let message = "anchored and smoothed modifiers cannot be used together";
            return Err(self.error(expr.at(), message));
        }
        selector.bounds = bounds;
        Ok(())
    }
}

impl Node {
    pub(super) fn leaf(expr: Expr) -> Self {
        Self {
            expr: Box::new(expr),
            depth: 1,
        }
    }
}

/// Returns the time shift of an expression that can have one, and the expression's position.
fn shift_of(expr: &mut Expr) -> Option<(&mut Shift, &mut TextRange)> {
    match expr {
        Expr::Vector(VectorSelector { shift, at, .. }) => Some((shift, at)),
        Expr::Matrix(matrix) => Some((&mut matrix.selector.shift, &mut matrix.at)),
        Expr::Subquery(subquery) => Some((&mut subquery.shift, &mut subquery.at)),
        _ => None,
    }
}

fn string_literal(quoted: &str, at: TextRange) -> StringLiteral {
    match String::from_utf8(unquote(quoted)) {
        Ok(value) => StringLiteral {
            value,
            invalid: None,
            at,
        },
        Err(error) => StringLiteral {
            value: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            invalid: Some(error.into_bytes().into()),
            at,
        },
    }
}
