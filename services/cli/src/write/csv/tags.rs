//! Tags that all rows of a file share, given on the command line or taken from the file's name.
//!
//! Such a tag must not have the name of a tag column; the plan of a file checks that.

use std::path::Path;

use crate::error::{CliError, Result};

/// Endings of compressed files.
const PACKED: [&str; 2] = [".gz", ".zst"];

/// Splits `KEY=VALUE`. Returns `None` for the name of a column.
pub(super) fn constant(tag: &str) -> Option<(&str, &str)> {
    tag.split_once('=').filter(|(key, _)| !key.is_empty())
}

/// Returns the tag that the rule `KEY` or `KEY=PATTERN` derives from a file name.
///
/// # Errors
///
/// Returns a usage error if the input has no name, or its name does not match the pattern.
pub(super) fn from_file(rule: &str, path: &str) -> Result<(String, String)> {
    let (key, pattern) = match rule.split_once('=') {
        Some((key, pattern)) => (key, Some(pattern)),
        None => (rule, None),
    };
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    let Some(name) = name.filter(|_| path != "-") else {
        return Err(CliError::usage(format!(
            "--tag-from-file {rule}: standard input has no name; use --tag {key}=VALUE"
        )));
    };
    let plain = unpacked(name);
    let stem = plain.rsplit_once('.').map_or(plain, |(stem, _)| stem);
    let value = match pattern {
        None => Some(stem),
        // The shortest name is tried first, so that a star at the end of a pattern does not match file endings.
        Some(pattern) => [stem, plain, name].iter().find_map(|name| between(pattern, name)),
    };
    match value.filter(|value| !value.is_empty()) {
        Some(value) => Ok((key.to_owned(), value.to_owned())),
        None => Err(CliError::usage(format!(
            "{path}: its name does not match the pattern of --tag-from-file {rule}"
        ))),
    }
}

/// Refuses a rule without a key, or a pattern without exactly one star.
pub(super) fn check(rule: &str) -> Result<()> {
    let (key, stars) = match rule.split_once('=') {
        Some((key, pattern)) => (key, pattern.matches('*').count()),
        None => (rule, 1),
    };
    if key.is_empty() || stars != 1 {
        return Err(CliError::usage(format!(
            "--tag-from-file {rule}: expected KEY, or KEY=PATTERN with one * for the value, \
             such as host=metrics-*.csv"
        )));
    }
    Ok(())
}

/// Removes the ending of a compressed file.
fn unpacked(name: &str) -> &str {
    let plain = PACKED.iter().find_map(|ending| name.strip_suffix(ending));
    plain.unwrap_or(name)
}

/// Returns the part of a name that the star of a pattern matches; `None` if the name does not match.
fn between<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let (before, after) = pattern.split_once('*')?;
    name.strip_prefix(before)?.strip_suffix(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_give_tags() {
        for (rule, path, value) in [
            ("host", "/in/web-1.csv", "web-1"),
            ("host", "web-1.example.csv.gz", "web-1.example"),
            ("host=metrics-*.csv", "in/metrics-db-3.csv", "db-3"),
            ("host=metrics-*", "metrics-db-3.csv.zst", "db-3"),
            ("host=metrics-*.csv", "metrics-db-3.csv.gz", "db-3"),
        ] {
            assert_eq!(
                from_file(rule, path).expect(rule),
                ("host".to_owned(), value.to_owned()),
                "{rule} {path}"
            );
        }
        for (rule, path) in [
            ("host", "-"),
            ("host=metrics-*.csv", "other.csv"),
            ("host=a*", "a.csv"),
        ] {
            assert_eq!(
                from_file(rule, path).expect_err(rule).exit_status(),
                2,
                "{rule} {path}"
            );
        }
        assert!(check("host").is_ok() && check("host=a*b").is_ok());
        for wrong in ["", "=a*", "host=a", "host=*a*"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
