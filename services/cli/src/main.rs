//! The binary `tideline`: it reads the command line, and the crates behind it do the work.
//!
//! Exit status: 0 after a clean end, 1 when something failed while running or the server refused, 2 when the command
//! line or the configuration is wrong, 130 when a second signal cut an orderly end short.

use std::process::ExitCode;

use clap::Parser;

mod arguments;
mod client;
mod commands;
mod condition;
mod demo;
mod error;
mod output;
mod serve;
mod write;

use arguments::{Arguments, Command, ConfigCommand};
use commands::{
    archive, attributes, check, complete, delete, explain, export, facets, find, jobs, latest, names, promql,
    queries, query, ready, searches, shell, tables, top, watch,
};
use error::{CliError, Result};
use tideline_openapi::plain;

/// Long-lived blocks of many sizes and threads that free what others allocated: jemalloc holds less memory there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let in_json = wants_json();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return not_understood(&error, in_json),
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

/// Whether the command line asks for JSON; also where it is wrong otherwise, and so cannot be parsed.
fn wants_json() -> bool {
    let arguments = std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--");
    arguments.into_iter().any(|argument| argument == "--json")
}

/// Prints the error of a command line, or the requested help or version.
fn not_understood(error: &clap::Error, in_json: bool) -> ExitCode {
    if !error.use_stderr() {
        // A closed standard output cannot be reported.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = plain::message(&error.render().to_string());
    match in_json {
        true => {
            let text = text.trim_start_matches("error: ").trim_end();
            eprintln!("{}", CliError::usage(text).to_json());
        }
        false => eprint!("{text}"),
    }
    ExitCode::from(2)
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Serve(server) => serve::run(server),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Config(ConfigCommand::Check(server)) => {
            server.resolve()?;
            println!("the configuration is right");
            Ok(())
        }
        Command::Config(ConfigCommand::Show(server)) => {
            print!("{}", server.resolve()?.describe());
            Ok(())
        }
        Command::Config(ConfigCommand::Reference) => {
            print!("{}", tideline_server::reference());
            Ok(())
        }
        Command::Write(arguments) => write::run(arguments),
        Command::Query(arguments) => query::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Promql(arguments) => promql::run(arguments),
        Command::Queries(command) => queries::run(command),
        Command::Find(arguments) => find::run(arguments),
        Command::Facets(arguments) => facets::run(arguments),
        Command::Attributes(command) => attributes::run(command),
        Command::Searches(command) => searches::run(command),
        Command::Tags(arguments) => names::tags(arguments),
        Command::Fields(arguments) => names::fields(arguments),
        Command::Latest(arguments) => latest::run(arguments),
        Command::Tables(command) => tables::run(command),
        Command::Jobs(command) => jobs::run(command),
        Command::Delete(arguments) => delete::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::Ready(arguments) => ready::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Archive(command) => archive::run(command),
        Command::Top(arguments) => top::run(arguments),
        Command::Completions(arguments) => shell::completions(arguments),
        Command::Man(arguments) => shell::man(arguments),
        Command::Complete(arguments) => complete::run(arguments),
    }
}
