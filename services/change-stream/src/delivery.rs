//! Delivery of webhooks: one task per webhook, which sends one request at a time.
//!
//! A supervisor starts a task for each webhook and restarts tasks that have ended. Failed requests are repeated with
//! growing, random delays. Reads and writes of the database run on blocking threads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tideline_openapi::change::FailedDelivery;
use tideline_webhooks::{SendError, SendErrorKind};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::error::{ChangesError, Result};
use crate::hooks::{Due, Step};
use crate::streams::ChangeStreams;

/// Pause after an error of the database.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// Time in which changes are collected. Many small writes thus become one step of a webhook or of a waiting request.
pub const GATHER: Duration = Duration::from_millis(10);
/// Maximum interval between two checks of the list of webhooks.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Delivers the webhooks of all streams until `streams` is dropped. `news` changes after each commit.
pub async fn deliver(streams: Weak<ChangeStreams>, news: watch::Receiver<()>) {
    let Some(mut changed) = streams
        .upgrade()
        .map(|streams| streams.webhooks_changed.subscribe())
    else {
        return;
    };
    let mut tasks: HashMap<(String, String), JoinHandle<()>> = HashMap::new();
    loop {
        changed.mark_unchanged();
        {
            let Some(streams) = streams.upgrade() else {
                break;
            };
            tasks.retain(|_, task| !task.is_finished());
            for webhook in streams.all_webhooks() {
                let begin = || {
                    let (stream, name) = webhook.clone();
                    let task = Task {
                        streams: Arc::downgrade(&streams),
                        stream,
                        name,
                    };
                    tokio::spawn(task.run(news.clone()))
                };
                tasks.entry(webhook.clone()).or_insert_with(begin);
            }
        }
        tokio::select! {
            ended = changed.changed() => if ended.is_err() { break },
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
    tasks.values().for_each(JoinHandle::abort);
}

/// Sends failed deliveries again, once each. Returns the number of accepted deliveries, and the deliveries that failed
/// again. A response with 410 Gone pauses the webhook and ends the replay; the other deliveries stay in the list.
///
/// # Errors
///
/// [`ChangesError::Conflict`] while another replay of the webhook runs, the errors of the look-up of the deliveries, and
/// those of the removal of an accepted one and of the pause.
pub async fn replay(
    streams: &Arc<ChangeStreams>,
    stream: &str,
    name: &str,
    ids: Option<Vec<String>>,
) -> Result<(usize, Vec<FailedDelivery>)> {
    let _replaying = streams.begin_replay(stream, name)?;
    let names = (stream.to_owned(), name.to_owned());
    let due = blocking(streams, move |streams| {
        streams.deliveries_to_replay(&names.0, &names.1, ids.as_deref())
    });
    let (mut delivered, mut failed) = (0, Vec::new());
    for due in due.await? {
        match streams.send(&due).await {
            Ok(()) => {
                let names = (stream.to_owned(), name.to_owned());
                blocking(streams, move |streams| {
                    streams.discard_delivery(&names.0, &names.1, &due.id)
                })
                .await?;
                delivered += 1;
            }
            Err(error) => {
                failed.push(due.failure(&error, streams.engine.now().to_rfc3339()));
                if error.kind == SendErrorKind::Gone {
                    tracing::warn!(
                        stream,
                        webhook = name,
                        error = error.message,
                        "a webhook is paused"
                    );
                    let names = (stream.to_owned(), name.to_owned());
                    blocking(streams, move |streams| {
                        streams.pause_after_replay(&names.0, &names.1, &due, &error)
                    })
                    .await?;
                    break;
                }
            }
        }
    }
    Ok((delivered, failed))
}

/// Task of one webhook.
struct Task {
    streams: Weak<ChangeStreams>,
    stream: String,
    name: String,
}

impl Task {
    async fn run(self, mut news: watch::Receiver<()>) {
        let Some(mut changed) = self
            .streams
            .upgrade()
            .map(|streams| streams.webhooks_changed.subscribe())
        else {
            return;
        };
        loop {
            news.mark_unchanged();
            changed.mark_unchanged();
            let Some(streams) = self.streams.upgrade() else {
                return;
            };
            let names = (self.stream.clone(), self.name.clone());
            let step = blocking(&streams, move |streams| streams.next_step(&names.0, &names.1)).await;
            match step {
                Ok(Step::End) => return,
                Ok(Step::Continue) => {}
                Ok(Step::Send(due)) => {
                    if let Err(error) = self.deliver(streams, *due, &mut changed).await {
                        self.pause(&error).await;
                    }
                }
                Ok(Step::Wait) => {
                    drop(streams);
                    tokio::select! {
                        ended = news.changed() => match ended {
                            Ok(()) => tokio::time::sleep(GATHER).await,
                            Err(_) => return,
                        },
                        ended = changed.changed() => if ended.is_err() { return },
                    }
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Sends a delivery until it is accepted or given up, or the webhook is paused or changes.
    async fn deliver(
        &self,
        streams: Arc<ChangeStreams>,
        due: Due,
        changed: &mut watch::Receiver<()>,
    ) -> Result<()> {
        let due = Arc::new(due);
        let began = Instant::now();
        let mut attempts = 0;
        loop {
            let sent = streams.send(&due).await;
            attempts += 1;
            let (names, sent_due) = ((self.stream.clone(), self.name.clone()), Arc::clone(&due));
            let Err(error) = sent else {
                return blocking(&streams, move |streams| {
                    streams.delivered(&names.0, &names.1, &sent_due)
                })
                .await;
            };
            streams.note_attempt(&self.stream, &self.name, &error);
            if error.kind == SendErrorKind::Gone {
                tracing::warn!(
                    stream = self.stream,
                    webhook = self.name,
                    error = error.message,
                    "a webhook is paused"
                );
                let pause =
                    move |streams: &ChangeStreams| streams.pause(&names.0, &names.1, &sent_due, &error);
                return blocking(&streams, pause).await;
            }
            match self.delay(&streams, &error, attempts, began) {
                Some(delay) => {
                    if !self.wait(&streams, &due, delay, changed).await {
                        return Ok(());
                    }
                }
                None => {
                    tracing::warn!(
                        stream = self.stream,
                        webhook = self.name,
                        attempts,
                        error = error.message,
                        "a delivery was given up"
                    );
                    let give_up = move |streams: &ChangeStreams| {
                        streams.give_up(&names.0, &names.1, &sent_due, attempts, &error)
                    };
                    return blocking(&streams, give_up).await;
                }
            }
        }
    }

    /// Waits before the next attempt. Returns false at once if the delivery is no longer due: its webhook was changed,
    /// moved or deleted.
    async fn wait(
        &self,
        streams: &ChangeStreams,
        due: &Due,
        delay: Duration,
        changed: &mut watch::Receiver<()>,
    ) -> bool {
        let until = Instant::now() + delay;
        while streams.is_still_due(&self.stream, &self.name, due) {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                ended = changed.changed() => if ended.is_err() { return false },
            }
        }
        false
    }

    fn delay(
        &self,
        streams: &ChangeStreams,
        error: &SendError,
        attempts: u32,
        began: Instant,
    ) -> Option<Duration> {
        if !error.retryable {
            return None;
        }
        let mut random = [0; 8];
        // Without random numbers the delays have no jitter.
        let _ = getrandom::getrandom(&mut random);
        let backoff = &streams.settings.backoff;
        backoff.next_delay(
            attempts,
            began.elapsed(),
            error.retry_after,
            u64::from_le_bytes(random),
        )
    }

    async fn pause(&self, error: &ChangesError) {
        tracing::warn!(%error, stream = self.stream, webhook = self.name, "a webhook pauses after an error");
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

async fn blocking<T: Send + 'static>(
    streams: &Arc<ChangeStreams>,
    call: impl FnOnce(&ChangeStreams) -> Result<T> + Send + 'static,
) -> Result<T> {
    let streams = Arc::clone(streams);
    match spawn_blocking(move || call(&streams)).await {
        Ok(result) => result,
        Err(panicked) => Err(ChangesError::Internal(format!("internal error: {panicked}"))),
    }
}
