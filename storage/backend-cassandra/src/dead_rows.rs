//! Scans of key ranges with more deleted rows than a node reads for one request.
//!
//! A node keeps the mark of a deleted row (tombstone) for `gc_grace_seconds`. It refuses a read that meets more marks
//! than `tombstone_failure_threshold`, 100,000 by default. Such a scan is divided:
//!
//! 1. Keys are compared as fractions with hexadecimal digits. A block holds all keys with the same first digits.
//! 2. A request reads the block at the begin of the remaining range. After an answer, the next block has one digit
//!    less, so it is up to 16 times larger.
//! 3. After a refusal, the next block has [`DIGITS_AFTER_REFUSAL`] more digits than the refused one. Blocks grow again
//!    up to a sixteenth of the refused block, until they have read all of it.
//!
//! A refused request costs as much as the read of all marks that it met, and a request for an empty block almost
//! nothing. Therefore blocks become much smaller after a refusal, and grow slowly. The number of refused requests is
//! proportional to the number of marks. Until the first block with marks is found, there is about one more per digit
//! other than zero that the keys with marks have in common beyond the bounds of the range.
//!
//! A page is one consistent snapshot. So all blocks but the last are read a second time: if their rows are the same
//! before and after the read of the last block, they were the same at its time, too.

use std::future::Future;

use tideline_backend::page::PageBuilder;
use tideline_backend::{
    BackendError, Direction, ErrorKind, KEY_BYTES_MAX, KeyRange, Page, PageLimit, Result, Row,
};

use crate::error::RETRY_AFTER;

/// Number of digits by which a block is smaller than the refused one. With fewer, several requests are refused before
/// the block has few marks. With more, many requests read empty blocks.
const DIGITS_AFTER_REFUSAL: usize = 8;
/// Digits of the smallest block, which has one key of the maximum size.
const DIGITS_MAX: usize = 2 * KEY_BYTES_MAX;
/// Bytes of a key that an error shows.
const KEY_BYTES_SHOWN: usize = 32;
/// Maximum number of attempts to read a page whose rows do not change meanwhile.
const ATTEMPTS: u32 = 20;

/// Rows that one request has read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Rows in scan order.
    pub(crate) rows: Vec<Row>,
    /// True if the requested keys have no further rows.
    pub(crate) is_complete: bool,
}

/// Part of a scanned range, with its rows.
#[derive(Debug)]
struct Piece {
    keys: KeyRange,
    found: Found,
}

/// Block that one request could not read.
#[derive(Debug)]
struct Refused {
    digits: usize,
    keys: KeyRange,
}

/// Position in a range that is read block by block.
#[derive(Debug)]
struct Blocks {
    direction: Direction,
    /// Keys that are not read yet.
    rest: KeyRange,
    /// Digits of the next block.
    digits: usize,
    /// Refused blocks with unread keys; each contains the next one.
    refused: Vec<Refused>,
}

impl Blocks {
    /// Creates a position at the begin of a range that one request could not read.
    fn new(range: &KeyRange, direction: Direction) -> Option<Self> {
        let mut blocks = Self {
            direction,
            rest: range.clone(),
            digits: 0,
            refused: Vec::new(),
        };
        blocks.divide(range.clone()).then_some(blocks)
    }

    /// Returns the keys of the block with a number of digits at the begin of the rest.
    fn keys(&self, digits: usize) -> KeyRange {
        let mut keys = self.rest.clone();
        match self.direction {
            Direction::Ascending => {
                if let Some(end) = block_end(&keys.start, digits)
                    && keys.end.as_ref().is_none_or(|last| end < *last)
                {
                    keys.end = Some(end);
                }
            }
            Direction::Descending => {
                let start = block_start(keys.end.as_deref(), digits);
                keys.start = start.max(keys.start);
            }
        }
        keys
    }

    /// Makes the next block much smaller than `keys`, which were refused. Returns false if they cannot be divided.
    fn divide(&mut self, keys: KeyRange) -> bool {
        let mut digits = self.digits;
        // A block with more digits can be the same part of the range.
        while digits < DIGITS_MAX && self.keys(digits + 1) == keys {
            digits += 1;
        }
        if digits >= DIGITS_MAX {
            return false;
        }
        self.digits = (digits + DIGITS_AFTER_REFUSAL).min(DIGITS_MAX);
        self.refused.push(Refused { digits, keys });
        true
    }

    /// Moves to the keys after the block `keys`, which was read. Returns false at the end of the range.
    fn advance(&mut self, keys: &KeyRange) -> bool {
        let Some(rest) = after(&self.rest, self.direction, keys) else {
            return false;
        };
        self.rest = rest;
        while let Some(refused) = self.refused.last() {
            let is_read = match (self.direction, &refused.keys.end) {
                (Direction::Ascending, Some(end)) => self.rest.start >= *end,
                (Direction::Ascending, None) => false,
                (Direction::Descending, _) => self
                    .rest
                    .end
                    .as_ref()
                    .is_some_and(|end| *end <= refused.keys.start),
            };
            if !is_read {
                break;
            }
            self.refused.pop();
        }
        let digits_min = self.refused.last().map_or(0, |refused| refused.digits + 1);
        self.digits = self.digits.saturating_sub(1).max(digits_min);
        true
    }
}

/// Returns the first key after the block of `start`; `None` if it is the last block.
fn block_end(start: &[u8], digits: usize) -> Option<Vec<u8>> {
    let (mut end, mut step) = truncated(start, digits);
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(step) {
            end.push(next);
            return Some(end);
        }
        step = 1;
    }
    None
}

/// Returns the first key of the block with the keys directly below `end`.
fn block_start(end: Option<&[u8]>, digits: usize) -> Vec<u8> {
    let Some(end) = end else {
        let highest = vec![u8::MAX; digits.div_ceil(2)];
        return truncated(&highest, digits).0;
    };
    // Zeros at the end of a fraction have no meaning.
    let zeros = end.iter().rev().take_while(|byte| **byte == 0).count();
    let end = &end[..end.len() - zeros];
    let (mut start, mut step) = truncated(end, digits);
    if start.as_slice() < end {
        return start;
    }
    let mut is_borrowed = true;
    for byte in start.iter_mut().rev() {
        (*byte, is_borrowed) = byte.overflowing_sub(step);
        if !is_borrowed {
            break;
        }
        step = 1;
    }
    if is_borrowed {
        // There is no block before the first one.
        start.clear();
    }
    start
}

/// Returns the first digits of a key, with zeros for digits that it lacks, and the value of the last digit in its byte.
fn truncated(key: &[u8], digits: usize) -> (Vec<u8>, u8) {
    let mut first = key.to_vec();
    first.resize(digits.div_ceil(2), 0);
    if digits.is_multiple_of(2) {
        return (first, 1);
    }
    if let Some(last) = first.last_mut() {
        *last &= 0xf0;
    }
    (first, 0x10)
}

/// Returns the part of a range after a block at its begin or inside it, in scan order; `None` if nothing is left.
fn after(range: &KeyRange, direction: Direction, keys: &KeyRange) -> Option<KeyRange> {
    let mut rest = range.clone();
    match direction {
        Direction::Ascending => rest.start.clone_from(keys.end.as_ref()?),
        Direction::Descending => rest.end = Some(keys.start.clone()),
    }
    (!rest.is_empty()).then_some(rest)
}

/// Returns a page of a range that one request could not read, because it met too many deleted rows. `query` sends a
/// request for a part of the range.
///
/// # Errors
///
/// - the errors of the requests, except `TooManyDead`;
/// - `TooManyDead` if a refused part cannot be divided;
/// - `Unavailable` if the rows change during each attempt.
pub(crate) async fn scan<F>(
    range: &KeyRange,
    direction: Direction,
    limit: PageLimit,
    query: &impl Fn(KeyRange) -> F,
) -> Result<Page>
where
    F: Future<Output = Result<Found>>,
{
    for _ in 0..ATTEMPTS {
        let mut pieces = read(range, direction, limit, query).await?;
        match confirm(&mut pieces, query).await {
            Err(error) if error.kind() == ErrorKind::TooManyDead => continue,
            confirmed => confirmed?,
        }
        let page = page(range, direction, limit, pieces);
        // Callers may take a page without rows for the last one.
        if !page.rows.is_empty() || page.next.is_none() {
            return Ok(page);
        }
    }
    Err(BackendError::Unavailable {
        reason: format!("rows among many deleted ones changed during each of {ATTEMPTS} reads"),
        retry_after: RETRY_AFTER,
    })
}

/// Reads blocks until the page is full or the range ends.
async fn read<F>(
    range: &KeyRange,
    direction: Direction,
    limit: PageLimit,
    query: &impl Fn(KeyRange) -> F,
) -> Result<Vec<Piece>>
where
    F: Future<Output = Result<Found>>,
{
    let Some(mut blocks) = Blocks::new(range, direction) else {
        return Err(undividable(range));
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut rows, mut bytes, mut refused) = (0, 0, 1_u32);
    loop {
        let keys = blocks.keys(blocks.digits);
        let found = match query(keys.clone()).await {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::TooManyDead => {
                refused += 1;
                if !blocks.divide(keys.clone()) {
                    return Err(undividable(&keys));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        rows += found.rows.len();
        bytes += found
            .rows
            .iter()
            .map(|row| row.key.len() + row.value.len())
            .sum::<usize>();
        let is_full = rows > 0 && (rows >= limit.rows_max || bytes > limit.bytes_max);
        let is_over = is_full || !found.is_complete || !blocks.advance(&keys);
        pieces.push(Piece { keys, found });
        if is_over {
            tracing::debug!(
                refused,
                answered = pieces.len(),
                "a scan was divided because of its deleted rows"
            );
            return Ok(pieces);
        }
    }
}

/// Makes the pieces one snapshot: reads all but the last again. If one has changed, it becomes the last one.
async fn confirm<F>(pieces: &mut Vec<Piece>, query: &impl Fn(KeyRange) -> F) -> Result<()>
where
    F: Future<Output = Result<Found>>,
{
    let mut at = 0;
    while at + 1 < pieces.len() {
        let keys = pieces[at].keys.clone();
        let found = query(keys.clone()).await?;
        if found == pieces[at].found {
            at += 1;
        } else {
            pieces.truncate(at);
            pieces.push(Piece { keys, found });
            at = 0;
        }
    }
    Ok(())
}

/// Joins pieces to a page.
fn page(range: &KeyRange, direction: Direction, limit: PageLimit, pieces: Vec<Piece>) -> Page {
    let mut builder = PageBuilder::new(range, direction, limit);
    let mut rest = Some(range.clone());
    for piece in pieces {
        for row in piece.found.rows {
            if builder.is_full() {
                return builder.partial();
            }
            builder.push(row);
        }
        if !piece.found.is_complete {
            return builder.partial();
        }
        rest = after(range, direction, &piece.keys);
    }
    Page {
        next: rest,
        ..builder.complete()
    }
}

/// Returns the error for keys that cannot be divided.
fn undividable(keys: &KeyRange) -> BackendError {
    let shown = &keys.start[..keys.start.len().min(KEY_BYTES_SHOWN)];
    BackendError::TooManyDead {
        reason: format!(
            "the nodes refuse to read keys above {shown:02x?}, and the request cannot be divided further; check \
             tombstone_failure_threshold of the nodes"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::future::ready;
    use std::ops::Bound;

    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;

    const EVERYTHING: PageLimit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };

    /// Node with live and deleted rows, which refuses requests that meet too many deleted rows.
    #[derive(Debug, Default)]
    struct Node {
        /// True for live rows.
        rows: RefCell<BTreeMap<Vec<u8>, bool>>,
        dead_max: usize,
        refused: Cell<usize>,
        answered: Cell<usize>,
        /// Number of the request before which a row moves, and the keys between which it moves.
        moves: Option<(usize, Vec<u8>, Vec<u8>)>,
    }

    impl Node {
        fn new(dead_max: usize, keys: impl IntoIterator<Item = (Vec<u8>, bool)>) -> Self {
            Self {
                rows: RefCell::new(keys.into_iter().collect()),
                dead_max,
                ..Self::default()
            }
        }

        fn live(&self, range: &KeyRange, direction: Direction) -> Vec<Vec<u8>> {
            let rows = self.rows.borrow();
            let live = rows.iter().filter(|(key, is_live)| {
                **is_live && **key >= range.start && range.end.as_ref().is_none_or(|end| *key < end)
            });
            let mut live: Vec<Vec<u8>> = live.map(|(key, _)| key.clone()).collect();
            if direction == Direction::Descending {
                live.reverse();
            }
            live
        }

        fn query(&self, keys: &KeyRange, direction: Direction, asked: usize) -> Result<Found> {
            assert!(!keys.is_empty(), "a request for no keys");
            if let Some((at, from, to)) = &self.moves
                && self.refused.get() + self.answered.get() == *at
            {
                let mut rows = self.rows.borrow_mut();
                rows.insert(from.clone(), false);
                rows.insert(to.clone(), true);
            }
            let rows = self.rows.borrow();
            let end = keys.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let mut inside = rows.range((Bound::Included(keys.start.clone()), end));
            let (mut found, mut dead) = (Vec::new(), 0);
            while found.len() < asked {
                let next = match direction {
                    Direction::Ascending => inside.next(),
                    Direction::Descending => inside.next_back(),
                };
                match next {
                    Some((key, true)) => found.push(Row {
                        key: key.clone().into(),
                        value: Bytes::new(),
                    }),
                    Some(_) => dead += 1,
                    None => break,
                }
                if dead > self.dead_max {
                    self.refused.set(self.refused.get() + 1);
                    let reason = "too many".to_owned();
                    return Err(BackendError::TooManyDead { reason });
                }
            }
            self.answered.set(self.answered.get() + 1);
            let is_complete = found.len() < asked;
            Ok(Found {
                rows: found,
                is_complete,
            })
        }

        /// Reads one page of a range that one request cannot read.
        fn page(&self, range: &KeyRange, direction: Direction, limit: PageLimit, asked: usize) -> Page {
            let query = |keys: KeyRange| ready(self.query(&keys, direction, asked));
            let page = scan(range, direction, limit, &query).now_or_never();
            page.expect("no request waits").expect("a page")
        }

        /// Reads all pages of a range, as a backend does.
        fn pages(&self, range: &KeyRange, direction: Direction, rows_max: usize) -> Vec<Vec<u8>> {
            let limit = PageLimit {
                rows_max,
                ..EVERYTHING
            };
            let asked = rows_max.saturating_add(1);
            let (mut keys, mut rest) = (Vec::new(), Some(range.clone()));
            while let Some(range) = rest {
                let pieces = match self.query(&range, direction, asked) {
                    Ok(found) => vec![Piece {
                        keys: range.clone(),
                        found,
                    }],
                    Err(_) => {
                        let page = self.page(&range, direction, limit, asked);
                        assert!(page.rows.len() <= rows_max.max(1));
                        assert!(!page.rows.is_empty() || page.next.is_none());
                        keys.extend(page.rows.into_iter().map(|row| row.key.to_vec()));
                        rest = page.next;
                        continue;
                    }
                };
                let page = super::page(&range, direction, limit, pieces);
                keys.extend(page.rows.into_iter().map(|row| row.key.to_vec()));
                rest = page.next;
            }
            keys
        }
    }

    /// Returns pseudo-random bytes of a number.
    fn mixed(number: u64) -> u64 {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns keys of different forms.
    fn forms(count: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let all = |key: &dyn Fn(u64) -> Vec<u8>| (1..=count).map(key).collect::<Vec<_>>();
        vec![
            ("numbers", all(&|n: u64| n.to_be_bytes().to_vec())),
            (
                "high numbers",
                all(&|n: u64| (u64::MAX - n).to_be_bytes().to_vec()),
            ),
            (
                "numbers after a prefix",
                all(&|n: u64| [&[1, 0, 0, 0, 5][..], &(n + 0x1234_5678).to_be_bytes()[..]].concat()),
            ),
            ("random numbers", all(&|n: u64| mixed(n).to_be_bytes().to_vec())),
            ("decimal numbers", all(&|n: u64| n.to_string().into_bytes())),
            (
                "long common prefix",
                all(&|n: u64| [&[0xab; 100][..], &(n as u32).to_be_bytes()[..]].concat()),
            ),
            (
                "keys that are prefixes of others",
                all(&|n: u64| {
                    let digit = |at: u64| [0, 1, 0xff][(mixed(n) / 3_u64.pow(at as u32) % 3) as usize];
                    (0..mixed(n) % 9).map(digit).collect()
                }),
            ),
        ]
    }

    #[test]
    fn every_live_row_is_found_in_order() {
        for (form, keys) in forms(600) {
            let node = Node::new(
                7,
                keys.iter()
                    .enumerate()
                    .map(|(at, key)| (key.clone(), at % 29 == 3)),
            );
            let ranges = [
                KeyRange::ALL,
                KeyRange::new(keys[40].clone(), [0xff_u8; 9]),
                KeyRange::new(Vec::new(), keys[500].clone()),
                KeyRange::new([0_u8], [1_u8, 0, 0, 0, 6]),
            ];
            for range in &ranges {
                for direction in [Direction::Ascending, Direction::Descending] {
                    for rows_max in [1, 3, usize::MAX] {
                        if range.is_empty() {
                            continue;
                        }
                        let found = node.pages(range, direction, rows_max);
                        assert_eq!(
                            found,
                            node.live(range, direction),
                            "{form} {range:?} {direction:?} {rows_max}"
                        );
                    }
                }
            }
            assert!(node.refused.get() > 0, "{form}");
        }
    }

    #[test]
    fn few_requests_are_refused() {
        const DEAD: u64 = 13_000;
        const DEAD_MAX: usize = 1_000;
        // Keys that are prefixes of others are few.
        for (form, keys) in forms(DEAD).into_iter().take(6) {
            let first = keys.iter().min().cloned().unwrap_or_default();
            let last = keys.iter().max().cloned().unwrap_or_default();
            // A scan of all keys first has to find the long prefix.
            for (range, refused_max) in [(KeyRange::new(first, last), 40), (KeyRange::ALL, 250)] {
                for direction in [Direction::Ascending, Direction::Descending] {
                    let node = Node::new(DEAD_MAX, keys.iter().map(|key| (key.clone(), false)));
                    let page = node.page(&range, direction, EVERYTHING, usize::MAX);
                    assert_eq!((page.rows.len(), page.next), (0, None));
                    let (refused, answered) = (node.refused.get(), node.answered.get());
                    let counts = format!("{form} {direction:?}: {refused} refused, {answered} answered");
                    assert!(refused < refused_max, "{counts}");
                    assert!(answered < 50 * (refused + 2), "{counts}");
                }
            }
        }
    }

    #[test]
    fn a_page_is_a_snapshot_although_a_row_moves() {
        let key = |number: u64| number.to_be_bytes().to_vec();
        for direction in [Direction::Ascending, Direction::Descending] {
            for (from, to) in [(50, 450), (450, 50)] {
                for at in 0..200 {
                    let keys = (0..500).map(|number| (key(number), number == from || number % 100 == 0));
                    let mut node = Node::new(30, keys);
                    let before = node.live(&KeyRange::ALL, direction);
                    node.moves = Some((at, key(from), key(to)));
                    let page = node.page(&KeyRange::ALL, direction, EVERYTHING, usize::MAX);
                    let rows: Vec<Vec<u8>> = page.rows.iter().map(|row| row.key.to_vec()).collect();
                    let (after, place) = (node.live(&KeyRange::ALL, direction), (direction, from, at));
                    assert!(!rows.is_empty(), "{place:?}");
                    assert!(
                        before.starts_with(&rows) || after.starts_with(&rows),
                        "{place:?}: {rows:?}"
                    );
                    assert!(page.next.is_some() || rows.len() == before.len(), "{place:?}");
                }
            }
        }
    }

    #[test]
    fn a_node_that_refuses_everything_ends_the_scan() {
        for direction in [Direction::Ascending, Direction::Descending] {
            let query = |_: KeyRange| {
                let reason = "too many".to_owned();
                ready(Err::<Found, _>(BackendError::TooManyDead { reason }))
            };
            let page = scan(&KeyRange::ALL, direction, EVERYTHING, &query).now_or_never();
            let error = page.expect("no request waits").expect_err("no page");
            assert_eq!(error.kind(), ErrorKind::TooManyDead);
        }
    }
}
