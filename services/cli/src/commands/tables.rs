//! `tideline tables`: lists, creates, shows, alters and drops tables.
//!
//! A policy change that hides points shows their number, and the drop of a table shows its content. Both require a
//! confirmation, unless `--yes` is given.

mod alter;
mod wide;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tideline_openapi::model::TableModel;

use self::alter::AlterArguments;
use self::wide::WideArguments;
use super::selection::{self, confirm};
use crate::client::{Client, ConnectionArguments, encoded};
use crate::commands::jobs;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Subcommands of `tables`.
#[derive(Debug, Subcommand)]
pub(crate) enum TablesCommand {
    /// List all tables
    List(ListArguments),
    /// Create a table
    #[command(after_help = "\
Example:
  tideline tables create devices --source-tag device --set hot_ttl=3d --set retention=90d
  tideline tables create orders --key 'customer string' --key 'placed timestamp desc' --column 'total decimal'
  tideline tables create events --wide events.json
  tideline tables create chat --model feed --column 'text string' --ttl 365d --parts month --hot-parts 30d")]
    Create(Box<CreateArguments>),
    /// Change the columns, compressions, time-to-live, parts and row limits of a wide table or feed table
    #[command(after_help = "\
Examples:
  tideline tables alter orders --add-column 'note string zstd' --compression description=lz4
  tideline tables alter orders --row-limit 'writes 20000' --row-limit '30d reads 5000 writes 100'
  tideline tables alter orders --no-row-limits --ttl never
  tideline tables alter readings --hot-parts 30d --parts-migrate-schedule '0 3 * * * in Europe/Berlin' --parts-move-rate 33554432

In a schedule, the time zone is optional; without it, the times are UTC.")]
    Alter(Box<AlterArguments>),
    /// Show a table: its size per tier and its policy, or its number of rows and its columns
    Show(NamedArguments),
    /// Change the policy of a table, or preview a change
    ///
    /// A change that hides points shows their number and asks for confirmation.
    #[command(after_help = "\
Examples:
  tideline tables policy default --set hot_ttl=2d --set retention=30d --preview
  tideline tables policy default --set 'migrate={\"cron\": \"0 3 * * *\", \"time_zone\": \"Europe/Berlin\"}'
  tideline tables policy default --set retention=null

Keys: hot_ttl, cold_ttl, retention, archive, timeline_ttl, migrate, expire, move_bytes_per_second, timelines_per_minute.")]
    Policy(PolicyArguments),
    /// List the parts of a wide table or feed table
    Parts(NamedArguments),
    /// Preview changed ages of the parts of a wide table or feed table
    ///
    /// Lists the parts that would be moved, archived, closed, hidden and dropped. Changes nothing.
    #[command(after_help = "\
Examples:
  tideline tables preview-parts readings --set hot=30d --set keep=3650d
  tideline tables preview-parts readings --set 'archive={\"target\": \"default\", \"after\": \"90d\"}'

Keys: keep, hot, writable, archive; null removes an age.")]
    PreviewParts(PreviewPartsArguments),
    /// Drop the old parts of a wide table or feed table
    ///
    /// Shows the parts and asks for confirmation.
    #[command(after_help = "\
Example:
  tideline tables drop-parts orders --before 2026-09-01T00:00:00Z --preview")]
    DropParts(DropPartsArguments),
    /// Restore archived parts of a wide table or feed table into the cold tier, as a job
    #[command(after_help = "\
Example:
  tideline tables restore-parts orders --from 2026-08-01T00:00:00Z --to 2026-09-01T00:00:00Z --for 7d --wait")]
    RestoreParts(RestorePartsArguments),
    /// Drop a table with all its points or rows
    Drop(DropArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct NamedArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Name of the table: 1 to 64 characters of a-z, 0-9, _ and -
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Model of keys and rows [default: series, wide with --key or --wide, or feed with --sequence or --inboxes]
    #[arg(long, value_parser = PossibleValuesParser::new(TableModel::ALL.map(TableModel::name)))]
    model: Option<String>,
    /// Tag that identifies the source; the first present one is used [default: host, hostname, instance,
    /// machine, device]
    #[arg(long = "source-tag", value_name = "TAG")]
    source_tags: Vec<String>,
    /// Durability of a write when it is acknowledged
    #[arg(long, value_parser = ["synced", "buffered"])]
    durability: Option<String>,
    /// Maximum age of a written point
    #[arg(long, value_name = "DURATION")]
    write_past: Option<String>,
    /// Maximum time from now to the timestamp of a written point
    #[arg(long, value_name = "DURATION")]
    write_future: Option<String>,
    /// Policy setting; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    wide: WideArguments,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Policy setting and its value; null removes it; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show the points that the change would move, hide and free, without applying it
    #[arg(long)]
    preview: bool,
    /// Hide points without confirmation
    #[arg(long, short, conflicts_with = "preview")]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Drop without confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PreviewPartsArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Age to preview as KEY=VALUE; may be repeated [default: the current ages]
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DropPartsArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Time in RFC 3339; parts that end at or before it are dropped
    #[arg(long, value_name = "TIME")]
    before: String,
    /// Show the parts that would be dropped, without dropping them
    #[arg(long)]
    preview: bool,
    /// Drop without confirmation
    #[arg(long, short, conflicts_with = "preview")]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestorePartsArguments {
    /// Name of the table
    name: String,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Start of the range in RFC 3339; every part that overlaps the range is restored
    #[arg(long, value_name = "TIME")]
    from: String,
    /// End of the range in RFC 3339, exclusive
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Time for which the parts are not archived again
    #[arg(long = "for", value_name = "DURATION", default_value = "7d")]
    hold: String,
    /// Show the progress until the job has ended
    #[arg(long)]
    wait: bool,
}

/// Runs the subcommand.
pub(crate) fn run(command: &TablesCommand) -> Result<()> {
    match command {
        TablesCommand::List(arguments) => list(arguments),
        TablesCommand::Create(arguments) => create(arguments),
        TablesCommand::Alter(arguments) => alter::run(arguments),
        TablesCommand::Show(NamedArguments { name, connection }) => {
            let client = connection.client()?;
            let text = client.get(&path(name))?;
            match connection.json {
                true => output::print(&text),
                false => output::print(&described(&client, &client.parse(&text)?)?),
            }
        }
        TablesCommand::Policy(arguments) => policy(arguments),
        TablesCommand::Parts(NamedArguments { name, connection }) => {
            let client = connection.client()?;
            let text = client.get(&format!("{}/parts", path(name)))?;
            match connection.json {
                true => output::print(&text),
                false => output::print(&parts(&client.parse(&text)?["parts"])),
            }
        }
        TablesCommand::PreviewParts(arguments) => preview_parts(arguments),
        TablesCommand::DropParts(arguments) => drop_parts(arguments),
        TablesCommand::RestoreParts(arguments) => restore_parts(arguments),
        TablesCommand::Drop(arguments) => drop_table(arguments),
    }
}

fn path(name: &str) -> String {
    format!("/v1/tables/{}", encoded(name))
}

fn list(ListArguments { connection }: &ListArguments) -> Result<()> {
    let client = connection.client()?;
    let text = client.get("/v1/tables")?;
    if connection.json {
        return output::print(&text);
    }
    let response = client.parse(&text)?;
    let mut grid = Grid::new([
        "table",
        "created",
        "durability",
        "model",
        "hot for",
        "kept for",
        "source tags",
    ]);
    for table in response["tables"].as_array().into_iter().flatten() {
        let policy = &table["policy"];
        let age = |name: &str| policy[name].as_str().unwrap_or("ever").to_owned();
        let tags = table["source_tags"].as_array().into_iter().flatten();
        let tags: Vec<String> = tags.map(output::cell).collect();
        grid.row(vec![
            output::member(table, "name"),
            output::member(table, "created"),
            output::member(table, "durability"),
            output::member(table, "model"),
            age("hot_ttl"),
            match &policy["archive"]["keep"] {
                Value::String(keep) => keep.clone(),
                _ => age("retention"),
            },
            tags.join(" "),
        ]);
    }
    output::print(&grid.render())
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let mut body = Map::new();
    body.insert("name".into(), arguments.name.as_str().into());
    if !arguments.source_tags.is_empty() {
        body.insert("source_tags".into(), json!(arguments.source_tags));
    }
    for (name, text) in [
        ("model", &arguments.model),
        ("durability", &arguments.durability),
        ("write_past", &arguments.write_past),
        ("write_future", &arguments.write_future),
    ] {
        if let Some(text) = text {
            body.insert(name.into(), text.as_str().into());
        }
    }
    if !arguments.set.is_empty() {
        body.insert("policy".into(), changes(&arguments.set)?);
    }
    let feed = TableModel::Feed.name();
    if arguments
        .model
        .as_deref()
        .map_or(arguments.wide.is_feed(), |model| model == feed)
    {
        body.insert("model".into(), feed.into());
        if let Some(settings) = arguments.wide.feed_settings()? {
            body.insert("feed".into(), settings);
        }
    } else if let (Some(model), true) = (&arguments.model, arguments.wide.is_feed()) {
        return Err(CliError::usage(format!(
            "--sequence and --inboxes apply to tables of the model feed, not {model}; omit them"
        )));
    } else if let Some(wide) = arguments.wide.settings()? {
        body.entry("model").or_insert_with(|| "wide".into());
        body.insert("wide".into(), wide);
    }
    let text = client.post("/v1/tables", &body.into())?;
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&format!("created table {}", arguments.name)),
    }
}

fn policy(arguments: &PolicyArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let is_json = arguments.connection.json;
    if arguments.preview {
        let mut body = json!({"table": arguments.name});
        if !arguments.set.is_empty() {
            body["policy"] = changes(&arguments.set)?;
        }
        let text = client.post("/v1/policies/preview", &body)?;
        return match is_json {
            true => output::print(&text),
            false => output::print(&previewed(&client.parse(&text)?)),
        };
    }
    let text = if arguments.set.is_empty() {
        client.get(&path(&arguments.name))?
    } else {
        let changes = changes(&arguments.set)?;
        if !arguments.yes
            && let Some(hidden) = newly_hidden(&client, &arguments.name, &changes)?
        {
            confirm(&hidden)?;
        }
        client.patch(&path(&arguments.name), &json!({"policy": changes}))?
    };
    if is_json {
        return output::print(&text);
    }
    output::print(&settings(&client.parse(&text)?["policy"]))
}

/// Describes the points that a policy change would hide in addition to those hidden already. Returns `None` if
/// it would hide no further points.
fn newly_hidden(client: &Client, name: &str, changes: &Value) -> Result<Option<String>> {
    let preview = |body: Value| client.parse(&client.post("/v1/policies/preview", &body)?);
    let points = |preview: &Value| preview["hide"]["points"].as_u64().unwrap_or_default();
    let after = preview(json!({"table": name, "policy": changes}))?;
    if points(&after) == 0 {
        return Ok(None);
    }
    let before = points(&preview(json!({"table": name}))?);
    let hidden = points(&after).saturating_sub(before);
    if hidden == 0 {
        return Ok(None);
    }
    let more = if before > 0 { "more " } else { "" };
    let freed = match after["free"]["begins"].as_str() {
        Some(begins) => format!(", from {begins} on"),
        None => String::new(),
    };
    Ok(Some(format!(
        "This hides about {} {more}points of table {name} on {}, all before {}. A longer policy shows them again until \
         their bytes are freed{freed}.",
        output::count(hidden),
        client.base(),
        output::member(&after, "visible_from"),
    )))
}

fn preview_parts(arguments: &PreviewPartsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let body = json!({"parts": changes(&arguments.set)?});
    let text = client.post(&format!("{}/parts/preview", path(&arguments.name)), &body)?;
    match arguments.connection.json {
        true => output::print(&text),
        false => output::print(&previewed_parts(&client.parse(&text)?)),
    }
}

/// Formats the effects of age settings on parts: a table of parts for each effect.
fn previewed_parts(preview: &Value) -> String {
    let mut text = String::new();
    for (name, what) in [
        ("migrate", "moved to the cold tier"),
        ("archive", "moved into files"),
        ("close", "closed for writes"),
        ("open", "opened for writes"),
        ("hide", "hidden immediately"),
        ("show", "visible again"),
        ("drop", "dropped"),
    ] {
        let of_effect = &preview[name];
        if of_effect.as_array().is_some_and(|parts| !parts.is_empty()) {
            text.push_str(&format!("{what}:\n{}\n", parts(of_effect)));
        }
    }
    if text.is_empty() {
        text.push_str("these ages change nothing at the moment\n\n");
    }
    if let Some(reason) = preview["paused"].as_str() {
        text.push_str(&format!("moves and drops are paused: {reason}\n\n"));
    }
    text + &settings(&preview["parts"])
}

/// Formats parts as a table.
fn parts(list: &Value) -> String {
    let mut grid = Grid::new([
        "part", "start", "end", "tier", "rows", "bytes", "writable", "visible",
    ]);
    for part in list.as_array().into_iter().flatten() {
        let cell = |name| output::member(part, name);
        let rows = part["rows"].as_u64().map(output::count).unwrap_or_default();
        let bytes = part["bytes"].as_u64().map(output::bytes).unwrap_or_default();
        let mut cells = ["name", "start", "end", "tier"].map(cell).to_vec();
        cells.extend([rows, bytes, cell("writable"), cell("visible")]);
        grid.row(cells);
    }
    grid.render()
}

fn restore_parts(arguments: &RestorePartsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let body = json!({"from": arguments.from, "to": arguments.to, "for": arguments.hold});
    let text = client.post(&format!("{}/parts/restore", path(&arguments.name)), &body)?;
    let response = client.parse(&text)?;
    match response["job"]["id"].as_u64() {
        Some(job) if arguments.wait => jobs::watch(&client, &arguments.connection, job),
        _ if arguments.connection.json => output::print(&text),
        Some(_) => output::print(&jobs::table(&Value::Array(vec![response["job"].clone()]))),
        None => output::print("the archive has no parts of that range"),
    }
}

fn drop_parts(arguments: &DropPartsArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let route = format!("{}/parts/drop", path(&arguments.name));
    let body = |preview: bool| json!({"before": arguments.before, "preview": preview});
    if !arguments.yes {
        let text = client.post(&route, &body(true))?;
        let found = client.parse(&text)?;
        if arguments.preview {
            return match arguments.connection.json {
                true => output::print(&text),
                false => output::print(&parts(&found["dropped"])),
            };
        }
        let count = found["dropped"].as_array().map_or(0, Vec::len);
        confirm(&format!(
            "This drops {count} parts of table {} on {} with all their rows.\n{}",
            arguments.name,
            client.base(),
            parts(&found["dropped"])
        ))?;
    }
    let text = client.post(&route, &body(false))?;
    match arguments.connection.json {
        true => output::print(&text),
        false => {
            let found = client.parse(&text)?;
            let count = found["dropped"].as_array().map_or(0, Vec::len);
            output::print(&format!("dropped {count} parts of table {}", arguments.name))
        }
    }
}

fn drop_table(arguments: &DropArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    if !arguments.yes {
        let held = held(&client, &arguments.name)?;
        confirm(&format!(
            "This drops table {} on {} with {held}.",
            arguments.name,
            client.base()
        ))?;
    }
    client.delete(&path(&arguments.name))?;
    match arguments.connection.json {
        true => output::print(&json!({"dropped": arguments.name}).to_string()),
        false => output::print(&format!("dropped table {}", arguments.name)),
    }
}

/// Describes the content of a table: its number of rows, or its numbers of points and timelines.
fn held(client: &Client, name: &str) -> Result<String> {
    let table = client.parse(&client.get(&path(name))?)?;
    if is_wide(&table) {
        return all_rows(client, name);
    }
    let statistics = &table["statistics"];
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let points = count(&statistics["sealed_points"]) + count(&statistics["tiers"]["head"]["points"]);
    Ok(format!(
        "{} points of {} timelines",
        output::count(points),
        output::count(count(&statistics["timelines"]))
    ))
}

/// Converts `KEY=VALUE` pairs to policy changes. A value that is not valid JSON is taken as text.
fn changes(set: &[String]) -> Result<Value> {
    let mut changes = Map::new();
    for pair in set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(CliError::usage(format!(
                "--set {pair}: expected KEY=VALUE, such as retention=90d"
            )));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        if changes.insert(key.to_owned(), value).is_some() {
            return Err(CliError::usage(format!("--set {key} is given twice")));
        }
    }
    Ok(changes.into())
}

/// Formats an object as a table of keys and values.
fn settings(object: &Value) -> String {
    let mut grid = Grid::new(["setting", "value"]).wrapping();
    for (key, value) in object.as_object().into_iter().flatten() {
        grid.row(setting(key, value));
    }
    grid.render()
}

/// Returns the row of a setting: its name and its value, or `none`.
fn setting(name: &str, value: &Value) -> Vec<String> {
    let text = match value.is_null() {
        true => "none".into(),
        false => output::cell(value),
    };
    vec![name.to_owned(), text]
}

/// Counts all rows of a wide table, as a text such as `about 12,000 rows`.
fn all_rows(client: &Client, name: &str) -> Result<String> {
    let all = Map::from_iter([("allow_scan".to_owned(), true.into())]);
    selection::counted_rows(client, &format!("{}/rows/count", path(name)), all)
}

fn is_wide(table: &Value) -> bool {
    table["wide"].is_object()
}

fn described(client: &Client, table: &Value) -> Result<String> {
    let head = format!(
        "table {}, created {}, {}, {}",
        output::member(table, "name"),
        output::member(table, "created"),
        output::member(table, "durability"),
        output::member(table, "model"),
    );
    if is_wide(table) {
        let rows = all_rows(client, &output::member(table, "name"))?;
        return Ok(format!("{head}, {rows}\n\n{}", wide::described(table)));
    }
    let statistics = &table["statistics"];
    let number = |value: &Value| value.as_u64().map(output::count).unwrap_or_default();
    let mut tiers = Grid::new([
        "tier", "points", "values", "bytes", "segments", "oldest", "newest",
    ]);
    for name in ["head", "hot", "cold", "archive"] {
        let tier = &statistics["tiers"][name];
        tiers.row(vec![
            name.into(),
            number(&tier["points"]),
            number(&tier["values"]),
            tier["bytes"].as_u64().map(output::bytes).unwrap_or_default(),
            number(&tier["segments"]),
            output::member(tier, "oldest"),
            output::member(tier, "newest"),
        ]);
    }
    Ok(format!(
        "{head}, {} timelines\n\n{}\n{}",
        number(&statistics["timelines"]),
        tiers.render(),
        settings(&table["policy"]),
    ))
}

fn previewed(preview: &Value) -> String {
    let number = |value: &Value| value.as_u64().map(output::count).unwrap_or_default();
    let mut grid = Grid::new([
        "what", "windows", "segments", "points", "unsealed", "bytes", "begins",
    ]);
    for (name, what) in [
        ("migrate", "moves to cold"),
        ("archive", "moves to files"),
        ("hide", "is hidden immediately"),
        ("free", "is freed"),
    ] {
        let amount = &preview[name];
        if amount.is_null() {
            continue;
        }
        grid.row(vec![
            what.into(),
            number(&amount["windows"]),
            number(&amount["segments"]),
            number(&amount["points"]),
            number(&preview["unsealed"][name]),
            amount["bytes"].as_u64().map(output::bytes).unwrap_or_default(),
            output::member(amount, "begins"),
        ]);
    }
    let paused = match preview["paused"].as_str() {
        Some(reason) => format!("\nfreeing is paused: {reason}\n"),
        None => String::new(),
    };
    format!("{}{paused}\n{}", grid.render(), settings(&preview["policy"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_texts_or_json() {
        let set = [
            "hot_ttl=3d",
            "retention=null",
            "timelines_per_minute=5",
            r#"expire={"cron":"0 3 * * *"}"#,
        ];
        let set: Vec<String> = set.map(str::to_owned).into();
        assert_eq!(
            changes(&set).expect("changes"),
            json!({"hot_ttl": "3d", "retention": null, "timelines_per_minute": 5, "expire": {"cron": "0 3 * * *"}})
        );
        for wrong in [&["hot_ttl"][..], &["a=1", "a=2"]] {
            let wrong: Vec<String> = wrong.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(changes(&wrong).expect_err("wrong").exit_status(), 2);
        }
    }
}
