//! Division of file descriptors between the store and connections.
//!
//! The store, the journal and the index have priority, because a write that gets no descriptor cannot be
//! acknowledged. Connections get the rest; their limit is lowered if the process may open too few files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for uses that neither the store's setting nor the connection limit counts: journals,
/// the index, archive files, log and listener, reserved connections, threads of the runtime.
const RESERVED: u64 = 256;
/// Minimum number of connections, even if fewer descriptors remain.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of open files to the hard limit. Returns the resulting limit; `None` = unlimited.
///
/// If raising fails, the old limit is returned and a warning is logged.
pub(crate) fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, ?current, "the limit of open files cannot be raised");
            current
        }
    }
}

/// Returns the number of connections that may be open: `wanted`, or fewer if the limit of open files leaves too few
/// descriptors after those that the store may open.
pub(crate) fn connections_max(wanted: usize, limit: Option<u64>, store_files_max: usize) -> usize {
    let Some(limit) = limit else {
        return wanted;
    };
    let left = limit.saturating_sub(RESERVED + store_files_max as u64);
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let allowed = wanted.min(left.max(CONNECTIONS_MIN));
    if allowed < wanted {
        tracing::warn!(
            limit,
            store_files_max,
            connections_max = allowed,
            "fewer connections than http.connections_max are allowed: raise the limit of open files (ulimit -n)"
        );
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_what_the_store_leaves() {
        for (wanted, limit, allowed) in [
            (10_000, None, 10_000),
            (10_000, Some(1 << 20), 10_000),
            (10_000, Some(4_096), 2_940),
            (10_000, Some(1_024), CONNECTIONS_MIN),
            (8, Some(1_024), 8),
        ] {
            assert_eq!(connections_max(wanted, limit, 900), allowed, "limit {limit:?}");
        }
    }
}
