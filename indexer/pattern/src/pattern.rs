//! A regular expression that is checked on creation and compiled on first use.
//!
//! The whole text must match, so a frame, `\A(?:…)\z`, anchors the expression at both ends. Before compilation, the
//! length of the expression and the size that `cost` estimates are checked against [`Limits`].

use std::sync::{Arc, OnceLock};

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::ast::parse::ParserBuilder as AstParserBuilder;

use crate::cost::{Cost, cost};
use crate::error::shown;
use crate::texts::{takes_empty, texts};
use crate::{PatternError, Result};

/// Maximum nesting depth of groups and repetitions.
const DEPTH_MAX: u32 = 100;
/// Nesting depth that the anchoring frame adds.
const FRAME_DEPTH: u32 = 2;
/// Size of the lazy DFA cache per matching direction, in bytes. Matching is slower if an expression needs a larger
/// cache.
const STATES_BYTES_MAX: usize = 64 << 10;
/// Divisor of the automaton size; the quotient is the maximum memory per capture group. A matcher stores two offsets
/// per group for each automaton state.
const GROUP_SHARE: u64 = 2;

/// Limits of one expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of an expression, in bytes.
    pub text_bytes_max: usize,
    /// Maximum estimated size of one compiled automaton, in bytes.
    pub compiled_bytes_max: u64,
}

/// Checked regular expression that a whole text must match; a dot also matches line ends. Clones share the compiled
/// form.
#[derive(Debug, Clone)]
pub struct Pattern {
    expression: Arc<str>,
    cost: Cost,
    texts: Option<Arc<[String]>>,
    takes_empty: bool,
    compiled: Arc<OnceLock<Option<Regex>>>,
}

impl Pattern {
    /// Parses and checks an expression without compiling it, in time proportional to its length.
    ///
    /// # Errors
    ///
    /// [`PatternError::TooLong`] or [`PatternError::TooLarge`] if a limit is exceeded, [`PatternError::Invalid`] if
    /// the expression is invalid or nested too deeply.
    pub fn new(expression: &str, limits: Limits) -> Result<Self> {
        if expression.len() > limits.text_bytes_max {
            return Err(PatternError::TooLong {
                pattern: shown(expression),
                limit: limits.text_bytes_max as u64,
                actual: expression.len() as u64,
            });
        }
        let ast = AstParserBuilder::new()
            .nest_limit(DEPTH_MAX)
            .build()
            .parse(expression);
        let invalid = |error| PatternError::Invalid(regex_syntax::Error::from(error).to_string());
        let ast = ast.map_err(invalid)?;
        // Rejects an expression that would disable the end of the frame, such as one that ends with a comment.
        let in_frame = AstParserBuilder::new()
            .nest_limit(DEPTH_MAX + FRAME_DEPTH)
            .build()
            .parse(&framed(expression));
        in_frame.map_err(invalid)?;
        let cost = cost(&ast);
        if cost.bytes > limits.compiled_bytes_max {
            return Err(PatternError::TooLarge {
                pattern: shown(expression),
                limit: limits.compiled_bytes_max,
                actual: cost.bytes,
            });
        }
        // This step expands class names such as `\pL` into ranges of characters, so it must follow the size check.
        let hir = ParserBuilder::new()
            .nest_limit(DEPTH_MAX)
            .utf8(false)
            .dot_matches_new_line(true)
            .build()
            .parse(expression);
        let hir = hir.map_err(|error| PatternError::Invalid(error.to_string()))?;
        Ok(Self {
            expression: expression.into(),
            cost,
            texts: texts(&hir).map(Into::into),
            takes_empty: takes_empty(&hir),
            compiled: Arc::default(),
        })
    }

    /// Returns the expression.
    pub fn as_str(&self) -> &str {
        &self.expression
    }

    /// Returns an upper bound of the memory for matching, in bytes: the forward and the reverse automaton with their
    /// caches, or the list of texts if the expression was expanded into texts.
    pub fn bytes(&self) -> u64 {
        match &self.texts {
            Some(texts) => texts.iter().map(|text| text.len() as u64 + 32).sum(),
            None => 2 * self.cost.bytes + 2 * STATES_BYTES_MAX as u64,
        }
    }

    /// Returns an upper bound of the memory for matching with capture groups, in bytes.
    pub fn bytes_with_groups(&self) -> u64 {
        let groups = (self.cost.groups + 1).saturating_mul(self.cost.bytes / GROUP_SHARE);
        (2 * self.cost.bytes + 2 * STATES_BYTES_MAX as u64).saturating_add(groups)
    }

    /// Returns all matching texts, sorted. Returns `None` if the texts are too many or too long, or if the
    /// expression contains a repetition, an assertion, a class of bytes, or a literal that is not UTF-8.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_pattern::{Limits, Pattern};
    ///
    /// let limits = Limits { text_bytes_max: 1_000, compiled_bytes_max: 1 << 20 };
    /// let few = Pattern::new("db-(fra|ams)", limits)?;
    /// assert_eq!(few.texts(), Some(&["db-ams".to_owned(), "db-fra".to_owned()][..]));
    /// assert_eq!(Pattern::new("db-.*", limits)?.texts(), None);
    /// # Ok::<(), tideline_pattern::PatternError>(())
    /// ```
    pub fn texts(&self) -> Option<&[String]> {
        self.texts.as_deref()
    }

    /// Returns true if the whole text matches. Unless the expression was expanded into texts, the first call with a
    /// non-empty text compiles the expression. Compiling takes milliseconds, so do not make the first call on an async
    /// thread.
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.texts {
            _ if text.is_empty() => self.takes_empty,
            Some(texts) => texts.binary_search_by(|known| known.as_bytes().cmp(text)).is_ok(),
            None => self.compiled().is_some_and(|regex| regex.is_match(text)),
        }
    }

    /// Returns the compiled expression, anchored at both ends. `None` does not occur, because every expression within
    /// the limits compiles. If a new version of the `regex` crate breaks this rule, no text matches, and
    /// [`compile`](Self::compile) returns the error.
    fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| self.build().ok()).as_ref()
    }

    /// Compiles the expression if necessary, and returns it, anchored at both ends.
    ///
    /// # Errors
    ///
    /// [`PatternError::TooLarge`] if the compiled size exceeds twice the estimate.
    pub fn compile(&self) -> Result<&Regex> {
        self.compiled().ok_or_else(|| PatternError::TooLarge {
            pattern: shown(&self.expression),
            limit: self.size_max() as u64,
            actual: self.size_max() as u64 + 1,
        })
    }

    fn size_max(&self) -> usize {
        usize::try_from(self.cost.bytes)
            .unwrap_or(usize::MAX)
            .saturating_mul(2)
    }

    fn build(&self) -> std::result::Result<Regex, regex::Error> {
        RegexBuilder::new(&framed(&self.expression))
            .nest_limit(DEPTH_MAX + FRAME_DEPTH)
            .dot_matches_new_line(true)
            .size_limit(self.size_max())
            .dfa_size_limit(STATES_BYTES_MAX)
            .build()
    }
}

/// Anchors an expression at both ends.
fn framed(expression: &str) -> String {
    format!(r"\A(?:{expression})\z")
}

/// Two patterns are equal if their expressions are equal.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PatternBudget, REQUEST_BYTES_MAX};

    const LIMITS: Limits = Limits {
        text_bytes_max: 4_096,
        compiled_bytes_max: 4 << 20,
    };

    fn pattern(expression: &str) -> Pattern {
        Pattern::new(expression, LIMITS).expect(expression)
    }

    #[test]
    fn the_estimate_is_an_upper_bound() {
        let expressions = [
            "a",
            "a.*b",
            "(?i)kelvin-[a-z0-9]+",
            r"\w+",
            r"\W",
            r"\d+\.\d+",
            r"\s",
            r"\S",
            r"\pL{10}",
            r"\PL{4}",
            r"\p{Greek}",
            r"\p{any}",
            "[^a]",
            "[^é-ü]",
            "(?i)[é-ü]",
            "(?i)ſ",
            "(?i)[^k]",
            ".{20}",
            "(a|b|c)*",
            "[[:alpha:]&&[^k]]",
            r"[\w--\d]",
            r"[\pL\pN]",
            r"(?i)\pL",
            "[😀-🙏]",
            "(?i)[\u{0}-\u{10ffff}]",
            "[\u{80}-\u{10ffff}]",
            "a{1000}",
            "a{3,}",
            "(ab?c*){2,9}",
            r"(?-u:\b)a(?-u:\B)",
            "a{0}",
            "(a{0}){0}",
            r"[a-cx-z0-9_.é-ü]",
            "(((a)(b)(c)))",
            r"(?i)straße",
            r"\p{Cn}",
            r"\p{Lo}",
            r"\p{L}\p{M}\p{N}\p{S}",
            r"(?i)\p{Lu}",
            r"\P{Lu}",
            r"(?i)\w",
            r"[^\w]",
            r"[^\pL\d]",
            r"\p{Alphabetic}",
            r"\p{Changes_When_Casefolded}",
            r"(?i)[a-z]",
            r"\p{age:16.0}",
            r"\p{gcb:LV}",
            r"\p{gcb:LVT}",
        ];
        for expression in expressions {
            let pattern = pattern(expression);
            let size = usize::try_from(pattern.cost.bytes).expect("it fits");
            let built = RegexBuilder::new(&format!(r"\A(?:{expression})\z"))
                .dot_matches_new_line(true)
                .size_limit(size)
                .build();
            assert!(built.is_ok(), "{expression} takes more than {size} bytes");
            pattern.compile().expect(expression);
        }
    }

    #[test]
    fn large_ones_are_refused_before_they_are_compiled() {
        for expression in [r"\pL{1000}", "a{1000}{1000}{1000}", r"(\w\w){500}"] {
            let refused = Pattern::new(expression, LIMITS).expect_err(expression);
            let (limit, actual) = refused.limit().expect("a limit");
            assert!(limit == 4 << 20 && actual > limit, "{refused}");
        }
        let long = "x".repeat(4_097);
        let refused = Pattern::new(&long, LIMITS).expect_err("too long");
        assert_eq!(refused.limit(), Some((4_096, 4_097)));
        let deep = "(".repeat(1_000) + &")".repeat(1_000);
        for expression in [
            "*",
            "(",
            "[a",
            "\\",
            "a{3,2}",
            "[b-a]",
            r"\p{Nothing}",
            "(?x)a # comment",
            &deep,
        ] {
            let refused = Pattern::new(expression, LIMITS).expect_err(expression);
            assert!(matches!(refused, PatternError::Invalid(_)), "{refused}");
        }
    }

    #[test]
    fn patterns_of_a_request_are_added_up() {
        let mut budget = PatternBudget::default();
        let one = pattern("a.*b");
        let taken = (1..).find(|_| budget.take(one.as_str(), one.bytes()).is_err());
        assert!((200..2_000).contains(&taken.expect("a limit")), "{taken:?}");
        assert!(budget.bytes() > REQUEST_BYTES_MAX);
        // An expression that is expanded into texts takes little memory.
        let list = pattern("web-01|web-02|db-[12]");
        assert_eq!(list.texts().map(<[String]>::len), Some(4));
        assert!(list.bytes() < 200);
        assert!(one.bytes_with_groups() > one.bytes());
    }

    #[test]
    fn texts_fit_as_a_whole() {
        for (expression, text, fits) in [
            ("a|ab", "ab", true),
            ("a|b", "ab", false),
            ("a.b", "a\nb", true),
            ("", "", true),
            ("x*", "", true),
            (r"\b", "", false),
            (r"\B|x+", "", true),
            ("^$", "", true),
            ("x+", "", false),
            ("(?i)web-.*", "WEB-1", true),
        ] {
            let pattern = pattern(expression);
            assert_eq!(pattern.matches(text.as_bytes()), fits, "{expression} {text}");
            let regex = pattern.compile().expect(expression);
            assert_eq!(
                regex.is_match(text.as_bytes()),
                fits,
                "compiled: {expression} {text}"
            );
        }
    }
}
