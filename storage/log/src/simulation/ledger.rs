//! Ledger of a simulation: the results that clients, readers and owners have received, and the rules for them.
//!
//! Notes and job rows are elements of sets that only grow, and each has its own number. So the rules of a consistent
//! history are simple:
//! - A view holds each element at most once.
//! - A view holds every element that was acknowledged or read before the view began.
//! - A view holds no element that an owner of a later epoch did not find when it opened the log, because all older
//!   epochs were closed by then.

use std::collections::{BTreeMap, BTreeSet};

use tideline_backend::{Epoch, Stamp};

/// Elements of one kind.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// Epoch in which each element was sent last.
    sent: BTreeMap<u64, Epoch>,
    /// Elements that were acknowledged or read.
    promised: BTreeSet<u64>,
    /// Elements that no later view may hold.
    gone: BTreeSet<u64>,
}

impl Elements {
    /// Records that an element is sent, for the first time or again.
    pub(super) fn send(&mut self, element: u64, epoch: Epoch) {
        self.sent.insert(element, epoch);
        self.gone.remove(&element);
    }

    /// Records that an element was acknowledged or read.
    pub(super) fn promise(&mut self, element: u64) {
        assert!(
            !self.gone.contains(&element),
            "element {element} was acknowledged after a newer owner had opened the log without it"
        );
        self.promised.insert(element);
    }

    /// Records that an element was refused, so that it is never stored.
    pub(super) fn refuse(&mut self, element: u64) {
        self.gone.insert(element);
    }

    /// Returns the elements that every later view must hold.
    pub(super) fn promised(&self) -> BTreeSet<u64> {
        self.promised.clone()
    }

    /// Returns the elements of unknown outcome that were sent in an epoch before `epoch`.
    pub(super) fn undecided_before(&self, epoch: Epoch) -> Vec<u64> {
        let sent = self.sent.iter().filter(|(_, sent)| **sent < epoch);
        let undecided = sent.filter(|(element, _)| !self.promised.contains(element));
        undecided.map(|(element, _)| *element).collect()
    }

    /// Checks a view that began when `promised` were promised.
    pub(super) fn check(&self, who: &str, view: &[u64], promised: &BTreeSet<u64>) {
        let mut seen = BTreeSet::new();
        for element in view {
            assert!(seen.insert(*element), "{who} holds element {element} twice");
            assert!(
                self.sent.contains_key(element),
                "{who} holds element {element}, which was never sent"
            );
            assert!(
                !self.gone.contains(element),
                "{who} holds element {element}, which a newer owner did not find when it closed the epoch"
            );
        }
        let missing: Vec<&u64> = promised.difference(&seen).collect();
        assert!(
            missing.is_empty(),
            "{who} misses elements {missing:?}, which were acknowledged or read"
        );
    }

    /// Checks the view of an owner that has opened the log. Elements of older epochs that are missing are gone.
    pub(super) fn open(&mut self, who: &str, view: &[u64], epoch: Epoch) {
        self.check(who, view, &self.promised);
        let view: BTreeSet<u64> = view.iter().copied().collect();
        let older = self.sent.iter().filter(|(_, sent)| **sent < epoch);
        let missing = older.filter(|(element, _)| !view.contains(element));
        self.gone.extend(missing.map(|(element, _)| *element));
    }
}

/// Number of times that each kind of event happened.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) takes: u64,
    pub(super) opens: u64,
    pub(super) failed_opens: u64,
    pub(super) acknowledged: u64,
    pub(super) unknown: u64,
    pub(super) reads: u64,
    pub(super) refused_reads: u64,
    pub(super) flushes: u64,
    pub(super) compactions: u64,
    pub(super) abandoned: u64,
    pub(super) repeated: u64,
    pub(super) remembered: u64,
    pub(super) kills: u64,
    pub(super) pauses: u64,
    pub(super) losses: u64,
}

impl Counts {
    /// Adds the counts of another simulation.
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            takes,
            opens,
            failed_opens,
            acknowledged,
            unknown,
            reads,
            refused_reads,
            flushes,
            compactions,
            abandoned,
            repeated,
            remembered,
            kills,
            pauses,
            losses,
        } = other;
        self.takes += takes;
        self.opens += opens;
        self.failed_opens += failed_opens;
        self.acknowledged += acknowledged;
        self.unknown += unknown;
        self.reads += reads;
        self.refused_reads += refused_reads;
        self.flushes += flushes;
        self.compactions += compactions;
        self.abandoned += abandoned;
        self.repeated += repeated;
        self.remembered += remembered;
        self.kills += kills;
        self.pauses += pauses;
        self.losses += losses;
    }
}

/// Results that the processes have returned.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) notes: Elements,
    pub(super) jobs: Elements,
    pub(super) counts: Counts,
    last_element: u64,
    last_epoch: u64,
    /// Ids of segments and groups that any process has assigned.
    ids: BTreeSet<u64>,
    /// Lowest and highest stamp that each epoch has used.
    stamps: BTreeMap<Epoch, (Stamp, Stamp)>,
}

impl Ledger {
    /// Returns the number of a new element.
    pub(super) fn next_element(&mut self) -> u64 {
        self.last_element += 1;
        self.last_element
    }

    /// Records that a process took the shard.
    pub(super) fn take(&mut self, epoch: Epoch) {
        assert!(
            epoch.0 > self.last_epoch,
            "epoch {} was taken after epoch {}",
            epoch.0,
            self.last_epoch
        );
        self.last_epoch = epoch.0;
        self.counts.takes += 1;
    }

    /// Records that a process assigned an id.
    pub(super) fn assign(&mut self, id: u64) {
        assert!(self.ids.insert(id), "id {id} was assigned twice");
    }

    /// Records that an owner uses a stamp.
    pub(super) fn stamp(&mut self, epoch: Epoch, stamp: Stamp) {
        let earlier = self.stamps.range(..epoch).map(|(_, used)| used.1).max();
        let later = self
            .stamps
            .range(Epoch(epoch.0 + 1)..)
            .map(|(_, used)| used.0)
            .min();
        assert!(
            earlier.is_none_or(|earlier| earlier < stamp) && later.is_none_or(|later| stamp < later),
            "epoch {} uses {stamp:?}; earlier epochs used stamps up to {earlier:?}, later ones from {later:?}",
            epoch.0
        );
        let used = self.stamps.entry(epoch).or_insert((stamp, stamp));
        *used = (used.0.min(stamp), used.1.max(stamp));
    }
}
