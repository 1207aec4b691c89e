//! Lexer: splits the text of a query into tokens.
//!
//! The lexer tracks whether the position is inside braces or inside brackets. Inside braces, every word is a label
//! name; inside brackets, only duration expressions are allowed. The lexer returns one token or error per call. The
//! parser stops at the first error.

mod number;
mod text;
mod token;

pub(crate) use text::unquote;
pub(crate) use token::{Keyword, Token, TokenKind};

use crate::ast::TextRange;
use crate::quote::{quote, quote_char};
use token::keyword;

/// Lexical error. The range extends from the start of the token to the end of the text. For an unexpected right
/// parenthesis, and for a colon before a duration, the range starts after that character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LexError {
    pub(crate) at: TextRange,
    pub(crate) message: String,
}

/// State of the lexer.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
    start: usize,
    open_parentheses: usize,
    is_in_braces: bool,
    brackets: Brackets,
    /// True if brackets so far contained a number or a duration. A right parenthesis before the first number in
    /// brackets counts as well.
    has_duration: bool,
    has_colon: bool,
}

/// State of the lexer within brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brackets {
    Closed,
    /// Before the first number: only duration expressions are allowed.
    Opened,
    /// After the first number: the lexer checks words, the parser all other tokens.
    Entered,
}

/// Kind of the next token, or an error message.
type Found = Result<TokenKind, String>;

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            start: 0,
            open_parentheses: 0,
            is_in_braces: false,
            brackets: Brackets::Closed,
            has_duration: false,
            has_colon: false,
        }
    }

    /// Returns the next token. The last token is always [`TokenKind::End`].
    pub(crate) fn next(&mut self) -> Result<Token, LexError> {
        self.skip_spaces_and_comments();
        self.start = self.position;
        let found = if self.is_in_braces {
            self.inside_braces()
        } else {
            self.outside_braces()
        };
        match found {
            Ok(kind) => Ok(Token {
                kind,
                at: self.range(),
            }),
            Err(message) => Err(LexError {
                at: TextRange {
                    start: self.start,
                    end: self.text.len(),
                },
                message,
            }),
        }
    }

    fn skip_spaces_and_comments(&mut self) {
        loop {
            self.accept_while(is_space);
            if self.brackets == Brackets::Opened || !self.accept('#') {
                return;
            }
            self.accept_while(|at| !matches!(at, '\n' | '\r'));
        }
    }

    fn outside_braces(&mut self) -> Found {
        let Some(at) = self.take() else {
            return self.end();
        };
        let is_opened = self.brackets == Brackets::Opened;
        match at {
            '(' => {
                self.open_parentheses += 1;
                Ok(TokenKind::LeftParen)
            }
            ')' if self.open_parentheses == 0 => self.fault_behind("unexpected right parenthesis ')'"),
            ')' => {
                self.open_parentheses -= 1;
                self.has_duration |= is_opened;
                Ok(TokenKind::RightParen)
            }
            ']' if self.brackets != Brackets::Closed => {
                self.brackets = Brackets::Closed;
                Ok(TokenKind::RightBracket)
            }
            ']' => Err("unexpected right bracket ']'".to_owned()),
            '0'..='9' => self.number_or_duration(),
            '.' if self.peek().is_some_and(|next| next.is_ascii_digit()) => self.number_or_duration(),
            ':' if self.brackets != Brackets::Closed => self.colon(),
            '+' | '-' | '*' | '/' | '%' | '^' | ',' => self.operator(at),
            _ if is_letter(at) && self.brackets != Brackets::Closed => self.duration_word(at),
            _ if is_opened => Err(unexpected_in_duration(at)),
            '"' | '\'' => self.string(at),
            '`' => self.raw_string(),
            _ if is_letter(at) || at == ':' => Ok(self.word()),
            '{' => {
                self.is_in_braces = true;
                Ok(TokenKind::LeftBrace)
            }
            '[' if self.brackets != Brackets::Closed => Err("unexpected left bracket '['".to_owned()),
            '[' => {
                self.brackets = Brackets::Opened;
                self.has_colon = false;
                Ok(TokenKind::LeftBracket)
            }
            _ => self.operator(at),
        }
    }

    fn end(&self) -> Found {
        Err(match self.brackets {
            Brackets::Opened => "unexpected end of input in duration expression".to_owned(),
            _ if self.open_parentheses > 0 => "unclosed left parenthesis".to_owned(),
            Brackets::Entered => "unclosed left bracket".to_owned(),
            Brackets::Closed => return Ok(TokenKind::End),
        })
    }

    fn colon(&mut self) -> Found {
        if !self.has_duration {
            return self.fault_behind("unexpected colon before duration in duration expression");
        }
        if self.has_colon {
            return Err("unexpected colon ':'".to_owned());
        }
        self.has_colon = true;
        Ok(TokenKind::Colon)
    }

    /// Fails at the position after the offending character, as Prometheus does.
    fn fault_behind(&mut self, message: &str) -> Found {
        self.start = self.position;
        Err(message.to_owned())
    }

    /// Reads a keyword of duration expressions.
    fn duration_word(&mut self, first: char) -> Found {
        self.accept_while(is_letter);
        let kind = keyword(self.here()).filter(|kind| kind.is_of_durations());
        kind.ok_or_else(|| match self.brackets {
            Brackets::Opened => unexpected_in_duration(first),
            _ => format!("unexpected character: {}, expected ':'", quote_char(first)),
        })
    }

    fn operator(&mut self, at: char) -> Found {
        let next = self.peek();
        let (kind, is_double) = match (at, next) {
            (',', _) => (TokenKind::Comma, false),
            ('*', _) => (TokenKind::Multiply, false),
            ('/', _) => (TokenKind::Divide, false),
            ('%', _) => (TokenKind::Modulo, false),
            ('+', _) => (TokenKind::Add, false),
            ('-', _) => (TokenKind::Subtract, false),
            ('^', _) => (TokenKind::Power, false),
            ('@', _) => (TokenKind::At, false),
            ('=', Some('=')) => (TokenKind::EqualEqual, true),
            ('=', Some('~')) => return Err("unexpected character after '=': '~'".to_owned()),
            ('=', _) => (TokenKind::Equal, false),
            ('!', Some('=')) => (TokenKind::NotEqual, true),
            ('!', next) => {
                let shown = next.map_or_else(|| "'\u{fffd}'".to_owned(), quote_char);
                return Err(format!("unexpected character after '!': {shown}"));
            }
            ('<', Some('=')) => (TokenKind::LessEqual, true),
            ('<', Some('/')) => (TokenKind::TrimUpper, true),
            ('<', _) => (TokenKind::Less, false),
            ('>', Some('=')) => (TokenKind::GreaterEqual, true),
            ('>', Some('/')) => (TokenKind::TrimLower, true),
            ('>', _) => (TokenKind::Greater, false),
            _ => return Err(format!("unexpected character: {}", quote_char(at))),
        };
        if is_double {
            self.take();
        }
        Ok(kind)
    }

    fn inside_braces(&mut self) -> Found {
        let Some(at) = self.take() else {
            return Err("unexpected end of input inside braces".to_owned());
        };
        match at {
            _ if is_letter(at) => {
                self.accept_while(is_letter_or_digit);
                Ok(TokenKind::Identifier)
            }
            ',' => Ok(TokenKind::Comma),
            '"' | '\'' => self.string(at),
            '`' => self.raw_string(),
            '=' if self.accept('~') => Ok(TokenKind::EqualRegex),
            '=' => Ok(TokenKind::Equal),
            '!' if self.accept('~') => Ok(TokenKind::NotEqualRegex),
            '!' if self.accept('=') => Ok(TokenKind::NotEqual),
            '!' => {
                let shown = self.peek().map_or_else(|| "'\u{fffd}'".to_owned(), quote_char);
                Err(format!("unexpected character after '!' inside braces: {shown}"))
            }
            '{' => Err("unexpected left brace '{'".to_owned()),
            '}' => {
                self.is_in_braces = false;
                Ok(TokenKind::RightBrace)
            }
            _ => Err(format!("unexpected character inside braces: {}", quote_char(at))),
        }
    }

    fn word(&mut self) -> TokenKind {
        self.accept_while(|at| is_letter_or_digit(at) || at == ':');
        let word = self.here();
        match keyword(word) {
            // Metrics with these names existed before the modifiers, so each word is a modifier only before a
            // parenthesis.
            Some(TokenKind::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight))
                if !self.is_before_parenthesis() =>
            {
                TokenKind::Identifier
            }
            Some(kind) => kind,
            None if word.contains(':') => TokenKind::MetricIdentifier,
            None => TokenKind::Identifier,
        }
    }

    fn is_before_parenthesis(&self) -> bool {
        self.rest().trim_start_matches(is_space).starts_with('(')
    }

    fn number_or_duration(&mut self) -> Found {
        if self.brackets != Brackets::Closed {
            self.brackets = Brackets::Entered;
            self.has_duration = true;
        }
        self.position = self.start;
        let (length, kind) = number::scan(self.rest());
        self.position += length;
        kind.ok_or_else(|| format!("bad number or duration syntax: {}", quote(self.here())))
    }

    fn string(&mut self, quote: char) -> Found {
        let length = text::scan(self.rest(), quote)?;
        self.position += length;
        Ok(TokenKind::String)
    }

    fn raw_string(&mut self) -> Found {
        let length = self.rest().find('`').ok_or("unterminated raw string")?;
        if self.rest()[..length].contains(char::REPLACEMENT_CHARACTER) {
            return Err("invalid UTF-8 rune".to_owned());
        }
        self.position += length + 1;
        Ok(TokenKind::String)
    }

    fn range(&self) -> TextRange {
        TextRange {
            start: self.start,
            end: self.position,
        }
    }

    fn here(&self) -> &'a str {
        &self.text[self.start..self.position]
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let at = self.peek()?;
        self.position += at.len_utf8();
        Some(at)
    }

    fn accept(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.position += wanted.len_utf8();
        }
        is_there
    }

    fn accept_while(&mut self, wanted: impl Fn(char) -> bool) {
        let rest = self.rest();
        let length = rest.find(|at| !wanted(at)).unwrap_or(rest.len());
        self.position += length;
    }
}

fn unexpected_in_duration(at: char) -> String {
    let shown = quote_char(at);
    format!("unexpected character in duration expression: {shown}")
}

pub(crate) fn is_space(at: char) -> bool {
    matches!(at, ' ' | '\t' | '\n' | '\r')
}

pub(crate) fn is_letter(at: char) -> bool {
    at == '_' || at.is_ascii_alphabetic()
}

pub(crate) fn is_letter_or_digit(at: char) -> bool {
    at == '_' || at.is_ascii_alphanumeric()
}
