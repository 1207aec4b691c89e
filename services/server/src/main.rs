//! The binary `tideline`: parses the command line and runs the command.
//!
//! This crate has the commands that run the server in their own process, or read a data folder or an archive
//! without a server. Commands that use a running server over HTTP are in `tideline-cli`.
//!
//! Exit status: 0 after a clean end; 1 if something failed while running or the server refused a request; 2 if
//! the command line or the configuration is invalid; 130 if a second signal interrupted the shutdown.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

mod arguments;
mod commands;
mod demo;
mod failure;
mod serve;

use arguments::{Arguments, Command, ConfigCommand};
use commands::{archive, check};
use failure::Result;
use tideline_cli::commands::{complete, shell};
use tideline_cli::usage;

/// Allocator of the process. jemalloc needs less memory than the system allocator, because blocks live long,
/// have many sizes and are freed by other threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let in_json = usage::is_json_requested();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::not_understood(&error, in_json),
    };
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            if in_json {
                eprintln!("{}", error.to_json());
            } else {
                for line in error.to_string().lines() {
                    eprintln!("tideline: {line}");
                }
            }
            ExitCode::from(error.exit_status())
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Serve(server) => serve::run(server)?,
        Command::Demo(arguments) => demo::run(arguments)?,
        Command::Config(ConfigCommand::Check(server)) => {
            let resolved = server.resolve()?;
            resolved.check_server()?;
            resolved.config.check_files()?;
            println!("the configuration is valid");
        }
        Command::Config(ConfigCommand::Show(server)) => print!("{}", server.resolve()?.describe()),
        Command::Config(ConfigCommand::Reference) => print!("{}", tideline_server::reference()),
        Command::Client(command) => command.run()?,
        Command::Check(arguments) => check::run(arguments)?,
        Command::Archive(command) => archive::run(command)?,
        #[cfg(feature = "cassandra")]
        Command::Backend(command) => commands::backend::run(command)?,
        Command::Tls(command) => commands::tls::run(command)?,
        Command::Completions(arguments) => shell::completions(arguments, Arguments::command())?,
        Command::Man(arguments) => shell::man(arguments, Arguments::command())?,
        Command::Complete(arguments) => complete::run(arguments, &Arguments::command())?,
    }
    Ok(())
}
