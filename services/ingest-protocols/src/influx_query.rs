//! Parser of the few InfluxQL statements that agents send with their writes.
//!
//! Telegraf and the client libraries send `CREATE DATABASE` before the first point; TSBS also sends `SHOW DATABASES`
//! and `DROP DATABASE`. Any other statement is returned as [`Statement::Unsupported`] with the text of InfluxDB's parse
//! error.

/// Statement of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `CREATE DATABASE name [WITH …]`. The clauses after `WITH` are checked and ignored: retention and sharding are
    /// settings of the table.
    CreateDatabase {
        /// Unquoted name.
        name: String,
    },
    /// `DROP DATABASE name`.
    DropDatabase {
        /// Unquoted name.
        name: String,
    },
    /// `SHOW DATABASES`.
    ShowDatabases,
    /// Any other statement.
    Unsupported {
        /// Text of the statement.
        statement: String,
        /// Error text for the client, such as `error parsing query: found SELECT, expected CREATE, DROP, SHOW at line
        /// 1, char 1`.
        error: String,
    },
}

/// Parses the statements of a query, separated by semicolons. Empty statements are skipped, so a blank query returns an
/// empty list.
///
/// Keywords are case-insensitive. Names are bare words or double-quoted, with the escapes `\"`, `\'`, `\\` and `\n`.
pub fn parse(query: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut lexer = Lexer { query, at: 0 };
    loop {
        let start = lexer.skip_blank();
        if start == query.len() {
            return statements;
        }
        if lexer.query[start..].starts_with(';') {
            lexer.at = start + 1;
            continue;
        }
        let parsed = statement(&mut lexer);
        lexer.skip_statement();
        statements.push(parsed.unwrap_or_else(|unexpected| Statement::Unsupported {
            statement: query[start..lexer.at].trim_end().to_owned(),
            error: unexpected.text(query),
        }));
    }
}

/// Unexpected token, its position and the expected tokens.
struct Unexpected {
    found: String,
    expected: &'static str,
    at: usize,
}

impl Unexpected {
    /// Returns the error text in InfluxDB's wording.
    fn text(&self, query: &str) -> String {
        let before = &query[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let Self { found, expected, .. } = self;
        format!("error parsing query: found {found}, expected {expected} at line {line}, char {column}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Letters, digits, underscores and dots: keywords, names, numbers and durations.
    Word(String),
    /// Double-quoted text, unquoted.
    Quoted(String),
    /// Quoted text without an end or with an unknown escape.
    BadString,
    Other(char),
    Semicolon,
    End,
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Quoted(name) => name.clone(),
            Self::BadString => "BADSTRING".into(),
            Self::Other(other) => other.to_string(),
            Self::Semicolon => ";".into(),
            Self::End => "EOF".into(),
        }
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

struct Lexer<'a> {
    query: &'a str,
    at: usize,
}

impl Lexer<'_> {
    /// Skips white space; returns the position of the next token.
    fn skip_blank(&mut self) -> usize {
        let rest = &self.query[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    /// Returns the next token and its start position.
    fn next(&mut self) -> (Token, usize) {
        let start = self.skip_blank();
        let rest = &self.query[start..];
        let Some(first) = rest.chars().next() else {
            return (Token::End, start);
        };
        let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let token = match first {
            ';' => Token::Semicolon,
            '"' | '\'' => return (self.quoted(first), start),
            c if in_word(c) => {
                let word: String = rest.chars().take_while(|c| in_word(*c)).collect();
                self.at = start + word.len();
                return (Token::Word(word), start);
            }
            other => Token::Other(other),
        };
        self.at = start + first.len_utf8();
        (token, start)
    }

    /// Parses the quoted text at the current position. Single-quoted text is not a name: its token is the quote alone.
    /// A text without an end or with an unknown escape consumes the rest of the query.
    fn quoted(&mut self, quote: char) -> Token {
        let mut text = String::new();
        let mut chars = self.query[self.at + 1..].char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, escaped @ ('\\' | '"' | '\''))) => text.push(escaped),
                    Some(_) | None => break,
                },
                c if c == quote => {
                    self.at += 1 + offset + 1;
                    return if quote == '"' {
                        Token::Quoted(text)
                    } else {
                        Token::Other(quote)
                    };
                }
                c => text.push(c),
            }
        }
        self.at = self.query.len();
        Token::BadString
    }

    /// Skips the rest of a statement, up to but not including its semicolon.
    fn skip_statement(&mut self) {
        loop {
            if let (Token::Semicolon | Token::End, start) = self.next() {
                self.at = start;
                return;
            }
        }
    }

    fn unexpected<T>(&mut self, token: &Token, at: usize, expected: &'static str) -> Result<T, Unexpected> {
        // `skip_statement` must find the semicolon that ends the statement.
        if *token == Token::Semicolon {
            self.at = at;
        }
        Err(Unexpected {
            found: token.shown(),
            expected,
            at,
        })
    }

    fn keyword(&mut self, keyword: &'static str) -> Result<(), Unexpected> {
        let (token, at) = self.next();
        if token.is_keyword(keyword) {
            return Ok(());
        }
        self.unexpected(&token, at, keyword)
    }

    fn name(&mut self) -> Result<String, Unexpected> {
        match self.next() {
            (Token::Quoted(name), _) => Ok(name),
            (Token::Word(name), _) if is_bare_name(&name) => Ok(name),
            (token, at) => self.unexpected(&token, at, "identifier"),
        }
    }

    fn end(&mut self) -> Result<(), Unexpected> {
        match self.next() {
            (Token::Semicolon | Token::End, at) => {
                self.at = at;
                Ok(())
            }
            (token, at) => self.unexpected(&token, at, "; , EOF"),
        }
    }
}

fn statement(lexer: &mut Lexer<'_>) -> Result<Statement, Unexpected> {
    let (verb, at) = lexer.next();
    let statement = if verb.is_keyword("SHOW") {
        lexer.keyword("DATABASES")?;
        Statement::ShowDatabases
    } else if verb.is_keyword("DROP") {
        lexer.keyword("DATABASE")?;
        Statement::DropDatabase { name: lexer.name()? }
    } else if verb.is_keyword("CREATE") {
        lexer.keyword("DATABASE")?;
        let name = lexer.name()?;
        with_clauses(lexer)?;
        Statement::CreateDatabase { name }
    } else {
        return lexer.unexpected(&verb, at, "CREATE, DROP, SHOW");
    };
    lexer.end()?;
    Ok(statement)
}

/// Parses `WITH [DURATION d] [REPLICATION n] [SHARD DURATION d] [FUTURE LIMIT d] [PAST LIMIT d] [NAME name]` with the
/// clauses in any order.
fn with_clauses(lexer: &mut Lexer<'_>) -> Result<(), Unexpected> {
    const EXPECTED: &str = "DURATION, REPLICATION, SHARD, FUTURE, PAST, NAME";
    let before = lexer.at;
    if !lexer.next().0.is_keyword("WITH") {
        lexer.at = before;
        return Ok(());
    }
    let mut clauses = 0;
    loop {
        let before = lexer.at;
        let (clause, at) = lexer.next();
        if clause.is_keyword("NAME") {
            lexer.name()?;
        } else if clause.is_keyword("DURATION") || clause.is_keyword("REPLICATION") {
            argument(lexer)?;
        } else if clause.is_keyword("SHARD") {
            lexer.keyword("DURATION")?;
            argument(lexer)?;
        } else if clause.is_keyword("FUTURE") || clause.is_keyword("PAST") {
            lexer.keyword("LIMIT")?;
            argument(lexer)?;
        } else if clauses == 0 {
            return lexer.unexpected(&clause, at, EXPECTED);
        } else {
            lexer.at = before;
            return Ok(());
        }
        clauses += 1;
    }
}

/// Parses a number or a duration such as `30d` or `INF`.
fn argument(lexer: &mut Lexer<'_>) -> Result<(), Unexpected> {
    match lexer.next() {
        (Token::Word(word), _) if word.starts_with(|c: char| c.is_ascii_digit()) => Ok(()),
        (token, _) if token.is_keyword("INF") => Ok(()),
        (token, at) => lexer.unexpected(&token, at, "number or duration"),
    }
}

/// Returns true if a name can be written without quotes.
fn is_bare_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(name: &str) -> Statement {
        Statement::CreateDatabase { name: name.into() }
    }

    fn error_of(query: &str) -> String {
        match parse(query).as_slice() {
            [Statement::Unsupported { error, statement }] => {
                assert_eq!(statement, query);
                error.clone()
            }
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn what_agents_send_is_read() {
        for (query, statement) in [
            (r#"CREATE DATABASE "telegraf""#, create("telegraf")),
            (r#"create database "a\"b\\c;d""#, create(r#"a"b\c;d"#)),
            (
                "CREATE DATABASE benchmark WITH REPLICATION 1",
                create("benchmark"),
            ),
            (
                "CREATE DATABASE d WITH DURATION 30d REPLICATION 1 SHARD DURATION 1h PAST LIMIT 1d NAME \"rp\"",
                create("d"),
            ),
            ("CREATE DATABASE d WITH DURATION inf;", create("d")),
            ("show databases", Statement::ShowDatabases),
            (
                "\n drop  database x ;",
                Statement::DropDatabase { name: "x".into() },
            ),
        ] {
            assert_eq!(parse(query), [statement], "{query}");
        }
        assert_eq!(parse(" ; ;"), []);
        let many = parse("SHOW DATABASES; CREATE DATABASE a;;SELECT ';' FROM x; DROP DATABASE \"b;\"");
        assert_eq!(many.len(), 4);
        assert_eq!(many[1], create("a"));
        assert!(
            matches!(&many[2], Statement::Unsupported { statement, .. } if statement == "SELECT ';' FROM x"),
            "{many:?}"
        );
        assert_eq!(many[3], Statement::DropDatabase { name: "b;".into() });
    }

    #[test]
    fn anything_else_gets_the_words_of_influxdb() {
        for (query, error) in [
            (
                "SELECT * FROM cpu",
                "found SELECT, expected CREATE, DROP, SHOW at line 1, char 1",
            ),
            (
                "CREATE DATABASE",
                "found EOF, expected identifier at line 1, char 16",
            ),
            ("CREATE USER x", "found USER, expected DATABASE at line 1, char 8"),
            (
                "SHOW\nTAG KEYS",
                "found TAG, expected DATABASES at line 2, char 1",
            ),
            (
                "CREATE DATABASE my-db",
                "found -, expected ; , EOF at line 1, char 19",
            ),
            (
                "CREATE DATABASE \"open",
                "found BADSTRING, expected identifier at line 1, char 17",
            ),
            (
                "CREATE DATABASE 'x'",
                "found ', expected identifier at line 1, char 17",
            ),
            (
                "CREATE DATABASE d WITH nothing",
                "found nothing, expected DURATION, REPLICATION, SHARD, FUTURE, PAST, NAME at line 1, char 24",
            ),
        ] {
            assert_eq!(
                error_of(query),
                format!("error parsing query: {error}"),
                "{query}"
            );
        }
        assert_eq!(
            parse("CREATE DATABASE ; SHOW DATABASES")[1],
            Statement::ShowDatabases
        );
    }
}
