//! `tideline archive check`: proves that a target does what an archive needs, before anything depends on it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tideline_archive::{Archive, ArchiveSettings, DEFAULT_TARGET, TargetCheck, TargetOptions};

use crate::error::{CliError, Result};
use crate::output;

/// What can be done about archives without a server.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Try everything that an archive needs of a target: list, create, read, replace nothing, delete.
    Check(CheckArguments),
}

/// What `archive check` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
One small object is written below the target, read back, and removed. Run it where the server runs and as its user: the
environment and the role of the machine are what the server would have.

  tideline archive check s3://bucket/prefix
  tideline archive check s3://bucket/prefix --options-file /etc/tideline/archive
  tideline archive check file:///srv/archive

Exit status: 0 it does, 1 it does not, 2 it is no target.")]
pub(crate) struct CheckArguments {
    /// The target: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or file:///directory
    #[arg(value_name = "TARGET")]
    target: String,
    /// A file with `name = value` lines, as archive.options_file of the server's configuration
    #[arg(long, value_name = "FILE")]
    options_file: Option<PathBuf>,
    /// Answer in JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Does what a command says.
pub(crate) fn run(command: &ArchiveCommand) -> Result<()> {
    match command {
        ArchiveCommand::Check(arguments) => check(arguments),
    }
}

fn check(arguments: &CheckArguments) -> Result<()> {
    let wrong = |error: tideline_archive::ArchiveError| CliError::usage(error.to_string());
    let scratch = tempfile::tempdir().map_err(|error| CliError::file(&std::env::temp_dir(), error))?;
    let options = arguments
        .options_file
        .as_deref()
        .map(TargetOptions::read)
        .transpose();
    let named = (
        arguments.target.clone(),
        options.map_err(wrong)?.unwrap_or_default(),
    );
    let mut settings = ArchiveSettings::new(scratch.path().to_owned());
    settings.targets.insert(DEFAULT_TARGET.to_owned(), named);
    let target = Archive::open(settings).and_then(|archive| archive.target(DEFAULT_TARGET));
    // A name that no other check uses at the same time.
    let token = format!(
        "{}-{:016x}",
        std::process::id(),
        tideline_archive::new_origin().map_err(wrong)?
    );
    let check = target.map_err(wrong)?.check(&token);
    if arguments.json {
        output::print(&in_json(&arguments.target, &check).to_string())?;
    } else {
        output::print(&text(&arguments.target, &check))?;
    }
    match check.is_good() {
        true => Ok(()),
        false => Err(CliError::Incomplete("no archive can be kept there".into())),
    }
}

fn in_json(target: &str, check: &TargetCheck) -> Value {
    let step = |(step, failure): &(tideline_archive::CheckStep, Option<String>)| json!({"step": step.name(), "is_good": failure.is_none(), "failure": failure});
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
