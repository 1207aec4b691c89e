//! Parser of the vector matching between an operator and its right operand: `bool`, `on`, `ignoring`,
//! `group_left`, `group_right`, `fill`.

use super::{Parsed, Parser};
use crate::ast::{Cardinality, VectorMatching};
use crate::lex::{Keyword, TokenKind};

impl Parser<'_> {
    /// Parses the modifiers. Returns a flag that is true if `bool` is present, and the matching.
    pub(super) fn matching(&mut self) -> Parsed<(bool, VectorMatching)> {
        let mut matching = VectorMatching::default();
        let return_bool = self.accept(TokenKind::Keyword(Keyword::Bool));
        if let TokenKind::Keyword(word @ (Keyword::On | Keyword::Ignoring)) = self.kind() {
            self.advance();
            matching.is_on = word == Keyword::On;
            matching.labels = self.labels()?;
            self.grouping_side(&mut matching)?;
        }
        self.fills(&mut matching)?;
        Ok((return_bool, matching))
    }

    fn grouping_side(&mut self, matching: &mut VectorMatching) -> Parsed<()> {
        matching.cardinality = match self.kind() {
            TokenKind::Keyword(Keyword::GroupLeft) => Cardinality::ManyToOne,
            TokenKind::Keyword(Keyword::GroupRight) => Cardinality::OneToMany,
            _ => return Ok(()),
        };
        self.advance();
        // A token that cannot begin the right operand is parsed as a label list, which reports the error.
        if self.kind() == TokenKind::LeftParen || !self.kind().begins_expression() {
            matching.include = self.labels()?;
        }
        Ok(())
    }

    /// Parses `fill`, or `fill_left` and `fill_right` in any order.
    fn fills(&mut self, matching: &mut VectorMatching) -> Parsed<()> {
        if self.accept(TokenKind::Keyword(Keyword::Fill)) {
            let value = Some(self.fill_value()?);
            (matching.fill_left, matching.fill_right) = (value, value);
            return Ok(());
        }
        for _ in 0..2 {
            let side = match self.kind() {
                TokenKind::Keyword(Keyword::FillLeft) => &mut matching.fill_left,
                TokenKind::Keyword(Keyword::FillRight) => &mut matching.fill_right,
                _ => return Ok(()),
            };
            if side.is_some() {
                return Ok(());
            }
            self.advance();
            *side = Some(self.fill_value()?);
        }
        Ok(())
    }

    fn fill_value(&mut self) -> Parsed<f64> {
        self.expect(TokenKind::LeftParen)?;
        let value = self.signed_literal()?.value;
        self.expect(TokenKind::RightParen)?;
        Ok(value)
    }
}
