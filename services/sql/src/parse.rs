//! Text to [`Statement`].
//!
//! 1. The tokenizer of `sqlparser` splits the text. Placeholders are numbered, and comments that begin with `+` are read
//!    as hints.
//! 2. Bounds are checked on the tokens. The nesting of the parser is bounded by its own limit, but a chain such as
//!    `a OR b OR c` gives a tree that is as deep as it is long. So the number of tokens of one expression is bounded,
//!    which bounds every recursion over the tree.
//! 3. Each statement has its own grammar, in the modules below, over a [`Cursor`]; `sqlparser` parses expressions and
//!    types.

mod condition;
mod cursor;
mod key;
mod select;
mod table;
mod value;
mod write;

use serde_json::value::RawValue;
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::error::{Position, Result, SqlError};
use crate::statement::{ShowStatement, Statement, WriteStatement};
use cursor::Cursor;

/// Maximum length of a statement, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of parameters.
pub const PARAMETERS_MAX: usize = 100_000;
/// Maximum number of rows of an `UPSERT`.
pub const ROWS_MAX: usize = tideline_rows::write::ROWS_MAX;
/// Maximum number of tokens of an expression, without lists in parentheses that are complete.
const EXPRESSION_TOKENS_MAX: usize = 2_000;
/// Maximum nesting of an expression.
const NESTING_MAX: usize = 32;

/// Returns a bound of the memory that parsing a statement of `bytes` bytes takes, in bytes: a token of one byte takes
/// about 100 bytes, and a value 72.
pub const fn memory_bytes(bytes: usize) -> u64 {
    160 * bytes as u64
}

/// Values of the placeholders of a statement, in their order.
pub type Parameters = [Box<RawValue>];

/// Words that a hint can contain, in lower case. The second one is the name of Lindorm.
const SCAN_HINTS: [&str; 2] = ["allow_scan", "_l_allow_filtering_"];

/// Parses one statement.
///
/// # Errors
///
/// [`SqlError::Invalid`] with the place, [`SqlError::Refused`] for syntax that is valid SQL but has no plan, and
/// [`SqlError::OverLimit`] for a statement that is too large.
pub fn parse(text: &str, parameters: &Parameters) -> Result<Statement> {
    if text.len() > STATEMENT_BYTES_MAX {
        return Err(SqlError::over(
            "length in bytes of the statement",
            STATEMENT_BYTES_MAX as u64,
            text.len() as u64,
        ));
    }
    if parameters.len() > PARAMETERS_MAX {
        return Err(SqlError::over(
            "number of parameters",
            PARAMETERS_MAX as u64,
            parameters.len() as u64,
        ));
    }
    let mut tokens = Tokenizer::new(&GenericDialect, text)
        .tokenize_with_location()
        .map_err(|error| SqlError::invalid(error.location, error.message))?;
    let mut allow_scan = remove_space(&mut tokens)?;
    number_placeholders(&mut tokens, parameters.len())?;
    check_expressions(&tokens)?;
    end_statement(&mut tokens)?;
    allow_scan |= strip_allow_filtering(&mut tokens);
    let mut cursor = Cursor::new(tokens, parameters, allow_scan);
    let statement = statement(&mut cursor)?;
    cursor.end()?;
    Ok(statement)
}

fn statement(cursor: &mut Cursor<'_>) -> Result<Statement> {
    let at = cursor.at();
    let scans = cursor.allow_scan;
    let statement = if cursor.word("SELECT") {
        return select::select(cursor).map(Statement::Select);
    } else if cursor.word("EXPLAIN") {
        if !cursor.word("SELECT") {
            return Err(SqlError::refused(
                cursor.at(),
                "EXPLAIN describes a SELECT; explain the SELECT with the same WHERE",
            ));
        }
        return select::select(cursor).map(Statement::Explain);
    } else if cursor.word("DELETE") {
        return write::delete(cursor).map(|delete| Statement::Write(WriteStatement::Delete(delete)));
    } else if cursor.word("UPSERT") || cursor.word("INSERT") {
        write::upsert(cursor).map(|upsert| Statement::Write(WriteStatement::Upsert(upsert)))
    } else if cursor.word("UPDATE") {
        write::update(cursor).map(|update| Statement::Write(WriteStatement::Update(update)))
    } else if cursor.word("CREATE") {
        table::create(cursor).map(Statement::Change)
    } else if cursor.word("DROP") {
        table::drop_table(cursor).map(Statement::Change)
    } else if cursor.word("ALTER") {
        table::alter(cursor).map(Statement::Change)
    } else if cursor.word("SHOW") {
        table::show(cursor).map(Statement::Show)
    } else if cursor.word("DESCRIBE") || cursor.word("DESC") {
        cursor.word("TABLE");
        {
            let table = cursor.name("the name of the table")?;
            Ok(Statement::Show(ShowStatement::Columns(table)))
        }
    } else {
        let found = cursor.found();
        return Err(SqlError::invalid(
            at,
            format!(
                "expected SELECT, EXPLAIN, UPSERT, INSERT, UPDATE, DELETE, CREATE TABLE, ALTER TABLE, DROP TABLE, \
                 SHOW or DESCRIBE, found {found}"
            ),
        ));
    };
    match scans {
        true => Err(SqlError::invalid(
            at,
            "ALLOW_SCAN is for SELECT and DELETE; omit it",
        )),
        false => statement,
    }
}

/// Removes white space and comments. Returns whether a hint allows to read the whole table.
fn remove_space(tokens: &mut Vec<TokenWithSpan>) -> Result<bool> {
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
            if !matches!(word.as_deref(), Some("SELECT" | "DELETE")) {
                return Err(SqlError::invalid(
                    token.span,
                    "a hint follows SELECT or DELETE directly; move it there",
                ));
            }
            allow_scan |= read_hint(hint, token.span.into())?;
        }
    }
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Ok(allow_scan)
}

/// Returns whether a hint allows to read the whole table.
fn read_hint(hint: &str, at: Position) -> Result<bool> {
    let mut words = hint
        .split([',', ' ', '\n', '\t', '\r'])
        .filter(|word| !word.is_empty())
        .peekable();
    let is_empty = words.peek().is_none();
    for word in words {
        if !SCAN_HINTS.contains(&word.to_ascii_lowercase().as_str()) {
            let short: String = word.chars().take(40).collect();
            return Err(SqlError::refused(
                at,
                format!("the hint {short:?} is not supported; the hint is ALLOW_SCAN"),
            ));
        }
    }
    Ok(!is_empty)
}

/// Returns an unquoted word in upper case.
fn plain_word(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    }
}

/// Numbers the placeholders, because the parser does not keep their order.
fn number_placeholders(tokens: &mut [TokenWithSpan], given: usize) -> Result<()> {
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
fn check_expressions(tokens: &[TokenWithSpan]) -> Result<()> {
    // Tokens since the last comma, of each list that is open.
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
                    "{}an expression has more than {EXPRESSION_TOKENS_MAX} words and signs; use IN for many values of \
                     a column, or send several statements",
                    Position::from(token.span)
                ),
                limit: EXPRESSION_TOKENS_MAX as u64,
                actual: total as u64,
            });
        }
    }
    Ok(())
}

/// Removes the semicolon at the end, and refuses a second statement.
fn end_statement(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    tokens.retain(|token| token.token != Token::EOF);
    while tokens.last().is_some_and(|token| token.token == Token::SemiColon) {
        tokens.pop();
    }
    match tokens.iter().find(|token| token.token == Token::SemiColon) {
        None => Ok(()),
        Some(token) => Err(SqlError::invalid(
            token.span,
            "a request has one statement; send each statement in a request of its own",
        )),
    }
}

/// Removes the suffix `ALLOW FILTERING`. Returns whether the statement had it.
fn strip_allow_filtering(tokens: &mut Vec<TokenWithSpan>) -> bool {
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

/// Returns true if an unquoted name would be read as a part of the grammar.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Words that are names only in backticks, or would be hard to read as names.
#[rustfmt::skip]
const RESERVED: [&str; 46] = [
    "ALL", "ALLOW", "ALTER", "AND", "ANY", "AS", "BETWEEN", "BY", "COLUMN", "CREATE", "CURRENT_CATALOG", "CURRENT_DATE",
    "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "DELETE", "DISTINCT", "DROP", "EXISTS", "FALSE", "FROM", "IN",
    "INTERVAL", "INTO", "IS", "LIKE", "LIMIT", "LOCALTIME", "LOCALTIMESTAMP", "NOT", "NULL", "OR", "ORDER", "PRIMARY",
    "SELECT", "SESSION_USER", "SOME", "STRUCT", "TABLE", "TRIM", "TRUE", "UPDATE", "USER", "VALUES", "WHERE", "WITH",
];
