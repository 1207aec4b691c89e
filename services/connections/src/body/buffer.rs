//! Byte buffer of a request body, reserved in the budget of all bodies in flight.

use super::{BodyError, Result, STEP_BYTES};
use crate::client::Client;
use crate::shares::{Share, Shares};

/// Growth factor for a body of unknown size. Memory freed by growing stays resident for a while, so fewer and
/// larger steps lower the peak. Capacity that is never written costs no memory.
const GROWTH: usize = 4;
/// Budget of all bodies in flight, with the client of this body.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub(super) bytes: Shares,
    pub(super) client: Client,
}

/// Bytes whose capacity is reserved in the budget of all bodies.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// Upper bound of the bytes needed, which limits growth.
    most: usize,
    pub(super) budget: Budget,
    reserved: Option<Share>,
}

impl Buffer {
    pub(super) fn new(budget: &Budget, most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
            budget: budget.clone(),
            reserved: None,
        }
    }

    /// Grows the capacity to at least `bytes` in total. Fails with [`BodyError::Overloaded`] if the budget has
    /// no room.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes.capacity());
        if more == 0 {
            return Ok(());
        }
        let Budget {
            bytes: budget,
            client,
        } = &self.budget;
        let share = budget.try_take(*client, more).ok_or_else(|| {
            let in_use = budget.in_use(*client);
            BodyError::Overloaded {
                all: in_use.all,
                count: budget.count(),
                own: in_use.own,
                client: *client,
                more,
            }
        })?;
        match &mut self.reserved {
            Some(reserved) => reserved.merge(share),
            None => self.reserved = Some(share),
        }
        self.bytes.reserve_exact(bytes - self.bytes.len());
        Ok(())
    }

    pub(super) fn extend(&mut self, more: &[u8]) -> Result<()> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let roomy = (self.bytes.capacity() * GROWTH).max(STEP_BYTES).min(self.most);
            self.reserve(needed.max(roomy))?;
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}
