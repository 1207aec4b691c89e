//! Copy of all data between a data folder and a cluster: `tideline backend copy`.
//!
//! The engine's [`copy`](mod@tideline_engine::copy) does the work. This module opens both sides, and refuses a folder
//! that a server uses and a cluster whose data a live server owns.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tideline_backend_cassandra::CassandraBackend;
use tideline_backend_fjall::FjallBackend;
use tideline_engine::backend::Backend;
use tideline_engine::copy::{CopyProgress, CopySettings, OnWait, copy};
use tideline_engine::model::SystemClock;
use tideline_engine::runtime::Supervisor;

use crate::config::{Config, INDEX_FOLDER, StorageEngine};
use crate::error::{Result, ServerError};
use crate::{cluster, installation};

/// Bytes after which the progress of a copy is stored.
const PIECE_BYTES: usize = 64 << 20;
/// Time to wait for the lease of an owner that has ended, in addition to the length of two leases.
const PATIENCE: Duration = Duration::from_secs(2);

/// Copies all data into the engine `to`: from the data folder into the cluster, or back. `observe` is called after each
/// piece, and interrupts the copy by [`ControlFlow::Break`]. A copy that was interrupted or killed continues with the
/// next call. `on_wait` is called before the copy waits because it cannot take the data yet, such as for the end of the
/// lease of a copy that was killed.
///
/// # Errors
///
/// [`ServerError::Copy`] if the copy fails. [`ServerError::DataDir`], [`ServerError::Backend`] and
/// [`ServerError::Cluster`] if a side cannot be opened.
pub fn run(
    config: &Config,
    to: StorageEngine,
    on_wait: OnWait,
    observe: &mut dyn FnMut(&CopyProgress) -> ControlFlow<()>,
) -> Result<CopyProgress> {
    let supervisor = Supervisor::default();
    let folder = open_folder(config, to == StorageEngine::Fjall, &supervisor)?;
    let mut options = cluster::options(config)?;
    // Other processes must not forward requests to this one.
    options.advertise = String::new();
    let settings = CopySettings {
        patience: options.lease * 2 + PATIENCE,
        piece_bytes: PIECE_BYTES,
        clock: Arc::new(SystemClock),
        supervisor,
        on_wait,
    };
    let keyspace = options.keyspace.clone();
    let cluster: Arc<dyn Backend> = match CassandraBackend::open(options) {
        Ok(backend) => Arc::new(backend),
        Err(source) => return Err(ServerError::Cluster { keyspace, source }),
    };
    let (source, target) = match to {
        StorageEngine::Fjall => (&cluster, &folder),
        StorageEngine::Cassandra => (&folder, &cluster),
    };
    let copied = copy(Arc::clone(source), Arc::clone(target), &settings, observe);
    // Closing releases the shards, also after an error, so that no later process has to wait.
    let closed = cluster.close().and(folder.close());
    let progress = copied.map_err(ServerError::Copy)?;
    closed.map_err(|source| ServerError::Cluster { keyspace, source })?;
    if to == StorageEngine::Fjall {
        remove_index(&config.data_dir).map_err(|source| ServerError::DataDir {
            data_dir: config.data_dir.clone(),
            source,
        })?;
    }
    Ok(progress)
}

/// Opens the store in the data folder. Creates it if the folder is the target.
fn open_folder(config: &Config, is_target: bool, supervisor: &Supervisor) -> Result<Arc<dyn Backend>> {
    let data_dir = &config.data_dir;
    let at = |source| ServerError::DataDir {
        data_dir: data_dir.clone(),
        source,
    };
    if is_target {
        installation::prepare(data_dir).map_err(at)?;
        installation::check_unused(data_dir).map_err(at)?;
    } else if !data_dir.join(installation::STORE).exists() {
        let missing = "it has no store of an embedded engine: name the folder to copy with --data-dir";
        return Err(at(io::Error::new(io::ErrorKind::NotFound, missing)));
    }
    let mut options = config.backend.clone();
    options.supervisor = supervisor.clone();
    match FjallBackend::open(data_dir, options) {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(source) => Err(ServerError::Backend {
            data_dir: data_dir.clone(),
            source,
        }),
    }
}

/// Removes a search index, which does not belong to the copied data. The first start builds a new index.
fn remove_index(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder.join(INDEX_FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
