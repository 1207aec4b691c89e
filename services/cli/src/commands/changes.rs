//! `tideline changes`: manages change streams and their consumer groups, reads their records, and lists webhooks.
//!
//! | module | holds |
//! |---|---|
//! | `read` | `read` |
//!
//! Records are printed as the server encodes them, one line of JSON per record.

mod read;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::client::{Client, ConnectionArguments, encoded};
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Kinds of changes, as `--kind` accepts them.
const KINDS: [&str; 9] = [
    "points",
    "points_deleted",
    "timeline",
    "row",
    "rows_deleted",
    "message",
    "search",
    "metric",
    "table",
];

/// Subcommands of `changes`.
#[derive(Debug, Subcommand)]
pub(crate) enum ChangesCommand {
    /// List change streams
    List(ConnectionArguments),
    /// Create a change stream, or replace its settings
    #[command(after_help = "\
Examples:
  tideline changes create all
  tideline changes create orders --table orders --kind row --retention 3d
  tideline changes create metrics --table 'metrics-*' --kind points --kind points_deleted")]
    Create(CreateArguments),
    /// Show a change stream
    Show(StreamArguments),
    /// Delete a change stream with its consumer groups
    Delete(StreamArguments),
    /// Read records: one line of JSON per record
    #[command(after_help = "\
Examples:
  tideline changes read orders > changes.ndjson
  tideline changes read orders --cursor 0-1a2b-0 --limit 100
  tideline changes read orders --group billing --confirm --follow    # until Ctrl-C

At the end, the cursor to continue from is printed to standard error, with --json as JSON. With --confirm, each page is confirmed after its
records are written to standard output.")]
    Read(read::ReadArguments),
    /// List the consumer groups of a change stream with their checkpoints
    Groups(StreamArguments),
    /// Create a consumer group, or change whether it holds changes
    #[command(after_help = "\
Examples:
  tideline changes group orders billing --from oldest
  tideline changes group orders search --partitions 4 --hold")]
    Group(GroupSettingsArguments),
    /// Delete a consumer group
    DeleteGroup(GroupArguments),
    /// List the webhooks of a change stream with their state
    Webhooks(StreamArguments),
    /// Confirm the changes of a partition before a cursor
    #[command(after_help = "\
Example:
  tideline changes confirm orders billing --cursor 0-1a2b-1")]
    Confirm(ConfirmArguments),
}

/// Change stream of a command, and the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct StreamArguments {
    /// Name of the change stream
    #[arg(value_name = "STREAM")]
    stream: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

impl StreamArguments {
    /// Returns the path of a resource of the stream. `rest` is the part after the stream.
    fn path(&self, rest: &str) -> String {
        format!("/v1/changes/{}{rest}", encoded(&self.stream))
    }
}

/// Consumer group of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct GroupArguments {
    #[command(flatten)]
    stream: StreamArguments,
    /// Name of the consumer group
    #[arg(value_name = "GROUP")]
    group: String,
}

impl GroupArguments {
    /// Returns the path of a resource of the group. `rest` is the part after the group.
    fn path(&self, rest: &str) -> String {
        self.stream
            .path(&format!("/groups/{}{rest}", encoded(&self.group)))
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    stream: StreamArguments,
    /// Table whose changes the stream has: a name, or a prefix that ends with `*`; may be repeated [default: all tables]
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// Kind of changes that the stream has; may be repeated [default: all kinds]
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(KINDS))]
    kinds: Vec<String>,
    /// Minimum time for which changes are kept, such as 3d, as long as `changes.bytes_max` suffices [default:
    /// `changes.retention` of the server]
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GroupSettingsArguments {
    #[command(flatten)]
    group: GroupArguments,
    /// Number of partitions; it cannot be changed later
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    partitions: u16,
    /// Keep unconfirmed changes beyond the retention, as long as `changes.bytes_max` suffices
    #[arg(long)]
    hold: bool,
    /// Where a new group begins: end, oldest or a cursor
    #[arg(long, value_name = "POSITION", default_value = "end")]
    from: String,
}

#[derive(Debug, Args)]
pub(crate) struct ConfirmArguments {
    #[command(flatten)]
    group: GroupArguments,
    /// Cursor after the last processed change
    #[arg(long, value_name = "CURSOR")]
    cursor: String,
    /// Number of the partition
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u16,
    /// Allow a cursor before the checkpoint, so that changes are read again
    #[arg(long)]
    rewind: bool,
}

/// Runs the subcommand.
pub(crate) fn run(command: &ChangesCommand) -> Result<()> {
    match command {
        ChangesCommand::List(connection) => list(connection),
        ChangesCommand::Create(arguments) => create(arguments),
        ChangesCommand::Show(arguments) => {
            let client = arguments.connection.client()?;
            show(&client, &arguments.connection, &client.get(&arguments.path(""))?)
        }
        ChangesCommand::Delete(arguments) => delete(
            &arguments.connection,
            &arguments.path(""),
            "change stream",
            &arguments.stream,
        ),
        ChangesCommand::Read(arguments) => read::run(arguments),
        ChangesCommand::Groups(arguments) => groups(arguments),
        ChangesCommand::Group(arguments) => group(arguments),
        ChangesCommand::DeleteGroup(arguments) => delete(
            &arguments.stream.connection,
            &arguments.path(""),
            "consumer group",
            &arguments.group,
        ),
        ChangesCommand::Webhooks(arguments) => webhooks(arguments),
        ChangesCommand::Confirm(arguments) => confirm(arguments),
    }
}

fn list(connection: &ConnectionArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get("/v1/changes")?;
    if connection.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new([
        "stream",
        "tables",
        "kinds",
        "retention",
        "oldest",
        "end",
        "groups",
    ]);
    for stream in response["streams"].as_array().into_iter().flatten() {
        grid.row(vec![
            output::member(stream, "name"),
            names_or(&stream["tables"], "all"),
            names_or(&stream["kinds"], "all"),
            output::member(stream, "retention"),
            output::member(stream, "oldest"),
            output::member(stream, "end"),
            names_or(&stream["groups"], ""),
        ]);
    }
    output::print(&grid.render())?;
    // A token with a scope does not see these figures.
    if response["kept_bytes"].is_null() {
        return Ok(());
    }
    let bytes = |name: &str| output::bytes(response[name].as_u64().unwrap_or_default());
    output::print(&format!(
        "\n{} of at most {} kept only for change streams",
        bytes("kept_bytes"),
        bytes("kept_bytes_max")
    ))
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let mut settings = Map::new();
    for (name, values) in [("tables", &arguments.tables), ("kinds", &arguments.kinds)] {
        if !values.is_empty() {
            settings.insert(name.into(), json!(values));
        }
    }
    if let Some(retention) = &arguments.retention {
        settings.insert("retention".into(), retention.as_str().into());
    }
    let connection = &arguments.stream.connection;
    let client = connection.client()?;
    let text = client.put(&arguments.stream.path(""), &settings.into())?;
    show(&client, connection, &text)
}

/// Prints the stream in a response.
fn show(client: &Client, connection: &ConnectionArguments, text: &str) -> Result<()> {
    if connection.json {
        return output::print(text);
    }
    let stream = client.parse(text)?;
    let mut grid = Grid::new(["property", "value"]).wrapping();
    grid.row(vec!["stream".into(), output::member(&stream, "name")]);
    for (name, default) in [("tables", "all"), ("kinds", "all"), ("groups", "")] {
        grid.row(vec![name.into(), names_or(&stream[name], default)]);
    }
    for name in ["retention", "created", "oldest", "end"] {
        grid.row(vec![name.into(), output::member(&stream, name)]);
    }
    output::print(&grid.render())
}

/// Formats a list of names, or `default` for an empty or missing list.
fn names_or(list: &Value, default: &str) -> String {
    let names = list.as_array().into_iter().flatten().map(output::cell);
    match names.collect::<Vec<String>>().join(", ") {
        none if none.is_empty() => default.to_owned(),
        names => names,
    }
}

fn delete(connection: &ConnectionArguments, path: &str, what: &str, name: &str) -> Result<()> {
    connection.client()?.delete(path)?;
    match connection.json {
        true => output::print(&json!({"deleted": name}).to_string()),
        false => output::print(&format!("deleted {what} {name}")),
    }
}

fn groups(arguments: &StreamArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let text = client.get(&arguments.path("/groups"))?;
    if arguments.connection.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let found = response["groups"].as_array().into_iter().flatten();
    output::print(&checkpoints(found))
}

fn group(arguments: &GroupSettingsArguments) -> Result<()> {
    let connection = &arguments.group.stream.connection;
    let client = connection.client()?;
    let settings = json!({
        "partitions": arguments.partitions, "hold": arguments.hold, "from": arguments.from
    });
    let text = client.put(&arguments.group.path(""), &settings)?;
    match connection.json {
        true => output::print(&text),
        false => output::print(&checkpoints([&client.parse(&text)?])),
    }
}

/// Formats groups as a table with a line per partition.
fn checkpoints<'a>(groups: impl IntoIterator<Item = &'a Value>) -> String {
    let mut grid = Grid::new(["group", "hold", "partition", "cursor", "time", "behind", "lag"]);
    for group in groups {
        for checkpoint in group["checkpoints"].as_array().into_iter().flatten() {
            let mut row = vec![output::member(group, "name"), output::member(group, "hold")];
            row.extend(
                ["partition", "cursor", "time", "behind", "lag"].map(|name| output::member(checkpoint, name)),
            );
            grid.row(row);
        }
    }
    grid.render()
}

fn webhooks(arguments: &StreamArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let text = client.get(&arguments.path("/webhooks"))?;
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&deliveries(&client.parse(&text)?)),
    }
}

/// Formats the webhooks in a response as a table. `error` has the result of the last request, if it failed.
fn deliveries(response: &Value) -> String {
    let mut grid = Grid::new(["webhook", "url", "state", "failed", "cursor", "time", "error"]);
    for webhook in response["webhooks"].as_array().into_iter().flatten() {
        grid.row(
            ["name", "url", "state", "failed", "cursor", "time", "error"]
                .map(|name| output::member(webhook, name))
                .to_vec(),
        );
    }
    grid.render()
}

fn confirm(arguments: &ConfirmArguments) -> Result<()> {
    let connection = &arguments.group.stream.connection;
    let client = connection.client()?;
    let request = json!({
        "partition": arguments.partition, "cursor": arguments.cursor, "rewind": arguments.rewind
    });
    let text = client.post(&arguments.group.path("/checkpoints"), &request)?;
    match connection.json {
        true => output::print(&text),
        false => output::print(&format!(
            "partition {} of {}: {}",
            arguments.partition,
            arguments.group.group,
            output::member(&client.parse(&text)?, "cursor")
        )),
    }
}

#[cfg(test)]
mod tests {
    use tideline_openapi::change::ChangeKind;

    use super::*;

    #[test]
    fn each_kind_of_the_command_line_is_one_of_the_server() {
        for kind in KINDS {
            serde_json::from_value::<ChangeKind>(kind.into()).expect(kind);
        }
    }

    #[test]
    fn checkpoints_have_a_line_per_partition() {
        let group = json!({"name": "billing", "hold": true, "checkpoints": [
            {"partition": 0, "cursor": "0-1-0", "time": "t", "behind": true, "lag": 4711},
            {"partition": 1, "cursor": "0-2-0", "time": "t", "behind": false, "lag": 0}]});
        let text = checkpoints([&group]);
        assert!(text.contains("4711"), "{text}");
        assert!(text.contains("0-1-0") && text.contains("0-2-0"), "{text}");
        assert_eq!(text.matches("billing").count(), 2, "{text}");
        assert_eq!(names_or(&json!([]), "all"), "all");
        assert_eq!(names_or(&json!(["a", "b"]), "all"), "a, b");
    }

    #[test]
    fn webhooks_have_a_line_with_their_state() {
        let response = json!({"webhooks": [{"name": "shop", "url": "https://hooks.example.com", "state": "stopped",
            "failed": 100, "cursor": "0-1-0", "time": "t", "error": "status 400"}]});
        let text = deliveries(&response);
        for part in ["shop", "stopped", "100", "status 400"] {
            assert!(text.contains(part), "{text}");
        }
        let active = json!({"webhooks": [{"name": "shop", "state": "active", "failed": 0}]});
        assert!(deliveries(&active).contains("active"));
    }
}
