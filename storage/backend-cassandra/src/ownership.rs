//! Leases: which process owns a shard, and how another process takes it over.
//!
//! Each process has a row in `member` and renews it under the condition that it is not marked as dead. A process that
//! is to take a shard watches the row of the owner of the shard. If the count of renewals does not change for a lease
//! and a quarter, by the clock of the watcher alone, the watcher marks the owner as dead, under the condition that the
//! count has not changed. Only then does the watcher take the shard, in a new epoch. So a successful renewal proves
//! that no other process has taken a shard of the renewing process, and clocks of different machines are never
//! compared. The only assumption is that the speeds of the clocks agree within a quarter.
//!
//! A process that watches a living owner reads plainly. For a serial read the nodes vote, as for a conditional write,
//! and two votes on one partition make each other begin again. On slow nodes they can do so until a timeout, so serial
//! reads of watching processes would delay the owner. A plain read sees every acknowledged conditional write, but may
//! miss one of unknown outcome. So it decides only that the process waits: serial reads precede each take.
//!
//! A process that joins removes rows of dead members that own no shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scylla::statement::prepared::PreparedStatement;
use tideline_backend::{BackendError, Epoch, Lease, Result, Shard, Stamp};
use tideline_model::{Clock, SystemClock};
use uuid::Uuid;

use crate::cluster::{Cluster, RequestKind, is_applied};
use crate::error::unexpected;

/// Value of the only partition of `member`.
const CLUSTER: i32 = 0;
/// Time ahead of the clock for which stamps are reserved, in microseconds.
const STAMPS_AHEAD: i64 = 60_000_000;
/// Longest retry delay that is reported to a process that waits for a shard.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of attempts to determine the outcome of a conditional write.
const ATTEMPTS: u32 = 5;
/// Maximum number of rows of dead members that a process removes when it joins. The limit keeps a take-over short.
const REMOVED_MAX: usize = 16;
/// Statement that reads the row of a member.
const READ_MEMBER: &str =
    "SELECT address, renewals, is_dead, stamp_max FROM member WHERE cluster = ? AND node = ?";
/// Statement that reads the owner's part of the row of a shard.
const READ_SHARD: &str = "SELECT epoch, owner, stamp_min FROM shard WHERE shard = ? LIMIT 1";

/// Owner of a shard, as other processes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Address of the HTTP service of the owner; empty if the owner has published none.
    pub address: String,
    /// Epoch of the shard.
    pub epoch: Epoch,
    /// True if the owner gave up the shard, or was declared dead.
    pub is_dead: bool,
}

/// Way of reading the rows of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Sees every acknowledged conditional write, and delays none.
    Plain,
    /// Also completes conditional writes of unknown outcome, or prevents them. Contends with conditional writes of the
    /// same partition.
    Serial,
}

impl Reading {
    fn kind(self) -> RequestKind {
        match self {
            Self::Plain => RequestKind::Read,
            Self::Serial => RequestKind::Conditional,
        }
    }
}

/// Statements of leases.
#[derive(Debug)]
struct Statements {
    join: PreparedStatement,
    renew: PreparedStatement,
    end: PreparedStatement,
    declare_dead: PreparedStatement,
    member: PreparedStatement,
    member_plainly: PreparedStatement,
    shard: PreparedStatement,
    shard_plainly: PreparedStatement,
    take_first: PreparedStatement,
    take: PreparedStatement,
    owners: PreparedStatement,
    members: PreparedStatement,
    remove: PreparedStatement,
}

/// This process as a member.
#[derive(Debug, Clone, Copy)]
struct Member {
    node: Uuid,
    renewals: i64,
    stamp_max: i64,
}

impl Member {
    /// Begins a renewal, and returns the member after its success. The number of the renewal is used up even if the
    /// renewal fails. The renewal may have been applied although its reply was lost; another process may then have seen
    /// the number, and would not notice a later renewal with the same number.
    fn begin_renewal(&mut self, stamp_min: i64) -> Self {
        self.renewals += 1;
        Self {
            stamp_max: self.stamp_max.max(stamps_until(stamp_min)),
            ..*self
        }
    }
}

/// Row of a member.
#[derive(Debug, Clone)]
struct MemberRow {
    address: String,
    renewals: i64,
    is_dead: bool,
    stamp_max: i64,
}

/// Owner's part of the row of a shard.
#[derive(Debug, Clone, Copy, Default)]
struct ShardRow {
    epoch: i64,
    owner: Option<Uuid>,
    stamp_min: i64,
}

/// Leases of this process.
#[derive(Debug)]
pub(crate) struct Leases {
    statements: Statements,
    /// `None` until the first shard is taken, and after the process was declared dead. Locked during requests, so that
    /// renewals are sent one after the other.
    member: Mutex<Option<Member>>,
    /// Lowest stamps of the owned shards, with their epochs.
    owned: Mutex<BTreeMap<Shard, (Epoch, i64)>>,
    /// Number of renewals of each other member, and the time of this process since which the number has not changed.
    watched: Mutex<BTreeMap<Uuid, (i64, Instant)>>,
}

impl Leases {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        let statements = Statements {
            join: cluster
                .prepare(
                    "INSERT INTO member (cluster, node, address, renewals, is_dead, stamp_max) \
                     VALUES (?, ?, ?, ?, false, ?) IF NOT EXISTS",
                )
                .await?,
            renew: cluster
                .prepare(
                    "UPDATE member SET renewals = ?, stamp_max = ? WHERE cluster = ? AND node = ? IF is_dead = false",
                )
                .await?,
            end: cluster
                .prepare("UPDATE member SET is_dead = true WHERE cluster = ? AND node = ? IF is_dead = false")
                .await?,
            declare_dead: cluster
                .prepare(
                    "UPDATE member SET is_dead = true WHERE cluster = ? AND node = ? \
                     IF is_dead = false AND renewals = ?",
                )
                .await?,
            member: cluster.prepare_serial(READ_MEMBER).await?,
            member_plainly: cluster.prepare_read(READ_MEMBER).await?,
            shard: cluster.prepare_serial(READ_SHARD).await?,
            shard_plainly: cluster.prepare_read(READ_SHARD).await?,
            take_first: cluster
                .prepare(
                    "UPDATE shard SET epoch = ?, owner = ?, stamp_min = ?, version = 0, fence = 0 WHERE shard = ? \
                     IF epoch = null",
                )
                .await?,
            take: cluster
                .prepare(
                    "UPDATE shard SET epoch = ?, owner = ?, stamp_min = ? WHERE shard = ? IF epoch = ? AND owner = ?",
                )
                .await?,
            owners: cluster.prepare("SELECT DISTINCT shard, owner FROM shard").await?,
            members: cluster
                .prepare("SELECT node, is_dead FROM member WHERE cluster = ?")
                .await?,
            remove: cluster
                .prepare("DELETE FROM member WHERE cluster = ? AND node = ? IF is_dead = true")
                .await?,
        };
        Ok(Self {
            statements,
            member: Mutex::new(None),
            owned: Mutex::new(BTreeMap::new()),
            watched: Mutex::new(BTreeMap::new()),
        })
    }

    /// Takes a shard. Fails while another process is its living owner.
    pub(crate) fn take(&self, cluster: &Cluster, shard: Shard) -> Result<Lease> {
        let mut member = self.member.lock();
        cluster.block_on(async {
            let own = member.map(|member| member.node);
            self.watch(cluster, shard, own).await?;
            let before = self.owned(cluster, shard, Reading::Serial).await?;
            let reserved = match before.owner {
                None => 0,
                Some(owner) if Some(owner) == own => member.map_or(0, |member| member.stamp_max),
                Some(owner) => self.wait_for_end(cluster, owner, before.stamp_min).await?,
            };
            let stamp_min = before.stamp_min.max(reserved) + 1;
            let (member, is_new) = match self.renew_member(cluster, &mut member, stamp_min).await? {
                Some(member) => (member, false),
                None => (self.join(cluster, &mut member, stamp_min).await?, true),
            };
            let epoch = self
                .take_after(cluster, shard, before, member.node, stamp_min)
                .await?;
            self.owned.lock().insert(shard, (epoch, stamp_min));
            if is_new && let Err(error) = self.remove_dead(cluster, member.node).await {
                tracing::debug!(%error, "rows of ended processes are left; a later start removes them");
            }
            Ok(lease(cluster, epoch, stamp_min, member))
        })
    }

    /// Renews the lease of an owned shard.
    pub(crate) fn renew(&self, cluster: &Cluster, shard: Shard, epoch: Epoch) -> Result<Lease> {
        let mut member = self.member.lock();
        let stamp_min = self.check(shard, epoch)?;
        let renewed = cluster.block_on(self.renew_member(cluster, &mut member, stamp_min))?;
        match renewed {
            Some(member) => Ok(lease(cluster, epoch, stamp_min, member)),
            None => {
                self.owned.lock().clear();
                Err(refused(format!(
                    "this process did not renew its lease in time and was declared dead; its epoch was {}",
                    epoch.0
                )))
            }
        }
    }

    /// Refuses an epoch that this process does not own. Returns the lowest stamp of the epoch.
    pub(crate) fn check(&self, shard: Shard, epoch: Epoch) -> Result<i64> {
        match self.owned.lock().get(&shard) {
            Some((own, stamp_min)) if *own == epoch => Ok(*stamp_min),
            Some((own, _)) => Err(refused(format!(
                "epoch {} is not the owner's, {}",
                epoch.0, own.0
            ))),
            None => Err(refused(format!(
                "this process does not own the shard in epoch {}",
                epoch.0
            ))),
        }
    }

    /// Returns the epoch in which this process owns a shard.
    pub(crate) fn epoch(&self, shard: Shard) -> Option<Epoch> {
        self.owned.lock().get(&shard).map(|(epoch, _)| *epoch)
    }

    /// Returns the highest stamp that this process may have used; 0 without a lease.
    pub(crate) fn stamp_max(&self) -> i64 {
        self.member.lock().map_or(0, |member| member.stamp_max)
    }

    /// Gives up all shards, so that other processes need not wait.
    pub(crate) fn end(&self, cluster: &Cluster) -> Result<()> {
        let member = self.member.lock().take();
        self.owned.lock().clear();
        let Some(member) = member else {
            return Ok(());
        };
        let values = (CLUSTER, member.node);
        let ended = cluster.block_on(cluster.execute(RequestKind::Conditional, &self.statements.end, values));
        ended.map(|_| ())
    }

    /// Returns the owner of a shard; `None` before the first take.
    pub(crate) fn owner(&self, cluster: &Cluster, shard: Shard) -> Result<Option<Owner>> {
        cluster.block_on(async {
            let owned = self.owned(cluster, shard, Reading::Plain).await?;
            let Some(owner) = owned.owner else {
                return Ok(None);
            };
            let seen = self.seen(cluster, owner, Reading::Plain).await?;
            Ok(Some(Owner {
                address: seen.as_ref().map(|seen| seen.address.clone()).unwrap_or_default(),
                epoch: Epoch(owned.epoch as u64),
                is_dead: seen.is_none_or(|seen| seen.is_dead),
            }))
        })
    }

    /// Fails while another process is the living owner of a shard. Reads plainly, so success does not mean that the
    /// owner has ended.
    async fn watch(&self, cluster: &Cluster, shard: Shard, own: Option<Uuid>) -> Result<()> {
        let owner = self.owned(cluster, shard, Reading::Plain).await?.owner;
        let Some(owner) = owner.filter(|owner| Some(*owner) != own) else {
            return Ok(());
        };
        match self.seen(cluster, owner, Reading::Plain).await? {
            Some(seen) if !seen.is_dead => self.wait_for_silence(cluster, owner, &seen).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Returns the time for which a living owner has been silent. Fails while this time is too short to mark the owner
    /// as dead.
    fn wait_for_silence(&self, cluster: &Cluster, owner: Uuid, seen: &MemberRow) -> Result<Duration> {
        let lease = cluster.options.lease;
        let silence = lease + lease / 4;
        let silent_for = {
            let mut watched = self.watched.lock();
            let (renewals, since) = watched.entry(owner).or_insert((seen.renewals, Instant::now()));
            if *renewals != seen.renewals {
                (*renewals, *since) = (seen.renewals, Instant::now());
            }
            since.elapsed()
        };
        match silent_for < silence {
            true => Err(owned_elsewhere(seen, silence - silent_for)),
            false => Ok(silent_for),
        }
    }

    /// Returns the highest stamp that another owner has reserved, if this owner has ended. Marks the owner as dead if
    /// it has been silent for long enough.
    async fn wait_for_end(&self, cluster: &Cluster, owner: Uuid, stamp_min: i64) -> Result<i64> {
        let Some(seen) = self.seen(cluster, owner, Reading::Serial).await? else {
            // The row of the owner was removed. Only rows of dead members that own no shard are removed, so the owner
            // took the shard while its row was being removed. The owner reserved its stamps earlier, by its own clock.
            return Ok(stamps_until(stamp_min));
        };
        if seen.is_dead {
            self.watched.lock().remove(&owner);
            return Ok(seen.stamp_max);
        }
        let silent_for = self.wait_for_silence(cluster, owner, &seen)?;
        let values = (CLUSTER, owner, seen.renewals);
        let answer = cluster
            .execute(RequestKind::Conditional, &self.statements.declare_dead, values)
            .await?;
        if !is_applied(answer)? {
            return Err(owned_elsewhere(&seen, WATCH_INTERVAL));
        }
        tracing::warn!(
            address = seen.address,
            ?silent_for,
            "the owner of the data is silent and was declared dead"
        );
        self.watched.lock().remove(&owner);
        // The count of renewals has not changed, so no renewal has reserved more stamps since the row was read.
        Ok(seen.stamp_max)
    }

    /// Takes a shard if its row has not changed since it was read.
    async fn take_after(
        &self,
        cluster: &Cluster,
        shard: Shard,
        before: ShardRow,
        node: Uuid,
        stamp_min: i64,
    ) -> Result<Epoch> {
        let (number, epoch) = (i32::from(shard.0), before.epoch + 1);
        let answer = match before.owner {
            None => {
                let values = (epoch, node, stamp_min, number);
                cluster
                    .execute(RequestKind::Conditional, &self.statements.take_first, values)
                    .await
            }
            Some(owner) => {
                let values = (epoch, node, stamp_min, number, before.epoch, owner);
                cluster
                    .execute(RequestKind::Conditional, &self.statements.take, values)
                    .await
            }
        };
        let is_taken = match answer {
            Ok(answer) => is_applied(answer)?,
            // The row shows whether a take of unknown outcome was applied: no other process writes this pair.
            Err(BackendError::Unknown { .. }) => {
                let now = self.owned(cluster, shard, Reading::Serial).await?;
                (now.epoch, now.owner) == (epoch, Some(node))
            }
            Err(error) => return Err(error),
        };
        if is_taken {
            return Ok(Epoch(epoch as u64));
        }
        Err(BackendError::Unavailable {
            reason: "another process took the data at the same time".to_owned(),
            retry_after: WATCH_INTERVAL,
        })
    }

    /// Renews this member. Returns `None` if this process is not a member, or was declared dead.
    async fn renew_member(
        &self,
        cluster: &Cluster,
        member: &mut Option<Member>,
        stamp_min: i64,
    ) -> Result<Option<Member>> {
        let Some(before) = member else {
            return Ok(None);
        };
        let next = before.begin_renewal(stamp_min);
        let values = (next.renewals, next.stamp_max, CLUSTER, next.node);
        let begun = Instant::now();
        for _ in 0..ATTEMPTS {
            if begun.elapsed() >= cluster.options.call_timeout {
                break;
            }
            match cluster
                .execute(RequestKind::Conditional, &self.statements.renew, values)
                .await
            {
                Ok(answer) => {
                    let is_alive = is_applied(answer)?;
                    *member = is_alive.then_some(next);
                    return Ok(*member);
                }
                // Repeating the request with the same values is the same renewal.
                Err(BackendError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(BackendError::Unknown {
            reason: format!(
                "the renewal of the lease had no known outcome after {:?}",
                begun.elapsed()
            ),
        })
    }

    /// Adds this process as a new member.
    async fn join(&self, cluster: &Cluster, member: &mut Option<Member>, stamp_min: i64) -> Result<Member> {
        let new = Member {
            node: Uuid::new_v4(),
            renewals: 1,
            stamp_max: stamps_until(stamp_min),
        };
        let values = (
            CLUSTER,
            new.node,
            cluster.options.advertise.as_str(),
            new.renewals,
            new.stamp_max,
        );
        let joined = cluster
            .execute(RequestKind::Conditional, &self.statements.join, values)
            .await;
        // After an unknown outcome, the row may be stored now or later. So this member is kept, and the next take
        // renews it.
        if joined.is_ok() || matches!(joined, Err(BackendError::Unknown { .. })) {
            *member = Some(new);
        }
        joined.map(|_| new)
    }

    /// Removes rows of dead members that own no shard, at most [`REMOVED_MAX`].
    async fn remove_dead(&self, cluster: &Cluster, own: Uuid) -> Result<()> {
        let mut owners = BTreeSet::from([own]);
        cluster
            .each_row(
                RequestKind::Read,
                &self.statements.owners,
                (),
                |(_, owner): (i32, Option<Uuid>)| {
                    owners.extend(owner);
                    Ok(())
                },
            )
            .await?;
        let mut dead = Vec::new();
        cluster
            .each_row(
                RequestKind::Read,
                &self.statements.members,
                (CLUSTER,),
                |(node, is_dead): (Uuid, bool)| {
                    if is_dead && !owners.contains(&node) && dead.len() < REMOVED_MAX {
                        dead.push(node);
                    }
                    Ok(())
                },
            )
            .await?;
        for node in dead {
            let values = (CLUSTER, node);
            cluster
                .execute(RequestKind::Conditional, &self.statements.remove, values)
                .await?;
        }
        Ok(())
    }

    async fn owned(&self, cluster: &Cluster, shard: Shard, reading: Reading) -> Result<ShardRow> {
        let statement = match reading {
            Reading::Plain => &self.statements.shard_plainly,
            Reading::Serial => &self.statements.shard,
        };
        let values = (i32::from(shard.0),);
        let rows = cluster.rows(reading.kind(), statement, values).await?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<Uuid>, Option<i64>)>();
        let row = row.map_err(|error| unexpected("the read of a shard", error))?;
        Ok(
            row.map_or_else(ShardRow::default, |(epoch, owner, stamp_min)| ShardRow {
                epoch: epoch.unwrap_or(0),
                owner,
                stamp_min: stamp_min.unwrap_or(0),
            }),
        )
    }

    async fn seen(&self, cluster: &Cluster, node: Uuid, reading: Reading) -> Result<Option<MemberRow>> {
        let statement = match reading {
            Reading::Plain => &self.statements.member_plainly,
            Reading::Serial => &self.statements.member,
        };
        let rows = cluster.rows(reading.kind(), statement, (CLUSTER, node)).await?;
        let row = rows.maybe_first_row::<(Option<String>, i64, bool, i64)>();
        let row = row.map_err(|error| unexpected("the read of a member", error))?;
        Ok(row.map(|(address, renewals, is_dead, stamp_max)| MemberRow {
            address: address.unwrap_or_default(),
            renewals,
            is_dead,
            stamp_max,
        }))
    }
}

fn lease(cluster: &Cluster, epoch: Epoch, stamp_min: i64, member: Member) -> Lease {
    Lease {
        epoch,
        stamp_min: Stamp(stamp_min as u64),
        stamp_max: Stamp(member.stamp_max as u64),
        holds: Some(cluster.options.lease),
    }
}

/// Returns the error for a process that waits for a living owner. `left` is the time until the owner can be marked as
/// dead.
fn owned_elsewhere(seen: &MemberRow, left: Duration) -> BackendError {
    BackendError::Unavailable {
        reason: match seen.address.as_str() {
            "" => "another process owns the data".to_owned(),
            address => format!("the process at {address} owns the data"),
        },
        retry_after: left.clamp(Duration::from_millis(20), WATCH_INTERVAL),
    }
}

/// Returns the highest stamp to reserve now.
fn stamps_until(stamp_min: i64) -> i64 {
    let now = SystemClock.now().nanos() / 1_000;
    now.max(stamp_min) + STAMPS_AHEAD
}

fn refused(reason: String) -> BackendError {
    BackendError::Refused { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_after_one_of_unknown_outcome_has_another_number() {
        let mut member = Member {
            node: Uuid::new_v4(),
            renewals: 1,
            stamp_max: 10,
        };
        let unknown = member.begin_renewal(5);
        assert!(unknown.stamp_max > 10);
        assert_eq!(member.stamp_max, 10, "the stamps are not known to be reserved");
        let next = member.begin_renewal(5);
        assert_eq!((unknown.renewals, next.renewals), (2, 3));
    }
}
