//! Reporting of command lines that cannot be parsed.

use std::process::ExitCode;

use tideline_openapi::plain;

use crate::error::CliError;

/// Returns true if the command line has `--json`, even if it is invalid otherwise.
pub fn is_json_requested() -> bool {
    let arguments = std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--");
    arguments.into_iter().any(|argument| argument == "--json")
}

/// Prints the error of a command line, or the requested help or version. Returns the exit status: 2 for errors,
/// 0 otherwise.
pub fn not_understood(error: &clap::Error, in_json: bool) -> ExitCode {
    if !error.use_stderr() {
        // A failure to print the help or the version is ignored.
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
