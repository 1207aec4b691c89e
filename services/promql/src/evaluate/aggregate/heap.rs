//! Heap of `topk` and `bottomk`. If only some of several equal values fit within the limit, the structure of the heap
//! determines which of these values stay. The structure is therefore identical to that of Prometheus (Go's
//! `container/heap`).

use super::super::sort::by_falling_value;

/// Maximum length for which Go's sort uses insertion sort.
const INSERTION_MAX: usize = 12;

/// Min-heap of the largest values with their positions; NaN is smaller than all numbers.
#[derive(Debug, Default)]
pub(super) struct Heap(Vec<(f64, usize)>);

impl Heap {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Inserts a value if fewer than `count` values are held. Otherwise, a larger value replaces the smallest held
    /// value. `count` must be at least 1.
    pub(super) fn offer(&mut self, value: f64, position: usize, count: usize) {
        if self.0.len() < count {
            self.0.push((value, position));
            self.rise();
            return;
        }
        let top = &mut self.0[0];
        if top.0 < value || (top.0.is_nan() && !value.is_nan()) {
            *top = (value, position);
            self.sink();
        }
    }

    /// Returns the positions in order of falling value, NaN last.
    pub(super) fn sorted(&mut self) -> impl Iterator<Item = usize> {
        let values = &mut self.0;
        if values.len() <= INSERTION_MAX {
            for end in 1..values.len() {
                let mut at = end;
                while at > 0 && is_less(values[at - 1].0, values[at].0) {
                    values.swap(at - 1, at);
                    at -= 1;
                }
            }
        } else {
            values.sort_by(|a, b| by_falling_value(a.0, b.0));
        }
        values.iter().map(|(_, position)| *position)
    }

    fn is_less(&self, left: usize, right: usize) -> bool {
        is_less(self.0[left].0, self.0[right].0)
    }

    /// Moves the last element up to its position.
    fn rise(&mut self) {
        let mut at = self.0.len() - 1;
        while at > 0 && self.is_less(at, (at - 1) / 2) {
            self.0.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Moves the root down to its position.
    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let mut below = 2 * at + 1;
            if below >= self.0.len() {
                return;
            }
            if below + 1 < self.0.len() && self.is_less(below + 1, below) {
                below += 1;
            }
            if !self.is_less(below, at) {
                return;
            }
            self.0.swap(at, below);
            at = below;
        }
    }
}

/// Compares as Prometheus does: NaN is less than everything, including another NaN.
fn is_less(left: f64, right: f64) -> bool {
    left.is_nan() || left < right
}
