//! `tideline ready`: checks whether a server is ready, for container probes and scripts.

use clap::Args;
use serde_json::{Value, json};

use crate::client::ConnectionArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of `ready`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 ready, 1 not ready or unreachable.

Examples:
  tideline ready && tideline write today.lp")]
pub(crate) struct ReadyArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Requests the readiness of the server. Fails if the server does not accept reads or writes.
pub(crate) fn run(arguments: &ReadyArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let response = client.fetch("/ready")?;
    let ready = client.parse(&response.text)?;
    if arguments.connection.json {
        output::print(&format!(
            "{}\n",
            json!({"ready": response.status == 200, "answer": ready})
        ))?;
    }
    let reasons = ready["reasons"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let reasons: Vec<&str> = reasons.collect();
    match response.status {
        200 => {
            if !arguments.connection.json {
                output::print(&["ready\n".to_owned(), lines(&reasons)].concat())?;
            }
            Ok(())
        }
        _ => Err(CliError::Incomplete(format!("not ready\n{}", lines(&reasons)))),
    }
}

fn lines(reasons: &[&str]) -> String {
    reasons.iter().map(|reason| format!("  {reason}\n")).collect()
}
