//! Members of the distributed character: which handle owns a shard, and when another handle may take it.
//!
//! The rules are those of `tideline-backend-cassandra`. A handle renews the row of its member. Another handle that is
//! to take the shard watches the number of renewals. If the number does not change for a lease and a quarter, by the
//! clock of the watching handle alone, the handle marks the member as dead and takes the shard. A dead member can no
//! longer renew its lease. Clocks of two processes are therefore never compared. The only assumption is that their
//! speeds agree within a quarter.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{BackendError, Result};

/// Number of a member. A handle that was declared dead joins again under a new number.
pub(super) type MemberId = u64;

/// Members of a disk.
#[derive(Default)]
pub(super) struct Members {
    renewals: BTreeMap<MemberId, Renewals>,
    last: MemberId,
}

struct Renewals {
    count: u64,
    is_dead: bool,
}

/// Members that a handle watches: number of renewals, and time of the handle at which the number was first read.
pub(super) type Watched = BTreeMap<MemberId, (u64, Duration)>;

impl Members {
    /// Returns `member` if it is alive, else a new member.
    pub(super) fn join(&mut self, member: Option<MemberId>) -> MemberId {
        if let Some(alive) = member.filter(|member| self.renew(*member)) {
            return alive;
        }
        self.last += 1;
        let renewals = Renewals {
            count: 1,
            is_dead: false,
        };
        self.renewals.insert(self.last, renewals);
        self.last
    }

    /// Counts a renewal. Returns false if the member is dead.
    pub(super) fn renew(&mut self, member: MemberId) -> bool {
        let alive = self.renewals.get_mut(&member).filter(|member| !member.is_dead);
        alive.map(|member| member.count += 1).is_some()
    }

    /// Marks a member as dead: it has given up its shards, or was silent for too long.
    pub(super) fn end(&mut self, member: MemberId) {
        if let Some(member) = self.renewals.get_mut(&member) {
            member.is_dead = true;
        }
    }

    /// Marks `owner` as dead if it was silent for long enough. `watched` is the list of the watching handle, and `now`
    /// is the time of this handle.
    ///
    /// # Errors
    ///
    /// `Unavailable` while the owner may still serve the shard.
    pub(super) fn end_silent(
        &mut self,
        owner: MemberId,
        lease: Duration,
        watched: &mut Watched,
        now: Duration,
    ) -> Result<()> {
        let Some(renewals) = self.renewals.get(&owner).filter(|member| !member.is_dead) else {
            return Ok(());
        };
        let seen = watched.entry(owner).or_insert((renewals.count, now));
        if seen.0 != renewals.count {
            *seen = (renewals.count, now);
        }
        let (silence, silent_for) = (lease + lease / 4, now.saturating_sub(seen.1));
        if silent_for < silence {
            return Err(BackendError::Unavailable {
                reason: "another process owns the data".to_owned(),
                retry_after: silence - silent_for,
            });
        }
        self.end(owner);
        Ok(())
    }
}
