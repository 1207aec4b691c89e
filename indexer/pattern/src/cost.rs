//! Upper bound of the compiled size of an expression, computed from its syntax tree.
//!
//! The size constants, in bytes, are those of the `regex` crate 1.13, rounded up. A test checks that the estimates
//! are upper bounds. Arithmetic saturates, so nested repetitions cannot overflow.

use regex_syntax::ast::{
    Ast, ClassSet, ClassSetItem, ClassSetRange, Flag, Flags, FlagsItemKind, LiteralKind, RepetitionKind,
    RepetitionRange,
};

/// Fixed size of the automata of any expression.
const BASE_BYTES: u64 = 2 << 10;
/// Size of one automaton state. Each byte of a literal takes one state, and so does each branch and each loop.
const STATE_BYTES: u64 = 96;
/// Size of one character that is matched case-insensitively.
const FOLDED_LITERAL_BYTES: u64 = 1_024;
/// Size of a range of characters, or of a dot: a few states per UTF-8 length.
const RANGE_BYTES: u64 = 3 << 10;
/// Size of a Unicode class such as `\w` or `\pL`: hundreds of ranges.
const UNICODE_CLASS_BYTES: u64 = 80 << 10;

/// Estimated size of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Size of one compiled automaton in bytes.
    pub(crate) bytes: u64,
    /// Number of capture groups, without the implicit group of the whole match.
    pub(crate) groups: u64,
}

/// Estimates the size of an expression.
pub(crate) fn cost(ast: &Ast) -> Cost {
    let mut estimate = Estimate {
        is_folded: folds(ast),
        groups: 0,
    };
    Cost {
        bytes: estimate.of(ast).saturating_add(BASE_BYTES),
        groups: estimate.groups,
    }
}

struct Estimate {
    /// True if the expression contains the flag `i`. The whole expression is then estimated as case-insensitive.
    is_folded: bool,
    groups: u64,
}

impl Estimate {
    /// Returns the size of a subexpression in bytes. The nesting limit of the parser bounds the recursion.
    fn of(&mut self, ast: &Ast) -> u64 {
        match ast {
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => STATE_BYTES,
            Ast::Literal(literal) => self.literal(literal.c, &literal.kind),
            Ast::Dot(_) => RANGE_BYTES,
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => UNICODE_CLASS_BYTES,
            Ast::ClassBracketed(class) => self.set(&class.kind),
            Ast::Repetition(repetition) => {
                let one = self.of(&repetition.ast);
                let times = u64::from(times(&repetition.op.kind));
                one.saturating_add(STATE_BYTES).saturating_mul(times)
            }
            Ast::Group(group) => {
                self.groups += u64::from(group.is_capturing());
                self.of(&group.ast).saturating_add(2 * STATE_BYTES)
            }
            Ast::Alternation(either) => self.all(&either.asts),
            Ast::Concat(parts) => self.all(&parts.asts),
        }
    }

    fn all(&mut self, asts: &[Ast]) -> u64 {
        let mut sum = STATE_BYTES;
        for ast in asts {
            sum = sum.saturating_add(self.of(ast)).saturating_add(STATE_BYTES);
        }
        sum
    }

    fn literal(&self, c: char, kind: &LiteralKind) -> u64 {
        match (self.is_folded, kind) {
            (true, _) => FOLDED_LITERAL_BYTES,
            (false, _) => c.len_utf8() as u64 * STATE_BYTES,
        }
    }

    fn set(&self, set: &ClassSet) -> u64 {
        match set {
            ClassSet::Item(item) => self.item(item),
            ClassSet::BinaryOp(op) => self.set(&op.lhs).saturating_add(self.set(&op.rhs)),
        }
    }

    fn item(&self, item: &ClassSetItem) -> u64 {
        match item {
            ClassSetItem::Empty(_) => STATE_BYTES,
            ClassSetItem::Literal(_) | ClassSetItem::Ascii(_) => RANGE_BYTES,
            ClassSetItem::Range(range) => self.range(range),
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => UNICODE_CLASS_BYTES,
            ClassSetItem::Bracketed(class) => self.set(&class.kind),
            ClassSetItem::Union(union) => {
                let items = union.items.iter().map(|item| self.item(item));
                items.fold(STATE_BYTES, u64::saturating_add)
            }
        }
    }

    fn range(&self, range: &ClassSetRange) -> u64 {
        match self.is_folded && !range.end.c.is_ascii() {
            true => UNICODE_CLASS_BYTES,
            false => RANGE_BYTES,
        }
    }
}

/// Returns the number of copies of a repeated subexpression in the compiled automaton.
fn times(kind: &RepetitionKind) -> u32 {
    match kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count).max(1),
        RepetitionKind::Range(RepetitionRange::AtLeast(count)) => count.saturating_add(1),
        RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => (*most).max(1),
    }
}

/// Returns true if the expression contains the flag `i`, even if it only switches the flag off.
fn folds(ast: &Ast) -> bool {
    let sets = |flags: &Flags| {
        let items = flags.items.iter();
        items
            .clone()
            .any(|item| item.kind == FlagsItemKind::Flag(Flag::CaseInsensitive))
    };
    match ast {
        Ast::Flags(set) => sets(&set.flags),
        Ast::Group(group) => group.flags().is_some_and(sets) || folds(&group.ast),
        Ast::Repetition(repetition) => folds(&repetition.ast),
        Ast::Alternation(either) => either.asts.iter().any(folds),
        Ast::Concat(parts) => parts.asts.iter().any(folds),
        _ => false,
    }
}
