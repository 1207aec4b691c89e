//! Parser of statements: converts text to a [`Statement`].
//!
//! 1. The tokenizer of `sqlparser` splits the text. Placeholders are numbered. Comments that begin with `+` are parsed
//!    as hints.
//! 2. Limits are checked on the tokens. The parser limits the nesting of parentheses, but it parses a chain such as
//!    `a OR b OR c` to a tree whose depth is the length of the chain. The number of tokens of an expression is
//!    therefore limited too, which bounds every recursion over the tree.
//! 3. Each kind of statement has its own grammar in a submodule, which reads tokens through a [`Cursor`]; `sqlparser`
//!    parses expressions and types.

mod condition;
mod cursor;
mod group;
mod index;
mod key;
mod select;
mod settings;
mod table;
mod tokens;
mod value;
mod write;

use serde_json::value::RawValue;
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::Tokenizer;

use crate::error::{Result, SqlError};
use crate::statement::{ShowStatement, Statement, WriteStatement};
use cursor::Cursor;

/// Maximum length of a statement, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of tokens of a statement.
pub const TOKENS_MAX: usize = 100_000;
/// Maximum number of parameters.
pub const PARAMETERS_MAX: usize = 100_000;
/// Maximum number of rows of an `UPSERT`.
pub const ROWS_MAX: usize = tideline_rows::write::ROWS_MAX;
/// Maximum nesting of an expression.
const NESTING_MAX: usize = 32;

/// Returns an upper bound of the memory for parsing a statement of `bytes` bytes, in bytes. A token and its value take
/// at most 400 bytes, according to measurements.
pub const fn memory_bytes(bytes: usize) -> u64 {
    let tokens = if bytes < TOKENS_MAX { bytes } else { TOKENS_MAX };
    2 * bytes as u64 + 400 * tokens as u64
}

/// Values of the placeholders of a statement, in their order.
pub type Parameters = [Box<RawValue>];

/// Parses one statement.
///
/// # Errors
///
/// [`SqlError::Invalid`] with the position, [`SqlError::Refused`] for syntax that is valid SQL but has no plan, and
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
    match cfg!(debug_assertions) {
        true => with_deep_stack(|| parse_within_limits(text, parameters)),
        false => parse_within_limits(text, parameters),
    }
}

/// Runs the parser on a separate thread. In a development build, the recursive functions of `sqlparser` are not
/// optimized, to save compilation time, and would not fit the stack of the thread of a request.
fn with_deep_stack<T: Send>(parse: impl FnOnce() -> T + Send) -> T {
    const STACK_BYTES: usize = 32 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let parsed = thread.spawn_scoped(scope, parse).map(|thread| thread.join());
        let parsed = parsed.expect("the system can start threads");
        parsed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn parse_within_limits(text: &str, parameters: &Parameters) -> Result<Statement> {
    tokens::check_number(text)?;
    let mut tokens = Tokenizer::new(&GenericDialect, text)
        .tokenize_with_location()
        .map_err(|error| SqlError::invalid(error.location, error.message))?;
    let mut allow_scan = tokens::remove_space(&mut tokens)?;
    tokens::number_placeholders(&mut tokens, parameters.len())?;
    tokens::check_expressions(&tokens)?;
    tokens::end_statement(&mut tokens)?;
    allow_scan |= tokens::strip_allow_filtering(&mut tokens);
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
        table::create(cursor).map(Box::new).map(Statement::Change)
    } else if cursor.word("DROP") {
        table::drop_statement(cursor).map(Box::new).map(Statement::Change)
    } else if cursor.word("ALTER") {
        table::alter(cursor).map(Box::new).map(Statement::Change)
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
                "expected SELECT, EXPLAIN, UPSERT, INSERT, UPDATE, DELETE, CREATE, ALTER TABLE, DROP, SHOW or DESCRIBE, \
                 found {found}"
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

/// Returns true if a name is a reserved word, which must be written in backticks.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Keywords that can be names only in backticks, and other words that would be confusing as names without backticks.
#[rustfmt::skip]
const RESERVED: [&str; 46] = [
    "ALL", "ALLOW", "ALTER", "AND", "ANY", "AS", "BETWEEN", "BY", "COLUMN", "CREATE", "CURRENT_CATALOG", "CURRENT_DATE",
    "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "DELETE", "DISTINCT", "DROP", "EXISTS", "FALSE", "FROM", "IN",
    "INTERVAL", "INTO", "IS", "LIKE", "LIMIT", "LOCALTIME", "LOCALTIMESTAMP", "NOT", "NULL", "OR", "ORDER", "PRIMARY",
    "SELECT", "SESSION_USER", "SOME", "STRUCT", "TABLE", "TRIM", "TRUE", "UPDATE", "USER", "VALUES", "WHERE", "WITH",
];
