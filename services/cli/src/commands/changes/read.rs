//! `tideline changes read`: prints records as lines of JSON, and follows further changes.
//!
//! A thread reads and prints pages, while the thread of the command waits for the end of the reads or for Ctrl-C. A
//! page is printed and confirmed under a lock, which the thread of the command takes before it ends. An interrupted
//! command therefore never ends inside a page.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Builder;

use super::StreamArguments;
use crate::client::{Client, encoded};
use crate::commands::pause;
use crate::error::{CliError, Result};
use crate::output;

/// Maximum number of records of a page.
const PAGE_RECORDS: u64 = 1_000;
/// Longest time for which a request waits for a first record.
const WAIT: Duration = Duration::from_secs(30);
/// Shortest time between two requests that returned no record, and the first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Arguments of `changes read`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArguments {
    #[command(flatten)]
    stream: StreamArguments,
    /// Continue from this cursor [default: the oldest change; with --group, its checkpoint]
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Read as a member of this consumer group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Number of the partition, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u16,
    /// Number of partitions that share the stream [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "group", value_parser = clap::value_parser!(u16).range(1..=256))]
    partitions: Option<u16>,
    /// Wait for further changes until Ctrl-C; reconnects to a server that is busy or unreachable
    #[arg(long)]
    follow: bool,
    /// Maximum number of records [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Confirm each page after it was printed
    #[arg(long, requires = "group")]
    confirm: bool,
}

/// Page of records in a response.
#[derive(Deserialize)]
struct Page {
    records: Vec<Box<RawValue>>,
    next: String,
    has_more: bool,
}

/// Position of the reader, shared with the thread that ends the command. Locked while a page is printed and confirmed.
type Cursor = Arc<Mutex<Option<String>>>;

/// Reads pages and prints them.
struct Reader {
    client: Client,
    arguments: ReadArguments,
    cursor: Cursor,
}

/// Reads until the end of the changes, `--limit`, Ctrl-C or an error, and prints the cursor to continue from.
pub(super) fn run(arguments: &ReadArguments) -> Result<()> {
    let cursor = Cursor::new(Mutex::new(arguments.cursor.clone()));
    let reader = Reader {
        client: arguments.stream.connection.client()?,
        arguments: arguments.clone(),
        cursor: Arc::clone(&cursor),
    };
    let (sender, ended) = mpsc::channel();
    let interrupted = sender.clone();
    // Neither thread is joined: one waits for a signal, and the other for a response. Both end with the process.
    thread::spawn(move || {
        if wait_for_interrupt().is_ok() {
            // The command may have ended meanwhile.
            let _ = interrupted.send(Ok(()));
        }
    });
    thread::spawn(move || {
        let _ = sender.send(reader.read());
    });
    let result = ended.recv().unwrap_or_else(|_| {
        Err(CliError::Incomplete(
            "the reader of changes has stopped".to_owned(),
        ))
    });
    // The lock waits for the end of the page that is being printed. If standard output is closed, no cursor is printed.
    let reached = cursor.lock().map(|cursor| cursor.clone()).unwrap_or_default();
    if let Some(cursor) = reached
        && arguments.cursor.as_ref() != Some(&cursor)
        && !result.as_ref().is_err_and(CliError::is_closed_output)
    {
        match arguments.stream.connection.json {
            true => eprintln!("{}", json!({"next": cursor})),
            false => eprintln!("continue with --cursor {cursor}"),
        }
    }
    result
}

/// Waits for Ctrl-C.
fn wait_for_interrupt() -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(tokio::signal::ctrl_c())
}

impl Reader {
    fn read(&self) -> Result<()> {
        let mut left = self.arguments.limit;
        let mut failure_pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let page = match self.page(left) {
                Err(error) if self.arguments.follow && is_passing(&error) => {
                    eprintln!("{error}; trying again in {} s", failure_pause.as_secs());
                    pause(failure_pause);
                    failure_pause = (2 * failure_pause).min(PAUSE_MAX);
                    continue;
                }
                page => page?,
            };
            failure_pause = PAUSE_MIN;
            self.take(&page)?;
            left = left.map(|left| left.saturating_sub(page.records.len() as u64));
            if left == Some(0) || !(page.has_more || self.arguments.follow) {
                return Ok(());
            }
            // A server that is about to stop does not wait.
            if page.records.is_empty() && !page.has_more && began.elapsed() < PAUSE_MIN {
                pause(PAUSE_MIN);
            }
        }
    }

    fn page(&self, left: Option<u64>) -> Result<Page> {
        let arguments = &self.arguments;
        let cursor = self
            .cursor
            .lock()
            .map(|cursor| cursor.clone())
            .unwrap_or_default();
        let wait = WAIT.min(arguments.stream.connection.timeout() / 2);
        let parameters = [
            ("cursor", cursor),
            ("partition", Some(arguments.partition.to_string())),
            ("partitions", arguments.partitions.map(|count| count.to_string())),
            (
                "limit",
                Some(left.unwrap_or(PAGE_RECORDS).min(PAGE_RECORDS).to_string()),
            ),
            (
                "wait",
                arguments.follow.then(|| format!("{}ms", wait.as_millis())),
            ),
        ];
        let given = parameters
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
        let query = given.collect::<Vec<String>>().join("&");
        let path = match &arguments.group {
            Some(group) => format!("/groups/{}/records?{query}", encoded(group)),
            None => format!("/records?{query}"),
        };
        let text = self.client.get(&arguments.stream.path(&path))?;
        serde_json::from_str(&text).map_err(|error| self.client.strange(&error.to_string()))
    }

    /// Prints a page, moves the cursor, and with `--confirm` confirms the page.
    fn take(&self, page: &Page) -> Result<()> {
        let Ok(mut cursor) = self.cursor.lock() else {
            return Ok(());
        };
        if !page.records.is_empty() {
            let lines = page.records.iter().map(|record| format!("{}\n", record.get()));
            output::print(&lines.collect::<String>())?;
        }
        let has_moved = cursor.as_ref() != Some(&page.next);
        *cursor = Some(page.next.clone());
        match &self.arguments.group {
            Some(group) if self.arguments.confirm && has_moved => self.confirm(group, &page.next),
            _ => Ok(()),
        }
    }

    /// Confirms a page. With `--follow`, a temporary failure is only reported, because the next confirmation includes
    /// this page.
    fn confirm(&self, group: &str, cursor: &str) -> Result<()> {
        let path = format!("/groups/{}/checkpoints", encoded(group));
        let request = json!({"partition": self.arguments.partition, "cursor": cursor});
        let path = self.arguments.stream.path(&path);
        match self.client.post(&path, &request) {
            Err(error) if self.arguments.follow && is_passing(&error) => {
                eprintln!("the checkpoint {cursor} was not confirmed: {error}");
                Ok(())
            }
            confirmed => confirmed.map(|_| ()),
        }
    }
}

/// Returns true for a failure after which the same request can succeed.
fn is_passing(error: &CliError) -> bool {
    match error {
        CliError::Unreachable { .. } => true,
        CliError::Refused(refusal) => refusal.retryable,
        _ => false,
    }
}
