//! Faults of the distributed character: planned outcomes of single calls, random faults, and calls that fail until a test
//! ends it.
//!
//! Only a cluster has these faults, so planning one panics in the embedded character.

use std::collections::VecDeque;

use super::{MemoryDisk, State};

/// Actual outcome of an append that returns `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendFault {
    /// The append never takes effect.
    Lost,
    /// The append has taken effect.
    Landed,
    /// The append takes effect at [`MemoryDisk::land_late`], unless the epoch is closed before.
    Late,
}

/// Actual outcome of an edit that returns `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditFault {
    /// The edit never takes effect.
    Lost,
    /// The edit has taken effect.
    Applied,
    /// The edit takes effect at [`MemoryDisk::land_late`], unless its owner reads or edits the manifest before, or the
    /// shard is taken.
    Late,
}

/// Actual outcome of a write of rows that returns `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFault {
    /// The write never takes effect.
    Lost,
    /// The write has taken effect.
    Landed,
    /// The write takes effect at [`MemoryDisk::land_late`], with its stamp.
    Late,
}

/// Random faults, determined by a seed.
pub(super) struct Chance {
    state: u64,
    fault_per_mille: u64,
}

impl Chance {
    /// Returns the next number of a SplitMix64 sequence.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self) -> bool {
        self.next() % 1_000 < self.fault_per_mille
    }
}

impl MemoryDisk {
    /// Plans the outcome of the next append that has no planned outcome yet. Panics in the embedded character.
    pub fn fail_append(&self, fault: AppendFault) {
        self.assert_distributed("append faults need the distributed character");
        self.state.lock().append_faults.push_back(fault);
    }

    /// Plans the outcome of the next edit that has no planned outcome yet. Panics in the embedded character.
    pub fn fail_edit(&self, fault: EditFault) {
        self.assert_distributed("edit faults need the distributed character");
        self.state.lock().edit_faults.push_back(fault);
    }

    /// Plans the outcome of the next write of rows that has no planned outcome yet. Panics in the embedded character.
    pub fn fail_write(&self, fault: WriteFault) {
        self.assert_distributed("write faults need the distributed character");
        self.state.lock().write_faults.push_back(fault);
    }

    /// Lets appends of former owners reach the journals of their epochs until the epochs are closed, as on a cluster
    /// whose appends are plain writes. Panics in the embedded character.
    pub fn accept_stale_appends(&self) {
        self.assert_distributed("stale appends need the distributed character");
        self.state.lock().accepts_stale = true;
    }

    /// Makes the manifest unreadable, or readable again, as if the cluster were unreachable. Panics in the embedded
    /// character.
    pub fn hide_manifest(&self, is_hidden: bool) {
        self.assert_distributed("hiding the manifest needs the distributed character");
        self.state.lock().is_manifest_hidden = is_hidden;
    }

    /// Makes the next `count` reads of the manifest fail, as if the cluster were unreachable. Panics in the embedded
    /// character.
    pub fn fail_manifest_reads(&self, count: u32) {
        self.assert_distributed("hiding the manifest needs the distributed character");
        self.state.lock().failing_manifest_reads = count;
    }

    /// Makes appends, edits and writes of rows fail at random: about `fault_per_mille` of every thousand, as determined
    /// by the seed. About half of the later appends, chosen at random, first apply all late appends of their shard.
    /// Panics in the embedded character.
    pub fn fail_by_chance(&self, seed: u64, fault_per_mille: u64) {
        self.assert_distributed("random faults need the distributed character");
        self.state.lock().chance = Some(Chance {
            state: seed,
            fault_per_mille,
        });
    }

    /// Makes renewals fail as `Unavailable`, or succeed again. Panics in the embedded character.
    pub fn fail_renewals(&self, are_failing: bool) {
        self.assert_distributed("limited leases need the distributed character");
        self.state.lock().terms.is_renewal_failing = are_failing;
    }
}

impl State {
    /// Returns the outcome of the next append; `None` if it succeeds.
    pub(super) fn append_fault(&mut self) -> Option<AppendFault> {
        let kinds = [AppendFault::Lost, AppendFault::Landed, AppendFault::Late];
        next_fault(&mut self.append_faults, &mut self.chance, kinds)
    }

    /// Returns the outcome of the next edit; `None` if it succeeds.
    pub(super) fn edit_fault(&mut self) -> Option<EditFault> {
        let kinds = [EditFault::Lost, EditFault::Applied, EditFault::Late];
        next_fault(&mut self.edit_faults, &mut self.chance, kinds)
    }

    /// Returns the outcome of the next write of rows; `None` if it succeeds.
    pub(super) fn write_fault(&mut self) -> Option<WriteFault> {
        let kinds = [WriteFault::Lost, WriteFault::Landed, WriteFault::Late];
        next_fault(&mut self.write_faults, &mut self.chance, kinds)
    }
}

/// Takes the next planned fault. Without one, draws a fault at random, if random faults are enabled.
fn next_fault<F: Copy>(planned: &mut VecDeque<F>, chance: &mut Option<Chance>, kinds: [F; 3]) -> Option<F> {
    if let Some(fault) = planned.pop_front() {
        return Some(fault);
    }
    let chance = chance.as_mut()?;
    match chance.hits() {
        true => Some(kinds[(chance.next() % 3) as usize]),
        false => None,
    }
}
