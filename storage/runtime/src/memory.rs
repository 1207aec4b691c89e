//! Memory account of the process: one limit for the memory of requests, watches and search indexes.
//!
//! A limit per request bounds one request; thousands of requests within this limit can still exhaust the machine.
//! Memory that grows with the requests of clients is reserved here before it is used. At the limit a reservation fails:
//! a large read then ends with an error that names the limit, and nothing else is affected.
//!
//! Most writes need no reservation. Among the exceptions are imports of rows, uploads of values and long SQL
//! statements. Request bodies in flight, unsealed points, buffered rows and caches have separate budgets, which
//! [`MemoryAccount::set_aside`] subtracts from the limit.
//!
//! A [part](MemoryAccount::part) of an account has a separate limit, for example for the requests of one tenant.
//! Bytes that are reserved from it are also reserved from the whole account.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory account of one process. Clones share the account. A reservation costs an atomic update; reserve by page, not
/// by value.
#[derive(Debug, Clone)]
pub struct MemoryAccount(Arc<Balance>);

#[derive(Debug)]
struct Balance {
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    set_aside_bytes: AtomicU64,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    /// Account that contains this account as a part, and the owner of the part; `None` for the account of the process.
    part: Option<(MemoryAccount, Arc<str>)>,
}

/// Reserved memory; released on drop.
#[derive(Debug)]
pub struct Reservation {
    account: MemoryAccount,
    holder: &'static str,
    bytes: u64,
}

/// Error of a reservation that exceeds the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFull {
    /// Purpose of the memory.
    pub holder: &'static str,
    /// Bytes that the reservation would hold in total if the call had succeeded.
    pub held_bytes: u64,
    /// Bytes that the failed call requested.
    pub bytes: u64,
    /// Bytes reserved by all holders together.
    pub used_bytes: u64,
    /// Limit for all holders together, after subtracting the bytes set aside.
    pub limit_bytes: u64,
    /// Owner of the part of the account that is full; `None` if the account of the process is full.
    pub owner: Option<Arc<str>>,
}

impl fmt::Display for MemoryFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            holder,
            bytes,
            used_bytes,
            limit_bytes,
            ..
        } = self;
        write!(
            f,
            "not enough memory for {holder}: {bytes} bytes more are needed, and {used_bytes} of the {limit_bytes} bytes \
             that requests "
        )?;
        match &self.owner {
            None => f.write_str("may hold together are in use; the limit follows the setting memory.max"),
            Some(owner) => write!(f, "of {owner} may hold together are in use"),
        }
    }
}

impl std::error::Error for MemoryFull {}

impl MemoryFull {
    /// Returns true if the same request can succeed once other requests have ended.
    pub fn is_retryable(&self) -> bool {
        self.held_bytes <= self.limit_bytes
    }
}

impl MemoryAccount {
    /// Creates an empty account.
    pub fn new(limit_bytes: u64) -> Self {
        Self::create(limit_bytes, None)
    }

    fn create(limit_bytes: u64, part: Option<(Self, Arc<str>)>) -> Self {
        Self(Arc::new(Balance {
            limit_bytes: AtomicU64::new(limit_bytes),
            used_bytes: AtomicU64::new(0),
            set_aside_bytes: AtomicU64::new(0),
            refusals: Mutex::default(),
            part,
        }))
    }

    /// Creates a part of this account with a separate limit. `owner` is shown in errors, for example "the tenant
    /// acme".
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_runtime::MemoryAccount;
    ///
    /// let account = MemoryAccount::new(1_000);
    /// let part = account.part("the tenant acme", 300);
    /// let held = part.reserve("results of queries", 200)?;
    /// assert_eq!((part.used_bytes(), account.used_bytes()), (200, 200));
    /// let full = part.reserve("results of queries", 200).expect_err("the part is full");
    /// assert_eq!(full.owner.as_deref(), Some("the tenant acme"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn part(&self, owner: &str, limit_bytes: u64) -> Self {
        Self::create(limit_bytes, Some((self.clone(), owner.into())))
    }

    /// Changes the limit. Reserved bytes stay reserved.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.0.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Creates an account without a limit, for tests and tools.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Subtracts memory that has a separate budget, for example caches, from the limit. Repeated calls add up.
    pub fn set_aside(&self, bytes: u64) {
        self.0.set_aside_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the limit including the bytes set aside.
    pub fn whole_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// Returns the limit for all holders together, after subtracting the bytes set aside.
    pub fn limit_bytes(&self) -> u64 {
        let set_aside = self.0.set_aside_bytes.load(Ordering::Relaxed);
        self.whole_bytes().saturating_sub(set_aside)
    }

    /// Returns the bytes reserved by all holders together.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of failed reservations since the start, by holder. Failures of
    /// [`Reservation::grow_spare`] are not counted.
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reserves memory. `holder` is the purpose shown in errors, for example "results of queries".
    ///
    /// # Errors
    ///
    /// Returns [`MemoryFull`] if all holders together would exceed the limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_runtime::MemoryAccount;
    ///
    /// let account = MemoryAccount::new(1_000);
    /// let mut results = account.reserve("results of queries", 600)?;
    /// let full = results.grow(600).expect_err("1,200 bytes exceed the limit");
    /// assert_eq!((full.used_bytes, full.limit_bytes), (600, 1_000));
    /// assert!(!full.is_retryable(), "no other request has to end");
    ///
    /// drop(results);
    /// assert_eq!(account.used_bytes(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, holder: &'static str, bytes: u64) -> Result<Reservation, MemoryFull> {
        let mut reservation = self.open(holder);
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Returns an empty reservation that can grow.
    pub fn open(&self, holder: &'static str) -> Reservation {
        Reservation {
            account: self.clone(),
            holder,
            bytes: 0,
        }
    }

    fn take(&self, holder: &'static str, held: u64, bytes: u64) -> Result<(), MemoryFull> {
        let limit = self.limit_bytes();
        let refused = match self.add(bytes, limit) {
            Err(used_bytes) => MemoryFull {
                holder,
                held_bytes: held.saturating_add(bytes),
                bytes,
                used_bytes,
                limit_bytes: limit,
                owner: self.0.part.as_ref().map(|(_, owner)| Arc::clone(owner)),
            },
            Ok(()) => match &self.0.part {
                None => return Ok(()),
                Some((whole, _)) => match whole.take(holder, held, bytes) {
                    Ok(()) => return Ok(()),
                    Err(refused) => {
                        self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
                        return Err(refused);
                    }
                },
            },
        };
        let mut refusals = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals.entry(holder).or_default() += 1;
        Err(refused)
    }

    /// Reserves `bytes` if at least half of this account then remains free, and also half of the account that contains
    /// it. Returns true if the bytes were reserved.
    fn take_spare(&self, bytes: u64) -> bool {
        if self.add(bytes, self.limit_bytes() / 2).is_err() {
            return false;
        }
        let is_taken = self
            .0
            .part
            .as_ref()
            .is_none_or(|(whole, _)| whole.take_spare(bytes));
        if !is_taken {
            self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Adds `bytes` to the used bytes of this account alone. If the sum is above `limit`, changes nothing and returns
    /// the used bytes as an error.
    fn add(&self, bytes: u64, limit: u64) -> Result<(), u64> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let used = &self.0.used_bytes;
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum)
            .map(|_| ())
    }

    fn give_back(&self, bytes: u64) {
        self.0.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some((whole, _)) = &self.0.part {
            whole.give_back(bytes);
        }
    }
}

impl Reservation {
    /// Returns the bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    ///
    /// Returns [`MemoryFull`] if all holders together would exceed the limit. Bytes reserved before stay reserved.
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryFull> {
        self.account.take(self.holder, self.bytes, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves `bytes` more if at least half of the limit still remains free. Returns true if the bytes were reserved.
    ///
    /// Intended for buffers that also work with less memory: they leave half of the limit to other reservations.
    pub fn grow_spare(&mut self, bytes: u64) -> bool {
        let is_taken = self.account.take_spare(bytes);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }

    /// Releases `bytes`, or the whole reservation if it is smaller.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.account.give_back(bytes);
        self.bytes -= bytes;
    }

    /// Changes the reservation to `bytes` in total.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`grow`](Self::grow).
    pub fn resize(&mut self, bytes: u64) -> Result<(), MemoryFull> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

impl Default for MemoryAccount {
    /// Returns an account without a limit.
    fn default() -> Self {
        Self::unlimited()
    }
}

impl fmt::Display for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.used_bytes(), self.limit_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn reservations_share_one_limit() {
        let account = MemoryAccount::new(100);
        account.set_aside(20);
        assert_eq!(account.limit_bytes(), 80);
        let mut first = account.reserve("first", 50).expect("there is room");
        let refused = account.reserve("second", 31).expect_err("the account is full");
        assert_eq!(
            refused,
            MemoryFull {
                holder: "second",
                held_bytes: 31,
                bytes: 31,
                used_bytes: 50,
                limit_bytes: 80,
                owner: None,
            }
        );
        assert!(refused.is_retryable());
        assert!(!first.grow(31).expect_err("81 of 80").is_retryable());
        assert_eq!((first.bytes(), account.used_bytes()), (50, 50));
        assert_eq!(account.refusals(), [("first", 1), ("second", 1)].into());
        first.resize(80).expect("there is room");
        first.resize(10).expect("less always fits");
        assert_eq!(account.used_bytes(), 10);
        drop(first);
        assert_eq!(account.used_bytes(), 0);
    }

    #[test]
    fn buffers_leave_half_of_the_account_to_others() {
        let account = MemoryAccount::new(100);
        let mut buffer = account.open("a buffer");
        assert!(buffer.grow_spare(50) && !buffer.grow_spare(1));
        let other = account.reserve("a request", 50).expect("half is free");
        buffer.shrink(20);
        assert!(!buffer.grow_spare(1));
        drop(other);
        assert!(buffer.grow_spare(20));
        assert!(account.refusals().is_empty());
    }

    #[test]
    fn a_part_is_reserved_from_the_whole_too() {
        let account = MemoryAccount::new(100);
        let part = account.part("the tenant acme", 60);
        let mut held = part.reserve("a request", 50).expect("there is room");
        let refused = held.grow(20).expect_err("the part is full");
        assert_eq!((refused.limit_bytes, refused.used_bytes), (60, 50));
        assert!(!refused.is_retryable() && refused.to_string().contains("of the tenant acme may"));
        assert!(part.reserve("a request", 20).expect_err("full").is_retryable());
        let others = account.reserve("others", 45).expect("there is room");
        let refused = held.grow(10).expect_err("the whole account is full");
        assert_eq!((refused.limit_bytes, refused.owner), (100, None));
        assert_eq!((part.used_bytes(), account.used_bytes()), (50, 95));
        assert_eq!(part.refusals(), [("a request", 2)].into());
        assert_eq!(account.refusals(), [("a request", 1)].into());
        drop(others);
        part.set_limit(70);
        held.grow(20).expect("there is room");
        part.set_limit(10);
        held.shrink(65);
        assert!(!held.grow_spare(1), "half of 10 is reserved");
        drop(held);
        assert_eq!((part.used_bytes(), account.used_bytes()), (0, 0));
    }

    #[test]
    fn threads_never_hold_more_than_the_limit() {
        let account = MemoryAccount::new(1_000);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..10_000_u64 {
                        let held = account.reserve("a thread", round % 400);
                        assert!(account.used_bytes() <= 1_000);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(account.used_bytes(), 0);
    }
}
