//! Complete check of a data folder that no process uses. Changes nothing in it.
//!
//! In addition to the checks of [`super::verify`], an [`Inspection`] checks both copies of each list, both slots of the
//! high-water mark, and the file in which fjall stores its format version. It compares every table with the checksum in
//! its version file. The crates that wrote the rows check the meaning of the rows. These crates read a copy of the
//! folder, because fjall writes when it opens a store. Tables, which are almost all of the data, are only linked into
//! the copy.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tideline_backend::Result;
use tideline_model::Tier;
use xxhash_rust::xxh3::Xxh3;

use super::{CURRENT, KEYSPACES, Verified, VerifyReport, check_version, verify_locked};
use crate::backend::FjallBackend;
use crate::cold::Cold;
use crate::copy::{Journals, copy_root};
use crate::error::at;
use crate::files::list;
use crate::highwater::damaged_slots;
use crate::keyspace_list::KeyspaceList;
use crate::options::FjallOptions;
use crate::safety::TABLES;
use crate::store::STORE;

/// Buffer size of reads, in bytes.
const READ_BYTES: usize = 1 << 20;
/// fjall's file that stores its format version.
const MARKER: &str = "version";
/// Expected content of that file.
const MARKER_CONTENT: [u8; 4] = [b'F', b'J', b'L', 3];

/// Data folder whose files were all read. It stays locked until the value is dropped.
#[derive(Debug)]
pub struct Inspection {
    folder: PathBuf,
    verified: Verified,
}

impl Inspection {
    /// Reads all files of a data folder and of its cold folder: `cold` inside it, or `cold_dir`.
    ///
    /// # Errors
    ///
    /// The errors of [`verify`](super::verify). An error of the file system if a list, the high-water mark, fjall's
    /// file with its format version, or a table cannot be read.
    pub fn of(folder: &Path, cold_dir: Option<&Path>) -> Result<Self> {
        let mut verified = verify_locked(folder, cold_dir)?;
        let report = &mut verified.report;
        for tier in [Tier::Hot, Tier::Cold] {
            for name in KeyspaceList::damaged_copies(folder, tier).map_err(at(folder))? {
                report.find(&folder.join(name), "is damaged");
            }
        }
        for slot in damaged_slots(folder).map_err(at(folder))? {
            let what = format!("is damaged in slot {slot}");
            report.find(&folder.join("highwater"), &what);
        }
        let cold = verified.cold.clone();
        for root in [Some(folder), cold.as_deref()].into_iter().flatten() {
            report.tables_of(&root.join(STORE))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            verified,
        })
    }

    /// Returns the results.
    pub fn report(&self) -> &VerifyReport {
        &self.verified.report
    }

    /// Opens a copy of the store in `scratch`, an empty folder. The copy needs space for journals and logs; tables are
    /// linked.
    ///
    /// # Errors
    ///
    /// An error of the file system if the copy fails, and the errors of [`FjallBackend::open`].
    pub fn open_copy(&self, scratch: &Path) -> Result<FjallBackend> {
        copy_root(&self.folder, scratch, Journals::Copied).map_err(at(scratch))?;
        if let Some(cold) = &self.verified.cold {
            let to = Cold::root(scratch, None);
            copy_root(cold, &to, Journals::Left).map_err(at(&to))?;
        }
        let options = FjallOptions {
            free_bytes_min: 0,
            free_per_mille_min: 0,
            ..FjallOptions::default()
        };
        FjallBackend::open(scratch, options)
    }
}

impl VerifyReport {
    fn find(&mut self, path: &Path, what: &str) {
        self.findings.push(format!("{} {what}", path.display()));
    }

    /// Checks fjall's file with its format version, and compares every table of a store with its checksum.
    fn tables_of(&mut self, store: &Path) -> Result<()> {
        let marker = store.join(MARKER);
        if fs::read(&marker).map_err(at(&marker))? != MARKER_CONTENT {
            self.find(&marker, "is damaged");
        }
        let keyspaces = store.join(KEYSPACES);
        for keyspace in list(&keyspaces).map_err(at(&keyspaces))? {
            if !keyspace.join(CURRENT).try_exists().map_err(at(&keyspace))? {
                continue;
            }
            // A version file that cannot be read has been reported before.
            let Ok(version) = check_version(&keyspace) else {
                continue;
            };
            let Some(tables) = tables_in(&version) else {
                self.find(&version, "does not list its tables");
                continue;
            };
            for (number, checksum) in tables {
                let path = keyspace.join(TABLES).join(number.to_string());
                match checksum_of(&path) {
                    Ok((found, bytes)) if found == checksum => {
                        self.tables += 1;
                        self.table_bytes += bytes;
                    }
                    Ok(_) => self.find(&path, "does not match its checksum"),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => self.find(&path, "is missing"),
                    Err(error) => return Err(at(&path)(error)),
                }
            }
        }
        Ok(())
    }
}

/// Returns the tables that a version file names, with their checksums; `None` if the file cannot be parsed. The layout
/// is that of lsm-tree (`src/version/mod.rs`): the file lists levels, a level lists runs, and a run lists tables. The
/// entry of a table has its number, the kind of checksum, the checksum and a sequence.
fn tables_in(version: &Path) -> Option<Vec<(u64, u128)>> {
    let reader = sfa::Reader::new(version).ok()?;
    let mut section = reader.toc().section(b"tables")?.buf_reader(version).ok()?;
    let mut tables = Vec::new();
    let [levels] = take(&mut section)?;
    for _ in 0..levels {
        let [runs] = take(&mut section)?;
        for _ in 0..runs {
            for _ in 0..u32::from_le_bytes(take(&mut section)?) {
                let number = u64::from_le_bytes(take(&mut section)?);
                let [0] = take(&mut section)? else { return None };
                let checksum = u128::from_le_bytes(take(&mut section)?);
                let _sequence: [u8; 8] = take(&mut section)?;
                tables.push((number, checksum));
            }
        }
    }
    Some(tables)
}

fn take<const N: usize>(reader: &mut impl Read) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn checksum_of(path: &Path) -> io::Result<(u128, u64)> {
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(path)?);
    let (mut hash, mut bytes) = (Xxh3::new(), 0);
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            return Ok((hash.digest128(), bytes));
        }
        hash.update(read);
        let length = read.len();
        bytes += length as u64;
        reader.consume(length);
    }
}
