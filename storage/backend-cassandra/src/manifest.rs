//! Manifest of a shard: conditional edits, and reads that see every earlier edit.
//!
//! The rows share a partition with the epoch and the version of the shard, so an edit checks both and changes the rows
//! as one conditional write. The same partition holds the ends of closed epochs, which are not manifest rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use tideline_backend::limits::check_edit;
use tideline_backend::{
    BackendError, EditOutcome, Epoch, Manifest, ManifestChange, ManifestKind, ManifestRow, Result, Shard,
};

use crate::cluster::{Cluster, RequestKind, is_applied, one_partition};
use crate::error::{RETRY_AFTER, unexpected};

/// Rows of one page of a manifest. A row has at most 64 KiB.
const PAGE_ROWS: i32 = 100;
/// Maximum number of attempts to read all pages of one version.
const ATTEMPTS: u32 = 20;

/// Statements of manifests.
#[derive(Debug)]
pub(crate) struct Manifests {
    rows: PreparedStatement,
    heading: PreparedStatement,
    raise_version: PreparedStatement,
    raise_fence: PreparedStatement,
    confirm_epoch: PreparedStatement,
    put: PreparedStatement,
    remove: PreparedStatement,
    fences: Mutex<BTreeMap<Shard, Fence>>,
}

/// Epoch, version and fence of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heading {
    epoch: i64,
    version: i64,
    fence: i64,
}

/// Fence of a shard that this process has taken.
#[derive(Debug, Clone, Copy)]
struct Fence {
    epoch: i64,
    number: i64,
    /// True after an edit of unknown outcome, until the fence is raised.
    is_undecided: bool,
}

/// Values of one statement of an edit.
#[derive(Debug)]
enum Values<'a> {
    Raise(i64, i32, i64, i64, i64),
    Confirm(i64, i32, i64),
    Put(i32, i8, &'a [u8], &'a [u8]),
    Remove(i32, i8, &'a [u8]),
}

impl SerializeRow for Values<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        match *self {
            Self::Raise(next, shard, epoch, version, fence) => {
                (next, shard, epoch, version, fence).serialize(context, writer)
            }
            Self::Confirm(epoch, shard, expected) => (epoch, shard, expected).serialize(context, writer),
            Self::Put(shard, kind, name, detail) => (shard, kind, name, detail).serialize(context, writer),
            Self::Remove(shard, kind, name) => (shard, kind, name).serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl Manifests {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        let mut rows = cluster
            .prepare_serial("SELECT epoch, version, kind, name, detail FROM shard WHERE shard = ?")
            .await?;
        rows.set_page_size(PAGE_ROWS);
        Ok(Self {
            rows,
            heading: cluster
                .prepare_serial("SELECT epoch, version, fence FROM shard WHERE shard = ? LIMIT 1")
                .await?,
            raise_version: cluster
                .prepare(
                    "UPDATE shard SET version = ? WHERE shard = ? IF epoch = ? AND version = ? AND fence = ?",
                )
                .await?,
            raise_fence: cluster
                .prepare("UPDATE shard SET fence = ? WHERE shard = ? IF epoch = ? AND fence = ?")
                .await?,
            confirm_epoch: cluster
                .prepare("UPDATE shard SET epoch = ? WHERE shard = ? IF epoch = ?")
                .await?,
            put: cluster
                .prepare("INSERT INTO shard (shard, kind, name, detail) VALUES (?, ?, ?, ?)")
                .await?,
            remove: cluster
                .prepare("DELETE FROM shard WHERE shard = ? AND kind = ? AND name = ?")
                .await?,
            fences: Mutex::new(BTreeMap::new()),
        })
    }

    /// Reads the fence of a shard that this process has taken.
    pub(crate) async fn begin(&self, cluster: &Cluster, shard: Shard, epoch: Epoch) -> Result<()> {
        let fence = Fence {
            epoch: epoch.0 as i64,
            number: self.heading(cluster, shard).await?.fence,
            is_undecided: false,
        };
        self.fences.lock().insert(shard, fence);
        Ok(())
    }

    /// Returns the fence of this process for a shard; `None` if this process has not taken the shard. If an edit has an
    /// unknown outcome, first raises the fence.
    ///
    /// A node can delay a request for any time, and apply it even after a later read. An edit has the fence as a
    /// condition, so raising the fence decides the outcome: either the edit was applied before, or it is never applied.
    async fn decide(&self, cluster: &Cluster, shard: Shard) -> Result<Option<Fence>> {
        let Some(fence) = self.fences.lock().get(&shard).copied() else {
            return Ok(None);
        };
        if !fence.is_undecided {
            return Ok(Some(fence));
        }
        let next = fence.number + 1;
        let values = (next, i32::from(shard.0), fence.epoch, fence.number);
        let raised = cluster
            .execute(RequestKind::Conditional, &self.raise_fence, values)
            .await;
        let raised = raised.and_then(is_applied);
        let is_over = match raised {
            Ok(true) => true,
            // An earlier attempt of unknown outcome may have raised the fence. If the epoch is newer, the edit can no
            // longer be applied.
            Ok(false) => {
                let now = self.heading(cluster, shard).await?;
                now.epoch != fence.epoch || now.fence == next
            }
            Err(error) => return Err(undecided(&error)),
        };
        if !is_over {
            return Err(unexpected(
                "the read of a shard",
                "the fence was raised by another process",
            ));
        }
        let decided = Fence {
            number: next,
            is_undecided: false,
            ..fence
        };
        let mut fences = self.fences.lock();
        if let Some(stored) = fences
            .get_mut(&shard)
            .filter(|stored| stored.epoch == fence.epoch)
        {
            *stored = decided;
        }
        Ok(Some(decided))
    }

    /// Reads the manifest at one version. First decides the edits of this process that have an unknown outcome.
    pub(crate) async fn read(&self, cluster: &Cluster, shard: Shard) -> Result<Manifest> {
        self.decide(cluster, shard).await?;
        let (heading, rows) = self.read_all(cluster, shard).await?;
        let rows = rows.into_iter().filter_map(|(kind, name, detail)| {
            let kind = ManifestKind::from_code(u8::try_from(kind).ok()?)?;
            Some(ManifestRow { kind, name, detail })
        });
        Ok(Manifest {
            epoch: Epoch(heading.epoch as u64),
            version: heading.version as u64,
            rows: rows.collect(),
        })
    }

    /// Reads all rows of a shard with a kind.
    pub(crate) async fn rows_of_kind(
        &self,
        cluster: &Cluster,
        shard: Shard,
        kind: i8,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let (_, rows) = self.read_all(cluster, shard).await?;
        let rows = rows.into_iter().filter(|row| row.0 == kind);
        Ok(rows.map(|(_, name, detail)| (name, detail)).collect())
    }

    /// Returns the epoch of the owner; 0 before the first.
    pub(crate) async fn epoch(&self, cluster: &Cluster, shard: Shard) -> Result<Epoch> {
        Ok(Epoch(self.heading(cluster, shard).await?.epoch as u64))
    }

    async fn heading(&self, cluster: &Cluster, shard: Shard) -> Result<Heading> {
        let values = (i32::from(shard.0),);
        let rows = cluster
            .rows(RequestKind::Conditional, &self.heading, values)
            .await?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<i64>, Option<i64>)>();
        let row = row.map_err(|error| unexpected("the read of a shard", error))?;
        Ok(row.map_or_else(Heading::default, heading))
    }

    async fn read_all(&self, cluster: &Cluster, shard: Shard) -> Result<(Heading, Vec<(i8, Bytes, Bytes)>)> {
        for _ in 0..ATTEMPTS {
            if let Some(read) = self.read_once(cluster, shard).await? {
                return Ok(read);
            }
        }
        Err(BackendError::Unavailable {
            reason: format!("the manifest changed during each of {ATTEMPTS} reads"),
            retry_after: RETRY_AFTER,
        })
    }

    /// Reads the rows page by page. Returns `None` if an edit was applied between two pages.
    async fn read_once(
        &self,
        cluster: &Cluster,
        shard: Shard,
    ) -> Result<Option<(Heading, Vec<(i8, Bytes, Bytes)>)>> {
        type Stored = (Option<i64>, Option<i64>, Option<i8>, Option<Bytes>, Option<Bytes>);
        let mut found: Option<Heading> = None;
        let mut is_changed = false;
        let mut all = Vec::new();
        let visit = |(epoch, version, kind, name, detail): Stored| {
            let now = heading((epoch, version, None));
            is_changed |= found.is_some_and(|found| found != now);
            found = Some(now);
            if let (Some(kind), Some(name), Some(detail)) = (kind, name, detail) {
                all.push((kind, name, detail));
            }
            Ok(())
        };
        let values = (i32::from(shard.0),);
        cluster
            .each_row(RequestKind::Conditional, &self.rows, values, visit)
            .await?;
        Ok((!is_changed).then(|| (found.unwrap_or_default(), all)))
    }

    /// Applies changes under the condition that epoch and version are as given.
    pub(crate) async fn edit(
        &self,
        cluster: &Cluster,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        check_edit(changes)?;
        let (number, held, seen) = (i32::from(shard.0), epoch.0 as i64, version as i64);
        // A process that has not taken the shard in this epoch has no fence. The condition on the epoch refuses its
        // edit.
        let fence = self.decide(cluster, shard).await?.map_or(0, |fence| fence.number);
        let mut batch = one_partition(None);
        let mut values = vec![Values::Raise(seen + 1, number, held, seen, fence)];
        batch.append_statement(self.raise_version.clone());
        for change in changes {
            match change {
                ManifestChange::Put(row) => {
                    batch.append_statement(self.put.clone());
                    values.push(Values::Put(number, row.kind as i8, &row.name, &row.detail));
                }
                ManifestChange::Remove(kind, name) => {
                    batch.append_statement(self.remove.clone());
                    values.push(Values::Remove(number, *kind as i8, name));
                }
            }
        }
        let applied = self.is_applied(cluster, &batch, values).await;
        if let Err(BackendError::Unknown { .. }) = &applied {
            let mut fences = self.fences.lock();
            if let Some(stored) = fences.get_mut(&shard).filter(|stored| stored.epoch == held) {
                stored.is_undecided = true;
            }
        }
        if applied? {
            return Ok(EditOutcome::Applied { version: version + 1 });
        }
        let now = self.heading(cluster, shard).await?;
        Ok(EditOutcome::Refused {
            epoch: Epoch(now.epoch as u64),
            version: now.version as u64,
        })
    }

    /// Stores a row that is not a manifest row, under the condition that `epoch` is the owner's.
    pub(crate) async fn put_other(
        &self,
        cluster: &Cluster,
        shard: Shard,
        epoch: Epoch,
        (kind, name, detail): (i8, &[u8], &[u8]),
    ) -> Result<bool> {
        let (number, held) = (i32::from(shard.0), epoch.0 as i64);
        let mut batch = one_partition(None);
        batch.append_statement(self.confirm_epoch.clone());
        batch.append_statement(self.put.clone());
        let values = vec![
            Values::Confirm(held, number, held),
            Values::Put(number, kind, name, detail),
        ];
        self.is_applied(cluster, &batch, values).await
    }

    async fn is_applied(&self, cluster: &Cluster, batch: &Batch, values: Vec<Values<'_>>) -> Result<bool> {
        is_applied(cluster.batch(RequestKind::Conditional, batch, values).await?)
    }
}

fn heading((epoch, version, fence): (Option<i64>, Option<i64>, Option<i64>)) -> Heading {
    Heading {
        epoch: epoch.unwrap_or(0),
        version: version.unwrap_or(0),
        fence: fence.unwrap_or(0),
    }
}

/// Returns the error of a call that could not decide an earlier edit.
fn undecided(error: &BackendError) -> BackendError {
    BackendError::Unavailable {
        reason: format!("the outcome of an edit of the manifest is not known yet: {error}"),
        retry_after: RETRY_AFTER,
    }
}
