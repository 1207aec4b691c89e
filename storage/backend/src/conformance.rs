//! Conformance suite for backends: one function per rule of the contract.
//!
//! The tests of each backend call [`run_all`] with a function that creates empty fixtures; [`run_selected`] checks only
//! some rules. The name of each rule is printed before its check. A violation of a rule causes a panic, so the suite is
//! for tests only.

mod journal;
mod manifest;
mod parts;
mod rows;
mod segments;
mod tiers;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tideline_model::{Durability, GroupId, PartId, SegmentId, SequenceNumber, TableId, Tier};

use crate::contract::*;
use crate::error::{ErrorKind, Result};

/// Storage of a backend, initially empty.
pub trait Fixture {
    /// Opens the storage. Called again only after the last handle has been dropped, with or without a call of
    /// [`Backend::close`] before.
    fn open(&self) -> Arc<dyn Backend>;
}

/// Checks every rule, each with its own fixture. Rules of segments and parts are checked once per tier of
/// [`Tier::KEPT`].
pub fn run_all(create: &dyn Fn() -> Box<dyn Fixture>) {
    run_selected(create, &|_| true);
}

/// Checks the rules for whose names `is_selected` returns true, like [`run_all`]. Returns the number of checks.
pub fn run_selected(create: &dyn Fn() -> Box<dyn Fixture>, is_selected: &dyn Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for (name, rule) in [rows::RULES, journal::RULES, manifest::RULES, tiers::RULES].concat() {
        if is_selected(name) {
            println!("conformance: {name}");
            rule(create().as_ref());
            count += 1;
        }
    }
    for (name, rule) in [segments::RULES, parts::RULES].concat() {
        for tier in Tier::KEPT.into_iter().filter(|_| is_selected(name)) {
            println!("conformance: {name} ({tier})");
            rule(create().as_ref(), tier);
            count += 1;
        }
    }
    count
}

/// Name and check of a rule.
type Rule = (&'static str, fn(&dyn Fixture));

/// Name and check of a rule that applies to each tier of [`Tier::KEPT`].
type TierRule = (&'static str, fn(&dyn Fixture, Tier));

const SHARD: Shard = Shard(0);
const ROWS: Partition = Partition::space(Space(1), 7);
const EVERYTHING: PageLimit = PageLimit {
    rows_max: usize::MAX,
    bytes_max: usize::MAX,
};

fn segment(segment: u64, group: u64, tier: Tier) -> SegmentRef {
    SegmentRef {
        segment: SegmentId(segment),
        group: GroupId(group),
        tier,
    }
}

fn row(key: &[u8], value: &[u8]) -> Row {
    Row {
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
    }
}

fn put(key: &[u8], value: &[u8]) -> RowChange {
    RowChange {
        key: Bytes::copy_from_slice(key),
        value: Some(Bytes::copy_from_slice(value)),
    }
}

fn delete(key: &[u8]) -> RowChange {
    RowChange {
        key: Bytes::copy_from_slice(key),
        value: None,
    }
}

fn entry(sequence: u64, value: &[u8]) -> JournalEntry {
    JournalEntry {
        sequence: SequenceNumber(sequence),
        value: Bytes::copy_from_slice(value),
    }
}

/// Closes the backend and opens its storage again.
fn reopen(fixture: &dyn Fixture, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    backend.close().expect("close");
    drop(backend);
    fixture.open()
}

/// Returns the value of one row; `None` if there is no such row.
///
/// # Errors
///
/// The error of the scan.
pub fn value_of(backend: &dyn Backend, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
    let range = KeyRange::new(key, [key, &[0]].concat());
    let page = backend.scan(partition, &range, Direction::Ascending, EVERYTHING)?;
    assert!(page.rows.len() <= 1, "a key is there once");
    Ok(page.rows.into_iter().next().map(|row| row.value))
}

/// Returns all rows of a range, read page by page.
fn collect(
    backend: &dyn Backend,
    partition: Partition,
    range: &KeyRange,
    direction: Direction,
    limit: PageLimit,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut rest = Some(range.clone());
    while let Some(range) = rest {
        let page = backend.scan(partition, &range, direction, limit).expect("scan");
        assert!(
            page.rows.len() <= limit.rows_max,
            "a page passes its limit of rows"
        );
        assert!(
            !page.rows.is_empty() || page.next.is_none(),
            "an empty page does not end its scan"
        );
        rows.extend(page.rows);
        rest = page.next;
    }
    rows
}

fn collect_all(backend: &dyn Backend, partition: Partition) -> Vec<Row> {
    collect(
        backend,
        partition,
        &KeyRange::ALL,
        Direction::Ascending,
        EVERYTHING,
    )
}

fn load(backend: &dyn Backend, segment: SegmentRef, bucket: u16, rows: &[Row]) {
    backend
        .load(segment, bucket, &mut rows.iter().cloned().map(Ok))
        .expect("load");
}
