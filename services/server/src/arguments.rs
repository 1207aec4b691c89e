//! Command line of the binary `tideline`.
//!
//! Server options are merged with the configuration file and the environment by [`ServerArguments::resolve`].

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use tideline_cli::ClientCommand;
use tideline_cli::commands::complete::CompleteArguments;
use tideline_cli::commands::shell::{CompletionsArguments, ManArguments};
use tideline_server::{Resolved, Sources, StorageEngine};

use crate::commands::archive::ArchiveCommand;
#[cfg(feature = "cassandra")]
use crate::commands::backend::BackendCommand;
use crate::commands::check::CheckArguments;
use crate::commands::tls::TlsCommand;
use crate::failure::Result;

/// Time series and timelines on wide-table storage.
#[derive(Debug, Parser)]
#[command(name = "tideline", version = version(), arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server until SIGTERM or Ctrl-C.
    Serve(ServeArguments),
    /// Run the server with live data of this machine and of a simulated fleet, and print example queries.
    Demo(DemoArguments),
    /// Check, show or explain the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Commands that use a running server.
    #[command(flatten)]
    Client(ClientCommand),
    /// Check the integrity of a data folder that no server uses.
    Check(CheckArguments),
    /// Check an archive target or the files of an archive; manage the archives of a running server.
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// Check a cluster, create its tables, or show which server owns the data.
    #[cfg(feature = "cassandra")]
    #[command(subcommand)]
    Backend(BackendCommand),
    /// Make certificates for TLS.
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Print shell completions.
    Completions(CompletionsArguments),
    /// Write the manual pages to a folder.
    Man(ManArguments),
    /// Print completions at the cursor of a command line; called by the scripts of `completions`.
    #[command(hide = true)]
    Complete(CompleteArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration that `serve` would use with the same flags, and the files that it names; the exit status
    /// is 2 if one is invalid.
    Check(ServerArguments),
    /// Print the effective configuration and the origin of each value; secrets are masked.
    Show(ServerArguments),
    /// Print an example file with the meaning, unit and default of every key.
    Reference,
}

/// Options of commands that run a server. Keys without a flag are set in the file or the environment.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Configuration file, in TOML.
    #[arg(long, value_name = "FILE", env = "TIDELINE_CONFIG")]
    config: Option<PathBuf>,
    /// Folder for all data [default: ./tideline-data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address to listen on [default: 127.0.0.1:8490].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Unix socket to listen on in addition.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// Engine that stores the data: fjall or cassandra [default: fjall].
    #[arg(long, value_name = "ENGINE")]
    backend: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// File with the token that clients must send.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Accept connections in clear text from other machines: proxy, if only a proxy with TLS can reach the server, or off.
    #[arg(long, value_name = "REASON")]
    tls: Option<String>,
    /// Accept connections from other machines without a token: anyone who can connect has full access.
    #[arg(long)]
    insecure_public: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Treat the data folder as a copy of another server's folder: the files archived so far belong to that server and
    /// are not deleted by this one. Needed only once.
    #[arg(long)]
    pub(crate) new_origin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Number of machines to simulate.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) hosts: u32,
    /// Seed of the simulated values; the same seed gives the same machines.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Run the example queries, check their results, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

/// Options that name a cluster. The other settings of a cluster are set in the file or the environment.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// Nodes of the cluster, as host or host:port, separated by commas.
    #[arg(long, value_name = "HOSTS")]
    contact: Option<String>,
    /// Keyspace of the tables [default: tideline].
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
}

impl ClusterArguments {
    fn flags(&self) -> [(&'static str, Option<String>); 2] {
        [
            ("cassandra.contact", self.contact.clone()),
            ("cassandra.keyspace", self.keyspace.clone()),
        ]
    }

    /// Merges the configuration file `config`, the environment and flags, for a command that needs a cluster.
    pub(crate) fn resolve(&self, config: Option<&Path>) -> Result<Resolved> {
        self.resolve_with(config, None)
    }

    /// Merges like [`resolve`](Self::resolve), for a command that may also be given a data folder.
    pub(crate) fn resolve_with(&self, config: Option<&Path>, data_dir: Option<String>) -> Result<Resolved> {
        let engine = StorageEngine::Cassandra.name().to_owned();
        let others = [("storage.backend", Some(engine)), ("server.data_dir", data_dir)];
        join(config, self.flags().into_iter().chain(others))
    }
}

impl ServerArguments {
    /// Merges file, environment and flags.
    pub(crate) fn resolve(&self) -> Result<Resolved> {
        let flags = [
            ("storage.backend", self.backend.clone()),
            ("server.data_dir", self.data_dir.clone()),
            ("server.listen", self.listen.clone()),
            ("server.unix_socket", self.unix_socket.clone()),
            ("auth.token_file", self.token_file.clone()),
            ("http.tls", self.tls.clone()),
            (
                "server.insecure_public",
                self.insecure_public.then(|| "true".to_owned()),
            ),
        ];
        join(
            self.config.as_deref(),
            flags.into_iter().chain(self.cluster.flags()),
        )
    }
}

/// Merges a configuration file, the environment and flags.
fn join(
    file: Option<&Path>,
    flags: impl Iterator<Item = (&'static str, Option<String>)>,
) -> Result<Resolved> {
    let environment = std::env::vars_os().map(|(name, text)| {
        (
            name.to_string_lossy().into_owned(),
            text.to_string_lossy().into_owned(),
        )
    });
    let sources = Sources {
        file: file.map(Path::to_owned),
        environment: environment.collect(),
        flags: flags.filter_map(|(path, text)| Some((path, text?))).collect(),
    };
    Ok(Resolved::join(&sources)?)
}

/// Returns the version, with the commit if it is known.
pub(crate) const fn version() -> &'static str {
    match option_env!("TIDELINE_COMMIT") {
        Some(_) => concat!(env!("CARGO_PKG_VERSION"), " (", env!("TIDELINE_COMMIT"), ")"),
        None => env!("CARGO_PKG_VERSION"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_example_is_a_command() {
        let mut texts = Vec::new();
        gather_help(&Arguments::command(), &mut texts);
        texts.push(include_str!("../../../README.md").to_owned());
        let mut examples = 0;
        for line in texts.iter().flat_map(|text| text.lines()) {
            for words in commands_of(line) {
                examples += 1;
                if let Err(error) = Arguments::try_parse_from(&words) {
                    panic!("{line}: {error}");
                }
            }
        }
        assert!(examples > 40, "{examples} examples were found");
    }

    fn gather_help(command: &clap::Command, texts: &mut Vec<String>) {
        texts.extend(command.get_after_help().map(ToString::to_string));
        command
            .get_subcommands()
            .for_each(|below| gather_help(below, texts));
    }

    /// Returns the words of each `tideline …` command in a shell line.
    fn commands_of(line: &str) -> Vec<Vec<String>> {
        let mut commands = vec![vec![String::new()]];
        let (mut quote, mut is_escaped) = (None, false);
        for c in line.trim().chars() {
            let words = commands.last_mut().expect("there is one");
            let word = words.last_mut().expect("there is one");
            match (quote, c) {
                (Some(mark), _) if c == mark => quote = None,
                (Some(_), _) => word.push(c),
                _ if is_escaped => is_escaped = false,
                (None, '\\') => is_escaped = true,
                (None, '\'' | '"') => quote = Some(c),
                (None, '|' | '>' | '&' | ';') => commands.push(vec![String::new()]),
                (None, '#') => break,
                (None, ' ') if word.is_empty() => {}
                (None, ' ') => words.push(String::new()),
                _ => word.push(c),
            }
        }
        commands.retain_mut(|words| {
            words.retain(|word| !word.is_empty());
            words.len() > 1 && words[0] == "tideline"
        });
        commands
    }
}
