//! Ctrl-C and SIGTERM: the servers that run must not outlive the benchmark.

use std::collections::BTreeSet;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status of a program that SIGINT has ended, as shells count it.
const INTERRUPTED: i32 = 130;

/// The servers to kill.
static GUARDED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// From now on a signal kills the guarded processes before it ends this one.
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
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        eprintln!("interrupted: the server was stopped, its data folder stays");
        process::exit(INTERRUPTED);
    });
    Ok(())
}

/// Adds a process to those that a signal kills.
pub(crate) fn guard(pid: u32) {
    guarded().insert(pid);
}

/// Takes a process off that list: it has ended, and its id may come again.
pub(crate) fn release(pid: u32) {
    guarded().remove(&pid);
}

fn guarded() -> MutexGuard<'static, BTreeSet<u32>> {
    GUARDED.lock().unwrap_or_else(PoisonError::into_inner)
}
