//! Fair shares of a bounded resource among clients.
//!
//! Four fifths of a resource (rounded up) are first come, first served, so that a single busy client can use them while
//! other clients need little. The last fifth is reserved for clients that hold nothing or less than their
//! share. A share is the whole resource divided by one more than the number of clients that hold or wait for units;
//! the additional one is for a new client. A client that takes single units therefore never holds more than four
//! fifths, however long its requests run. Waiting clients are served in the order of the units that they hold,
//! fewest first, then in arrival order.
//!
//! A resource can also limit the units of tenants ([`Shares::with_tenants_max`]): while other clients use the
//! resource, or have used it within the last second, a tenant holds at most its part of these units. A
//! maximum of about two units per core lets a request compete with few requests of any other tenant for the cores and
//! for the next commit.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::client::Client;

/// Fraction of a resource that is granted without regard to shares, as numerator and denominator.
const OPEN_NUMERATOR: usize = 4;
const OPEN_DENOMINATOR: usize = 5;
/// Time for which a client counts as another user of the resource after it has released its units.
const RECENT: Duration = Duration::from_secs(1);

/// Bounded resource with the units held by each client. Clones share the resource.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
///
/// use tideline_connections::Shares;
///
/// let [busy, other] = ["10.0.0.7", "10.0.0.8"].map(|text| text.parse::<IpAddr>().map(Into::into));
/// let (busy, other) = (busy?, other?);
///
/// let shares = Shares::new(10);
/// let held = shares.try_take(busy, 8).expect("four fifths are first come, first served");
/// assert!(shares.try_take(busy, 1).is_none(), "the rest is for other clients");
/// assert!(shares.try_take(other, 1).is_some());
///
/// drop(held);
/// assert!(shares.try_take(busy, 1).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Shares(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// Total number of units.
    count: usize,
    /// Units that are granted without regard to shares.
    open: usize,
    /// Units that tenants share equally with all other clients of the resource; `None` without such a limit.
    tenants_max: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// Clients that hold or wait for units.
    clients: HashMap<Client, ClientUnits>,
    /// The two clients that most recently requested or released units, with the times, the most recent first.
    /// Kept only with a limit for tenants.
    recent: [Option<(Client, Instant)>; 2],
    /// Number of clients that wait.
    waiting: usize,
    /// Ticket of the next waiter.
    ticket: u64,
    /// Number of requests that ended without units although units were free.
    refused: u64,
}

/// Units that a client holds, and its waiters.
#[derive(Debug, Default)]
struct ClientUnits {
    units: usize,
    waiting: VecDeque<Waiter>,
}

/// Waiter for one unit.
#[derive(Debug)]
struct Waiter {
    ticket: u64,
    grant: oneshot::Sender<()>,
}

/// Units held by a client; released when dropped.
#[derive(Debug)]
pub struct Share {
    pool: Shares,
    client: Client,
    units: usize,
}

/// Units of a resource in use.
#[derive(Debug, Clone, Copy)]
pub struct InUse {
    /// Units of all clients.
    pub all: usize,
    /// Units of one client.
    pub own: usize,
}

impl Shares {
    /// Creates a resource of `count` units.
    pub fn new(count: usize) -> Self {
        Self::create(count, None)
    }

    /// Creates a resource of `count` units. While other clients use the resource, a tenant holds at most
    /// `tenants_max` divided by the number of clients (the tenant and the others), but at least one unit.
    pub fn with_tenants_max(count: usize, tenants_max: usize) -> Self {
        Self::create(count, Some(tenants_max))
    }

    fn create(count: usize, tenants_max: Option<usize>) -> Self {
        let open = count.saturating_mul(OPEN_NUMERATOR).div_ceil(OPEN_DENOMINATOR);
        Self(Arc::new(Pool {
            count,
            open,
            tenants_max,
            state: Mutex::default(),
        }))
    }

    /// Takes units if they are free and the client may have them. Otherwise returns `None`, and counts a
    /// refusal if the units were free.
    pub fn try_take(&self, client: Client, units: usize) -> Option<Share> {
        let mut state = self.0.state.lock();
        let taken = self.take_from(&mut state, client, units);
        if taken.is_none() {
            let is_free = state.used.saturating_add(units) <= self.0.count;
            state.refused += u64::from(is_free);
        }
        taken
    }

    /// Takes units if they are free and the client may have them. Otherwise returns `None` without counting a
    /// refusal, because the caller waits or continues without units.
    pub fn take_if_free(&self, client: Client, units: usize) -> Option<Share> {
        self.take_from(&mut self.0.state.lock(), client, units)
    }

    fn take_from(&self, state: &mut State, client: Client, units: usize) -> Option<Share> {
        if self.0.tenants_max.is_some() {
            state.note(client, Instant::now());
            // When the last use of another client is older than `RECENT`, waiting tenants may get more units.
            self.0.grant(state);
        }
        if !self.0.admits(state, client, units) {
            return None;
        }
        state.used += units;
        state.clients.entry(client).or_default().units += units;
        Some(self.share(client, units))
    }

    /// Waits for one unit. There is no timeout; the caller has to add one.
    pub async fn take(&self, client: Client) -> Share {
        let mut wait = {
            let mut state = self.0.state.lock();
            if let Some(share) = self.take_from(&mut state, client, 1) {
                return share;
            }
            let (grant, granted) = oneshot::channel();
            let ticket = state.ticket;
            state.ticket += 1;
            let waiting = &mut state.clients.entry(client).or_default().waiting;
            waiting.push_back(Waiter { ticket, grant });
            let is_first = waiting.len() == 1;
            state.waiting += usize::from(is_first);
            Wait {
                pool: self,
                client,
                ticket,
                granted: Some(granted),
            }
        };
        let granted = wait.granted.as_mut().expect("taken only here and at the end");
        let mut granted = std::pin::pin!(granted);
        loop {
            let waited = match self.0.tenants_max {
                None => Ok(granted.as_mut().await),
                Some(_) => timeout(RECENT, granted.as_mut()).await,
            };
            match waited {
                Ok(granted) => break granted.expect("the sender stays until it grants or the wait ends"),
                // No event signals that `RECENT` has passed since the last use by another client, so this is
                // checked periodically.
                Err(_) => self.0.grant(&mut self.0.state.lock()),
            }
        }
        wait.granted = None;
        self.share(client, 1)
    }

    /// Returns the units in use by all clients and by `client`.
    pub fn in_use(&self, client: Client) -> InUse {
        let state = self.0.state.lock();
        InUse {
            all: state.used,
            own: state.clients.get(&client).map_or(0, |usage| usage.units),
        }
    }

    /// Returns the units in use by all clients.
    pub fn used(&self) -> usize {
        self.0.state.lock().used
    }

    /// Returns the total number of units.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Returns the number of requests that ended without units although units were free.
    pub fn refused(&self) -> u64 {
        self.0.state.lock().refused
    }

    fn share(&self, client: Client, units: usize) -> Share {
        Share {
            pool: self.clone(),
            client,
            units,
        }
    }

    fn give_back(&self, client: Client, units: usize) {
        let mut state = self.0.state.lock();
        state.used -= units;
        state.release(client, units);
        if self.0.tenants_max.is_some() {
            state.note(client, Instant::now());
        }
        self.0.grant(&mut state);
    }
}

impl Pool {
    /// Returns true if a client may take further units now.
    fn admits(&self, state: &State, client: Client, units: usize) -> bool {
        let used = state.used.saturating_add(units);
        let held = state.clients.get(&client).map_or(0, |usage| usage.units);
        if let Some(tenants_max) = self.tenants_max.filter(|_| client.is_tenant()) {
            let others = state.others(client, Instant::now());
            if others > 0 && held + units > (tenants_max / (others + 1)).max(1) {
                return false;
            }
        }
        if used <= self.open {
            return true;
        }
        used <= self.count && (held == 0 || held < self.count / (state.clients.len() + 1))
    }

    /// Grants free units to waiting clients.
    fn grant(&self, state: &mut State) {
        while state.waiting > 0 {
            let waiting = state.clients.iter().filter_map(|(client, usage)| {
                let first = usage.waiting.front()?;
                Some((usage.units, first.ticket, *client))
            });
            // The client that holds the fewest units is first.
            let admitted = waiting.filter(|(_, _, client)| self.admits(state, *client, 1));
            let Some((_, _, client)) = admitted.min() else {
                return;
            };
            let Some(usage) = state.clients.get_mut(&client) else {
                return;
            };
            let granted = usage.waiting.pop_front().map(|waiter| waiter.grant.send(()));
            let is_last = usage.waiting.is_empty();
            if matches!(granted, Some(Ok(()))) {
                usage.units += 1;
                state.used += 1;
            }
            state.waiting -= usize::from(is_last);
            state.release(client, 0);
        }
    }
}

impl State {
    /// Records that a client requests units or has released some.
    fn note(&mut self, client: Client, now: Instant) {
        if !matches!(self.recent[0], Some((last, _)) if last == client) {
            self.recent.swap(0, 1);
        }
        self.recent[0] = Some((client, now));
    }

    /// Returns the number of other clients that hold or wait for units. Also counts one client that did so
    /// within the last second.
    fn others(&self, client: Client, now: Instant) -> usize {
        let present = self.clients.len() - usize::from(self.clients.contains_key(&client));
        let is_recent = |(other, at): &(Client, Instant)| {
            *other != client && !self.clients.contains_key(other) && now.duration_since(*at) < RECENT
        };
        present + usize::from(self.recent.iter().flatten().any(is_recent))
    }

    /// Subtracts units from the units of a client. Removes a client that neither holds nor waits for units.
    fn release(&mut self, client: Client, units: usize) {
        let Entry::Occupied(mut entry) = self.clients.entry(client) else {
            return;
        };
        let usage = entry.get_mut();
        usage.units -= units;
        if usage.units == 0 && usage.waiting.is_empty() {
            entry.remove();
        }
    }
}

impl Share {
    /// Adds the units of another share of the same client and resource.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert_eq!(self.client, other.client);
        self.units += std::mem::take(&mut other.units);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.units > 0 {
            self.pool.give_back(self.client, self.units);
        }
    }
}

/// Pending wait for a unit; cancelled when dropped.
struct Wait<'a> {
    pool: &'a Shares,
    client: Client,
    ticket: u64,
    /// `None` once the unit has been granted.
    granted: Option<oneshot::Receiver<()>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else {
            return;
        };
        granted.close();
        if granted.try_recv().is_ok() {
            return self.pool.give_back(self.client, 1);
        }
        let mut state = self.pool.0.state.lock();
        state.refused += u64::from(state.used < self.pool.0.count);
        if let Some(usage) = state.clients.get_mut(&self.client) {
            let before = usage.waiting.len();
            usage.waiting.retain(|waiter| waiter.ticket != self.ticket);
            let was_last = before > 0 && usage.waiting.is_empty();
            state.waiting -= usize::from(was_last);
        }
        state.release(self.client, 0);
        self.pool.0.grant(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    fn client(n: u8) -> Client {
        Client::from(IpAddr::from([192, 0, 2, n]))
    }

    fn take_all(shares: &Shares, client: Client) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_take(client, 1)).collect()
    }

    #[test]
    fn one_client_has_four_fifths_and_newcomers_the_rest() {
        let shares = Shares::new(20);
        let mut busy = take_all(&shares, client(1));
        assert_eq!(busy.len(), 16);
        let second = take_all(&shares, client(2));
        assert_eq!(second.len(), 4, "below its share of 20 / 3");
        assert_eq!(
            (shares.used(), shares.refused()),
            (20, 1),
            "a refusal at the total is not counted"
        );
        busy.truncate(14);
        assert_eq!(take_all(&shares, client(3)).len(), 2);
        drop(second);
        assert!(shares.try_take(client(1), 1).is_some(), "14 are in use");
    }

    #[test]
    fn few_units_are_not_divided() {
        for count in 1..=4 {
            assert_eq!(take_all(&Shares::new(count), client(1)).len(), count);
        }
    }

    #[test]
    fn a_large_first_request_is_admitted() {
        let shares = Shares::new(100);
        let mut whole = shares.try_take(client(1), 10).expect("free");
        whole.merge(
            shares
                .try_take(client(1), 90)
                .expect("it holds less than its share"),
        );
        assert_eq!(shares.used(), 100);
        drop(whole);
        assert_eq!(shares.used(), 0);
    }

    #[tokio::test]
    async fn waits_end_for_the_client_that_holds_least() {
        let shares = Shares::new(4);
        let mut held = take_all(&shares, client(1));
        let (report, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waits = Vec::new();
        for n in [1, 1, 2] {
            let (shares, report) = (shares.clone(), report.clone());
            waits.push(tokio::spawn(async move {
                let share = shares.take(client(n)).await;
                report.send(n).expect("received");
                share
            }));
            tokio::task::yield_now().await;
        }
        held.pop();
        assert_eq!(order.recv().await, Some(2), "it came last and holds nothing");
        held.pop();
        assert_eq!(order.recv().await, Some(1));
        for wait in waits {
            wait.abort();
            drop(wait.await);
        }
        drop(held);
        assert_eq!(shares.used(), 0, "a cancelled wait releases everything");
        assert!(shares.0.state.lock().clients.is_empty());
    }

    #[tokio::test]
    async fn a_tenant_holds_less_while_others_use_the_resource() {
        let shares = Shares::with_tenants_max(10, 4);
        let [busy, other] = [1, 2].map(Client::of_tenant);
        let mut held = take_all(&shares, busy);
        assert_eq!(held.len(), 8, "alone, like any client");
        let one = shares.try_take(other, 1).expect("a newcomer");
        held.truncate(2);
        assert!(shares.try_take(busy, 1).is_none(), "a half of four");
        let second = shares.try_take(other, 1).expect("its half");
        assert!(shares.try_take(other, 1).is_none());
        let third = shares.try_take(client(1), 1).expect("no tenant");
        let waiting = tokio::spawn({
            let shares = shares.clone();
            async move { shares.take(busy).await }
        });
        tokio::task::yield_now().await;
        drop(held.pop());
        assert_eq!(shares.in_use(busy).own, 1, "a third of four");
        drop(held);
        drop(waiting.await.expect("granted"));
        drop((one, second, third));
        assert_eq!(shares.used(), 0);
        assert_eq!(take_all(&shares, busy).len(), 2, "others were there a moment ago");
    }

    #[tokio::test]
    async fn a_tenant_that_waits_goes_on_when_others_were_there_a_second_ago() {
        let shares = Shares::with_tenants_max(10, 2);
        let [busy, other] = [1, 2].map(Client::of_tenant);
        drop(shares.take(other).await);
        let _held = shares.try_take(busy, 1).expect("its half");
        assert!(shares.try_take(busy, 1).is_none());
        let begun = Instant::now();
        let second = timeout(10 * RECENT, shares.take(busy)).await;
        assert!(second.is_ok(), "it waits without an end");
        assert!(begun.elapsed() > RECENT / 2);
    }

    #[test]
    fn a_client_counts_for_a_second_after_its_last_unit() {
        let mut state = State::default();
        let [one, other] = [1, 2].map(Client::of_tenant);
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        state.note(other, start);
        for millis in 0..2_000 {
            state.note(one, after(millis));
        }
        assert_eq!(state.others(one, after(999)), 1);
        assert_eq!(state.others(one, after(1_000)), 0);
        assert_eq!(state.others(other, after(2_500)), 1);
    }

    #[tokio::test]
    async fn a_wait_for_more_than_a_share_ends_when_others_leave() {
        let shares = Shares::new(10);
        let held = take_all(&shares, client(1));
        assert_eq!(held.len(), 8);
        let wait = tokio::time::timeout(Duration::from_millis(20), shares.take(client(1)));
        assert!(wait.await.is_err(), "two are free, for others");
        drop(shares.take(client(2)).await);
        let waiting = tokio::spawn({
            let shares = shares.clone();
            async move { shares.take(client(1)).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        drop(waiting.await.expect("granted"));
        assert_eq!(
            (shares.used(), shares.refused()),
            (0, 2),
            "the ninth unit, and the wait that ended"
        );
    }
}
