//! Check of a target: lists objects, and creates, reads and deletes an object.
//!
//! The check changes only its own object, so it can run at a target in use.

use std::fmt;

use bytes::Bytes;
use object_store::PutMode;

use super::Target;
use crate::digest::sha256_hex;
use crate::error::{ArchiveError, Result, TargetFault};

/// Maximum size of the object that a check writes, in bytes.
const CHECK_BYTES_MAX: u64 = 4 << 10;

/// Step of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStep {
    /// Listing of objects.
    List,
    /// Creation of an object.
    Create,
    /// Read of the object.
    Read,
    /// Read of a range of the object.
    ReadRange,
    /// Refusal of a put that would replace the object.
    CreateOnly,
    /// Deletion of the object.
    Delete,
}

/// Result of a check. If the object cannot be created, the steps after the creation are not attempted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCheck {
    /// Attempted steps in order, each with its error message if it failed.
    pub steps: Vec<(CheckStep, Option<String>)>,
}

impl CheckStep {
    /// Returns the description of the step.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list objects",
            Self::Create => "create an object",
            Self::CreateOnly => "refuse to replace an object (create-only put)",
            Self::Read => "read an object",
            Self::ReadRange => "read a part of an object",
            Self::Delete => "delete an object",
        }
    }
}

impl fmt::Display for CheckStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TargetCheck {
    /// Returns true if all steps succeeded, so that the target can hold an archive.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|(_, failure)| failure.is_none())
    }
}

impl Target {
    /// Performs the steps of [`CheckStep`] with a temporary object. The last step removes the object. `token` must be
    /// unique, because the object name is derived from it.
    pub fn check(&self, token: &str) -> TargetCheck {
        let mut steps = Vec::new();
        let mut step = |step: CheckStep, outcome: Result<()>| {
            let failure = outcome.err().map(|error| error.to_string());
            let is_done = failure.is_none();
            steps.push((step, failure));
            is_done
        };
        let key = format!("_check/{}", &sha256_hex(token.as_bytes())[..32]);
        let content = Bytes::from(format!(
            "test object of a check of this archive target; it can be removed: {token}"
        ));
        step(CheckStep::List, self.list("_check/").map(drop));
        if step(CheckStep::Create, self.put_once(&key, &content, PutMode::Create)) {
            step(CheckStep::Read, self.reads(&key, &content));
            step(CheckStep::ReadRange, self.reads_part(&key, &content));
            step(CheckStep::CreateOnly, self.refuses(&key));
            step(CheckStep::Delete, self.deletes(&key));
        }
        TargetCheck { steps }
    }

    fn refuses(&self, key: &str) -> Result<()> {
        match self.put_once(key, &Bytes::from_static(b"another"), PutMode::Create) {
            Err(ArchiveError::Target { kind: TargetFault::Exists, .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(self.damaged(
                key,
                "a create-only put replaced an object: the store ignores If-None-Match, and an archive could lose files",
            )),
        }
    }

    fn reads(&self, key: &str, content: &Bytes) -> Result<()> {
        match self.get(key, CHECK_BYTES_MAX)? == content {
            true => Ok(()),
            false => Err(self.damaged(key, "it was read back with other content")),
        }
    }

    fn reads_part(&self, key: &str, content: &Bytes) -> Result<()> {
        let range = 2..7;
        let got = self.get_ranges(key, std::slice::from_ref(&range))?;
        match got.first().is_some_and(|got| *got == content[2..7]) {
            true => Ok(()),
            false => Err(self.damaged(key, "a range was read back with other content")),
        }
    }

    fn deletes(&self, key: &str) -> Result<()> {
        self.delete(key)?;
        match self.get(key, CHECK_BYTES_MAX) {
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.damaged(key, "it still exists after its deletion")),
        }
    }
}
