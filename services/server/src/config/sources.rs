//! Sources of configuration values: the file, the environment, flags.
//!
//! Unknown keys are refused with the most similar known one, because a misspelt key would otherwise be ignored.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key};
use super::token_file::TokenFile;

/// Configuration layers above the defaults, weakest first.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Path of a TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; only names that begin with `TIDELINE__` are used.
    pub environment: Vec<(String, String)>,
    /// Flags: path of a key, such as `server.listen`, and its value as text.
    pub flags: Vec<(&'static str, String)>,
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default; the key is not set.
    Default,
    /// A line of the file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

/// Problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Origin of the invalid value.
    pub origin: Origin,
    /// Description of the problem and how to solve it.
    pub message: String,
}

/// Value of a key as it was given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) key: &'static Key,
    pub(crate) text: String,
    pub(crate) origin: Origin,
    /// File from which the text was read; `None` if the value itself was given.
    pub(crate) file: Option<TokenFile>,
}

/// Prefix of the environment variables.
pub(crate) const ENVIRONMENT_PREFIX: &str = "TIDELINE__";

impl Sources {
    /// Returns all values, weakest first. Problems, such as unknown keys and unreadable files, are added to `problems`.
    pub(crate) fn collect(&self, problems: &mut Vec<Problem>) -> Vec<Given> {
        let mut collector = Collector {
            given: Vec::new(),
            problems,
        };
        if let Some(path) = &self.file {
            collector.file(path);
        }
        for (name, text) in &self.environment {
            if let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                let path = rest.to_ascii_lowercase().replace("__", ".");
                collector.value(&path, text.clone(), Origin::Environment(name.clone()));
            }
        }
        for (path, text) in &self.flags {
            let name = path.rsplit('.').next().unwrap_or(path).replace('_', "-");
            collector.value(path, text.clone(), Origin::Flag(format!("--{name}")));
        }
        collector.given
    }
}

impl Problem {
    pub(crate) fn at(origin: Origin, message: String) -> Self {
        Self { origin, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => write!(formatter, "{}", self.message),
            origin => write!(formatter, "{origin}: {}", self.message),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Environment(name) => write!(formatter, "environment {name}"),
            Self::Flag(name) => write!(formatter, "flag {name}"),
        }
    }
}

struct Collector<'a> {
    given: Vec<Given>,
    problems: &'a mut Vec<Problem>,
}

impl Collector<'_> {
    fn file(&mut self, path: &Path) {
        let at = |line| Origin::File {
            path: path.to_owned(),
            line,
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return self.problems.push(Problem::at(Origin::Default, message));
            }
        };
        let sections = match DeTable::parse(&text) {
            Ok(sections) => sections.into_inner(),
            Err(error) => {
                let line = error.span().map_or(1, |span| line_at(&text, span.start));
                return self
                    .problems
                    .push(Problem::at(at(line), error.message().to_owned()));
            }
        };
        for (section, content) in &sections {
            let DeValue::Table(keys) = content.get_ref() else {
                let origin = at(line_at(&text, section.span().start));
                self.unknown(section.get_ref(), origin);
                continue;
            };
            for (name, value) in keys {
                let origin = at(line_at(&text, name.span().start));
                self.file_value(
                    &format!("{}.{}", section.get_ref(), name.get_ref()),
                    value,
                    origin,
                );
            }
        }
    }

    fn file_value(&mut self, path: &str, value: &Spanned<DeValue<'_>>, origin: Origin) {
        let Some((key, _)) = key_of(path) else {
            return self.unknown(path, origin);
        };
        let text = match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Boolean(switch) => Ok(switch.to_string()),
            DeValue::Integer(number) => Ok(match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => number.to_string(),
            }),
            DeValue::Float(number) => Ok(number.to_string()),
            DeValue::Array(entries) if key.is_list() => list_text(entries),
            _ if key.is_list() => Err("expected a list of texts, or one text with commas".to_owned()),
            _ => Err("expected a text, a number, true or false".to_owned()),
        };
        match text {
            Ok(text) => self.value(path, text, origin),
            Err(reason) => {
                let message = format!("{path}: {reason}");
                self.problems.push(Problem::at(origin, message));
            }
        }
    }

    /// Adds one value. The key of a secret may have the suffix `_file`; its value is then the path of a file
    /// with the secret.
    fn value(&mut self, path: &str, text: String, origin: Origin) {
        let key = match key_of(path) {
            Some((key, Form::Value)) => {
                return self.given.push(Given {
                    key,
                    text,
                    origin,
                    file: None,
                });
            }
            Some((key, Form::FileOfSecret)) => key,
            None => return self.unknown(path, origin),
        };
        match TokenFile::read(Path::new(&text)) {
            Ok((file, content)) => self.given.push(Given {
                key,
                text: content,
                origin,
                file: Some(file),
            }),
            Err(error) => {
                let message = format!("{path}: cannot read {text}: {error}");
                self.problems.push(Problem::at(origin, message));
            }
        }
    }

    fn unknown(&mut self, path: &str, origin: Origin) {
        let hint = match (nearest(path), &origin) {
            (Some(key), Origin::Environment(_)) => format!("; did you mean {}?", key.variable()),
            (Some(key), _) => format!("; did you mean {}?", key.path),
            (None, _) => "; `tideline config reference` lists all keys".to_owned(),
        };
        self.problems
            .push(Problem::at(origin, format!("unknown key {path}{hint}")));
    }
}

/// Form of a value.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The value itself.
    Value,
    /// Path of a file that contains the value of a secret.
    FileOfSecret,
}

/// Returns the key of a path, and the form of its value. `None` for an unknown path.
fn key_of(path: &str) -> Option<(&'static Key, Form)> {
    if let Some(key) = KEYS.iter().find(|key| key.path == path) {
        return Some((key, Form::Value));
    }
    let secret = path.strip_suffix("_file")?;
    let key = KEYS.iter().find(|key| key.is_secret && key.path == secret)?;
    Some((key, Form::FileOfSecret))
}

/// Joins the entries of a list with commas, the form that environment and flags have.
fn list_text(entries: &[Spanned<DeValue<'_>>]) -> Result<String, String> {
    let mut texts = Vec::new();
    for entry in entries {
        match entry.get_ref() {
            DeValue::String(text) if text.contains(',') => {
                return Err(format!("the entry {text:?} of the list contains a comma"));
            }
            DeValue::String(text) => texts.push(&**text),
            _ => return Err("expected only texts in the list".to_owned()),
        }
    }
    Ok(texts.join(", "))
}

/// Returns the known key that is most similar to `path`, compared by its whole path or by its name in another section.
/// `None` if no key is similar enough.
fn nearest(path: &str) -> Option<&'static Key> {
    let name = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |key: &Key| {
        let by_name = strsim::damerau_levenshtein(&name(key.path), &name(path)) + 1;
        strsim::damerau_levenshtein(key.path, path).min(by_name)
    };
    let nearest = KEYS.iter().min_by_key(|key| distance(key))?;
    let far = (name(path).len() / 3).max(2);
    (distance(nearest) <= far).then_some(nearest)
}

/// Returns the line, from 1, that contains a byte of the text.
fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}
