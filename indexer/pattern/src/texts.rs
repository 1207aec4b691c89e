//! Expansion of an expression into the texts that it matches, if they are few.
//!
//! Equality with a few texts is cheaper than a compiled expression, and an index can look the texts up.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Maximum number of texts that an expression is expanded into.
pub const TEXTS_MAX: usize = 1_000;

/// Maximum total length of concatenated texts, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// Returns all matching texts, sorted and distinct. Returns `None` if there are more than [`TEXTS_MAX`], if
/// concatenated texts exceed `BYTES_MAX`, or if the expression contains a repetition, an assertion, a class of bytes
/// such as `(?-u:[ab])`, or a literal that is not UTF-8.
pub(crate) fn texts(hir: &Hir) -> Option<Vec<String>> {
    let mut texts = written_out(hir)?;
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}

fn written_out(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![String::new()]),
        HirKind::Literal(literal) => Some(vec![std::str::from_utf8(&literal.0).ok()?.to_owned()]),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.iter();
            let count: usize = ranges
                .map(|range| range.end() as usize - range.start() as usize + 1)
                .sum();
            let letters = || class.iter().flat_map(|range| range.start()..=range.end());
            (count <= TEXTS_MAX).then(|| letters().map(String::from).collect())
        }
        HirKind::Capture(capture) => written_out(&capture.sub),
        HirKind::Alternation(either) => {
            let mut all = Vec::new();
            for one in either {
                all.append(&mut written_out(one)?);
                if all.len() > TEXTS_MAX {
                    return None;
                }
            }
            Some(all)
        }
        HirKind::Concat(parts) => {
            let mut all = vec![String::new()];
            for part in parts {
                let ends = written_out(part)?;
                let bytes = bytes(&all) * ends.len() + bytes(&ends) * all.len();
                if all.len() * ends.len() > TEXTS_MAX || bytes > BYTES_MAX {
                    return None;
                }
                let joined = all
                    .iter()
                    .flat_map(|begin| ends.iter().map(move |end| format!("{begin}{end}")));
                all = joined.collect();
            }
            Some(all)
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

fn bytes(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

/// Returns true if an expression matches the empty text.
pub(crate) fn takes_empty(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty => true,
        HirKind::Literal(_) | HirKind::Class(_) => false,
        // The empty text contains no word, so word-boundary assertions do not match.
        HirKind::Look(look) => !matches!(
            look,
            Look::WordAscii
                | Look::WordUnicode
                | Look::WordStartAscii
                | Look::WordEndAscii
                | Look::WordStartUnicode
                | Look::WordEndUnicode
        ),
        HirKind::Repetition(repetition) => repetition.min == 0 || takes_empty(&repetition.sub),
        HirKind::Capture(capture) => takes_empty(&capture.sub),
        HirKind::Concat(parts) => parts.iter().all(takes_empty),
        HirKind::Alternation(either) => either.iter().any(takes_empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expression: &str) -> Option<String> {
        let hir = regex_syntax::parse(expression).expect(expression);
        texts(&hir).map(|texts| texts.join(" "))
    }

    #[test]
    fn expressions_of_few_texts_are_written_out() {
        assert_eq!(of("web"), Some("web".into()));
        assert_eq!(of("web|db|web"), Some("db web".into()));
        assert_eq!(of("h(1|2[ab])x"), Some("h1x h2ax h2bx".into()));
        assert_eq!(of(r"a\.b|"), Some(" a.b".into()));
        assert_eq!(of("(?i:a)"), Some("A a".into()));
        let long = "[0-9][0-9][0-9]".to_owned() + &"x".repeat(1_000);
        for unbounded in [
            "a.*",
            "a+",
            "h[0-9]{4}",
            "(a|b|c|d|e)(a|b|c|d|e){6}",
            r"\w",
            "^a$",
            &long,
        ] {
            assert_eq!(of(unbounded), None, "{unbounded}");
        }
    }
}
