//! Retention: which part of the journal is kept for change streams.
//!
//! The journal is kept from the oldest change that a stream, a group or a webhook needs. Beyond the byte limit, and
//! while the disk is nearly full, the oldest units are freed even if they are needed, so consumers never block writers.
//! A reader of a freed change gets a gap. A webhook needs the changes after its read position, which is stored before the
//! changes before it are freed. After a start, changes are also kept until the webhooks without `hold` have read those that
//! were written before the start: they may have read them already, which is not stored at a crash.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tideline_engine::backend::{History, HistoryUnit};
use tideline_engine::model::{SequenceNumber, Timestamp};

use crate::error::Result;
use crate::position::Position;
use crate::streams::{ChangeStreams, StoredCheckpoint, StreamState, retention_of};

/// Percentage of the byte limit from which the unconfirmed changes of a group or webhook with `hold` are reported.
const WARNING_PERCENT: u64 = 80;

impl ChangeStreams {
    /// Frees the changes that no stream, group or webhook needs, and those beyond the limit. Called about once a
    /// second, and after a stream was deleted.
    ///
    /// # Errors
    ///
    /// The errors of the backend; the next call tries again.
    pub fn keep(&self) -> Result<()> {
        // A stream that is being created needs its changes even before the stream is in the state.
        let _writing = self.writing.lock();
        self.keep_needed()
    }

    /// Frees the changes that are not needed, and those beyond the limit. The caller holds the lock `writing`.
    pub(crate) fn keep_needed(&self) -> Result<()> {
        let history = self.engine.kept_changes()?;
        let Some(needed) = self.needed(&history) else {
            if history.from.is_some() {
                self.engine.keep_changes(None)?;
            }
            self.counters.kept_bytes.store(0, Ordering::Relaxed);
            self.counters.risk_before.store(0, Ordering::Relaxed);
            return Ok(());
        };
        let kept = |unit: &&HistoryUnit| unit.last >= needed;
        let mut bytes: u64 = history.units.iter().filter(kept).map(|unit| unit.bytes).sum();
        let is_disk_low = bytes > 0 && self.engine.is_disk_low();
        let bytes_max = match is_disk_low {
            // Each call frees half of the bytes, so that space is available before writes are refused.
            true => bytes / 2,
            false => self.settings.bytes_max,
        };
        let mut from = needed;
        for unit in history.units.iter().filter(kept) {
            if bytes <= bytes_max {
                break;
            }
            bytes -= unit.bytes;
            from = SequenceNumber(unit.last.0 + 1);
        }
        let is_freeing = history.from.is_some_and(|kept| kept < from);
        if is_freeing && self.held().is_some_and(|held| held < from) {
            self.counters.overruns.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                bytes_max,
                is_disk_low,
                "changes that a consumer group or a webhook has not confirmed are freed"
            );
        }
        self.counters.kept_bytes.store(bytes, Ordering::Relaxed);
        self.counters
            .risk_before
            .store(self.risk_before(&history, from), Ordering::Relaxed);
        // The folder of the history is lost, so the entries that the journal still has may be incomplete.
        let end = self.engine.changes_end();
        let is_lost = history.from.is_none();
        if let Err(error) = self.store_reached(if is_lost { end } else { from }) {
            // The next call tries again, unless the bytes are needed now.
            if from == needed && !self.engine.is_disk_low() {
                return Err(error);
            }
            tracing::warn!(%error, "read positions of webhooks could not be stored; a restart can report gaps");
        }
        match history.from {
            None => self.engine.keep_changes(Some(end)),
            // Units that could not be removed earlier are removed now.
            Some(kept) if kept < from || history.units.iter().any(|unit| unit.last < from) => {
                self.engine.keep_changes(Some(from))
            }
            Some(_) => Ok(()),
        }?;
        Ok(())
    }

    /// Returns the sequence below which the changes after a position have at least [`WARNING_PERCENT`] of the bytes that
    /// may be kept; 0 if the kept changes have less. The changes before `from` are freed.
    fn risk_before(&self, history: &History, from: SequenceNumber) -> u64 {
        let bytes_min = u128::from(self.settings.bytes_max) * u128::from(WARNING_PERCENT);
        let mut bytes = 0_u128;
        for unit in history.units.iter().rev().take_while(|unit| unit.last >= from) {
            bytes += u128::from(unit.bytes);
            if bytes * 100 >= bytes_min {
                return unit.last.0.saturating_add(1);
            }
        }
        0
    }

    /// Returns a reason for `/ready` while a group or webhook with `hold` has not confirmed most of the bytes that may be
    /// kept. Changes that are kept only for the retention of a stream are not a reason.
    pub fn warning(&self) -> Option<String> {
        let (bytes, bytes_max) = self.kept_bytes();
        let risk_before = self.counters.risk_before.load(Ordering::Relaxed);
        let state = self.state.read();
        let (position, what, stream, name) = holders(&state).min()?;
        if position.sequence.0 >= risk_before {
            return None;
        }
        Some(format!(
            "the {what} {name:?} of the change stream {stream:?} has not confirmed most of the {bytes} bytes of the journal \
             that are kept; at {bytes_max} the oldest changes are freed and it gets a gap"
        ))
    }

    /// Returns the position from which changes are needed; `None` without streams.
    fn needed(&self, history: &History) -> Option<SequenceNumber> {
        let state = self.state.read();
        let retention = state
            .values()
            .map(|stream| retention_of(stream, &self.settings))
            .max()?;
        let trusted = self.engine.store().trusted_now();
        let nanos = i64::try_from(retention.as_nanos()).unwrap_or(i64::MAX);
        let oldest = Timestamp::from_nanos_clamped(trusted.now.nanos().saturating_sub(nanos));
        // While the clock is in doubt, nothing is freed because of its age.
        let is_old = |unit: &&HistoryUnit| trusted.doubt.is_none() && unit.written < oldest;
        let old = history.units.iter().take_while(is_old).last();
        let young = old.map_or(SequenceNumber(0), |unit| SequenceNumber(unit.last.0 + 1));
        let webhooks = state.values().flat_map(|stream| stream.webhooks.values());
        let catching_up = webhooks.filter(|webhook| self.is_catching_up(webhook));
        let needed = catching_up
            .map(|webhook| webhook.reached.sequence)
            .chain([young])
            .min();
        drop(state);
        self.held().into_iter().chain(needed).min()
    }

    /// Returns the oldest position that a group or webhook holds; `None` if no changes are held.
    fn held(&self) -> Option<SequenceNumber> {
        let state = self.state.read();
        holders(&state).map(|(position, ..)| position.sequence).min()
    }
}

/// Returns the groups and webhooks with `hold`: the position of the first change that each of them needs, what it is, the
/// name of its stream, and its name.
fn holders(
    state: &BTreeMap<String, StreamState>,
) -> impl Iterator<Item = (Position, &'static str, &str, &str)> {
    state.iter().flat_map(|(stream, found)| {
        let groups = found.groups.iter().filter(|(_, group)| group.stored.hold);
        let groups = groups.filter_map(|(name, group)| {
            let checkpoints = group.checkpoints.iter().map(StoredCheckpoint::position);
            Some((checkpoints.min()?, "consumer group", name))
        });
        let webhooks = found.webhooks.iter().filter(|(_, webhook)| webhook.stored.hold);
        let webhooks = webhooks.map(|(name, webhook)| (webhook.reached, "webhook", name));
        // A stream has no changes from before its creation.
        let created = found.from();
        groups
            .chain(webhooks)
            .map(move |(position, what, name)| (position.max(created), what, stream.as_str(), name.as_str()))
    })
}
