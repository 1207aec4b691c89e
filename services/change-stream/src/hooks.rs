//! Webhooks: deliveries of a stream to an address that a user has named.
//!
//! A webhook has a checkpoint like a consumer group with one partition. A delivery that the receiver refuses for good,
//! or that failed for too long, is added to the list of failed deliveries before the checkpoint moves. A crash between
//! the two steps does not lose the delivery, but it is sent once more. While the list is full, the webhook stops. The
//! body of a large delivery is divided into pieces with separate state rows, because a row has a maximum size.
//!
//! A receiver that responds with 410 Gone accepts no more deliveries. The webhook is then paused, even across restarts,
//! until a request resumes it or changes its address. The refused delivery stays due.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_engine::Engine;
use tideline_engine::model::SequenceNumber;
use tideline_engine::state_table::StateRow;
use tideline_openapi::change::{
    FailedDelivery, Webhook, WebhookPause, WebhookSettings, WebhookState as State,
};
use tideline_webhooks::target::URL_BYTES_MAX;
use tideline_webhooks::{Delivery, SendError, Target, TargetError, WebhookSecret};

use crate::error::{ChangesError, Result};
use crate::position::{Partition, Position};
use crate::read::{Page, ReadLimits};
use crate::streams::{
    ChangeStreams, OWNER, StoredCheckpoint, check_name, no_stream, over, parsed, rfc3339, row,
};

/// Maximum number of webhooks of a stream.
const WEBHOOKS_MAX: usize = 16;
/// Maximum number of records of a request.
const BATCH_MAX: usize = 1_000;
/// Bytes of records after which a request gets no further record.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Number of failed deliveries of a webhook at which it stops.
const FAILED_MAX: usize = 100;
/// Maximum number of bytes of a body in one state row. A JSON string of such a body has at most twice as many bytes.
const PIECE_BYTES_MAX: usize = 512 << 10;
/// Number of pieces of a body that are stored by one write.
const WRITTEN_PIECES: usize = 4;
/// Number of skipped journal entries, without a record for the webhook, after which a new checkpoint is stored.
const QUIET_ENTRIES: u64 = 10_000;

/// State of a webhook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookState {
    pub(crate) stored: StoredHook,
    pub(crate) checkpoint: StoredCheckpoint,
    /// Read position. The changes between the checkpoint and this position have no record. Held in memory only; it is
    /// stored before the changes before it are freed.
    pub(crate) reached: Position,
    /// End of the changes when the stored state was read. Up to here, the webhook can get changes again that it has
    /// already read before a restart; they are kept meanwhile. `None` for a webhook that was created later.
    pub(crate) catches_up_to: Option<Position>,
    /// Number of failed deliveries in the list.
    pub(crate) failed: usize,
    /// Error of the last request; `None` after a success.
    error: Option<String>,
    /// True while the delivery of the last request is due again.
    is_retrying: bool,
}

/// Stored form of a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredHook {
    url: String,
    secret: String,
    batch: usize,
    pub(crate) hold: bool,
    start: StoredCheckpoint,
    /// Reason why nothing is delivered; `None` = deliveries continue. Earlier builds ignore this member and continue to
    /// deliver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<StoredPause>,
}

/// Stored form of the pause of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPause {
    reason: String,
    /// Time at which the pause began, in nanoseconds since 1970-01-01T00:00:00Z.
    time: i64,
}

/// Stored form of a failed delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredFailure {
    #[serde(flatten)]
    failure: FailedDelivery,
    /// The body; empty if it is divided into pieces.
    body: String,
    /// Number of pieces of the body, which have separate state rows.
    #[serde(default)]
    pieces: usize,
}

/// Delivery that is due.
#[derive(Debug)]
pub(crate) struct Due {
    /// Settings of the webhook at the time when the delivery was created.
    hook: StoredHook,
    target: Target,
    secret: WebhookSecret,
    pub(crate) id: String,
    body: Bytes,
    records: usize,
    /// Positions before and after its records.
    span: (Position, Position),
}

/// Replay of the failed deliveries of a webhook. The next replay of the webhook can begin after it is dropped.
#[derive(Debug)]
pub(crate) struct Replaying<'s> {
    streams: &'s ChangeStreams,
    webhook: (String, String),
}

/// Next step of a webhook.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send a delivery.
    Send(Box<Due>),
    /// Continue reading, because no record was found yet.
    Continue,
    /// Wait for changes of the journal, or of the webhook.
    Wait,
    /// The webhook was deleted.
    End,
}

impl HookState {
    pub(crate) fn new(stored: StoredHook) -> Self {
        Self {
            checkpoint: stored.start.clone(),
            reached: stored.start.position(),
            catches_up_to: None,
            stored,
            failed: 0,
            error: None,
            is_retrying: false,
        }
    }

    /// Returns true if nothing is delivered, because the list of failed deliveries is full.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stored.pause.is_none() && self.failed >= FAILED_MAX
    }

    /// Moves the checkpoint.
    pub(crate) fn move_to(&mut self, checkpoint: StoredCheckpoint) {
        self.reached = checkpoint.position();
        self.checkpoint = checkpoint;
        self.is_retrying = false;
    }
}

impl ChangeStreams {
    /// Creates a webhook, or changes its settings. The checkpoint of an existing webhook stays.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Forbidden`] if webhooks are off or the settings do not allow the address,
    /// [`ChangesError::Invalid`] for an invalid name, address, secret or cursor, [`ChangesError::OverLimit`] for too many
    /// webhooks or records, or an address that is too long, [`ChangesError::NotFound`] if the stream does not exist, and
    /// the errors of [`Engine::put_state`].
    pub fn put_webhook(&self, stream: &str, name: &str, settings: &WebhookSettings) -> Result<Webhook> {
        check_name("webhook", name)?;
        let limits = self.sender()?.settings();
        Target::parse(&settings.url, limits).map_err(|error| wrong_address(&error))?;
        if settings.batch == 0 {
            return Err(ChangesError::Invalid(
                "batch is 0; a request has at least 1 record".into(),
            ));
        }
        if settings.batch > BATCH_MAX {
            return Err(over("number of records of a request", BATCH_MAX, settings.batch));
        }
        if let Some(secret) = &settings.secret {
            WebhookSecret::parse(secret)
                .map_err(|error| ChangesError::Invalid(format!("secret: {error}")))?;
        }
        let _writing = self.writing.lock();
        let found = self.state_of(stream)?;
        let known = found.webhooks.get(name);
        if known.is_none() && found.webhooks.len() >= WEBHOOKS_MAX {
            return Err(over(
                "number of webhooks of a stream",
                WEBHOOKS_MAX,
                found.webhooks.len() + 1,
            ));
        }
        let secret = settings
            .secret
            .clone()
            .or_else(|| known.map(|known| known.stored.secret.clone()));
        let secret = secret.ok_or_else(|| ChangesError::Invalid("a new webhook needs a `secret`".into()))?;
        let start = match known {
            Some(known) => known.stored.start.clone(),
            None => self.start(&found, &settings.from)?,
        };
        // The receiver at another address has not refused deliveries.
        let same_receiver = known.filter(|known| known.stored.url == settings.url);
        let stored = StoredHook {
            url: settings.url.clone(),
            secret,
            batch: settings.batch,
            hold: settings.hold,
            start,
            pause: same_receiver.and_then(|known| known.stored.pause.clone()),
        };
        self.put(&[row(&["webhook", stream, name], Some(&stored))])?;
        {
            let mut state = self.state.write();
            let found = state.get_mut(stream).ok_or_else(|| no_stream(stream))?;
            let webhook = found.webhooks.entry(name.to_owned());
            let webhook = webhook.or_insert_with(|| HookState::new(stored.clone()));
            webhook.stored = stored;
        }
        self.webhooks_changed.send_modify(|()| {});
        self.webhook(stream, name)
    }

    /// Ends the pause of a webhook: the delivery that was refused is sent again. Repeating the request is safe.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist, and the errors of [`Engine::put_state`].
    pub fn resume_webhook(&self, stream: &str, name: &str) -> Result<Webhook> {
        let _writing = self.writing.lock();
        self.set_pause(stream, name, None)?;
        self.change_hook(stream, name, |webhook| {
            webhook.error = None;
            webhook.is_retrying = false;
        });
        self.webhooks_changed.send_modify(|()| {});
        self.webhook(stream, name)
    }

    /// Pauses a webhook whose receiver accepts no more deliveries. The delivery stays due.
    pub(crate) fn pause(&self, stream: &str, name: &str, due: &Due, error: &SendError) -> Result<()> {
        let _writing = self.writing.lock();
        if !self.is_still_due(stream, name, due) {
            return Ok(());
        }
        self.set_pause(stream, name, Some(self.pause_of(error)))
    }

    /// Pauses a webhook whose receiver has refused a delivery of a replay, because it accepts no more deliveries. The
    /// delivery stays in the list. A pause that began earlier is kept.
    pub(crate) fn pause_after_replay(
        &self,
        stream: &str,
        name: &str,
        due: &Due,
        error: &SendError,
    ) -> Result<()> {
        let _writing = self.writing.lock();
        // A request can have deleted the webhook, or have changed its address, while the delivery was sent.
        let webhook = self.hook(stream, name);
        let is_meant =
            |webhook: HookState| webhook.stored.url == due.hook.url && webhook.stored.pause.is_none();
        if !webhook.is_ok_and(is_meant) {
            return Ok(());
        }
        self.set_pause(stream, name, Some(self.pause_of(error)))?;
        self.change_hook(stream, name, |webhook| {
            webhook.error = Some(error.message.clone());
        });
        // A delivery that waits for its next attempt ends.
        self.webhooks_changed.send_modify(|()| {});
        Ok(())
    }

    fn pause_of(&self, error: &SendError) -> StoredPause {
        StoredPause {
            reason: error.message.clone(),
            time: self.engine.now().nanos(),
        }
    }

    /// Stores the pause of a webhook; `None` ends the pause. The caller holds the lock `writing`.
    fn set_pause(&self, stream: &str, name: &str, pause: Option<StoredPause>) -> Result<()> {
        let stored = StoredHook {
            pause,
            ..self.hook(stream, name)?.stored
        };
        self.put(&[row(&["webhook", stream, name], Some(&stored))])?;
        self.change_hook(stream, name, |webhook| webhook.stored = stored);
        Ok(())
    }

    /// Returns a webhook.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist.
    pub fn webhook(&self, stream: &str, name: &str) -> Result<Webhook> {
        Ok(self.view_of_webhook(name, &self.hook(stream, name)?))
    }

    /// Returns the webhooks of a stream by name.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream does not exist.
    pub fn webhooks(&self, stream: &str) -> Result<Vec<Webhook>> {
        let found = self.state_of(stream)?;
        let webhooks = found.webhooks.iter();
        Ok(webhooks
            .map(|(name, webhook)| self.view_of_webhook(name, webhook))
            .collect())
    }

    /// Deletes a webhook with its failed deliveries.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist, and the errors of [`Engine::put_state`].
    pub fn delete_webhook(&self, stream: &str, name: &str) -> Result<()> {
        let _writing = self.writing.lock();
        self.hook(stream, name)?;
        self.remove_webhook(stream, name)
    }

    /// Removes a webhook. The caller holds the lock `writing`.
    pub(crate) fn remove_webhook(&self, stream: &str, name: &str) -> Result<()> {
        let mut failed = failed_rows(&self.engine, stream, name)?;
        for row in &failed {
            self.remove_body(stream, name, &row.name)?;
        }
        failed.iter_mut().for_each(|row| row.value = None);
        self.engine.put_state(&failed_owner(stream, name), &failed)?;
        self.put(&[
            row::<()>(&["webhook", stream, name], None),
            row::<()>(&["delivered", stream, name], None),
        ])?;
        if let Some(found) = self.state.write().get_mut(stream) {
            found.webhooks.remove(name);
        }
        self.webhooks_changed.send_modify(|()| {});
        Ok(())
    }

    /// Returns the failed deliveries of a webhook, oldest first.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist, and the errors of
    /// [`Engine::state_rows`].
    pub fn failed_deliveries(&self, stream: &str, name: &str) -> Result<Vec<FailedDelivery>> {
        self.hook(stream, name)?;
        let rows = failed_rows(&self.engine, stream, name)?;
        rows.iter().map(|row| Ok(failure_of(row)?.failure)).collect()
    }

    /// Removes a failed delivery without sending it. Repeating the request is safe.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist, and the errors of [`Engine::put_state`].
    pub fn discard_delivery(&self, stream: &str, name: &str, id: &str) -> Result<()> {
        let _writing = self.writing.lock();
        self.hook(stream, name)?;
        let rows = failed_rows(&self.engine, stream, name)?;
        let Some(mut found) = rows.into_iter().find(|row| row.name == id) else {
            return Ok(());
        };
        self.remove_body(stream, name, id)?;
        found.value = None;
        self.engine.put_state(&failed_owner(stream, name), &[found])?;
        self.change_hook(stream, name, |webhook| {
            webhook.failed = webhook.failed.saturating_sub(1);
            // Without failed deliveries, the error belongs to the delivery that is due, if to any.
            if webhook.failed == 0 && !webhook.is_retrying && webhook.stored.pause.is_none() {
                webhook.error = None;
            }
        });
        self.webhooks_changed.send_modify(|()| {});
        Ok(())
    }

    /// Begins a replay of a webhook. Replays at the same time would send the deliveries twice, and not in their order.
    ///
    /// # Errors
    ///
    /// [`ChangesError::Conflict`] while another replay of the webhook runs.
    pub(crate) fn begin_replay(&self, stream: &str, name: &str) -> Result<Replaying<'_>> {
        let webhook = (stream.to_owned(), name.to_owned());
        match self.replaying.lock().insert(webhook.clone()) {
            true => Ok(Replaying {
                streams: self,
                webhook,
            }),
            false => Err(ChangesError::Conflict(format!(
                "the failed deliveries of the webhook {name:?} are already being replayed; repeat the request after the \
                 replay has ended"
            ))),
        }
    }

    /// Returns the failed deliveries with these ids, or all if `ids` is `None`, in the form in which they are sent, oldest
    /// first.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream, the webhook or a delivery does not exist, [`ChangesError::Forbidden`]
    /// if the address is not allowed, and the errors of [`Engine::state_rows`].
    pub(crate) fn deliveries_to_replay(
        &self,
        stream: &str,
        name: &str,
        ids: Option<&[String]>,
    ) -> Result<Vec<Due>> {
        let webhook = self.hook(stream, name)?;
        let (target, secret) = self.receiver(&webhook)?;
        let rows = failed_rows(&self.engine, stream, name)?;
        if let Some(missing) =
            ids.and_then(|ids| ids.iter().find(|id| rows.iter().all(|row| row.name != **id)))
        {
            return Err(no_delivery(missing));
        }
        let wanted = rows
            .iter()
            .filter(|row| ids.is_none_or(|ids| ids.contains(&row.name)));
        let due = wanted.map(|row| {
            let stored = failure_of(row)?;
            let body = self.body_of(stream, name, &stored)?;
            Ok(Due {
                hook: webhook.stored.clone(),
                target: target.clone(),
                secret: secret.clone(),
                id: stored.failure.id,
                body: body.into(),
                records: stored.failure.records,
                span: (webhook.reached, webhook.reached),
            })
        });
        due.collect()
    }

    /// Moves a webhook to a cursor, so that changes are delivered again or skipped.
    ///
    /// # Errors
    ///
    /// [`ChangesError::NotFound`] if the stream or the webhook does not exist, [`ChangesError::Invalid`] for a cursor
    /// after the newest change, and the errors of [`Engine::put_state`].
    pub fn rewind_webhook(&self, stream: &str, name: &str, position: Position) -> Result<()> {
        let position = self.check_reached(position)?;
        let _writing = self.writing.lock();
        self.hook(stream, name)?;
        self.move_webhook(stream, name, position)?;
        self.webhooks_changed.send_modify(|()| {});
        Ok(())
    }

    /// Returns the next step of a webhook.
    pub(crate) fn next_step(&self, stream: &str, name: &str) -> Result<Step> {
        let Ok(webhook) = self.hook(stream, name) else {
            return Ok(Step::End);
        };
        if webhook.failed >= FAILED_MAX || webhook.stored.pause.is_some() {
            return Ok(Step::Wait);
        }
        let Ok((target, secret)) = self.receiver(&webhook) else {
            return Ok(Step::Wait);
        };
        let from = webhook.reached;
        let limits = ReadLimits {
            records: webhook.stored.batch,
            bytes: BATCH_BYTES_MAX,
        };
        let page = self.read(
            &self.engine,
            stream,
            Some(from),
            Partition::new(0, 1)?,
            limits,
            &|| false,
        )?;
        if page.records.is_empty() {
            self.pass_over(stream, name, (from, page.next))?;
            return Ok(match page.has_more {
                true => Step::Continue,
                false => Step::Wait,
            });
        }
        let Page { records, next, .. } = page;
        let count = records.len();
        let body = format!(
            "{{\"stream\":{},\"webhook\":{},\"records\":[{}],\"next\":\"{next}\"}}",
            serde_json::Value::from(stream),
            serde_json::Value::from(name),
            records.join(",")
        );
        Ok(Step::Send(Box::new(Due {
            hook: webhook.stored,
            target,
            secret,
            id: format!("{from}_{next}"),
            body: body.into(),
            records: count,
            span: (from, next),
        })))
    }

    /// Skips changes without a record for a webhook. The checkpoint is stored every [`QUIET_ENTRIES`] entries, so that
    /// a restart does not read all skipped changes again, and before skipped changes are freed.
    fn pass_over(&self, stream: &str, name: &str, (from, to): (Position, Position)) -> Result<()> {
        let _writing = self.writing.lock();
        let Ok(webhook) = self.hook(stream, name) else {
            return Ok(());
        };
        if webhook.reached != from {
            // A request has moved the webhook meanwhile.
            return Ok(());
        }
        let stored = webhook.checkpoint.position().sequence.0;
        match to.sequence.0.saturating_sub(stored) >= QUIET_ENTRIES {
            true => self.move_webhook(stream, name, to),
            false => {
                self.change_hook(stream, name, |webhook| webhook.reached = to);
                Ok(())
            }
        }
    }

    /// Stores the read positions of all webhooks, for a stop of the server: after the next start, they do not read the
    /// same changes again.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::put_state`].
    pub fn store_positions(&self) -> Result<()> {
        let _writing = self.writing.lock();
        self.store_reached(SequenceNumber(u64::MAX))
    }

    /// Stores the read positions of the webhooks whose checkpoints are before `end`, because the changes before `end` are
    /// freed next. Without this, a webhook that has read these changes would get a gap after a restart. The caller holds
    /// the lock `writing`.
    pub(crate) fn store_reached(&self, end: SequenceNumber) -> Result<()> {
        let mut passed = Vec::new();
        for (stream, found) in &*self.state.read() {
            for (name, webhook) in &found.webhooks {
                let stored = webhook.checkpoint.position();
                if webhook.reached > stored && stored.sequence < end {
                    passed.push((stream.clone(), name.clone(), webhook.reached));
                }
            }
        }
        for (stream, name, reached) in passed {
            let checkpoint = self.checkpoint(reached);
            // After an error the earlier checkpoint is used, which is also right if the new one is stored. To read the
            // state again would lose the read positions.
            self.try_put(&[row(&["delivered", &stream, &name], Some(&checkpoint))])?;
            self.change_hook(&stream, &name, |webhook| webhook.checkpoint = checkpoint);
        }
        Ok(())
    }

    /// Returns true if a webhook is still reading the changes from before the start, and nothing prevents its deliveries.
    pub(crate) fn is_catching_up(&self, webhook: &HookState) -> bool {
        webhook.catches_up_to.is_some_and(|end| webhook.reached < end)
            && !webhook.is_retrying
            && webhook.failed < FAILED_MAX
            && webhook.stored.pause.is_none()
            && self.receiver(webhook).is_ok()
    }

    /// Returns true if a delivery that failed is still the next one of its webhook, with the same settings.
    pub(crate) fn is_still_due(&self, stream: &str, name: &str, due: &Due) -> bool {
        let webhook = self.hook(stream, name);
        webhook.is_ok_and(|webhook| webhook.stored == due.hook && webhook.reached == due.span.0)
    }

    /// Sends a delivery once.
    pub(crate) async fn send(&self, due: &Due) -> std::result::Result<(), SendError> {
        let Some(sender) = &self.sender else {
            // Not reached: without a sender, no delivery is created.
            return Ok(());
        };
        let delivery = Delivery {
            id: &due.id,
            timestamp_seconds: self.engine.clock().now().nanos() / 1_000_000_000,
            content_type: "application/json",
            body: due.body.clone(),
        };
        let sent = sender.send(&due.target, &due.secret, delivery).await;
        let counter = match sent {
            Ok(()) => &self.counters.deliveries,
            Err(_) => &self.counters.delivery_errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        sent
    }

    /// Records a success: moves the checkpoint to the end of the delivery.
    pub(crate) fn delivered(&self, stream: &str, name: &str, due: &Due) -> Result<()> {
        let _writing = self.writing.lock();
        self.change_hook(stream, name, |webhook| {
            webhook.error = None;
            webhook.is_retrying = false;
        });
        match self.hook(stream, name) {
            Ok(webhook) if webhook.reached == due.span.0 => self.move_webhook(stream, name, due.span.1),
            // A request has deleted or moved the webhook meanwhile.
            _ => Ok(()),
        }
    }

    /// Records the error of an attempt.
    pub(crate) fn note_attempt(&self, stream: &str, name: &str, error: &SendError) {
        self.change_hook(stream, name, |webhook| {
            webhook.error = Some(error.message.clone());
            webhook.is_retrying = error.retryable;
        });
    }

    /// Adds a delivery to the list of failed deliveries, and moves the checkpoint to the end of the delivery.
    pub(crate) fn give_up(
        &self,
        stream: &str,
        name: &str,
        due: &Due,
        attempts: u32,
        error: &SendError,
    ) -> Result<()> {
        let _writing = self.writing.lock();
        if !self.is_still_due(stream, name, due) {
            return Ok(());
        }
        let body = String::from_utf8_lossy(&due.body);
        let (body, pieces) = match body.len() > PIECE_BYTES_MAX {
            true => ("", pieces_of(&body)),
            false => (&*body, Vec::new()),
        };
        let failure = StoredFailure {
            failure: FailedDelivery {
                id: due.id.clone(),
                records: due.records,
                attempts,
                error: error.message.clone(),
                time: rfc3339(self.engine.now().nanos()),
            },
            body: body.to_owned(),
            pieces: pieces.len(),
        };
        // The pieces are stored before the row that needs them. After a crash in between, the delivery is sent again.
        // If it fails again, its pieces replace the stored ones.
        self.put_body(stream, name, &due.id, &pieces)?;
        // The failed deliveries have a separate owner of state rows, so that the state of all streams can be read
        // without their bodies.
        let failed = row(&[&due.id], Some(&failure));
        self.engine.put_state(&failed_owner(stream, name), &[failed])?;
        self.counters.deliveries_failed.fetch_add(1, Ordering::Relaxed);
        let count = failed_count(&self.engine, stream, name)?;
        self.change_hook(stream, name, |webhook| {
            webhook.failed = count;
            webhook.error = Some(error.message.clone());
        });
        self.move_webhook(stream, name, due.span.1)
    }

    /// Stores the pieces of the body of a failed delivery.
    fn put_body(&self, stream: &str, name: &str, id: &str, pieces: &[&str]) -> Result<()> {
        let row = |(number, piece): (usize, &&str)| StateRow {
            // State rows are sorted by name.
            name: format!("{number:08}"),
            part: String::new(),
            value: Some((*piece).to_owned()),
        };
        let rows: Vec<StateRow> = pieces.iter().enumerate().map(row).collect();
        for written in rows.chunks(WRITTEN_PIECES) {
            self.engine.put_state(&body_owner(stream, name, id), written)?;
        }
        Ok(())
    }

    /// Returns the body of a failed delivery.
    fn body_of(&self, stream: &str, name: &str, stored: &StoredFailure) -> Result<String> {
        if stored.pieces == 0 {
            return Ok(stored.body.clone());
        }
        let id = &stored.failure.id;
        let rows = self.engine.state_rows(&body_owner(stream, name, id))?;
        if rows.len() < stored.pieces {
            return Err(ChangesError::Internal(format!(
                "the body of the failed delivery {id:?} is incomplete; discard the delivery"
            )));
        }
        let pieces = rows.into_iter().take(stored.pieces);
        Ok(pieces.filter_map(|row| row.value).collect())
    }

    /// Removes the pieces of the body of a failed delivery, if it has any.
    fn remove_body(&self, stream: &str, name: &str, id: &str) -> Result<()> {
        let owner = body_owner(stream, name, id);
        let mut rows = self.engine.state_rows(&owner)?;
        rows.iter_mut().for_each(|row| row.value = None);
        self.engine.put_state(&owner, &rows)?;
        Ok(())
    }

    /// Returns the names of all webhooks: stream and webhook.
    pub(crate) fn all_webhooks(&self) -> Vec<(String, String)> {
        let state = self.state.read();
        let names = state.iter().flat_map(|(stream, found)| {
            found
                .webhooks
                .keys()
                .map(move |name| (stream.clone(), name.clone()))
        });
        names.collect()
    }

    /// Returns reasons for `/ready`: webhooks that deliver nothing until a request ends it. A reason names the first
    /// webhook, and the number of all.
    pub fn webhook_warnings(&self) -> Vec<String> {
        let state = self.state.read();
        let named = |is_meant: &dyn Fn(&HookState) -> bool| {
            let (mut first, mut count) = (None, 0_u64);
            for (stream, found) in &*state {
                for (name, webhook) in &found.webhooks {
                    if is_meant(webhook) {
                        first = first.or(Some((stream, name)));
                        count += 1;
                    }
                }
            }
            let (stream, name) = first?;
            Some(format!(
                "webhooks that deliver nothing: {count}; the webhook {name:?} of the change stream {stream:?}"
            ))
        };
        let stopped = named(&HookState::is_stopped).map(|which| {
            format!("{which} has stopped: {FAILED_MAX} deliveries have failed; replay or discard them")
        });
        let paused = named(&|webhook: &HookState| webhook.stored.pause.is_some())
            .map(|which| format!("{which} is paused: its receiver has responded with status 410; resume it"));
        stopped.into_iter().chain(paused).collect()
    }

    fn sender(&self) -> Result<&tideline_webhooks::WebhookSender> {
        self.sender.as_ref().ok_or_else(|| {
            ChangesError::Forbidden(
                "webhooks are off; the operator allows hosts with the setting webhooks.hosts".to_owned(),
            )
        })
    }

    fn receiver(&self, webhook: &HookState) -> Result<(Target, WebhookSecret)> {
        let limits = self.sender()?.settings();
        let target = Target::parse(&webhook.stored.url, limits);
        let target = target.map_err(|error| wrong_address(&error))?;
        let secret = WebhookSecret::parse(&webhook.stored.secret);
        Ok((
            target,
            secret.map_err(|error| ChangesError::Invalid(format!("secret: {error}")))?,
        ))
    }

    fn hook(&self, stream: &str, name: &str) -> Result<HookState> {
        let state = self.state.read();
        let found = state.get(stream).ok_or_else(|| no_stream(stream))?;
        found
            .webhooks
            .get(name)
            .cloned()
            .ok_or_else(|| ChangesError::NotFound {
                what: "webhook",
                name: name.to_owned(),
            })
    }

    fn change_hook(&self, stream: &str, name: &str, change: impl FnOnce(&mut HookState)) {
        let mut state = self.state.write();
        let webhook = state
            .get_mut(stream)
            .and_then(|found| found.webhooks.get_mut(name));
        if let Some(webhook) = webhook {
            change(webhook);
        }
    }

    /// Stores a checkpoint. The caller holds the lock `writing`.
    fn move_webhook(&self, stream: &str, name: &str, position: Position) -> Result<()> {
        let checkpoint = self.checkpoint(position);
        self.put(&[row(&["delivered", stream, name], Some(&checkpoint))])?;
        self.change_hook(stream, name, |webhook| webhook.move_to(checkpoint));
        Ok(())
    }

    fn view_of_webhook(&self, name: &str, webhook: &HookState) -> Webhook {
        let receiver = self.receiver(webhook);
        let state = match &receiver {
            Err(_) => State::Refused,
            Ok(_) if webhook.stored.pause.is_some() => State::Paused,
            Ok(_) if webhook.is_stopped() => State::Stopped,
            Ok(_) if webhook.is_retrying => State::Retrying,
            Ok(_) => State::Active,
        };
        Webhook {
            name: name.to_owned(),
            url: receiver
                .as_ref()
                .map_or_else(|_| String::new(), |(target, _)| target.to_string()),
            batch: webhook.stored.batch,
            hold: webhook.stored.hold,
            state,
            cursor: webhook.checkpoint.cursor.clone(),
            time: rfc3339(webhook.checkpoint.time),
            failed: webhook.failed,
            error: receiver
                .err()
                .map(|error| error.to_string())
                .or_else(|| webhook.error.clone()),
            pause: webhook.stored.pause.as_ref().map(|pause| WebhookPause {
                reason: pause.reason.clone(),
                time: rfc3339(pause.time),
            }),
        }
    }
}

impl Due {
    /// Returns the description of a replay that failed again, after one attempt.
    pub(crate) fn failure(&self, error: &SendError, time: String) -> FailedDelivery {
        FailedDelivery {
            id: self.id.clone(),
            records: self.records,
            attempts: 1,
            error: error.message.clone(),
            time,
        }
    }
}

impl Drop for Replaying<'_> {
    fn drop(&mut self) {
        self.streams.replaying.lock().remove(&self.webhook);
    }
}

fn failed_owner(stream: &str, name: &str) -> String {
    format!("{OWNER}/failed/{stream}/{name}")
}

/// Returns the owner of the state rows with the body of a failed delivery. Each delivery has a separate owner, so that
/// the failed deliveries can be counted and listed without these rows.
fn body_owner(stream: &str, name: &str, id: &str) -> String {
    format!("{}/{id}", failed_owner(stream, name))
}

/// Divides a text into pieces of at most [`PIECE_BYTES_MAX`] bytes.
fn pieces_of(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES_MAX));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the number of failed deliveries of a webhook.
pub(crate) fn failed_count(engine: &Engine, stream: &str, name: &str) -> Result<usize> {
    Ok(engine.state_count(&failed_owner(stream, name))?)
}

/// Returns the rows of the failed deliveries of a webhook, in the order of their changes.
fn failed_rows(engine: &Engine, stream: &str, name: &str) -> Result<Vec<StateRow>> {
    let mut rows = engine.state_rows(&failed_owner(stream, name))?;
    // The rows are sorted by the texts of their ids, in which numbers have no leading zeros.
    rows.sort_by_cached_key(|row| span_of(&row.name));
    Ok(rows)
}

/// Returns the positions before and after the records of a delivery; `None` if the text is not the id of a delivery.
fn span_of(id: &str) -> Option<(Position, Position)> {
    let (from, next) = id.split_once('_')?;
    Some((from.parse().ok()?, next.parse().ok()?))
}

/// Returns the error for an address that is not a valid target.
fn wrong_address(error: &TargetError) -> ChangesError {
    let message = format!("url: {error}");
    match error {
        TargetError::TooLong { actual } => over("number of bytes of a URL", URL_BYTES_MAX, *actual),
        error if error.is_not_allowed() => ChangesError::Forbidden(message),
        _ => ChangesError::Invalid(message),
    }
}

fn failure_of(row: &StateRow) -> Result<StoredFailure> {
    parsed(&row.name, row.value.as_deref().unwrap_or_default())
}

fn no_delivery(id: &str) -> ChangesError {
    ChangesError::NotFound {
        what: "failed delivery",
        name: id.to_owned(),
    }
}
