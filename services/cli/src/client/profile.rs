//! Which server a command speaks to, and how it shows who it is.
//!
//! The server is the first of: `--server`, `--profile`, `TIDELINE_SERVER`, the default profile, this machine. The token
//! comes from a file and from nowhere else: that of the profile goes to the server of the profile only, that of
//! `TIDELINE_TOKEN_FILE` to whichever server was chosen. It is never shown. The same holds for the file of the authorities
//! that are trusted, which `--ca` names too.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tideline_openapi::plain;

use super::{Client, tls};
use crate::error::{CliError, Result};

/// Where a server listens that nobody said anything about.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8490";
/// The table that a server has from the start.
const DEFAULT_TABLE: &str = "default";

/// How a server is reached, on the command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectionArguments {
    /// Where the server is, such as http://db-1:8490 [env: TIDELINE_SERVER] [default: http://127.0.0.1:8490]
    #[arg(help_heading = "Server", long, value_name = "URL", conflicts_with = "profile")]
    server: Option<String>,
    /// A profile of ~/.config/tideline/profiles.toml: its server, token file and table [env file: TIDELINE_PROFILES]
    ///
    /// The file looks like this; a token is read from the profile's file or from that of TIDELINE_TOKEN_FILE:
    ///
    ///   default = "lab"
    ///   [profiles.lab]
    ///   server = "https://10.0.0.5:8490"
    ///   ca_file = "~/.config/tideline/lab.pem"
    ///   token_file = "~/.config/tideline/lab.token"
    ///   table = "default"
    #[arg(help_heading = "Server", long, value_name = "NAME", verbatim_doc_comment)]
    profile: Option<String>,
    /// Certificates (PEM) of the authorities that an https:// server is trusted by, in place of the system's [env: TIDELINE_CA_FILE]
    #[arg(help_heading = "Server", long, value_name = "FILE")]
    ca: Option<String>,
    /// Answer in JSON, for programs
    #[arg(help_heading = "Server", long)]
    pub(crate) json: bool,
    /// How long the server may be silent before it counts as unreachable
    #[arg(help_heading = "Server", long, value_name = "DURATION", default_value = "3m", value_parser = some_time)]
    timeout: Duration,
}

/// How a table of a server is reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct TableArguments {
    #[command(flatten)]
    pub(crate) server: ConnectionArguments,
    /// The table [default: that of the profile, else `default`]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) table: Option<String>,
}

impl TableArguments {
    /// The client that they mean.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_of(1)
    }

    /// A client with so many connections at once.
    pub(crate) fn client_of(&self, connections: usize) -> Result<Client> {
        self.server.connect(self.table.as_deref(), connections)
    }
}

/// The file of profiles.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    /// The profile that holds where none is named.
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// One server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    server: String,
    ca_file: Option<String>,
    token_file: Option<String>,
    table: Option<String>,
}

impl ConnectionArguments {
    /// The client that they mean, of what is no table's own.
    pub(crate) fn client(&self) -> Result<Client> {
        self.connect(None, 1)
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
                "--ca is for servers of https://, and {server} is reached in clear text"
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

/// A duration of the command line.
pub(crate) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let nanos =
        tideline_openapi::model::time::parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.ok_or_else(|| "write a duration such as 90s, 5m or 1h".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

/// A duration longer than none.
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

/// Where the profiles are.
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

/// The profiles; none where there is no file.
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

/// What is wrong with the file of profiles, without its lines and values: somebody may have put a token there.
fn unreadable(path: &Path, text: &str, error: &toml::de::Error) -> CliError {
    let message = error.message();
    let reason = match (message.starts_with("invalid"), message.rsplit_once(", expected ")) {
        // As in: invalid type: string "a value", expected a map
        (true, Some((_, expected))) => {
            let expected = plain::expected(expected).replace("an object", "a table");
            format!("here belongs {expected}")
        }
        (true, None) => "this cannot be read".to_owned(),
        (false, _) => plain::message(message.lines().next().unwrap_or_default()),
    };
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    CliError::usage(format!(
        "{}: line {line}: {reason}; a profile has server, ca_file, token_file and table",
        path.display()
    ))
}

/// A path in which `~/` stands for the home folder.
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
            "{}: a token file holds one token of visible ASCII characters",
            path.display()
        )));
    }
    Ok(token.to_owned())
}

/// The address of a server, without a slash at its end.
fn checked(server: &str) -> Result<String> {
    if server.contains('@') {
        // Not shown: it may hold a password.
        return Err(CliError::usage(
            "the address of a server holds no user and no password; put a token into a token file",
        ));
    }
    let host = server
        .strip_prefix("https://")
        .or_else(|| server.strip_prefix("http://"))
        .unwrap_or_default();
    if host.trim_matches('/').is_empty() || host.contains(['?', '#', ' ']) {
        return Err(CliError::usage(format!(
            "{server:?} is no address of a server; write one such as {DEFAULT_SERVER} or https://db-1"
        )));
    }
    Ok(server.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        assert_eq!(checked("http://a:1/").expect("right"), "http://a:1");
        assert_eq!(checked("http://a/below").expect("right"), "http://a/below");
        assert_eq!(checked("https://a/").expect("right"), "https://a");
        for wrong in [
            "",
            "a:1",
            "ftp://a",
            "http://",
            "https://",
            "http://user@a",
            "http://a?b",
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
            ("[profiles]\na = \"s3cret\"\n", 2, "here belongs a table"),
            ("[profiles.a]\nserver = \"x\" s3cret\n", 2, "expected"),
            (
                "default = \"a\"\n[profiles.a]\nserver = \"x\"\ntable = [\"s3cret\"]\n",
                4,
                "here belongs a text",
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
