//! `tideline token`: creates, lists, rotates and revokes tokens; shows what the token of the command line may do.
//!
//! A new token is printed to standard output alone, so that it can be piped to a file or another program; its description
//! is printed to standard error.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tideline_condition::{Domain, command_line};
use tideline_openapi::TimeInput;
use tideline_openapi::model::time::parse_duration;
use tideline_openapi::model::{Role, TableModel, TimeExpression};

use super::tenant;
use crate::client::{Client, ConnectionArguments, duration, encoded};
use crate::condition;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is printed once
    #[command(after_help = "\
Examples:
  tideline token create --name telegraf --role writer --table fleet --expires 90d
  tideline token create --name grafana --role reader --table 'team-a-*' --model series --out grafana.token
  tideline token create --name team-x --role reader --where team=x --expires 2027-12-31
  tideline token create --name root --role admin

A reader reads and searches data. A writer writes and deletes data, and reads nothing. An operator reads, and manages
tables, indexes, policies, jobs, archives and change streams. An admin may do everything.")]
    Create(CreateArguments),
    /// List tokens, with their last use
    List(ConnectionArguments),
    /// Show a token
    Show(TokenArguments),
    /// Give a token a new secret, which is printed once; the previous one stays valid for a while
    #[command(after_help = "\
Examples:
  tideline token rotate 5f0c1e9a7b34                  # the previous secret is valid for another day
  tideline token rotate 5f0c1e9a7b34 --overlap 0s     # the previous secret ends at once")]
    Rotate(RotateArguments),
    /// Revoke a token: it is refused at once
    Revoke(TokenArguments),
    /// Show what the token of this command line may do
    Whoami(ConnectionArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Name shown in lists and logs
    #[arg(long)]
    name: String,
    /// Role; repeat it for several
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = PossibleValuesParser::new(Role::ALL.map(Role::name)))]
    roles: Vec<String>,
    /// Table that the token may use: a name, or a prefix followed by `*`; repeat it for several [default: all tables]
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    /// Model of the tables that the token may use; repeat it for several [default: all models]
    #[arg(long = "model", value_name = "MODEL", value_parser = PossibleValuesParser::new(TableModel::ALL.map(TableModel::name)))]
    models: Vec<String>,
    /// Condition on the timelines that the token may use: `team=x`, `@team=x` for an attribute, or a JSON tree; timelines
    /// must match all [default: all timelines]
    #[arg(long = "where", short = 'w', value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Tenant for which requests with the token act: a name, or a prefix followed by `*`; repeat it for several
    /// tenants, and name one of them in the header X-Scope-OrgID of each request [default: none]
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// Time until the token becomes invalid, such as `90d`, or the time at which it becomes invalid: a date in UTC such as
    /// `2027-12-31`, or RFC 3339 [default: it does not expire]
    #[arg(long, value_name = "TIME", value_parser = end)]
    expires: Option<TimeInput>,
    #[command(flatten)]
    secret: SecretArguments,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArguments {
    /// Id of the token, as shown by `token list`
    id: String,
    /// Time for which the previous secret stays valid, at most 30d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    overlap: Duration,
    #[command(flatten)]
    secret: SecretArguments,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Destination of a new token.
#[derive(Debug, Args)]
pub(crate) struct SecretArguments {
    /// Write the token to a new file that only its owner can read, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    /// Id of the token, as shown by `token list`
    id: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub(crate) fn run(command: &TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create(arguments) => create(arguments),
        TokenCommand::List(connection) => list(connection),
        TokenCommand::Show(TokenArguments { id, connection }) => {
            show(connection, &format!("/v1/tokens/{}", encoded(id)))
        }
        TokenCommand::Rotate(arguments) => rotate(arguments),
        TokenCommand::Revoke(TokenArguments { id, connection }) => {
            connection
                .client()?
                .delete(&format!("/v1/tokens/{}", encoded(id)))?;
            match connection.json {
                true => output::print(&json!({"revoked": id}).to_string()),
                false => output::print(&format!("revoked token {id}")),
            }
        }
        TokenCommand::Whoami(connection) => show(connection, "/v1/access"),
    }
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let mut token = Map::from_iter([
        ("name".to_owned(), json!(arguments.name)),
        ("roles".to_owned(), json!(arguments.roles)),
    ]);
    // The server refuses empty lists, which would restrict nothing.
    for (name, list) in [
        ("tables", &arguments.tables),
        ("models", &arguments.models),
        ("tenants", &arguments.tenants),
    ] {
        if !list.is_empty() {
            token.insert(name.to_owned(), json!(list));
        }
    }
    let conditions = arguments.conditions.iter();
    let conditions = conditions.map(|text| condition::parse(Domain::Timelines, text));
    if let Some(timelines) = condition::joined(conditions.collect::<Result<_>>()?) {
        token.insert("timelines".to_owned(), timelines);
    }
    if let Some(expires) = arguments.expires {
        token.insert("expires".to_owned(), json!(expires));
    }
    let client = arguments.connection.client()?;
    // The file is created first: a token that cannot be written would be lost.
    let file = arguments.secret.open()?;
    let created = client.post("/v1/tokens", &Value::from(token));
    tell(
        &client,
        created,
        file,
        &arguments.secret,
        arguments.connection.json,
    )
}

fn rotate(arguments: &RotateArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let file = arguments.secret.open()?;
    let path = format!("/v1/tokens/{}/rotate", encoded(&arguments.id));
    let rotated = client.post(&path, &json!({"overlap": milliseconds(arguments.overlap)}));
    tell(
        &client,
        rotated,
        file,
        &arguments.secret,
        arguments.connection.json,
    )
}

/// Parses the end of a token: a duration from now on, or a time.
fn end(text: &str) -> std::result::Result<TimeInput, String> {
    if let Some(nanos) = parse_duration(text) {
        return Ok(TimeInput(TimeExpression::FromNow(nanos)));
    }
    // A number without a unit is refused: it could be meant as a duration.
    let time = match text.parse::<i64>() {
        Ok(_) => None,
        Err(_) => TimeInput::parse(text).ok(),
    };
    time.ok_or_else(|| {
        "write a duration such as 90d, a date such as 2027-12-31, or RFC 3339 such as 2027-12-31T08:00:00Z"
            .to_owned()
    })
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

impl SecretArguments {
    /// Creates the file for the token; `None` for standard output.
    fn open(&self) -> Result<Option<std::fs::File>> {
        let Some(path) = &self.out else {
            return Ok(None);
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        file.map(Some).map_err(|error| unwritable(path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Incomplete(match error.kind() {
        ErrorKind::AlreadyExists => format!("{} exists already; choose another name", path.display()),
        _ => format!("{}: {error}", path.display()),
    })
}

/// Prints a new token and describes it on standard error, or stores it in a file and describes it on standard output.
/// Removes the empty file if the request failed.
fn tell(
    client: &Client,
    response: Result<String>,
    file: Option<std::fs::File>,
    secret: &SecretArguments,
    is_json: bool,
) -> Result<()> {
    let text = response.inspect_err(|_| {
        if let Some(path) = &secret.out {
            // The file is empty.
            let _ = std::fs::remove_file(path);
        }
    })?;
    let mut token = client.parse(&text)?;
    let Some(Value::String(shown)) = token.as_object_mut().and_then(|token| token.remove("token")) else {
        return Err(client.strange("a response without a token"));
    };
    if let (Some(mut file), Some(path)) = (file, &secret.out) {
        let written = file
            .write_all(format!("{shown}\n").as_bytes())
            .and_then(|()| file.sync_all());
        written.map_err(|error| unwritable(path, &error))?;
        return match is_json {
            true => output::print(&token.to_string()),
            false => output::print(&format!("{}\nwritten to {}", described(&token), path.display())),
        };
    }
    if is_json {
        return output::print(&text);
    }
    output::print(&shown)?;
    eprintln!("{}; it is shown only once", described(&token));
    Ok(())
}

fn described(token: &Value) -> String {
    let expires = match &token["expires"] {
        Value::String(time) => format!("until {time}"),
        _ => "without an end".to_owned(),
    };
    format!(
        "token {} ({}), {} on {}, {expires}",
        output::member(token, "id"),
        output::member(token, "name"),
        list_of(&token["roles"]),
        scope(token),
    )
}

fn list(connection: &ConnectionArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get("/v1/tokens")?;
    if connection.json {
        return output::print(&text);
    }
    let mut grid = Grid::new([
        "token",
        "name",
        "roles",
        "scope",
        "expires",
        "last used",
        "created by",
    ])
    .wrapping();
    for token in client.parse(&text)?["tokens"].as_array().into_iter().flatten() {
        let expires = match &token["is_expired"] {
            Value::Bool(true) => format!("{} (expired)", output::member(token, "expires")),
            _ => output::member(token, "expires"),
        };
        grid.row(vec![
            output::member(token, "id"),
            output::member(token, "name"),
            list_of(&token["roles"]),
            scope(token),
            expires,
            output::member(token, "last_used"),
            output::member(token, "created_by"),
        ]);
    }
    output::print(&grid.render())
}

/// Shows one token, or the principal of the token that the command line uses.
fn show(connection: &ConnectionArguments, path: &str) -> Result<()> {
    let client = connection.client()?;
    let text = client.get(path)?;
    if connection.json {
        return output::print(&text);
    }
    let token = client.parse(&text)?;
    let mut grid = Grid::new(["", ""]).wrapping();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            grid.row(vec![name.to_owned(), value]);
        }
    };
    line("token", output::member(&token, "id"));
    line("name", output::member(&token, "name"));
    line("roles", list_of(&token["roles"]));
    line("scope", scope(&token));
    line("tenant", output::member(&token, "tenant"));
    tenant::usage(&token, &mut line);
    for (name, member) in [
        ("created", "created"),
        ("created by", "created_by"),
        ("expires", "expires"),
        ("previous secret until", "previous_secret_until"),
        ("last used", "last_used"),
    ] {
        line(name, output::member(&token, member));
    }
    output::print(&grid.render())
}

fn list_of(values: &Value) -> String {
    let values: Vec<String> = values
        .as_array()
        .into_iter()
        .flatten()
        .map(output::cell)
        .collect();
    values.join(", ")
}

/// Returns a condition in the form of the command line, or as JSON if it does not have that form.
fn shown_condition(tree: &Value) -> String {
    let json = tree.to_string();
    let read = tideline_condition::json::from_str(Domain::Timelines, &json);
    let rendered = read
        .ok()
        .and_then(|condition| command_line::render(Domain::Timelines, &condition).ok());
    rendered.unwrap_or(json)
}

/// Describes the scope of a token, such as `fleet, team-a-* (series)`.
fn scope(token: &Value) -> String {
    let tables = match list_of(&token["tables"]) {
        all if all.is_empty() => "all tables".to_owned(),
        tables => tables,
    };
    let scope = match list_of(&token["models"]) {
        models if models.is_empty() => tables,
        models => format!("{tables} ({models})"),
    };
    let scope = match &token["timelines"] {
        Value::Null => scope,
        tree => format!("{scope}, timelines with {}", shown_condition(tree)),
    };
    match list_of(&token["tenants"]) {
        none if none.is_empty() => scope,
        tenants => format!("{scope}, for tenants {tenants}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_after_a_duration_or_at_a_time() {
        for (text, expected) in [
            ("90d", json!("now+90d")),
            ("1h30m", json!("now+1h30m")),
            ("now+90d", json!("now+90d")),
            ("2027-01-01", json!("2027-01-01T00:00:00Z")),
            ("2027-01-01T08:00:00+02:00", json!("2027-01-01T06:00:00Z")),
        ] {
            assert_eq!(json!(end(text).expect(text)), expected, "{text}");
        }
        for wrong in ["", "90", "2027", "2027-13-01", "tomorrow", "-90"] {
            assert!(end(wrong).is_err(), "{wrong}");
        }
    }
}
