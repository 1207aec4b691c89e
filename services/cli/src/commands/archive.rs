//! `tideline archive`: the archives of a running server.

use clap::Subcommand;

use self::attach::AttachArguments;
use self::orphans::OrphansArguments;
use self::standing::{RestoreArguments, StatusArguments};
use crate::error::Result;

mod attach;
mod orphans;
mod standing;

/// Commands about the archives of a running server.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Show how the archives of a running server stand.
    Status(StatusArguments),
    /// Bring archived points of a running server back into its cold tier for a while.
    Restore(RestoreArguments),
    /// Make tables of a running server of what another database has archived.
    Attach(AttachArguments),
    /// List and remove objects at a target that nothing names any more.
    Orphans(OrphansArguments),
}

/// Runs the command and prints its result.
pub fn run(command: &ArchiveCommand) -> Result<()> {
    match command {
        ArchiveCommand::Status(arguments) => standing::status(arguments),
        ArchiveCommand::Restore(arguments) => standing::restore(arguments),
        ArchiveCommand::Attach(arguments) => attach::run(arguments),
        ArchiveCommand::Orphans(arguments) => orphans::run(arguments),
    }
}
