//! `tideline check`: checks the integrity of a data folder that no server uses.
//!
//! The exit status distinguishes damage from a folder that cannot be read.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tideline_cli::{CliError, Result, output};
use tideline_server::check::{FolderReport, check_folder};

/// Maximum number of findings shown; `--json` prints all.
const SHOWN_MAX: usize = 20;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
First compares lists, logs, journal entries, tables of rows and segments with their checksums; then
validates every chunk, row, catalog row, schema, delete and remembered request. The folder is locked
and not modified, so no server may use it. Search indexes are compared with their checksums; a start
builds a damaged one again from the stored data.

Journals and logs are copied to the folder for temporary files (TMPDIR); segments are not copied.

Exit status: 0 sound, 1 damaged, 2 cannot be read.")]
pub(crate) struct CheckArguments {
    /// Data folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Cold folder, if the server's settings do not use `cold` in the data folder
    #[arg(long, value_name = "DIR")]
    cold_dir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs the check. Fails if something is damaged or cannot be read.
pub(crate) fn run(arguments: &CheckArguments) -> Result<()> {
    let folder = &arguments.folder;
    if !folder.is_dir() {
        return Err(CliError::usage(format!("{} is not a folder", folder.display())));
    }
    let scratch = tempfile::tempdir().map_err(|error| CliError::file(&std::env::temp_dir(), error))?;
    let report = check_folder(folder, arguments.cold_dir.as_deref(), scratch.path());
    // A folder that cannot be read has the exit status of invalid usage, so that scripts can distinguish it
    // from damage.
    let report = report.map_err(|error| CliError::usage(error.to_string()))?;
    if arguments.json {
        output::print(&in_json(folder, &report).to_string())?;
    } else {
        output::print(&text(folder, &report))?;
    }
    match report.findings.len() {
        0 => Ok(()),
        1 => Err(CliError::Incomplete("1 thing is damaged".into())),
        found => Err(CliError::Incomplete(format!("{found} things are damaged"))),
    }
}

/// Returns the counts of the report, by name.
fn counts(report: &FolderReport) -> Vec<(&'static str, u64)> {
    let files = &report.files;
    let mut counts = vec![
        ("keyspaces", files.keyspaces),
        ("files_of_rows", files.tables),
        ("bytes_of_rows", files.table_bytes),
        ("log_batches", files.log_batches),
        ("journal_entries", files.journal_entries),
        ("journal_bytes", files.journal_bytes),
    ];
    if let Some(rows) = &report.rows {
        counts.extend([
            ("tables", rows.store.tables.len() as u64),
            ("fields", rows.store.fields),
            ("timelines", rows.timelines),
            ("segments", rows.store.segments),
            ("chunks", rows.store.chunks),
            ("points", rows.store.points),
            ("values", rows.store.values),
            ("points_in_journal", rows.store.journal_points),
            ("rows", rows.rows),
            ("row_bytes", rows.row_bytes),
        ]);
    }
    counts
}

fn in_json(folder: &Path, report: &FolderReport) -> Value {
    let counts: serde_json::Map<String, Value> = counts(report)
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    json!({
        "folder": folder.display().to_string(),
        "is_sound": report.findings.is_empty(),
        "was_opened": report.rows.is_some(),
        "counts": counts,
        "torn_ends": report.files.torn_ends,
        "notes": report.rows.as_ref().map_or(&[][..], |rows| &rows.notes[..]),
        "findings": report.findings,
    })
}

fn text(folder: &Path, report: &FolderReport) -> String {
    let mut text = String::new();
    for (name, count) in counts(report) {
        let shown = match name.contains("bytes") {
            true => output::bytes(count),
            false => output::count(count),
        };
        text.push_str(&format!("{:<18} {shown:>14}\n", name.replace('_', " ")));
    }
    if report.rows.is_none() {
        text.push_str("rows were not checked: the files are too damaged to open a store\n");
    }
    text.push('\n');
    for torn in &report.files.torn_ends {
        text.push_str(&format!("note: {torn}, as after a crash\n"));
    }
    for note in report.rows.iter().flat_map(|rows| &rows.notes) {
        text.push_str(&format!("not archived: {note}\n"));
    }
    for finding in report.findings.iter().take(SHOWN_MAX) {
        text.push_str(&format!("damaged: {finding}\n"));
    }
    let more = report.findings.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        text.push_str(&format!("and {more} more; use --json for all\n"));
    }
    if report.findings.is_empty() {
        text.push_str(&format!("{} is sound\n", folder.display()));
    }
    text
}
