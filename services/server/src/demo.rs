//! `tideline demo`: runs a server with live data, and prints example queries.
//!
//! The server is started as by `serve`, in this process. Two agents write to it over HTTP like any other agent: one
//! sends metrics of this machine, the other simulates a fleet. A demo that is restarted on the same folder continues
//! with the data there.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tideline_cli::CliError;
use tideline_engine::model::{Clock, SystemClock};
use tideline_server::{Config, Server, StorageEngine, logging};

mod agents;
mod examples;
mod host;
mod poster;
mod progress;

use crate::arguments::DemoArguments;
use crate::failure::{Failure, Result};
use examples::Example;
use host::HostSampler;
use poster::Poster;
use progress::Progress;

/// Longest time for the first data to arrive.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the progress is checked until the demo is ready.
const READY_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between two status lines.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// Runs the demo until it is stopped; with `--once`, until its example queries have run.
pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let resolved = arguments.server.resolve()?;
    let mut config = resolved.config.clone();
    if config.engine_kind == StorageEngine::Cassandra {
        return Err(
            CliError::usage("the demo uses the embedded engine; use serve with --backend cassandra").into(),
        );
    }
    if resolved.is_default("log.level") {
        // Without a configured level, log lines would hide the demo's own output.
        config.log_filter = "warn".to_owned();
    }
    logging::start(&config)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    println!("opening {} …", config.data_dir.display());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let server = Server::start(&config, Arc::clone(&clock))?;
    let poster = Poster::new(
        base(server.address(), config.scheme()),
        config.token.clone(),
        config.tls.certificate_file.clone(),
    );
    let sampler = HostSampler::new()?;
    let examples = examples::examples(sampler.host());
    let progress = Arc::new(Progress::new(server.stop()));
    let fleet = agents::fleet(arguments.seed, arguments.hosts, clock.now());
    println!(
        "live figures of {}, and a SIMULATED fleet of {} machines (seed {}) with its last hour …",
        sampler.host(),
        arguments.hosts,
        arguments.seed
    );
    let (clock_of_fleet, poster_of_fleet, progress_of_fleet) =
        (clock.clone(), poster.clone(), progress.clone());
    let (poster_of_host, progress_of_host) = (poster.clone(), progress.clone());
    let agents = [
        spawn("demo-fleet", move || {
            agents::simulate(
                fleet,
                clock_of_fleet.as_ref(),
                &poster_of_fleet,
                &progress_of_fleet,
            );
        })?,
        spawn("demo-host", move || {
            agents::sample_host(sampler, clock.as_ref(), &poster_of_host, &progress_of_host);
        })?,
    ];
    let shown = show(&server, &progress, &poster, &examples, &config, arguments.once);
    if shown.is_err() || arguments.once {
        server.stop().request();
    }
    let status = {
        let progress = progress.clone();
        spawn("demo-status", move || report(&progress))?
    };
    let ended = server.wait();
    progress.stop();
    for thread in agents.into_iter().chain([status]) {
        // The thread has already printed its panic.
        let _ = thread.join();
    }
    println!("\nstopped; {}", progress.status());
    shown?;
    Ok(ended?)
}

/// Waits until there is data, then prints the example queries; with `once`, also runs them. Returns early if the server
/// is stopped. Fails if the data has not arrived after [`READY_TIMEOUT`].
fn show(
    server: &Server,
    progress: &Progress,
    poster: &Poster,
    examples: &[Example],
    config: &Config,
    once: bool,
) -> Result<()> {
    let begun = Instant::now();
    while !progress.is_ready() {
        if server.stop().is_requested() {
            return Ok(());
        }
        if begun.elapsed() > READY_TIMEOUT {
            return Err(Failure::NotReady {
                seconds: READY_TIMEOUT.as_secs(),
                reason: match progress.last_failure() {
                    reason if reason.is_empty() => progress.status(),
                    reason => reason,
                },
            });
        }
        progress.pause(READY_INTERVAL);
    }
    println!(
        "ready after {:.1} s: {}\n",
        begun.elapsed().as_secs_f64(),
        progress.status()
    );
    println!("  API            {}/v1", poster.base());
    println!("  documentation  {}/docs", poster.base());
    println!("  tiers          {}/v1/tables/default", poster.base());
    println!("  data           {}\n", config.data_dir.display());
    if poster.needs_token() {
        println!("Set TIDELINE_TOKEN to the token of this server first.\n");
    }
    for example in examples {
        println!("# {}\n{}\n", example.about, example.curl(poster));
    }
    if once {
        for example in examples {
            println!("# {}\n{}\n", example.about, example.run(poster)?.trim_end());
        }
        return Ok(());
    }
    println!("Ctrl-C ends the demo; the data stays, and the next start continues with it.");
    Ok(())
}

/// Prints a status line to standard error and updates it until the progress is stopped. Does nothing if standard error
/// is not a terminal.
fn report(progress: &Progress) {
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() {
        return;
    }
    while progress.pause(STATUS_INTERVAL) {
        let line = format!("\r{}\x1b[K", progress.status());
        if terminal
            .write_all(line.as_bytes())
            .and_then(|()| terminal.flush())
            .is_err()
        {
            return;
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(Failure::Thread)
}

/// Returns the URL under which this machine reaches the listen address.
fn base(mut address: SocketAddr, scheme: &str) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    format!("{scheme}://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_reached_here() {
        for (listen, reached) in [
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:2", "http://[::1]:2"),
            ("10.1.2.3:3", "http://10.1.2.3:3"),
        ] {
            assert_eq!(base(listen.parse().expect("an address"), "http"), reached);
        }
    }
}
