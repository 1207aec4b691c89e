//! Splitting of a text into statements at semicolons, outside of quotes and comments.
//!
//! The server parses statements. This module only finds their ends and detects incomplete statements at the prompt.

/// Statement in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    /// The statement, without its semicolon.
    pub(super) text: &'t str,
    /// Line on which it begins, from 1.
    pub(super) line: usize,
}

/// Lexical state at a position of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    /// Quoted text or name. The byte is the quote that ends it.
    Quoted(u8),
    LineComment,
    Comment,
}

/// Returns the statements of a text. Parts without code are omitted.
pub(super) fn statements(text: &str) -> Vec<Piece<'_>> {
    scan(text).0
}

/// Returns true if the last statement of a text ends with a semicolon, or the text has no code.
pub(super) fn is_complete(text: &str) -> bool {
    scan(text).1
}

fn scan(text: &str) -> (Vec<Piece<'_>>, bool) {
    let bytes = text.as_bytes();
    let mut state = State::Code;
    let (mut pieces, mut start, mut at) = (Vec::new(), None::<usize>, 0);
    let mut end = |start: &mut Option<usize>, at: usize| {
        if let Some(from) = start.take() {
            pieces.push(Piece {
                text: text[from..at].trim_end(),
                line: 1 + text[..from].matches('\n').count(),
            });
        }
    };
    while let Some(byte) = bytes.get(at).copied() {
        let next = bytes.get(at + 1).copied();
        match (state, byte) {
            (State::Code, b'-') if next == Some(b'-') => state = State::LineComment,
            (State::Code, b'/') if next == Some(b'*') => {
                state = State::Comment;
                at += 1;
            }
            (State::Code, b';') => end(&mut start, at),
            (State::Code, _) => {
                if !byte.is_ascii_whitespace() {
                    start.get_or_insert(at);
                }
                if matches!(byte, b'\'' | b'"' | b'`') {
                    state = State::Quoted(byte);
                }
            }
            (State::Quoted(quote), _) if byte == quote => state = State::Code,
            (State::LineComment, b'\n') => state = State::Code,
            (State::Comment, b'*') if next == Some(b'/') => {
                state = State::Code;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    let is_complete = start.is_none() && !matches!(state, State::Comment);
    end(&mut start, text.len());
    (pieces, is_complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes_and_comments() {
        let text = "-- tables; all of them\nCREATE TABLE `a;b` (x BIGINT);\n\n/* ; */ SELECT 'it''s; ' -- ;\n;;\nSHOW TABLES";
        let found: Vec<(usize, &str)> = statements(text)
            .iter()
            .map(|piece| (piece.line, piece.text))
            .collect();
        assert_eq!(
            found,
            [
                (2, "CREATE TABLE `a;b` (x BIGINT)"),
                (4, "SELECT 'it''s; ' -- ;"),
                (6, "SHOW TABLES")
            ]
        );
    }

    #[test]
    fn a_statement_is_complete_with_its_semicolon() {
        for (text, complete) in [
            ("", true),
            ("  -- nothing", true),
            ("SHOW TABLES;", true),
            ("SHOW TABLES; -- end", true),
            ("SHOW TABLES", false),
            ("SELECT ';", false),
            ("SELECT 1; SELECT", false),
            ("/* ;", false),
        ] {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }
}
