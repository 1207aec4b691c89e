//! `tideline archive`: commands for the archives of a running server.

use clap::Subcommand;

use self::attach::AttachArguments;
use self::orphans::OrphansArguments;
use self::standing::{RestoreArguments, StatusArguments};
use crate::error::Result;

mod attach;
mod orphans;
mod standing;

/// Subcommands of `archive`.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Show the state of the archives of a running server.
    Status(StatusArguments),
    /// Restore archived points of a running server to its cold tier for a limited time.
    Restore(RestoreArguments),
    /// Create tables of a running server from the archive of another database.
    Attach(AttachArguments),
    /// List and remove objects at a target that no database uses any more.
    Orphans(OrphansArguments),
}

/// Runs the command and prints its result.
///
/// # Errors
///
/// Returns a [`CliError`](crate::CliError) if the arguments are invalid, the server cannot be reached or
/// refuses the request, the output fails, or the work is incomplete.
pub fn run(command: &ArchiveCommand) -> Result<()> {
    match command {
        ArchiveCommand::Status(arguments) => standing::status(arguments),
        ArchiveCommand::Restore(arguments) => standing::restore(arguments),
        ArchiveCommand::Attach(arguments) => attach::run(arguments),
        ArchiveCommand::Orphans(arguments) => orphans::run(arguments),
    }
}
