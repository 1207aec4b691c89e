//! Handling of Ctrl-C and SIGTERM: running servers must not outlive the benchmark.

use std::collections::BTreeSet;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// Exit status after SIGINT by shell convention; also used after SIGTERM.
const INTERRUPTED: i32 = 130;

/// Ids of the processes to kill.
static GUARDED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Installs signal handlers that kill the guarded processes and then exit.
pub(crate) fn watch() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(entered);
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        for pid in guarded().iter() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                // Fails only if the process has already ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        eprintln!("interrupted: the server was killed, its data folder is kept");
        process::exit(INTERRUPTED);
    });
    Ok(())
}

/// Adds a process to be killed on a signal.
pub(crate) fn guard(pid: u32) {
    guarded().insert(pid);
}

/// Removes a process that has ended; its id may be reused.
pub(crate) fn release(pid: u32) {
    guarded().remove(&pid);
}

fn guarded() -> MutexGuard<'static, BTreeSet<u32>> {
    GUARDED.lock().unwrap_or_else(PoisonError::into_inner)
}
