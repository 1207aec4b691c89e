//! Lists that are stored separately from the row that references them.
//!
//! A manifest row is limited in size, but a segment may have any number of files. A long list is therefore split into
//! pages, which the store keeps with the segment. The row contains the size and checksum of the list.

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::hex;
use crate::error::{ArchiveError, Result};

/// Size in bytes at which a page is complete, far below the row limit of a backend.
const PAGE_BYTES: usize = 256 << 10;

/// Size and checksum of a list that is stored in separate pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagedList {
    /// Number of items in all pages.
    pub items: u64,
    /// Number of pages; each is a JSON list.
    pub pages: u32,
    /// SHA-256 of the concatenated pages, in hexadecimal.
    pub sha256: String,
}

impl PagedList {
    /// Splits a list into pages. An empty list has zero pages.
    pub fn encode<T: Serialize>(items: &[T]) -> (Self, Vec<Bytes>) {
        let mut pages = Vec::new();
        let mut page = Vec::new();
        for item in items {
            page.push(if page.is_empty() { b'[' } else { b',' });
            serde_json::to_writer(&mut page, item).expect("plain structures always serialise");
            if page.len() >= PAGE_BYTES {
                page.push(b']');
                pages.push(Bytes::from(std::mem::take(&mut page)));
            }
        }
        if !page.is_empty() {
            page.push(b']');
            pages.push(Bytes::from(page));
        }
        let list = Self {
            items: items.len() as u64,
            pages: u32::try_from(pages.len()).unwrap_or(u32::MAX),
            sha256: checksum(&pages),
        };
        (list, pages)
    }

    /// Decodes the pages into the original list.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Format`] if they differ from the pages that were written.
    pub fn decode<T: DeserializeOwned>(&self, pages: &[Bytes]) -> Result<Vec<T>> {
        let damaged = |reason: String| ArchiveError::format("a list of a segment", reason);
        if pages.len() != self.pages as usize {
            return Err(damaged(format!(
                "it has {} pages instead of {}",
                pages.len(),
                self.pages
            )));
        }
        if checksum(pages) != self.sha256 {
            return Err(damaged("its checksum does not match".into()));
        }
        let mut items = Vec::new();
        for page in pages {
            let of_page: Vec<T> = serde_json::from_slice(page).map_err(|error| damaged(error.to_string()))?;
            items.extend(of_page);
        }
        if items.len() as u64 != self.items {
            return Err(damaged(format!(
                "it has {} items instead of {}",
                items.len(),
                self.items
            )));
        }
        Ok(items)
    }
}

fn checksum(pages: &[Bytes]) -> String {
    let mut sum = Context::new(&SHA256);
    pages.iter().for_each(|page| sum.update(page));
    hex(sum.finish().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_any_length_reads_back_and_damage_is_noticed() {
        for length in [0usize, 1, 7, 40_000] {
            let items: Vec<String> = (0..length).map(|item| format!("name {item}")).collect();
            let (list, pages) = PagedList::encode(&items);
            assert_eq!(list.items, length as u64);
            assert_eq!(list.decode::<String>(&pages).expect("just written"), items);
            assert!(pages.iter().all(|page| page.len() < 2 * PAGE_BYTES));
            if let Some((_, fewer)) = pages.split_last() {
                assert!(list.decode::<String>(fewer).is_err());
                let mut changed = pages.clone();
                let mut page = changed[0].to_vec();
                page[2] ^= 1;
                changed[0] = page.into();
                let error = list.decode::<String>(&changed).expect_err("one bit is another");
                assert!(error.to_string().contains("checksum"), "{error}");
            }
        }
    }
}
