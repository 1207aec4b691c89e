//! The archive: old points as Parquet files on an object store.
//!
//! Files are the third home of segments, beside the hot and the cold tier. What is kept of them locally is small: a row in
//! the manifest that names the files ([`ArchiveCopy`]), and for each run of a timeline the place of its rows
//! ([`Extent`]). So a question finds its rows without asking the target, and then asks for exactly their pages.
//!
//! | module | part |
//! |---|---|
//! | `allowed` | targets that requests may name |
//! | [`target`] | object stores as a few blocking verbs: create-only puts, ranged gets, a check of all of them |
//! | [`layout`] | the names of objects |
//! | [`extent`], [`copy`] | what is known of files without reading them |
//! | [`description`] | what is said of a segment beside its files |
//! | `settings` | the settings of a table, beside its files |
//! | `list` | long lists of a segment, in pages |
//! | `objects` | every object at a target, and which of them descriptions name |
//! | `file` | the columns of files, and writing them |
//! | [`write`] | from runs to verified files |
//! | `read` | from extents to runs |
//! | [`attach`] | reading what another database wrote |
//!
//! It knows no HTTP interface, no search, no catalog: who timelines are comes through [`People`], what fields are called
//! through [`Fields`] and [`FieldNames`].
#![doc = include_str!("../FORMAT.md")]

mod allowed;
pub mod attach;
pub mod copy;
pub mod description;
mod digest;
mod directory;
mod error;
pub mod extent;
mod file;
mod known;
pub mod layout;
mod list;
mod objects;
mod read;
mod send;
mod settings;
mod spool;
pub mod target;
pub mod write;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_model::FieldId;

pub use allowed::TargetPrefix;
pub use attach::origin_of;
pub use copy::{ArchiveCopy, ArchiveFile, Attached};
pub use description::{DescribedField, DescribedFields, Description};
pub use digest::new_origin;
pub use error::{ArchiveError, Result, TargetFault};
pub use extent::Extent;
pub use file::columns::{Shape, ShapeField};
pub use known::{Fields, People};
pub use layout::{ObjectContent, SegmentPlace};
pub use list::PagedList;
pub use objects::{DescribedKeys, TargetObject};
pub use read::{FieldNames, ReadMemory, SegmentReader, TimelineRun, TimelineRuns, TimelinesFile};
pub use settings::{FoundSettings, SETTINGS_FORMAT, TableSettings};
pub use spool::Extents;
pub use target::{CheckStep, Listed, Target, TargetCheck, TargetOptions, TargetTraffic};
pub use write::{ArchiveWriter, SentObjects, WrittenSegment};

use crate::allowed::OpenTargets;
use crate::layout::DESCRIPTION_BYTES_MAX;
use crate::read::footers::Footers;
use crate::read::pages::Pages;
use crate::target::Requests;

/// The format of files and of what describes them.
pub const FORMAT: u32 = 1;

/// The name of the target that a server's configuration sets.
pub const DEFAULT_TARGET: &str = "default";

/// Rows with which a measurement of a day gets a file of its own, by default.
const OWN_FILE_ROWS: usize = 8_192;

/// What can be set about the archive.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Where files are made before they are sent; what an earlier process left there is removed.
    pub temporary: PathBuf,
    /// Where footers are kept on disk, and how many bytes of them.
    pub disk_cache: Option<(PathBuf, u64)>,
    /// Bytes of decoded footers in memory.
    pub footers_bytes_max: usize,
    /// Bytes of blocks of rows in memory, for queries that read them again.
    pub pages_bytes_max: usize,
    /// Rows with which a measurement of a day gets a file of its own; smaller ones share files.
    pub own_file_rows: usize,
    /// Targets by name, each with its address and options. Addresses need no name.
    pub targets: HashMap<String, (String, TargetOptions)>,
    /// Addresses below which requests may name targets, besides `targets`; `None`: any, for programs that name targets
    /// themselves.
    pub allowed: Option<Vec<TargetPrefix>>,
}

impl ArchiveSettings {
    /// Defaults, with temporary files in a directory.
    pub fn new(temporary: PathBuf) -> Self {
        Self {
            temporary,
            disk_cache: None,
            footers_bytes_max: 32 << 20,
            pages_bytes_max: 32 << 20,
            own_file_rows: OWN_FILE_ROWS,
            targets: HashMap::new(),
            allowed: None,
        }
    }
}

/// What came of reading every file of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// What is not as it was written, or gone, in words.
    pub wrong: Vec<String>,
    /// What could not be read, and why: nothing is known of it.
    pub unread: Vec<String>,
}

impl Verified {
    /// Whether everything was read and is as it was written.
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty() && self.unread.is_empty()
    }
}

/// The archive of a database: its targets, and what is kept of their files.
#[derive(Debug)]
pub struct Archive {
    settings: ArchiveSettings,
    requests: Arc<Requests>,
    footers: Arc<Footers>,
    open: Mutex<OpenTargets>,
}

impl Archive {
    /// Opens it; no target is asked for anything yet, and folders are made when they are needed.
    ///
    /// # Errors
    ///
    /// Where a local directory that is there cannot be used.
    pub fn open(settings: ArchiveSettings) -> Result<Self> {
        sweep_temporary(&settings.temporary);
        let pages = Arc::new(Pages::new(settings.pages_bytes_max));
        let footers = Footers::new(settings.footers_bytes_max, settings.disk_cache.clone(), pages)?;
        Ok(Self {
            settings,
            requests: Arc::new(Requests::new()),
            footers: Arc::new(footers),
            open: Mutex::default(),
        })
    }

    /// Ends all requests, those under way and those that come: a server that stops does not wait for its targets.
    pub fn stop(&self) {
        self.requests.stop();
    }

    /// The names of the targets that the configuration sets.
    pub fn configured(&self) -> impl Iterator<Item = &str> {
        self.settings.targets.keys().map(String::as_str)
    }

    /// The target of a name or an address.
    ///
    /// # Errors
    ///
    /// Where it is neither, or its options are wrong.
    pub fn target(&self, name: &str) -> Result<Arc<Target>> {
        let mut open = self.open.lock();
        if let Some(target) = open.get(name) {
            return Ok(target);
        }
        let none = TargetOptions::default();
        let (address, options) = match self.settings.targets.get(name) {
            Some((address, options)) => (address.as_str(), options),
            None => (name, &none),
        };
        let target = Target::open(address, options, Arc::clone(&self.requests))?;
        let target = Arc::new(target);
        let is_configured = self.settings.targets.contains_key(name);
        open.keep(name, &target, is_configured);
        Ok(target)
    }

    /// The target that the configuration sets, if it does.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn default_target(&self) -> Result<Option<Arc<Target>>> {
        let is_set = self.settings.targets.contains_key(DEFAULT_TARGET);
        is_set.then(|| self.target(DEFAULT_TARGET)).transpose()
    }

    /// Begins to write the files of a segment.
    ///
    /// # Errors
    ///
    /// If the target is not valid or not allowed, or the local disk fails.
    pub fn writer<'a>(
        &self,
        place: SegmentPlace,
        people: &'a dyn People,
        fields: &'a dyn Fields,
    ) -> Result<ArchiveWriter<'a>> {
        self.check_allowed(&place.target)?;
        let target = self.target(&place.target)?;
        std::fs::create_dir_all(&self.settings.temporary).map_err(ArchiveError::local("making"))?;
        let rows = self.settings.own_file_rows;
        ArchiveWriter::new(
            place,
            target,
            self.settings.temporary.clone(),
            rows,
            people,
            fields,
        )
    }

    /// Writes the description of a segment beside its files, as the last step before they count; its name. The name is
    /// noted among those that were `sent` before the object is put.
    ///
    /// # Errors
    ///
    /// Where the target fails.
    pub fn describe(
        &self,
        place: &SegmentPlace,
        description: &Description,
        sent: &SentObjects,
    ) -> Result<String> {
        let (key, content) = described(place, description);
        sent.note(&key);
        self.target(&place.target)?.put_new(&key, &Bytes::from(content))?;
        Ok(key)
    }

    /// The name that [`describe`](Self::describe) gives a description.
    pub fn description_name(&self, place: &SegmentPlace, description: &Description) -> String {
        described(place, description).0
    }

    /// Begins to read a segment: these fields only, or all. `ahead` is how many bytes may be fetched before they are asked
    /// for, which is right where all timelines are read, and zero where some are.
    ///
    /// # Errors
    ///
    /// Where its target is not known any more.
    pub fn reader(
        &self,
        copy: &Arc<ArchiveCopy>,
        fields: Option<&[FieldId]>,
        ahead: u64,
    ) -> Result<SegmentReader> {
        Ok(SegmentReader::new(
            self.target(&copy.target)?,
            Arc::clone(&self.footers),
            Arc::clone(copy),
            fields.map(<[FieldId]>::to_vec),
            ahead,
        ))
    }

    /// Bytes of blocks of rows that are in memory, at most as the settings say.
    pub fn cached_bytes(&self) -> usize {
        self.footers.pages().bytes()
    }

    /// Reads every file of a segment and compares it with what was stored about it.
    ///
    /// # Errors
    ///
    /// Where its target is not known. What cannot be read is part of the outcome.
    pub fn verify(&self, copy: &ArchiveCopy) -> Result<Verified> {
        let target = self.target(&copy.target)?;
        let files = copy.files.iter().chain([&copy.timelines]);
        let checks = files.map(|file| (file.key.as_str(), Some(file)));
        let sidecar = Some((copy.sidecar.as_str(), None)).filter(|(key, _)| !key.is_empty());
        let mut checks = checks.chain(sidecar);
        let mut verified = Verified::default();
        for (key, file) in checks.by_ref() {
            let outcome = match file {
                Some(file) => send::verify_file(&target, file),
                None => send::verify_name(&target, key),
            };
            match outcome {
                Ok(()) => {}
                Err(error) if error.is_missing() || matches!(error, ArchiveError::Damaged { .. }) => {
                    verified.wrong.push(error.to_string());
                }
                Err(error) => {
                    verified.unread.push(error.to_string());
                    // The next ones would wait as long, and fail as well.
                    if error.is_retryable() {
                        break;
                    }
                }
            }
        }
        let rest =
            checks.map(|(key, _)| format!("archive target {target}: {key:?} was not asked for after that"));
        verified.unread.extend(rest);
        Ok(verified)
    }

    /// The segments that are described at a target, with the names of their descriptions: what an archive is without its
    /// database. One that cannot be read is an error of its own.
    ///
    /// # Errors
    ///
    /// Where the target cannot be asked.
    pub fn described(&self, target: &str) -> Result<Vec<(String, Result<ArchiveCopy>)>> {
        let opened = self.target(target)?;
        let keys = opened.list("")?.into_iter().map(|object| object.key);
        let mut keys: Vec<String> = keys.filter(|key| layout::is_sidecar(key)).collect();
        keys.sort_unstable();
        let read = |key: String| {
            let content = match opened.get(&key, DESCRIPTION_BYTES_MAX) {
                Err(error) if error.is_retryable() => return Err(error),
                content => content,
            };
            let copy = content.and_then(|content| {
                let described =
                    description::parse(&content).map_err(|reason| opened.damaged(&key, reason))?;
                if !layout::file_name(&key).contains(&digest::sha256_hex(&content)[..layout::DIGITS]) {
                    return Err(opened.damaged(&key, "its checksum is another one"));
                }
                Ok(ArchiveCopy {
                    target: target.to_owned(),
                    sidecar: key.clone(),
                    ..described.archive
                })
            });
            Ok((key, copy))
        };
        keys.into_iter().map(read).collect()
    }

    /// The first object of a segment that is not there, or not of its size; nothing is read of them.
    ///
    /// # Errors
    ///
    /// Where the target cannot be asked.
    pub fn missing(&self, copy: &ArchiveCopy) -> Result<Option<String>> {
        let target = self.target(&copy.target)?;
        let files = copy.files.iter().chain([&copy.timelines]);
        let files = files.map(|file| (file.key.as_str(), Some(file.bytes)));
        let sidecar = (!copy.sidecar.is_empty()).then_some((copy.sidecar.as_str(), None));
        for (key, bytes) in files.chain(sidecar) {
            let found = target.size(key)?;
            if found.is_none() || bytes.is_some_and(|bytes| found != Some(bytes)) {
                return Ok(Some(key.to_owned()));
            }
        }
        Ok(None)
    }

    /// Removes the objects of a segment that no manifest names any more.
    ///
    /// # Errors
    ///
    /// Where the target fails; what is left is swept later.
    pub fn remove(&self, copy: &ArchiveCopy) -> Result<()> {
        self.remove_objects(&copy.target, copy.newest_first())
    }

    /// Removes objects one after the other. The description of a segment should come first, since without it nothing takes
    /// the rest for whole.
    ///
    /// # Errors
    ///
    /// Where the target fails; what is left is swept later.
    pub fn remove_objects<'k>(&self, target: &str, keys: impl IntoIterator<Item = &'k str>) -> Result<()> {
        let target = self.target(target)?;
        keys.into_iter().try_for_each(|key| target.delete(key))
    }

    /// Removes objects of a table that the database `origin` wrote before an instant and that nobody names; how many.
    /// `is_named` is called with their names. Its newest settings of the table
    /// stay for as long as any file of the table is there.
    ///
    /// # Errors
    ///
    /// Where the target fails.
    pub fn sweep(
        &self,
        target: &str,
        table: &str,
        origin: &str,
        before: i64,
        is_named: &dyn Fn(&str) -> bool,
    ) -> Result<u64> {
        let target = self.target(target)?;
        let mut removed = 0;
        let mut has_files = false;
        let mut settings: Vec<Listed> = Vec::new();
        for object in target.list(&layout::table_prefix(table))? {
            let content = layout::named(&object.key).map(|named| named.content);
            let is_own = layout::is_of(&object.key, table, origin);
            if content == Some(ObjectContent::Settings) {
                settings.extend(is_own.then_some(object));
            } else if is_own && object.modified < before && !is_named(&object.key) {
                target.delete(&object.key)?;
                removed += 1;
            } else {
                has_files |= content.is_some();
            }
        }
        settings.sort_by_key(|object| layout::named(&object.key).map(|named| named.number));
        if has_files {
            settings.pop();
        }
        for object in settings.into_iter().filter(|object| object.modified < before) {
            target.delete(&object.key)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The tables that have objects at a target, whoever wrote them.
    ///
    /// # Errors
    ///
    /// Where the target fails.
    pub fn tables(&self, target: &str) -> Result<Vec<String>> {
        let target = self.target(target)?;
        let mut tables = Vec::new();
        for folder in target.folders("")? {
            let below = target.folders(&layout::table_prefix(&folder))?;
            if below.iter().any(|below| layout::is_folder_of_table(below)) {
                tables.push(folder);
            }
        }
        Ok(tables)
    }
}

/// A description as it is written: its name and its content.
fn described(place: &SegmentPlace, description: &Description) -> (String, Vec<u8>) {
    let content = serde_json::to_vec_pretty(description).expect("plain structures always serialise");
    (layout::sidecar_key(place, &digest::sha256_hex(&content)), content)
}

/// Removes what a crash left of files in the making.
fn sweep_temporary(directory: &std::path::Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let names = entries.filter_map(|entry| entry.ok()).filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("archive-") && name.ends_with(".parquet")
    });
    for entry in names {
        if let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::warn!(%error, path = %entry.path().display(), "a file that a crash left could not be removed");
        }
    }
}
