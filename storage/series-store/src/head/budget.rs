//! Memory that unsealed points may take.

/// Bytes of a head of few timelines.
const FEW_TIMELINES_BYTES: usize = 80 << 20;
/// Bytes for each timeline of a head, of which a third is for finding it. The rest holds some thirty points of one
/// number, so that a seal writes that many at once however many timelines there are.
const TIMELINE_BYTES: usize = 256;
/// Share of a memory limit that one head may take: while it is being sealed a second one fills.
const MEMORY_SHARE: u64 = 8;
/// Least bytes of a head.
const BYTES_MIN: usize = 1 << 20;

/// Bytes of unsealed points (encoded blocks, open rows, and what finds them) at which a head is frozen and sealed.
///
/// The cost of a seal depends on its timelines as much as on their points, so a head holds a number of points of each
/// timeline before it is sealed, as far as there is memory. While a frozen head is being sealed a second one may fill,
/// so memory peaks near twice this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadBudget {
    /// Bytes of a head of few timelines.
    pub bytes_min: usize,
    /// Bytes for each timeline with points in the head, where that is more than `bytes_min`.
    pub bytes_per_timeline: usize,
    /// Most bytes, however many timelines there are; also less than `bytes_min`.
    pub bytes_max: usize,
}

impl HeadBudget {
    /// The same number of bytes for any number of timelines.
    pub const fn fixed(bytes: usize) -> Self {
        Self {
            bytes_min: bytes,
            bytes_per_timeline: 0,
            bytes_max: bytes,
        }
    }

    /// The budget of a process that may use so many bytes of memory: 80 MiB, or 256 bytes for each timeline where that
    /// is more, but at most an eighth of it.
    pub fn of_memory(limit_bytes: u64) -> Self {
        let share = usize::try_from(limit_bytes / MEMORY_SHARE).unwrap_or(usize::MAX);
        Self {
            bytes_min: FEW_TIMELINES_BYTES,
            bytes_per_timeline: TIMELINE_BYTES,
            bytes_max: share.max(BYTES_MIN),
        }
    }

    /// Bytes at which a head with so many timelines is sealed.
    pub fn bytes(&self, timelines: usize) -> usize {
        let wanted = timelines.saturating_mul(self.bytes_per_timeline);
        wanted.max(self.bytes_min).min(self.bytes_max)
    }
}

impl Default for HeadBudget {
    /// That of 4 GiB of memory.
    fn default() -> Self {
        Self::of_memory(4 << 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_budget_follows_memory_and_timelines() {
        for (memory_mib, timelines, expected) in [
            // Few timelines: as before, whatever the memory.
            (4_096, 0, 80 * MIB),
            (4_096, 200_000, 80 * MIB),
            (1 << 20, 4_000, 80 * MIB),
            // Many: so much for each …
            (4_096, 1_000_000, 256_000_000),
            (1 << 20, 10_000_000, 2_560_000_000),
            // … within the share.
            (4_096, 10_000_000, 512 * MIB),
            (1_024, 1_000_000, 128 * MIB),
            (1_024, usize::MAX, 128 * MIB),
            // Little memory.
            (256, 10, 32 * MIB),
            (256, 1_000_000, 32 * MIB),
            (0, 1_000_000, MIB),
        ] {
            let budget = HeadBudget::of_memory(memory_mib << 20);
            assert_eq!(
                budget.bytes(timelines),
                expected,
                "{memory_mib} MiB, {timelines} timelines"
            );
        }
    }

    #[test]
    fn a_fixed_budget_is_the_same_for_all() {
        for timelines in [0, 1, 1_000_000, usize::MAX] {
            assert_eq!(HeadBudget::fixed(5 * MIB).bytes(timelines), 5 * MIB);
        }
    }
}
