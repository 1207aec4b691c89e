//! Regular expressions with Prometheus' semantics (Go's RE2 syntax), translated to the syntax of the `regex`
//! crate.
//!
//! The syntaxes are nearly equal. Main differences covered by the translation: a brace that is not a repetition is a
//! literal, and so is `[` within a class. `\d`, `\s`, `\w`, `\b` and `\B` apply to ASCII only. `\Q…\E` quotes, and a
//! backslash before octal digits is an octal escape.

use tideline_pattern::{Limits, Pattern, PatternError};

/// ASCII non-word boundary. The pattern also matches between the bytes of a character and can therefore be
/// applied to bytes only.
pub(crate) const NO_BOUNDARY: &str = "(?-u:\\B)";

/// Limits of one expression, large enough for the lists of a thousand values that dashboards generate.
const LIMITS: Limits = Limits {
    text_bytes_max: 64 << 10,
    compiled_bytes_max: 8 << 20,
};

/// Parses an expression that must match a whole text, without compiling it. As in Prometheus, the dot also
/// matches line ends. Matches consist of whole characters.
///
/// # Errors
///
/// Returns an error if the expression is invalid, is longer than 64 KiB after translation, or would take more
/// than 8 MiB when compiled.
pub fn whole(pattern: &str) -> Result<Pattern, PatternError> {
    Pattern::new(&rewritten(pattern), LIMITS)
}

/// Translates an expression from Go's syntax to that of the `regex` crate.
pub fn rewritten(pattern: &str) -> String {
    if !pattern.contains(['\\', '[', '{']) {
        return pattern.to_owned();
    }
    let mut rewriter = Rewriter {
        rest: pattern,
        lacks_class_end: false,
        out: String::with_capacity(pattern.len() + 16),
    };
    while let Some(at) = rewriter.take() {
        match at {
            '\\' => rewriter.escape(false),
            '[' => rewriter.class(),
            '{' if !is_repetition(rewriter.rest) => rewriter.out.push_str("\\{"),
            _ => rewriter.out.push(at),
        }
    }
    rewriter.out
}

struct Rewriter<'a> {
    rest: &'a str,
    /// True if a search found no `:]` in the rest. The search is then not repeated for each bracket, which would take
    /// quadratic time.
    lacks_class_end: bool,
    out: String,
}

impl Rewriter<'_> {
    fn take(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let at = chars.next()?;
        self.rest = chars.as_str();
        Some(at)
    }

    /// Translates an escape after its backslash.
    fn escape(&mut self, is_in_class: bool) {
        let Some(at) = self.take() else {
            self.out.push('\\');
            return;
        };
        match at {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            's' => self.out.push_str("[\\t\\n\\f\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\f\\r ]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            'b' if !is_in_class => self.out.push_str("(?-u:\\b)"),
            'B' if !is_in_class => self.out.push_str(NO_BOUNDARY),
            'Q' if !is_in_class => {
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.out.push_str(&regex::escape(quoted));
                self.rest = rest;
            }
            '0'..='7' if at == '0' || self.rest.starts_with(|next| matches!(next, '0'..='7')) => {
                let more = self
                    .rest
                    .bytes()
                    .take(2)
                    .take_while(|byte| matches!(byte, b'0'..=b'7'));
                let (digits, rest) = self.rest.split_at(more.count());
                let code = digits
                    .bytes()
                    .fold(u32::from(at) - 48, |code, digit| code * 8 + u32::from(digit) - 48);
                self.rest = rest;
                self.out.push_str(&format!("\\x{{{code:x}}}"));
            }
            'p' | 'P' | 'x' => {
                self.out.push('\\');
                self.out.push(at);
                if self.rest.starts_with('{') {
                    let end = self.rest.find('}').map_or(self.rest.len(), |end| end + 1);
                    self.out.push_str(&self.rest[..end]);
                    self.rest = &self.rest[end..];
                }
            }
            // RE2 treats `\<` and `\>` as literals, the `regex` crate as word boundaries.
            '<' | '>' => self.out.push(at),
            _ => {
                self.out.push('\\');
                self.out.push(at);
            }
        }
    }

    /// Returns the position of the `:]` of a named class such as `[:alpha:]`, after its opening bracket; `None` if no
    /// named class follows.
    fn named_class_end(&mut self) -> Option<usize> {
        if self.lacks_class_end || !self.rest.starts_with(':') {
            return None;
        }
        let end = self.rest.find(":]");
        self.lacks_class_end = end.is_none();
        end
    }

    /// Translates a character class after its opening bracket.
    fn class(&mut self) {
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.take();
            self.out.push('^');
        }
        let mut is_first = true;
        while let Some(at) = self.take() {
            match at {
                ']' if !is_first => {
                    self.out.push(']');
                    return;
                }
                '\\' => self.escape(true),
                '[' => match self.named_class_end() {
                    Some(end) => {
                        self.out.push('[');
                        self.out.push_str(&self.rest[..end + 2]);
                        self.rest = &self.rest[end + 2..];
                    }
                    None => self.out.push_str("\\["),
                },
                ']' | '&' | '~' => {
                    self.out.push('\\');
                    self.out.push(at);
                }
                '-' if self.out.ends_with('-') => self.out.push_str("\\-"),
                _ => self.out.push(at),
            }
            is_first = false;
        }
    }
}

/// Returns true if `n}`, `n,}` or `n,m}` follows. Reads only digits and commas, because a search for the brace would
/// take quadratic time for many open braces.
fn is_repetition(rest: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    let (inner, rest) = rest.split_at(rest.bytes().take_while(is_inner).count());
    if !rest.starts_with('}') {
        return false;
    }
    let (from, to) = inner.split_once(',').unwrap_or((inner, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(from) && (to.is_empty() || is_number(to))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{rewritten, whole};

    #[test]
    fn long_expressions_are_translated_in_linear_time() {
        let open = 1 << 20;
        let began = Instant::now();
        assert_eq!(rewritten(&"{".repeat(open)).len(), 2 * open);
        assert_eq!(rewritten(&format!("[{}", "[:".repeat(open))).len(), 1 + 3 * open);
        // Quadratic time is minutes; linear time is milliseconds.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let met = [
            ("a{", "a{"),
            ("a{b}", "a{b}"),
            ("a{2}", "aa"),
            ("a{1,}", "aaa"),
            ("{{.*}}", "{{x}}"),
            ("a.b", "a\nb"),
            ("[[a]+", "[a["),
            ("[]a]+", "]a"),
            ("[^]a]", "b"),
            ("[[:alpha:]&&~]+", "x&~"),
            ("[+--]", ","),
            ("\\d+", "12"),
            ("[\\d-]+", "1-2"),
            ("\\w\\b.*", "a é"),
            ("\\Qa.b\\E+", "a.bb"),
            ("\\101\\x41\\x{41}", "AAA"),
            ("\\<a\\>", "<a>"),
            ("\\p{Greek}", "α"),
            ("a|b", "b"),
            ("é\\B", "é"),
            ("\\Bé", "é"),
            ("a\\Bb", "ab"),
            ("(?i)AB", "ab"),
        ];
        for (pattern, text) in met {
            assert!(
                whole(pattern).unwrap().matches(text.as_bytes()),
                "{pattern} {text}"
            );
        }
        let not_met = [
            ("a{2}", "a{2}"),
            ("\\d", "٣"),
            ("\\w", "é"),
            ("\\Qa.b\\E", "axb"),
            ("a|b", "ab"),
            ("[^]a]", "]"),
            ("a\\Bé", "aé"),
            ("é\\B.", "éa"),
            (".\\B", "a"),
        ];
        for (pattern, text) in not_met {
            assert!(
                !whole(pattern).unwrap().matches(text.as_bytes()),
                "{pattern} {text}"
            );
        }
        for pattern in ["*", "(", "[a", "\\", "a{3,2}", "[b-a]"] {
            assert!(whole(pattern).is_err(), "{pattern}");
        }
    }
}
