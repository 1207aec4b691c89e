//! Memory budget of unsealed points.
//!
//! The budget grows with the number of timelines, so that a seal writes several points of each timeline. It is limited
//! to a share of the process memory.

/// Budget in bytes of a head with few timelines.
const FEW_TIMELINES_BYTES: usize = 80 << 20;
/// Budget in bytes per timeline of a head. A third is used by the index that finds the timeline. Two thirds hold about
/// thirty points with one number each, so a seal writes about thirty points per timeline, regardless of the number of
/// timelines.
const TIMELINE_BYTES: usize = 256;
/// Divisor of the memory limit for one head. While one head is being sealed, a second one fills.
const MEMORY_SHARE: u64 = 8;
/// Minimum of [`HeadBudget::bytes_max`], regardless of the memory limit.
const BYTES_MIN: usize = 1 << 20;

/// Bytes of unsealed points (encoded blocks, open rows and their index) at which a head is frozen and sealed.
///
/// The cost of a seal depends on the number of timelines as much as on the number of points. A head therefore
/// collects several points of each timeline before it is sealed, as far as memory permits. A second head may fill
/// while a frozen one is being sealed, so memory peaks at about twice the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadBudget {
    /// Budget in bytes for few timelines.
    pub bytes_min: usize,
    /// Budget in bytes per timeline with points in the head. Applies if the product is greater than `bytes_min`.
    pub bytes_per_timeline: usize,
    /// Maximum in bytes, regardless of the number of timelines. It also limits `bytes_min`.
    pub bytes_max: usize,
}

impl HeadBudget {
    /// Returns a budget that does not depend on the number of timelines.
    pub const fn fixed(bytes: usize) -> Self {
        Self {
            bytes_min: bytes,
            bytes_per_timeline: 0,
            bytes_max: bytes,
        }
    }

    /// Returns the budget of a process that may use `limit_bytes` of memory: 80 MiB, or 256 bytes per timeline if
    /// that is more, but at most an eighth of the limit. That maximum is at least 1 MiB.
    pub fn of_memory(limit_bytes: u64) -> Self {
        let share = usize::try_from(limit_bytes / MEMORY_SHARE).unwrap_or(usize::MAX);
        Self {
            bytes_min: FEW_TIMELINES_BYTES,
            bytes_per_timeline: TIMELINE_BYTES,
            bytes_max: share.max(BYTES_MIN),
        }
    }

    /// Returns the size in bytes at which a head with `timelines` timelines is sealed.
    pub fn bytes(&self, timelines: usize) -> usize {
        let wanted = timelines.saturating_mul(self.bytes_per_timeline);
        wanted.max(self.bytes_min).min(self.bytes_max)
    }
}

impl Default for HeadBudget {
    /// Returns the budget for 4 GiB of memory.
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
            // With few timelines and enough memory, the budget does not depend on either.
            (4_096, 0, 80 * MIB),
            (4_096, 200_000, 80 * MIB),
            (1 << 20, 4_000, 80 * MIB),
            // With many timelines, the budget is proportional to their number.
            (4_096, 1_000_000, 256_000_000),
            (1 << 20, 10_000_000, 2_560_000_000),
            // The budget is limited to a share of the memory.
            (4_096, 10_000_000, 512 * MIB),
            (1_024, 1_000_000, 128 * MIB),
            (1_024, usize::MAX, 128 * MIB),
            // With little memory, the budget is the share of the memory, but at least 1 MiB.
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
