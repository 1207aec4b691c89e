//! Retention: which part of the journal is kept for change streams.
//!
//! The journal is kept from the oldest change that a stream, a group or a webhook needs. Beyond the byte limit, and
//! while the disk is nearly full, the oldest units are freed even if they are needed, so consumers never block writers.
//! A reader of a freed change gets a gap.

use std::sync::atomic::Ordering;

use tideline_engine::backend::{History, HistoryUnit};
use tideline_engine::model::{SequenceNumber, Timestamp};

use crate::error::Result;
use crate::streams::{ChangeStreams, retention_of};

/// Percentage of the byte limit from which a group or webhook that holds changes is reported.
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
        match history.from {
            // The folder of the history is lost, so the entries that the journal still has may be incomplete.
            None => self.engine.keep_changes(Some(self.engine.changes_end())),
            // Units that could not be removed earlier are removed now.
            Some(kept) if kept < from || history.units.iter().any(|unit| unit.last < from) => {
                self.engine.keep_changes(Some(from))
            }
            Some(_) => Ok(()),
        }?;
        Ok(())
    }

    /// Returns a reason for `/ready` while groups or webhooks hold most of the bytes that may be kept.
    pub fn warning(&self) -> Option<String> {
        let (bytes, bytes_max) = self.kept_bytes();
        if bytes.saturating_mul(100) < bytes_max.saturating_mul(WARNING_PERCENT) {
            return None;
        }
        let state = self.state.read();
        let readers = state.iter().flat_map(|(stream, state)| {
            let held = state.groups.iter().filter(|(_, group)| group.stored.hold);
            let groups = held.filter_map(|(name, group)| {
                let oldest = group
                    .checkpoints
                    .iter()
                    .map(|checkpoint| checkpoint.position())
                    .min()?;
                Some((oldest, "consumer group", stream, name))
            });
            let held = state.webhooks.iter().filter(|(_, webhook)| webhook.stored.hold);
            let webhooks =
                held.map(|(name, webhook)| (webhook.checkpoint.position(), "webhook", stream, name));
            groups.chain(webhooks).collect::<Vec<_>>()
        });
        let (_, what, stream, name) = readers.min()?;
        Some(format!(
            "the {what} {name:?} of the change stream {stream:?} holds {bytes} bytes of the journal; at {bytes_max} the \
             oldest changes are freed and it gets a gap"
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
        drop(state);
        Some(self.held().map_or(young, |held| held.min(young)))
    }

    /// Returns the oldest position that a group or webhook holds; `None` if no changes are held.
    fn held(&self) -> Option<SequenceNumber> {
        let state = self.state.read();
        let groups = state.values().flat_map(|stream| stream.groups.values());
        let groups = groups
            .filter(|group| group.stored.hold)
            .flat_map(|group| &group.checkpoints);
        let webhooks = state.values().flat_map(|stream| stream.webhooks.values());
        let webhooks = webhooks
            .filter(|webhook| webhook.stored.hold)
            .map(|webhook| &webhook.checkpoint);
        groups
            .chain(webhooks)
            .map(|checkpoint| checkpoint.position().sequence)
            .min()
    }
}
