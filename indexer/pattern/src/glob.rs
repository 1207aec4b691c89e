//! Wildcard patterns: `*` matches any text, `?` matches any one character.
//!
//! Patterns are matched without compilation, so they take no more memory than their text.

/// A wildcard pattern.
///
/// # Examples
///
/// ```
/// use tideline_pattern::Glob;
///
/// let glob = Glob::new("web-?.*");
/// assert!(glob.matches(b"web-1.example.org"));
/// assert!(!glob.matches(b"web-12.example.org"), "`?` matches one character");
/// assert_eq!(glob.literal_prefix(), "web-");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: String,
}

impl Glob {
    /// Creates a pattern. Every text is a valid pattern.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
        }
    }

    /// Returns the text before the first `*` or `?`, with which every matching text begins.
    pub fn literal_prefix(&self) -> &str {
        self.pattern.split(['*', '?']).next().unwrap_or_default()
    }

    /// Returns true if the whole text matches. Bytes that are not UTF-8 do not match.
    pub fn matches(&self, text: &[u8]) -> bool {
        std::str::from_utf8(text).is_ok_and(|text| self.matches_text(text))
    }

    /// Matches from left to right. After a mismatch, only the last `*` is extended. Extending an earlier `*` cannot
    /// help: the part after it already matches at the first possible position, and a later position leaves less text
    /// for the remaining pattern.
    fn matches_text(&self, text: &str) -> bool {
        let (mut pattern, mut rest) = (self.pattern.chars(), text.chars());
        let mut last_star = None;
        loop {
            let mut ahead = pattern.clone();
            match (ahead.next(), rest.clone().next()) {
                (Some('*'), _) => {
                    pattern = ahead;
                    last_star = Some((pattern.clone(), rest.clone()));
                    continue;
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    pattern = ahead;
                    rest.next();
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((after_star, taken)) = &mut last_star else {
                return false;
            };
            if taken.next().is_none() {
                return false;
            }
            (pattern, rest) = (after_star.clone(), taken.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "a\nb"),
            ("web-*", "web-"),
            ("*-1", "web-1"),
            ("w*b-?", "web-1"),
            ("?", "é"),
            ("*ab*ab", "abab"),
            ("a*b*c", "aXbYbZc"),
            ("**", "x"),
            ("a.b", "a.b"),
        ] {
            assert!(Glob::new(pattern).matches(text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("web-?", "web-12"),
            ("web-*", "Web-1"),
            ("*ab*ab", "ab"),
            ("a*b*c", "aXbYb"),
            ("a.b", "axb"),
            ("a", "ab"),
        ] {
            assert!(!Glob::new(pattern).matches(text.as_bytes()), "{pattern} {text}");
        }
        assert!(!Glob::new("*").matches(b"\xff"), "not a text");
        assert_eq!(Glob::new("web-*.x?").literal_prefix(), "web-");
    }
}
