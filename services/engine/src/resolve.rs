//! Resolution of raw series keys to ordinals, for one batch.
//!
//! A known key costs one look-up in the catalog; a new one is parsed and registered within the limits of its table, and
//! within the budgets of the tenant of the handle. A handle that is restricted to some timelines cannot write others:
//! their lines are rejected, and new timelines outside of the restriction are not registered.

use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_access::{Tenant, TimelinesUsedUp};
use tideline_ingest_protocols::series_key;
use tideline_model::reject::{GrowthCause, TenantFull, TimelineGrowth};
use tideline_model::{Clock, Identity, Ordinal, RejectReason, SeriesResolver};
use tideline_timeline_catalog::{CatalogReader, LastKey};

use crate::engine::Engine;
use crate::growth::TableLimits;
use crate::restriction::Restriction;
use crate::tables::Table;

/// Resolver of the timelines of one batch. It looks up known keys under a shared lock, which it holds between
/// look-ups and releases only to parse and register an unknown key.
#[derive(Debug)]
pub struct BatchResolver<'a> {
    table: &'a Table,
    clock: Arc<dyn Clock>,
    /// Maximum number of new timelines per minute in the policy of the table; `None` = the limit in `limits` applies.
    limit: Option<u64>,
    /// Limits of all tables.
    limits: &'a TableLimits,
    /// Tenant of the handle, if it has a budget of timelines.
    tenant: Option<&'a Tenant>,
    reader: Option<CatalogReader<'a>>,
    last: LastKey,
    /// Timelines that a restricted handle may write, as far as the batch has used them.
    allowed: RoaringBitmap,
}

impl Engine {
    /// Returns a resolver for a batch of `table`. Drop it before any wait, because it holds a lock of the catalog.
    pub fn resolver<'a>(&'a self, table: &'a Table) -> BatchResolver<'a> {
        BatchResolver {
            table,
            clock: Arc::clone(&self.clock),
            limit: table.spec().policy.timelines_per_minute,
            limits: &self.settings.tables,
            tenant: self.tenant().filter(|tenant| tenant.limits_timelines()),
            reader: None,
            last: LastKey::default(),
            allowed: RoaringBitmap::new(),
        }
    }
}

impl BatchResolver<'_> {
    /// Registers a timeline within the limits. If the table has its own limit, the new tags of each timeline are
    /// recorded, so that a refusal contains the fastest growing tag. Otherwise only timelines and bytes are counted
    /// until a limit is reached.
    fn register(&self, identity: &Identity, key: &[u8]) -> Result<Ordinal, RejectReason> {
        let catalog = &self.table.catalog;
        let growth = &self.table.activity.growth;
        let name = self.table.name();
        let (now, mut refusal) = (self.clock.monotonic(), None);
        let limit = self.limit.unwrap_or(self.limits.timelines_per_minute);
        let bytes_max = self.limits.identity_bytes_max;
        let is_oversized = growth.is_oversized(bytes_max, || catalog.identity_bytes());
        let is_limited = self.limit.is_some() || self.tenant.is_some();
        let registered = if is_oversized || is_limited || growth.is_full(now, limit) {
            let admit = |novel: &[(&str, &str)]| {
                refusal = match is_oversized {
                    true => {
                        let full = growth.oversize(bytes_max, name);
                        Some(RejectReason::IdentitiesFull(Box::new(full)))
                    }
                    false => {
                        let admitted = growth.admit(now, limit, name, novel);
                        let refused = admitted.err().map(RejectReason::TooManyTimelines);
                        refused.or_else(|| self.over_budget(now))
                    }
                };
                refusal.is_none()
            };
            catalog.register_admitted(identity, Some(key), admit)
        } else {
            catalog.register(identity, Some(key)).map(|registered| {
                if registered.new {
                    growth.note(now);
                }
                Some(registered)
            })
        };
        match registered {
            Ok(Some(timeline)) => {
                if timeline.new {
                    growth.note_identity(key.len());
                }
                Ok(timeline.ordinal)
            }
            Ok(None) => Err(self.shown(refusal.expect("only a refusal leaves a timeline out"))),
            Err(error) => Err(error.to_string().into()),
        }
    }

    /// Takes a new timeline from the budgets of the tenant; returns the refusal if one of them is used up.
    fn over_budget(&self, now: Duration) -> Option<RejectReason> {
        let tenant = self.tenant?;
        let name = || tenant.record().name.as_str().into();
        Some(match tenant.take_new_timeline(now).err()? {
            TimelinesUsedUp::PerMinute(limit) => RejectReason::TooManyTimelines(Arc::new(TimelineGrowth {
                table: self.table.name().clone(),
                limit,
                cause: GrowthCause::Tenant(name()),
            })),
            TimelinesUsedUp::InTotal(limit) => RejectReason::TenantFull(Box::new(TenantFull {
                tenant: name(),
                limit,
            })),
        })
    }

    /// Checks that a restricted handle may write a registered timeline.
    fn check_known(&mut self, ordinal: Ordinal) -> Result<Ordinal, RejectReason> {
        let Some(restriction) = &self.table.restriction else {
            return Ok(ordinal);
        };
        if self.allowed.contains(ordinal.0) {
            return Ok(ordinal);
        }
        let reader = self.reader.get_or_insert_with(|| self.table.catalog.reader());
        match restriction.has(reader, ordinal) {
            true => {
                self.allowed.insert(ordinal.0);
                Ok(ordinal)
            }
            false => Err(outside(restriction)),
        }
    }

    /// Checks that a restricted handle may write a timeline with this identity, before it is registered.
    fn check_identity(&self, identity: &Identity) -> Result<(), RejectReason> {
        match &self.table.restriction {
            Some(restriction) if !restriction.has_identity(&self.table.catalog.reader(), identity) => {
                Err(outside(restriction))
            }
            _ => Ok(()),
        }
    }

    /// Returns the reason without the growth of other timelines, if the handle is restricted.
    fn shown(&self, reason: RejectReason) -> RejectReason {
        match reason {
            RejectReason::TooManyTimelines(growth)
                if self.table.restriction.is_some() && !matches!(growth.cause, GrowthCause::Tenant(_)) =>
            {
                RejectReason::TooManyTimelines(Arc::new(TimelineGrowth {
                    cause: GrowthCause::Undisclosed,
                    ..TimelineGrowth::clone(&growth)
                }))
            }
            reason => reason,
        }
    }
}

fn outside(restriction: &Restriction) -> RejectReason {
    RejectReason::OutsideOfToken(restriction.condition.to_string().into())
}

impl SeriesResolver for BatchResolver<'_> {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        let reader = self.reader.get_or_insert_with(|| self.table.catalog.reader());
        if let Some(known) = reader.by_key(key, &mut self.last) {
            return self.check_known(known);
        }
        self.reader = None;
        let identity = series_key::parse(key)?;
        self.check_identity(&identity)?;
        self.register(&identity, key)
    }

    fn guess(&mut self, is_it: impl FnOnce(&[u8]) -> bool) -> Option<Ordinal> {
        let guessed = self.reader.as_ref()?.guess(is_it, &mut self.last)?;
        // A timeline that this batch has not used yet is checked when its key is resolved.
        (self.table.restriction.is_none() || self.allowed.contains(guessed.0)).then_some(guessed)
    }
}
