//! Interactive prompt: statements are edited over several lines, with history and completion.
//!
//! The history is stored in the state folder of the user, as `$XDG_STATE_HOME/tideline/sql_history`, by default below
//! `~/.local/state`. Without a home folder, no history is stored.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::complete::{Names, changes_tables};
use super::{Shown, execute, split};
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::output;

/// Maximum number of statements in the history.
const HISTORY_MAX: usize = 1_000;
/// Commands of the prompt.
const HELP: &str = "\
A statement ends with a semicolon; it may have several lines.
  SHOW TABLES;   DESCRIBE table;   EXPLAIN SELECT …;
Tab completes keywords, tables and columns. Other commands: help, quit";

/// Helper of the line editor: completion, and detection of incomplete statements.
struct SqlHelper {
    names: Names,
}

impl Helper for SqlHelper {}

impl Highlighter for SqlHelper {}

impl Hinter for SqlHelper {
    type Hint = String;
}

impl Validator for SqlHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let is_complete = is_command(text) || split::is_complete(text);
        Ok(match is_complete {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for SqlHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.names.complete(line, cursor))
    }
}

/// Returns true for a command of the prompt, which needs no semicolon.
fn is_command(text: &str) -> bool {
    matches!(text.trim(), "quit" | "exit" | "\\q" | "help" | "\\?")
}

/// Reads statements until the end of the input. An error of a statement is printed, and the prompt continues.
pub(super) fn run(client: &Client, is_json: bool) -> Result<()> {
    let failed = |error: ReadlineError| CliError::Output(std::io::Error::other(error));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_MAX)
        .map_err(failed)?
        .build();
    let mut editor = Editor::<SqlHelper, FileHistory>::with_config(config).map_err(failed)?;
    editor.set_helper(Some(SqlHelper {
        names: Names::new(client.clone()),
    }));
    let history = history_file();
    if let Some(path) = &history {
        // The file does not exist before the first statement.
        let _ = editor.load_history(path);
    }
    output::print(&format!("{}; help shows what is possible", client.base()))?;
    loop {
        let text = match editor.readline("sql> ") {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        match text.trim() {
            "quit" | "exit" | "\\q" => return Ok(()),
            "help" | "\\?" => {
                output::print(HELP)?;
                continue;
            }
            "" => continue,
            _ => {}
        }
        let _ = editor.add_history_entry(text.trim());
        if let Some(path) = &history {
            save(&mut editor, path);
        }
        for statement in split::statements(&text) {
            if let Err(error) = execute(client, statement.text, &[], is_json, Shown::First) {
                eprintln!("{error}");
                break;
            }
            if let Some(helper) = editor.helper().filter(|_| changes_tables(statement.text)) {
                helper.names.forget();
            }
        }
    }
}

/// Stores the history, readable by the user only. An error is not reported, because it would repeat at each statement.
fn save(editor: &mut Editor<SqlHelper, FileHistory>, path: &PathBuf) {
    if let Some(folder) = path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let _ = editor.save_history(path);
}

/// Returns the path of the history; `None` if no home folder is known.
fn history_file() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(folder.join("tideline").join("sql_history"))
}
