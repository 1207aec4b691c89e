//! `tideline archive check` and `archive verify`: check an archive target before it is used, and the files of
//! an archive afterwards.
//!
//! Both work without a server. The other subcommands use a running server and are in `tideline-cli`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tideline_cli::commands::archive;
use tideline_cli::{CliError, Result, output};
use tideline_engine::archive::{
    Archive, ArchiveError, ArchiveSettings, DEFAULT_TARGET, TargetCheck, TargetOptions, Verified,
};

/// Subcommands of `archive`, with and without a server.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Check that a target supports all operations of an archive: list, create, read, refuse to replace,
    /// delete.
    Check(CheckArguments),
    /// Read every file of an archive and compare it with its description.
    Verify(VerifyArguments),
    /// Commands that use a running server.
    #[command(flatten)]
    OfServer(archive::ArchiveCommand),
}

/// Arguments of `archive verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads every file completely and compares its size, checksum, rows and times with the description that is
stored with it. Needs no server and changes nothing. Downloads the whole archive.

  tideline archive verify s3://bucket/prefix

Exit status: 0 sound, 1 damaged or unreachable, 2 not a valid target.")]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    of: TargetArguments,
}

/// Arguments of `archive check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Writes one small object below the target, reads it back and removes it. Run it on the server's machine and
as its user, so that it has the same environment and machine role as the server.

  tideline archive check s3://bucket/prefix
  tideline archive check s3://bucket/prefix --options-file /etc/tideline/archive
  tideline archive check file:///srv/archive

Exit status: 0 usable, 1 not usable, 2 not a valid target.")]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    of: TargetArguments,
}

/// Target and output format.
#[derive(Debug, Args)]
struct TargetArguments {
    /// Archive target: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or file:///directory
    #[arg(value_name = "TARGET")]
    target: String,
    /// File with `name = value` lines, like archive.options_file in the server's configuration
    #[arg(long, value_name = "FILE")]
    options_file: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs the command and prints its result.
pub(crate) fn run(command: &ArchiveCommand) -> Result<()> {
    match command {
        ArchiveCommand::Check(arguments) => check(&arguments.of),
        ArchiveCommand::Verify(arguments) => verify(&arguments.of),
        ArchiveCommand::OfServer(command) => archive::run(command),
    }
}

fn wrong(error: &ArchiveError) -> CliError {
    CliError::usage(error.to_string())
}

/// Opens an archive whose default target is the target of the command line.
fn open(of: &TargetArguments, scratch: &Path) -> Result<Archive> {
    let options = of
        .options_file
        .as_deref()
        .map(TargetOptions::read)
        .transpose()
        .map_err(|error| wrong(&error))?;
    let mut settings = ArchiveSettings::new(scratch.to_owned());
    let named = (of.target.clone(), options.unwrap_or_default());
    settings.targets.insert(DEFAULT_TARGET.to_owned(), named);
    let archive = Archive::open(settings).map_err(|error| wrong(&error))?;
    archive.target(DEFAULT_TARGET).map_err(|error| wrong(&error))?;
    Ok(archive)
}

fn verify(of: &TargetArguments) -> Result<()> {
    let failed = |error: ArchiveError| CliError::Incomplete(error.to_string());
    let scratch = tempfile::tempdir().map_err(|error| CliError::file(&std::env::temp_dir(), error))?;
    let archive = open(of, scratch.path())?;
    let (mut segments, mut parts, mut files, mut bytes) = (0u64, 0u64, 0, 0);
    let mut found = Verified::default();
    let mut problems = Vec::new();
    for (_, described) in archive.described(DEFAULT_TARGET).map_err(failed)? {
        segments += 1;
        match described {
            Ok(copy) => {
                files += copy.files.len() as u64 + 1;
                bytes += copy.bytes();
                let of_segment = archive.verify(&copy).map_err(failed)?;
                found.wrong.extend(of_segment.wrong);
                found.unread.extend(of_segment.unread);
            }
            Err(error) => found.wrong.push(error.to_string()),
        }
    }
    for (key, described) in archive.described_rows(DEFAULT_TARGET).map_err(failed)? {
        parts += 1;
        match described {
            Ok(part) => {
                if part.streamed_values > 0 {
                    problems.push(format!(
                        "table {}, part {}: {} streamed values are only in the database that archived their rows",
                        part.table, part.name, part.streamed_values
                    ));
                }
                files += part.all_files().count() as u64;
                bytes += part.all_files().map(|file| file.bytes).sum::<u64>();
                let of_part = archive.verify_rows(DEFAULT_TARGET, &key, part.all_files());
                let of_part = of_part.map_err(failed)?;
                found.wrong.extend(of_part.wrong);
                found.unread.extend(of_part.unread);
            }
            Err(error) => found.wrong.push(error.to_string()),
        }
    }
    let is_empty = segments + parts == 0;
    let Verified { wrong, unread } = &found;
    if of.json {
        let response = json!({
            "target": of.target, "is_sound": found.is_sound() && !is_empty, "segments": segments, "parts": parts, "files": files, "bytes": bytes,
            "findings": wrong, "unread": unread, "problems": problems,
        });
        output::print(&response.to_string())?;
    } else {
        let damaged = wrong.iter().map(|finding| format!("damaged: {finding}\n"));
        let unread = unread.iter().map(|reason| format!("not read: {reason}\n"));
        let problems = problems
            .iter()
            .map(|problem| format!("not archived: {problem}\n"));
        let mut text: String = damaged.chain(unread).chain(problems).collect();
        let (segments, files) = (output::count(segments), output::count(files));
        let size = output::bytes(bytes);
        let parts = match parts {
            0 => String::new(),
            parts => format!("{} parts of wide tables, ", output::count(parts)),
        };
        text.push_str(&format!("{segments} segments, {parts}{files} files, {size}\n"));
        output::print(&text)?;
    }
    let damaged = |count: usize| match count {
        1 => "1 thing is damaged".to_owned(),
        count => format!("{count} things are damaged"),
    };
    let said = match (wrong.len(), unread.len()) {
        (0, 0) if is_empty => format!(
            "{} contains no archive: it has no description of a segment or part",
            of.target
        ),
        (0, 0) => return Ok(()),
        (0, unread) => format!("{unread} files could not be read"),
        (wrong, 0) => damaged(wrong),
        (wrong, unread) => format!("{}, and {unread} files could not be read", damaged(wrong)),
    };
    Err(CliError::Incomplete(said))
}

fn check(of: &TargetArguments) -> Result<()> {
    let scratch = tempfile::tempdir().map_err(|error| CliError::file(&std::env::temp_dir(), error))?;
    let archive = open(of, scratch.path())?;
    // The token is unique, so that concurrent checks do not interfere.
    let token = format!(
        "{}-{:016x}",
        std::process::id(),
        tideline_engine::archive::new_origin().map_err(|error| wrong(&error))?
    );
    let check = archive
        .target(DEFAULT_TARGET)
        .map_err(|error| wrong(&error))?
        .check(&token);
    if of.json {
        output::print(&in_json(&of.target, &check).to_string())?;
    } else {
        output::print(&text(&of.target, &check))?;
    }
    match check.is_good() {
        true => Ok(()),
        false => Err(CliError::Incomplete(
            "the target is not usable for an archive".into(),
        )),
    }
}

fn in_json(target: &str, check: &TargetCheck) -> Value {
    let step = |(step, failure): &(tideline_engine::archive::CheckStep, Option<String>)| json!({"step": step.name(), "is_good": failure.is_none(), "failure": failure});
    json!({
        "target": target,
        "is_good": check.is_good(),
        "steps": check.steps.iter().map(step).collect::<Vec<Value>>(),
    })
}

fn text(target: &str, check: &TargetCheck) -> String {
    let mut text = String::new();
    for (step, failure) in &check.steps {
        match failure {
            None => text.push_str(&format!("ok      {step}\n")),
            Some(failure) => text.push_str(&format!("MISSING {step}: {failure}\n")),
        }
    }
    if check.is_good() {
        text.push_str(&format!("{target} can hold an archive\n"));
    }
    text
}
