//! Array that grows by pages: beyond the first page, elements are never moved, and no capacity is reserved for
//! doubling.

use std::ops::{Index, IndexMut};

/// Number of elements per page.
const PAGE: usize = 256;

/// Paged array. The first page grows like a vector.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Pages<T> {
    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        match self.pages.split_last() {
            Some((last, full)) => full.len() * PAGE + last.len(),
            None => 0,
        }
    }

    /// Appends an element.
    pub(crate) fn push(&mut self, element: T) {
        match self.pages.last_mut() {
            Some(last) if last.len() < PAGE => last.push(element),
            Some(_) => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(element);
                self.pages.push(page);
            }
            None => self.pages.push(vec![element]),
        }
    }

    /// Iterates over the elements in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }

    /// Iterates mutably over the elements in order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pages[at / PAGE][at % PAGE]
    }
}

impl<T> IndexMut<usize> for Pages<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.pages[at / PAGE][at % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_stands_where_it_was_put() {
        for count in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7] {
            let mut pages = Pages::default();
            for element in 0..count {
                assert_eq!(pages.len(), element);
                pages.push(element);
            }
            pages.iter_mut().for_each(|element| *element *= 2);
            assert!(pages.iter().copied().eq((0..count).map(|element| element * 2)));
            assert!((0..count).all(|at| pages[at] == 2 * at));
            assert_eq!(pages.len(), count);
        }
    }
}
