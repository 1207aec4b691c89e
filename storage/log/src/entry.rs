//! Log entries: writes that the log journals and applies.
//!
//! The log handles entries of all models through the trait [`LogEntry`]. Only the first two bytes of an encoded entry
//! are common to all models.

use bytes::Bytes;
use tideline_model::{Durability, SequenceNumber, TableId, TableName};

use crate::requests::RequestRecord;

/// One write: decoded for its model, encoded for the journal. The methods are called on the committer thread, except
/// [`encoded`](Self::encoded), which is also called on the thread that submits the entry.
pub trait LogEntry: Send {
    /// Returns the prefix of the entry's fail points, such as `delete`.
    fn kind(&self) -> &'static str;

    /// Returns the table of the entry.
    fn table(&self) -> TableId;

    /// Returns the bytes of the entry in the journal. They begin with the [`ModelTag`](tideline_model::ModelTag) of its
    /// model.
    fn encoded(&self) -> &Bytes;

    /// Returns the durability that the entry needs before it is acknowledged.
    fn durability(&self) -> Durability;

    /// Returns the idempotency key of the request, with the outcome to remember; `None` if the request has no key.
    fn request(&self) -> Option<RequestRecord> {
        None
    }

    /// Returns true if the entry changes state that the [`check`](Self::check) of later entries reads. The entry is
    /// then the last of its group, so that later entries are checked after it was applied.
    fn ends_group(&self) -> bool {
        false
    }

    /// Checks that the entry can still be written. Called immediately before its group is numbered.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] if the entry must not be written; nothing is written then.
    fn check(&self) -> Result<(), Refusal>;

    /// Makes an entry that is in the journal visible to readers. Called in the order of sequences, one entry at a time.
    ///
    /// # Errors
    ///
    /// An error of the model. A part of the entry may then be visible, and a restart applies the whole entry.
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError>;
}

/// Failure of a model, passed through the log to the model's caller.
pub type ModelError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why an entry was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The table was dropped before the entry was written.
    #[error("the table was dropped")]
    TableDropped(TableId),
    /// The drop of the table has an unknown outcome.
    #[error("it is not known yet whether table {0} was dropped; the write was not done")]
    TableInDoubt(TableName),
    /// The state that the entry was based on has changed; the caller builds the entry again.
    #[error("the state that the write was based on has changed; nothing was written, send the write again")]
    Outdated,
}
