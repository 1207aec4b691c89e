//! Largest machines of a table.
//!
//! All points of a machine are stored and moved together, so a machine that outgrows the others is reported early.

use hashbrown::{HashMap, HashSet};
use tideline_model::Ordinal;

use crate::engine::Engine;
use crate::hot_ranges::machine_of;
use crate::tables::Table;

/// Sealed bytes of one machine above which a warning is given.
pub const PARTITION_WARNING_BYTES: u64 = 8 << 30;
/// Maximum number of machines listed.
const PARTITIONS_MAX: usize = 20;
/// Number of timelines read under one lock of the catalog.
const LOOKUP_BATCH: usize = 8_192;

/// Stored points of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Name of the machine; without a name, the measurement of one of its timelines. `None` if all its timelines were
    /// removed.
    pub source: Option<String>,
    /// Prefix of its keys: 16 hexadecimal digits.
    pub prefix: String,
    /// Sealed bytes in all tiers. A lower bound, because segments list only their largest machines.
    pub bytes: u64,
    /// Advice for a machine of more than [`PARTITION_WARNING_BYTES`]; `None` for a smaller one.
    pub warning: Option<String>,
}

impl Engine {
    /// Returns the largest machines of a table, largest first, at most 20.
    ///
    /// Reads timelines until the name of each machine is found: a few milliseconds per million timelines.
    pub fn largest_partitions(&self, table: &Table) -> Vec<Partition> {
        let snapshot = self.store.snapshot();
        let mut bytes_of: HashMap<&str, u64> = HashMap::new();
        let segments = snapshot.manifest().of_table(table.points.id());
        for (prefix, bytes) in segments.flat_map(|segment| &segment.largest_sources) {
            *bytes_of.entry(prefix).or_default() += bytes;
        }
        let mut largest: Vec<(u64, &str)> = bytes_of
            .into_iter()
            .map(|(prefix, bytes)| (bytes, prefix))
            .collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        largest.truncate(PARTITIONS_MAX);
        let names = names(
            table,
            largest.iter().filter_map(|(_, prefix)| machine(prefix)).collect(),
        );
        let partition = |(bytes, prefix): (u64, &str)| {
            let source = machine(prefix).and_then(|machine| names.get(&machine).cloned());
            Partition {
                warning: warning(source.as_deref().unwrap_or(prefix), bytes),
                source,
                prefix: prefix.to_owned(),
                bytes,
            }
        };
        largest.into_iter().map(partition).collect()
    }
}

fn warning(name: &str, bytes: u64) -> Option<String> {
    (bytes > PARTITION_WARNING_BYTES).then(|| {
        let (size, mark) = (bytes as f64 / (1u64 << 30) as f64, PARTITION_WARNING_BYTES >> 30);
        format!(
            "{name} holds {size:.1} GiB, over the mark of {mark} GiB: all points of a machine are stored \
             together. Split it by a tag that distinguishes its parts, placed first in the source_tags of a \
             new table, or shorten its retention"
        )
    })
}

/// Returns the names of the wanted machines that have a visible timeline.
fn names(table: &Table, mut wanted: HashSet<[u8; 8]>) -> HashMap<[u8; 8], String> {
    let visible = table.catalog.reader().visible().clone();
    let mut names = HashMap::new();
    let mut rest = visible.iter().map(Ordinal);
    while !wanted.is_empty() {
        let group: Vec<Ordinal> = rest.by_ref().take(LOOKUP_BATCH).collect();
        if group.is_empty() {
            break;
        }
        let reader = table.catalog.reader();
        for entry in group.iter().filter_map(|ordinal| reader.entry(*ordinal)) {
            let machine = machine_of(entry.id());
            if wanted.remove(&machine) {
                let name = entry.source().unwrap_or(entry.measurement());
                names.insert(machine, name.to_owned());
            }
        }
    }
    names
}

/// Parses a prefix that a segment lists; `None` if it is invalid.
fn machine(prefix: &str) -> Option<[u8; 8]> {
    u64::from_str_radix(prefix, 16).ok().map(u64::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_over_the_mark_comes_with_advice() {
        assert_eq!(warning("web-1", PARTITION_WARNING_BYTES), None);
        let said = warning("web-1", 9 << 30).expect("over the mark");
        assert!(
            said.starts_with("web-1 holds 9.0 GiB, over the mark of 8 GiB"),
            "{said}"
        );
        assert_eq!(machine("00ff000000000001"), Some([0, 255, 0, 0, 0, 0, 0, 1]));
        assert_eq!(machine("nonsense"), None);
    }
}
