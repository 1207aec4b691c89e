//! `tideline completions` and `tideline man`: shell completions and manual pages of the command line.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline completions bash > ~/.local/share/bash-completion/completions/tideline
  tideline completions zsh > ~/.zfunc/_tideline
  tideline completions fish > ~/.config/fish/completions/tideline.fish

The scripts of these three shells also offer tables, measurements, tags with their values, fields,
feeds and saved searches of the server that the command line, TIDELINE_SERVER or the default profile selects.")]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tideline man ~/.local/share/man/man1 && man tideline-write")]
pub struct ManArguments {
    /// Folder for the pages; created if it does not exist
    folder: PathBuf,
}

/// Prints the completions of `tideline`. `command` is the definition of the whole command line.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tideline", &mut script);
    output::print(&with_server(arguments.shell, &String::from_utf8_lossy(&script)))
}

/// Extends a script of bash, zsh or fish so that it first offers names from the server: tables, measurements, tags with
/// their values, fields, saved searches, indexes of wide tables, and feeds. Other scripts are returned unchanged.
fn with_server(shell: Shell, script: &str) -> String {
    const ZSH_BEGIN: &str = "_tideline() {\n";
    match shell {
        Shell::Bash => format!("{script}\n{}", include_str!("shell/server.bash")),
        Shell::Zsh => script.replacen(
            ZSH_BEGIN,
            &format!("{ZSH_BEGIN}{}", include_str!("shell/server.zsh")),
            1,
        ),
        Shell::Fish => format!("{script}\n{}", include_str!("shell/server.fish")),
        _ => script.to_owned(),
    }
}

/// Writes a page for `command`, the whole command line, and one for each visible subcommand.
///
/// # Errors
///
/// Returns an error if the folder or a page cannot be written.
pub fn man(arguments: &ManArguments, command: Command) -> Result<()> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).map_err(|error| CliError::file(folder, error))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = 0;
    write_pages(&command, folder, &mut pages)?;
    output::print(&format!("{pages} pages in {}", folder.display()))
}

fn write_pages(command: &Command, folder: &std::path::Path, pages: &mut u64) -> Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(&path, text).map_err(|error| CliError::file(&path, error))?;
    *pages += 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder, pages)?;
    }
    Ok(())
}
