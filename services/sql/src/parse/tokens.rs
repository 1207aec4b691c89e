//! Checks and prepares the tokens of a statement: their number, hints, placeholders, and the end of the statement.
//!
//! All functions take time linear in the length of the statement.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::TOKENS_MAX;
use crate::error::{Position, Result, SqlError};

/// Maximum number of tokens of an expression, not counting complete lists in parentheses.
const EXPRESSION_TOKENS_MAX: usize = 2_000;
/// Words that a hint can contain, in lower case. The second word is the hint of Lindorm.
const SCAN_HINTS: [&str; 2] = ["allow_scan", "_l_allow_filtering_"];

/// Checks the approximate number of tokens before the tokenizer creates them, because a token takes much more memory
/// than its text.
pub(super) fn check_number(text: &str) -> Result<()> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let (mut count, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at).copied() {
        let rest = &text.as_bytes()[at..];
        let position = |end: &[u8]| rest.windows(end.len()).skip(1).position(|window| window == end);
        let length = match byte {
            _ if byte.is_ascii_whitespace() => 1,
            b'\'' | b'"' | b'`' => position(&[byte]).map_or(rest.len(), |end| end + 2),
            b'-' if rest.starts_with(b"--") => position(b"\n").map_or(rest.len(), |end| end + 2),
            b'/' if rest.starts_with(b"/*") => position(b"*/").map_or(rest.len(), |end| end + 3),
            _ if is_word(byte) => rest.iter().take_while(|byte| is_word(**byte)).count(),
            _ => 1,
        };
        count += usize::from(!byte.is_ascii_whitespace());
        at += length;
    }
    match count > TOKENS_MAX {
        false => Ok(()),
        true => Err(SqlError::over(
            "number of tokens of the statement",
            TOKENS_MAX as u64,
            count as u64,
        )),
    }
}

/// Removes white space and comments. Returns true if a hint allows reading the whole table.
pub(super) fn remove_space(tokens: &mut Vec<TokenWithSpan>) -> Result<bool> {
    let mut allow_scan = false;
    let mut before: Option<&Token> = None;
    for token in tokens.iter() {
        let Token::Whitespace(space) = &token.token else {
            before = Some(&token.token);
            continue;
        };
        let Whitespace::MultiLineComment(comment) = space else {
            continue;
        };
        if let Some(hint) = comment.strip_prefix('+') {
            let word = before.and_then(plain_word);
            let allows_scan = read_hint(hint, token.span.into())?;
            if !matches!(word.as_deref(), Some("SELECT" | "DELETE")) {
                return Err(SqlError::invalid(
                    token.span,
                    "a hint follows SELECT or DELETE directly; move it there",
                ));
            }
            allow_scan |= allows_scan;
        }
    }
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Ok(allow_scan)
}

/// Parses a hint. Returns true if it allows reading the whole table.
fn read_hint(hint: &str, at: Position) -> Result<bool> {
    let mut words = hint
        .split([',', ' ', '\n', '\t', '\r'])
        .filter(|word| !word.is_empty())
        .peekable();
    let is_empty = words.peek().is_none();
    for word in words {
        if !SCAN_HINTS.contains(&word.to_ascii_lowercase().as_str()) {
            let short: String = word.chars().take(40).collect();
            let advice = advice_on_hint(word);
            return Err(SqlError::refused(
                at,
                format!("the hint {short:?} is not supported; the hint is ALLOW_SCAN{advice}"),
            ));
        }
    }
    Ok(!is_empty)
}

/// Returns advice for a hint of Lindorm, as the end of a message; empty for other hints.
fn advice_on_hint(word: &str) -> &'static str {
    let word = word.to_ascii_lowercase();
    let name = word.split('(').next().unwrap_or_default();
    match name {
        "_l_versions_" | "_l_ts_" | "_l_ts_min_" | "_l_ts_max_" => {
            ". SQL reads and writes the newest version of a column; read and write other versions by the routes of rows"
        }
        "_l_force_index_" | "_l_ignore_index_" => {
            ". The conditions and ORDER BY determine the index; EXPLAIN shows it"
        }
        "_l_hot_only_" => ". Read only the hot tier by the member `tier` of the routes of rows",
        _ => "",
    }
}

/// Returns an unquoted word in upper case; `None` for other tokens.
fn plain_word(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    }
}

/// Numbers the placeholders, because the parser does not keep their order. Checks that there is one parameter for each
/// placeholder.
pub(super) fn number_placeholders(tokens: &mut [TokenWithSpan], given: usize) -> Result<()> {
    let mut count = 0;
    for token in tokens {
        let at = Position::from(token.span);
        match &mut token.token {
            Token::Placeholder(name) if name == "?" => {
                *name = format!("?{count}");
                count += 1;
            }
            Token::Placeholder(name) => {
                return Err(SqlError::invalid(
                    at,
                    format!("the placeholder {name} is not supported; use ?"),
                ));
            }
            _ => {}
        }
    }
    match count == given {
        true => Ok(()),
        false => Err(SqlError::invalid(
            Position::default(),
            format!(
                "the statement has {count} placeholders and {given} parameters; give one parameter for each ?"
            ),
        )),
    }
}

/// Checks the number of tokens of each expression.
pub(super) fn check_expressions(tokens: &[TokenWithSpan]) -> Result<()> {
    // Number of tokens since the last comma, for each open list.
    let mut lists = vec![0_usize];
    let mut total = 0;
    for token in tokens {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => lists.push(0),
            Token::RParen | Token::RBracket | Token::RBrace if lists.len() > 1 => {
                total -= lists.pop().unwrap_or_default();
            }
            Token::Comma => {
                let last = lists.last_mut().map(std::mem::take);
                total -= last.unwrap_or_default();
            }
            _ => {}
        }
        if let Some(last) = lists.last_mut() {
            *last += 1;
            total += 1;
        }
        if total > EXPRESSION_TOKENS_MAX {
            return Err(SqlError::OverLimit {
                message: format!(
                    "{}an expression has more than {EXPRESSION_TOKENS_MAX} tokens; use IN for many values of a column, \
                     or send several statements",
                    Position::from(token.span)
                ),
                limit: EXPRESSION_TOKENS_MAX as u64,
                actual: total as u64,
            });
        }
    }
    Ok(())
}

/// Removes semicolons at the end, and refuses a second statement.
pub(super) fn end_statement(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    tokens.retain(|token| token.token != Token::EOF);
    while tokens.last().is_some_and(|token| token.token == Token::SemiColon) {
        tokens.pop();
    }
    match tokens.iter().find(|token| token.token == Token::SemiColon) {
        None => Ok(()),
        Some(token) => Err(SqlError::invalid(
            token.span,
            "a request has one statement; send each statement in a separate request",
        )),
    }
}

/// Removes the suffix `ALLOW FILTERING`. Returns true if the statement had this suffix.
pub(super) fn strip_allow_filtering(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let [.., first, second] = tokens.as_slice() else {
        return false;
    };
    let words = [plain_word(&first.token), plain_word(&second.token)];
    let is_suffix = words[0].as_deref() == Some("ALLOW") && words[1].as_deref() == Some("FILTERING");
    if is_suffix {
        tokens.truncate(tokens.len() - 2);
    }
    is_suffix
}
