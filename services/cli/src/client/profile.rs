//! Server selection and authentication of a command.
//!
//! The server is the first of `--server`, `--profile`, `TIDELINE_SERVER`, the default profile, and port 8490 of this
//! machine. The token is only read from a file and never printed. The file of `TIDELINE_TOKEN_FILE` takes precedence
//! and is used for any server; the profile's token file is used only for the profile's server. The file of trusted
//! authorities is the first of `--ca`, `TIDELINE_CA_FILE` and the file of the profile.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tideline_openapi::plain;

use super::{Client, tls, unix};
use crate::error::{CliError, Result};

/// Server that is used if no server is configured.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8490";
/// Name of the table that every server has.
const DEFAULT_TABLE: &str = "default";

/// Options that select the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectionArguments {
    /// Server URL, such as http://db-1:8490 or unix:/run/tideline/tideline.sock [env: TIDELINE_SERVER]
    /// [default: http://127.0.0.1:8490]
    #[arg(help_heading = "Server", long, value_name = "URL", conflicts_with = "profile")]
    server: Option<String>,
    /// Profile of ~/.config/tideline/profiles.toml: server, token file and table [env file: TIDELINE_PROFILES]
    ///
    /// Format of the file; the token is read from the profile's token file or from that of TIDELINE_TOKEN_FILE:
    ///
    ///   default = "lab"
    ///   [profiles.lab]
    ///   server = "https://10.0.0.5:8490"
    ///   ca_file = "~/.config/tideline/lab.pem"
    ///   token_file = "~/.config/tideline/lab.token"
    ///   table = "default"
    #[arg(help_heading = "Server", long, value_name = "NAME", verbatim_doc_comment)]
    profile: Option<String>,
    /// PEM file of the authorities trusted for an https:// server, instead of the system's [env:
    /// TIDELINE_CA_FILE]
    #[arg(help_heading = "Server", long, value_name = "FILE")]
    ca: Option<String>,
    /// Print JSON, for programs
    #[arg(help_heading = "Server", long)]
    pub(crate) json: bool,
    /// Longest time without a byte from the server before it counts as unreachable
    #[arg(help_heading = "Server", long, value_name = "DURATION", default_value = "3m", value_parser = some_time)]
    timeout: Duration,
}

/// Options that select the server and the table.
#[derive(Debug, Clone, Args)]
pub(crate) struct TableArguments {
    #[command(flatten)]
    pub(crate) server: ConnectionArguments,
    /// Table name [default: that of the profile, else `default`]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) table: Option<String>,
}

impl TableArguments {
    /// Creates the client of the selected server and table.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_of(1)
    }

    /// Creates the client of the selected server and table. The client keeps up to `connections` idle connections for
    /// reuse.
    pub(crate) fn client_of(&self, connections: usize) -> Result<Client> {
        self.server.connect(self.table.as_deref(), connections)
    }
}

/// Content of the profile file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    /// Name of the profile that is used if no profile is selected.
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// Profile of one server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    server: String,
    ca_file: Option<String>,
    token_file: Option<String>,
    table: Option<String>,
}

impl ConnectionArguments {
    /// Creates the client of the selected server, for commands that do not apply to a table.
    pub(crate) fn client(&self) -> Result<Client> {
        self.connect(None, 1)
    }

    /// Creates the client of the selected server and a named table. The client keeps up to `connections` idle
    /// connections for reuse.
    pub(crate) fn client_of_table(&self, table: &str, connections: usize) -> Result<Client> {
        self.connect(Some(table), connections)
    }

    /// Returns the longest time without a byte from the server.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connect(&self, table: Option<&str>, connections: usize) -> Result<Client> {
        let environment = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let profile = match (&self.server, &self.profile) {
            (Some(_), _) => None,
            (None, Some(name)) => Some(load()?.named(name)?),
            (None, None) if environment("TIDELINE_SERVER").is_some() => None,
            (None, None) => load()?.chosen()?,
        };
        let server = self.server.clone();
        let server = server.or_else(|| profile.as_ref().map(|profile| profile.server.clone()));
        let server = server.or_else(|| environment("TIDELINE_SERVER"));
        let server = checked(server.as_deref().unwrap_or(DEFAULT_SERVER))?;
        let token_file = environment("TIDELINE_TOKEN_FILE")
            .or_else(|| profile.as_ref().and_then(|profile| profile.token_file.clone()));
        let token = token_file.map(|path| read_token(&at_home(&path))).transpose()?;
        let is_clear = !server.starts_with("https://");
        if is_clear && self.ca.is_some() {
            return Err(CliError::usage(format!(
                "--ca applies to https:// servers only, and {server} is not one"
            )));
        }
        let ca_file = self.ca.clone();
        let ca_file = ca_file.or_else(|| environment("TIDELINE_CA_FILE"));
        let ca_file = ca_file.or_else(|| profile.as_ref().and_then(|profile| profile.ca_file.clone()));
        let ca_file = ca_file.filter(|_| !is_clear).map(|path| at_home(&path));
        let table = table.map(str::to_owned);
        let table = table.or_else(|| profile.and_then(|profile| profile.table));
        Ok(Client::new(
            server,
            tls::config(ca_file.as_deref())?,
            token.as_deref(),
            table.unwrap_or_else(|| DEFAULT_TABLE.to_owned()),
            connections,
            self.timeout,
        ))
    }
}

/// Parses a duration argument.
pub(crate) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let nanos =
        tideline_openapi::model::time::parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.ok_or_else(|| "write a duration such as 90s, 5m or 1h".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

/// Parses a size: bytes, or a whole number with a unit, such as `10GiB` or `10 GiB`.
///
/// # Errors
///
/// Fails with the accepted forms if the text is not a size, or if the size is 2⁶⁴ bytes or more.
pub fn bytes(text: &str) -> std::result::Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let bytes = number
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "write a size such as 10GiB, 64MiB or 1048576".to_owned())
}

/// Parses a duration argument above zero.
fn some_time(text: &str) -> std::result::Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("write a duration such as 90s, 5m or 1h".to_owned()),
        time => Ok(time),
    }
}

impl Profiles {
    fn named(mut self, name: &str) -> Result<Profile> {
        self.profiles.remove(name).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            CliError::usage(format!(
                "there is no profile {name:?} in {}; it has: {known}",
                file().map_or_else(
                    || "~/.config/tideline/profiles.toml".to_owned(),
                    |path| path.display().to_string()
                )
            ))
        })
    }

    fn chosen(self) -> Result<Option<Profile>> {
        match self.default.clone() {
            Some(name) => self.named(&name).map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the path of the profile file; `None` if `TIDELINE_PROFILES` and `XDG_CONFIG_HOME` are unset or empty and
/// `HOME` is unset.
fn file() -> Option<PathBuf> {
    match std::env::var_os("TIDELINE_PROFILES") {
        Some(path) if !path.is_empty() => Some(PathBuf::from(path)),
        _ => {
            let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
            let folder = folder.map(PathBuf::from);
            let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
            Some(folder?.join("tideline").join("profiles.toml"))
        }
    }
}

/// Reads the profiles. Returns no profiles if the file does not exist or its path is unknown. Fails if the file cannot
/// be read or is invalid.
fn load() -> Result<Profiles> {
    let Some(path) = file() else {
        return Ok(Profiles::default());
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Profiles::default()),
        Err(error) => return Err(CliError::file(&path, error)),
    };
    toml::from_str(&text).map_err(|error| unreadable(&path, &text, &error))
}

/// Returns the error for an invalid profile file. The error omits the values in the file, because one of them
/// may be a token.
fn unreadable(path: &Path, text: &str, error: &toml::de::Error) -> CliError {
    let message = error.message();
    let reason = match (message.starts_with("invalid"), message.rsplit_once(", expected ")) {
        // For example: invalid type: string "a value", expected a map
        (true, Some((_, expected))) => {
            let expected = plain::expected(expected).replace("an object", "a table");
            format!("expected {expected}")
        }
        (true, None) => "invalid value".to_owned(),
        (false, _) => plain::message(message.lines().next().unwrap_or_default()),
    };
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    CliError::usage(format!(
        "{}: line {line}: {reason}; a profile has server, ca_file, token_file and table",
        path.display()
    ))
}

/// Expands a leading `~/` to the home folder, unless `HOME` is not set.
fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    }
}

fn read_token(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|error| CliError::file(path, error))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CliError::usage(format!(
            "{}: a token file must contain one token of visible ASCII characters",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

/// Removes trailing slashes from a server URL. Returns `unix:` with an absolute path unchanged. Fails with a usage
/// error if the URL is not valid or contains a user or password.
fn checked(server: &str) -> Result<String> {
    if server
        .strip_prefix(unix::PREFIX)
        .is_some_and(|path| path.starts_with('/'))
    {
        return Ok(server.to_owned());
    }
    if server.contains('@') {
        // The URL is not printed, because it may contain a password.
        return Err(CliError::usage(
            "a server URL must not contain a user or password; use a token file",
        ));
    }
    let host = server
        .strip_prefix("https://")
        .or_else(|| server.strip_prefix("http://"))
        .unwrap_or_default();
    if host.trim_matches('/').is_empty() || host.contains(['?', '#', ' ']) {
        return Err(CliError::usage(format!(
            "{server:?} is not a valid server URL; use one such as {DEFAULT_SERVER}, https://db-1 or \
             unix:/run/tideline/tideline.sock"
        )));
    }
    Ok(server.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit() {
        for (text, expected) in [
            ("0", 0),
            ("17B", 17),
            ("4KiB", 4 << 10),
            ("96MiB", 96 << 20),
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for wrong in ["", "GiB", "-1", "1.5GiB", "1GB", "1 2", "20000000TiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_checked() {
        assert_eq!(checked("http://a:1/").expect("right"), "http://a:1");
        assert_eq!(checked("http://a/below").expect("right"), "http://a/below");
        assert_eq!(checked("https://a/").expect("right"), "https://a");
        assert_eq!(checked("unix:/run/a@b").expect("right"), "unix:/run/a@b");
        for wrong in [
            "",
            "a:1",
            "ftp://a",
            "http://",
            "https://",
            "http://user@a",
            "http://a?b",
            "unix:",
            "unix:run/a",
        ] {
            assert_eq!(checked(wrong).expect_err(wrong).exit_status(), 2);
        }
    }

    #[test]
    fn profiles_are_read_and_what_is_unknown_is_named() {
        let read: Profiles = toml::from_str(
            "default = \"a\"\n[profiles.a]\nserver = \"http://a:1\"\n[profiles.b]\nserver = \"http://b:2\"\ntable = \"t\"\n",
        )
        .expect("profiles");
        assert_eq!(
            read.chosen().expect("it is there").expect("it is named").server,
            "http://a:1"
        );
    }

    #[test]
    fn what_is_wrong_with_profiles_is_said_without_their_values() {
        for (text, line, said) in [
            (
                "[profiles.a]\nserver = \"x\"\ntoken = \"s3cret\"\n",
                3,
                "the member \"token\" is not known here",
            ),
            ("[profiles]\na = \"s3cret\"\n", 2, "expected a table"),
            ("[profiles.a]\nserver = \"x\" s3cret\n", 2, "expected"),
            (
                "default = \"a\"\n[profiles.a]\nserver = \"x\"\ntable = [\"s3cret\"]\n",
                4,
                "expected a text",
            ),
        ] {
            let error = toml::from_str::<Profiles>(text).expect_err(text);
            let shown = unreadable(Path::new("p.toml"), text, &error).to_string();
            assert!(shown.starts_with(&format!("p.toml: line {line}: ")), "{shown}");
            assert!(shown.contains(said) && !shown.contains("s3cret"), "{shown}");
        }
        let shown = checked("http://user:s3cret@a:1")
            .expect_err("no passwords")
            .to_string();
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
