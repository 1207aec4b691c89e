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
mod value_condition;
mod write;

use arguments::{Arguments, Command, ConfigCommand};
use commands::{
    archive, attributes, check, complete, delete, explain, export, facets, find, jobs, latest, names, promql,
    queries, query, ready, searches, shell, tables, top, watch,
};
use error::Result;

/// Long-lived blocks of many sizes and threads that free what others allocated: jemalloc holds less memory there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("tideline: {line}");
            }
            ExitCode::from(error.exit_status())
        }
    }
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
