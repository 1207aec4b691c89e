//! Text forms of a configuration: the effective values (`config show`) and an example file
//! (`config reference`).

use std::fmt::Write;

use super::keys::{KEYS, Key};
use super::{Config, Resolved};

impl Resolved {
    /// Returns all keys with their values and origins, as TOML. Secrets are masked.
    pub fn describe(&self) -> String {
        let mut config = self.config.clone();
        by_section(|key, text| {
            let name = key.name();
            let line = match (key.slot)(&mut config).show() {
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} is not set"),
            };
            put(text, format_args!("{line:<44} # {}\n", self.origin(key.path)));
        })
    }
}

/// Returns an example file. Each key is commented out at its default, with its meaning, unit, environment variable and
/// flag.
pub fn reference() -> String {
    let mut config = Config::default();
    let head = "# Configuration of Tideline: every key, its meaning, its unit and its default.\n\
                # The environment overrides this file, and flags override the environment.\n";
    let keys = by_section(|key, text| {
        text.push('\n');
        for line in key.about.lines() {
            put(text, format_args!("# {line}\n"));
        }
        let flag = match key.has_flag {
            true => format!(" Flag: {}.", key.flag()),
            false => String::new(),
        };
        let variable = match key.is_secret {
            true => format!("{0} or {0}_FILE", key.variable()),
            false => key.variable(),
        };
        let slot = (key.slot)(&mut config);
        put(
            text,
            format_args!("# Unit: {}. Environment: {variable}.{flag}\n", slot.unit()),
        );
        let value = slot.show().unwrap_or_else(|| "\"\"".to_owned());
        put(text, format_args!("#{} = {value}\n", key.name()));
    });
    format!("{head}\n{keys}")
}

/// Writes all keys, grouped by section.
fn by_section(mut write: impl FnMut(&'static Key, &mut String)) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section() != section {
            section = key.section();
            let gap = if text.is_empty() { "" } else { "\n" };
            put(&mut text, format_args!("{gap}[{section}]\n"));
        }
        write(key, &mut text);
    }
    text
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string cannot fail");
}
