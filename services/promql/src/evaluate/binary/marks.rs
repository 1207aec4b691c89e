//! Set of steps, stored from its first to its last element.

use std::ops::Range;

/// Set of steps. Takes one byte per step between its first and last element, nothing if empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    first: usize,
    marks: Vec<bool>,
}

impl Marks {
    /// Adds a step after all existing ones.
    pub(super) fn push(&mut self, step: usize) {
        if self.marks.is_empty() {
            self.first = step;
        }
        self.marks.resize(step - self.first, false);
        self.marks.push(true);
    }

    pub(super) fn has(&self, step: usize) -> bool {
        let at = step.checked_sub(self.first);
        at.is_some_and(|at| self.marks.get(at).copied().unwrap_or(false))
    }

    /// Returns true if the two sets intersect.
    pub(super) fn intersects(&self, other: &Self) -> bool {
        let both = self.steps().start.max(other.steps().start)..self.steps().end.min(other.steps().end);
        let mut pairs = self.within(both.clone()).iter().zip(other.within(both));
        pairs.any(|(left, right)| *left && *right)
    }

    /// Adds all steps of another set.
    pub(super) fn add(&mut self, other: &Self) {
        if other.marks.is_empty() {
            return;
        }
        if self.marks.is_empty() {
            self.clone_from(other);
            return;
        }
        if other.first < self.first {
            let before = std::iter::repeat_n(false, self.first - other.first);
            self.marks.splice(..0, before);
            self.first = other.first;
        }
        let length = self.steps().end.max(other.steps().end) - self.first;
        self.marks.resize(length, false);
        for (mark, other) in self.marks[other.first - self.first..]
            .iter_mut()
            .zip(&other.marks)
        {
            *mark |= other;
        }
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.marks.len()
    }

    /// Returns the flags of a range within the set's ends; empty for an empty range.
    fn within(&self, steps: Range<usize>) -> &[bool] {
        match steps.is_empty() {
            true => &[],
            false => &self.marks[steps.start - self.first..steps.end - self.first],
        }
    }

    fn steps(&self) -> Range<usize> {
        self.first..self.first + self.marks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(steps: &[usize]) -> Marks {
        let mut marks = Marks::default();
        steps.iter().for_each(|step| marks.push(*step));
        marks
    }

    #[test]
    fn steps_are_added_on_both_sides() {
        let mut all = marks(&[]);
        for part in [&[5, 8][..], &[], &[2, 6], &[11], &[7]] {
            let part = marks(part);
            assert!(!all.intersects(&part) && !part.intersects(&all));
            all.add(&part);
            assert!(part.size() == 0 || (all.intersects(&part) && part.intersects(&all)));
        }
        let there: Vec<usize> = (0..20).filter(|step| all.has(*step)).collect();
        assert_eq!(there, [2, 5, 6, 7, 8, 11]);
        assert_eq!(all.size(), 10);
    }
}
