//! Token kinds, and their names in error messages.
//!
//! Keywords can also be metric or label names in some positions, which the predicates of [`TokenKind`] define.

use crate::ast::{AggregateOp, TextRange};
use crate::quote::quote;

/// Token with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) at: TextRange,
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Lexical error at this position.
    Fault,
    End,
    Identifier,
    MetricIdentifier,
    Number,
    Duration,
    String,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    Equal,
    EqualRegex,
    NotEqualRegex,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    EqualEqual,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    TrimUpper,
    TrimLower,
    And,
    Or,
    Unless,
    At,
    Aggregate(AggregateOp),
    Keyword(Keyword),
}

/// Keyword. The same word may also be a name, depending on its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Offset,
    Smoothed,
    Anchored,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Fill,
    FillLeft,
    FillRight,
    Bool,
    Start,
    End,
    Step,
    Range,
    MaxOf,
    MinOf,
}

/// Returns the kind of a keyword, ignoring case; `None` for other words.
pub(super) fn keyword(word: &str) -> Option<TokenKind> {
    // The longest keyword has twelve bytes.
    let mut lower = [0; 12];
    let lower = lower.get_mut(..word.len())?;
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    Some(match &*lower {
        b"inf" | b"nan" => TokenKind::Number,
        b"and" => TokenKind::And,
        b"or" => TokenKind::Or,
        b"unless" => TokenKind::Unless,
        b"atan2" => TokenKind::Atan2,
        b"sum" => TokenKind::Aggregate(AggregateOp::Sum),
        b"avg" => TokenKind::Aggregate(AggregateOp::Avg),
        b"count" => TokenKind::Aggregate(AggregateOp::Count),
        b"min" => TokenKind::Aggregate(AggregateOp::Min),
        b"max" => TokenKind::Aggregate(AggregateOp::Max),
        b"group" => TokenKind::Aggregate(AggregateOp::Group),
        b"stddev" => TokenKind::Aggregate(AggregateOp::Stddev),
        b"stdvar" => TokenKind::Aggregate(AggregateOp::Stdvar),
        b"topk" => TokenKind::Aggregate(AggregateOp::TopK),
        b"bottomk" => TokenKind::Aggregate(AggregateOp::BottomK),
        b"count_values" => TokenKind::Aggregate(AggregateOp::CountValues),
        b"quantile" => TokenKind::Aggregate(AggregateOp::Quantile),
        b"limitk" => TokenKind::Aggregate(AggregateOp::LimitK),
        b"limit_ratio" => TokenKind::Aggregate(AggregateOp::LimitRatio),
        b"offset" => TokenKind::Keyword(Keyword::Offset),
        b"smoothed" => TokenKind::Keyword(Keyword::Smoothed),
        b"anchored" => TokenKind::Keyword(Keyword::Anchored),
        b"by" => TokenKind::Keyword(Keyword::By),
        b"without" => TokenKind::Keyword(Keyword::Without),
        b"on" => TokenKind::Keyword(Keyword::On),
        b"ignoring" => TokenKind::Keyword(Keyword::Ignoring),
        b"group_left" => TokenKind::Keyword(Keyword::GroupLeft),
        b"group_right" => TokenKind::Keyword(Keyword::GroupRight),
        b"fill" => TokenKind::Keyword(Keyword::Fill),
        b"fill_left" => TokenKind::Keyword(Keyword::FillLeft),
        b"fill_right" => TokenKind::Keyword(Keyword::FillRight),
        b"bool" => TokenKind::Keyword(Keyword::Bool),
        b"start" => TokenKind::Keyword(Keyword::Start),
        b"end" => TokenKind::Keyword(Keyword::End),
        b"step" => TokenKind::Keyword(Keyword::Step),
        b"range" => TokenKind::Keyword(Keyword::Range),
        b"max_of" => TokenKind::Keyword(Keyword::MaxOf),
        b"min_of" => TokenKind::Keyword(Keyword::MinOf),
        _ => return None,
    })
}

impl TokenKind {
    /// Returns true for a keyword of duration expressions.
    pub(super) fn is_of_durations(self) -> bool {
        matches!(
            self,
            Self::Keyword(Keyword::Step | Keyword::Range | Keyword::MaxOf | Keyword::MinOf)
        )
    }

    /// Returns true if the token is allowed as an unquoted metric name.
    pub(crate) fn is_metric_name(self) -> bool {
        match self {
            Self::Identifier | Self::MetricIdentifier | Self::And | Self::Or | Self::Unless => true,
            Self::Aggregate(_) => true,
            Self::Keyword(keyword) => !matches!(
                keyword,
                Keyword::Bool | Keyword::On | Keyword::Ignoring | Keyword::GroupLeft | Keyword::GroupRight
            ),
            _ => false,
        }
    }

    /// Returns true if the token is allowed as an unquoted label name in a grouping.
    pub(crate) fn is_label_name(self) -> bool {
        match self {
            Self::Keyword(keyword) => keyword != Keyword::Without,
            Self::Atan2 => true,
            _ => self.is_metric_name(),
        }
    }

    /// Returns true if an expression may begin with this token.
    pub(crate) fn begins_expression(self) -> bool {
        self.is_metric_name()
            || matches!(
                self,
                Self::Number
                    | Self::Duration
                    | Self::String
                    | Self::LeftParen
                    | Self::LeftBrace
                    | Self::Add
                    | Self::Subtract
            )
    }

    /// Returns the name of a token for an error message. `text` is the token as written in the query.
    pub(crate) fn describe(self, text: &str) -> String {
        match self {
            Self::End => "end of input".to_owned(),
            Self::Identifier => format!("identifier {}", quote(text)),
            Self::MetricIdentifier => format!("metric identifier {}", quote(text)),
            Self::Number => format!("number {}", shortened(text)),
            Self::Duration => format!("duration {}", shortened(text)),
            Self::String => format!("string {}", shortened(text)),
            Self::Aggregate(_) => format!("<aggr:{text}>"),
            Self::Keyword(
                Keyword::Start
                | Keyword::End
                | Keyword::Step
                | Keyword::Range
                | Keyword::MaxOf
                | Keyword::MinOf,
            ) => quote(text),
            Self::Keyword(_) => format!("<{text}>"),
            Self::LeftParen
            | Self::RightParen
            | Self::LeftBrace
            | Self::RightBrace
            | Self::LeftBracket
            | Self::RightBracket
            | Self::Comma
            | Self::Colon
            | Self::Equal => quote(text),
            _ => format!("<op:{text}>"),
        }
    }
}

/// Quotes a text, cut after ten characters if it is longer than ten bytes.
fn shortened(text: &str) -> String {
    if text.len() <= 10 {
        return quote(text);
    }
    let head: String = text.chars().take(10).collect();
    format!("{}...", quote(&head))
}
