//! The archive: old points as Parquet files on an object store.
//!
//! The archive is a third tier of segments, in addition to the hot and the cold tier. For an archived segment, the
//! local database stores a manifest row that lists the files ([`ArchiveCopy`]). For each run of a timeline, it stores
//! the location of the rows ([`Extent`]) and summaries. A query therefore finds its rows without requests to the
//! target. The query then fetches the footers that are not cached, and the file blocks with the pages of these rows.
//! One request may fetch two blocks together with the gap between them.
//!
//! | module | holds |
//! |---|---|
//! | `allowed` | targets that requests may name |
//! | [`target`] | blocking operations on object stores: create-only puts, ranged gets, a check of targets |
//! | [`layout`] | object names |
//! | [`extent`], [`copy`] | metadata of files, stored locally |
//! | [`description`] | description of a segment, stored with its files |
//! | `settings` | settings of a table, stored with its files |
//! | `list` | long lists of a segment, split into pages |
//! | `objects` | listing of all objects at a target, and of the objects that descriptions reference |
//! | `file` | columns and writing of files |
//! | `spool` | local copies of the extents of a segment while its files are written |
//! | `directory` | the file of the timelines of a segment |
//! | `timeline_metadata` | interfaces to identities and attributes, which the store does not hold |
//! | `send`, `digest` | sending of files, checksums, and the check at the target |
//! | [`mod@write`] | writing of runs to verified files |
//! | `read` | reading of runs by their extents |
//! | [`rows`] | parts of wide tables: writing and reading of row groups |
//! | [`attach`] | reading of files that another database wrote |
//! | [`error`] | errors without credentials |
//!
//! This crate does not depend on the HTTP interface, search or catalog. Metadata of timelines is provided through
//! [`TimelineMetadata`], metadata of fields through [`Fields`] and [`FieldNames`].
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
pub mod layout;
mod list;
mod objects;
mod read;
pub mod rows;
mod send;
mod settings;
mod spool;
pub mod target;
mod timeline_metadata;
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
pub use layout::{ObjectContent, SegmentTarget};
pub use list::PagedList;
pub use objects::{DescribedKeys, TargetObject};
pub use read::{FieldNames, ReadMemory, SegmentReader, TimelineRun, TimelineRuns, TimelinesFile};
pub use settings::{FoundSettings, SETTINGS_FORMAT, TableSettings};
pub use spool::Extents;
pub use target::{CheckStep, Listed, Target, TargetCheck, TargetOptions, TargetTraffic};
pub use timeline_metadata::{Fields, TimelineMetadata};
pub use write::{ArchiveWriter, SentObjects, WrittenSegment};

use crate::allowed::OpenTargets;
use crate::layout::DESCRIPTION_BYTES_MAX;
use crate::read::footers::Footers;
use crate::read::pages::Pages;
use crate::target::Requests;

/// Format number of files and descriptions.
pub const FORMAT: u32 = 1;

/// Name of the default target, which the server configuration may set.
pub const DEFAULT_TARGET: &str = "default";

/// Default number of rows at which a measurement of a day gets its own file.
const OWN_FILE_ROWS: usize = 8_192;

/// Settings of the archive.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Directory of files that are built before they are sent, and of foreign files while they are read. Opening the
    /// archive removes built files that an earlier process left there.
    pub temporary: PathBuf,
    /// Directory of the footer cache on disk, and the maximum size of the cache in bytes; `None` disables this cache.
    pub disk_cache: Option<(PathBuf, u64)>,
    /// Maximum bytes of decoded footers in memory. A single larger footer is kept.
    pub footers_bytes_max: usize,
    /// Maximum bytes of cached file blocks in memory, for queries that read them again.
    pub pages_bytes_max: usize,
    /// Number of rows at which a measurement of a day gets its own file. Measurements with fewer rows share files.
    pub own_file_rows: usize,
    /// Targets by name, each with its address and options. A target can also be used by its address, without a name.
    pub targets: HashMap<String, (String, TargetOptions)>,
    /// Addresses under which requests may use targets, in addition to `targets`. `None` allows all addresses, for
    /// programs that choose the targets themselves.
    pub allowed: Option<Vec<TargetPrefix>>,
}

impl ArchiveSettings {
    /// Returns default settings with the given directory for temporary files.
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

/// Result of a verification of the objects of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Damaged or missing objects, with messages.
    pub wrong: Vec<String>,
    /// Objects that could not be read, with messages; their state is unknown.
    pub unread: Vec<String>,
}

impl Verified {
    /// Returns true if all objects were read and are undamaged.
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty() && self.unread.is_empty()
    }
}

/// Archive of a database: its targets, and caches of their files.
#[derive(Debug)]
pub struct Archive {
    settings: ArchiveSettings,
    requests: Arc<Requests>,
    footers: Arc<Footers>,
    open: Mutex<OpenTargets>,
}

impl Archive {
    /// Opens the archive. Sends no requests to targets; directories are created on first use.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Local`] if an existing cache directory cannot be listed.
    pub fn open(settings: ArchiveSettings) -> Result<Self> {
        remove_temporary(&settings.temporary);
        let pages = Arc::new(Pages::new(settings.pages_bytes_max));
        let footers = Footers::new(settings.footers_bytes_max, settings.disk_cache.clone(), pages)?;
        Ok(Self {
            settings,
            requests: Arc::new(Requests::new()),
            footers: Arc::new(footers),
            open: Mutex::default(),
        })
    }

    /// Ends all requests, current and future ones, so that a server shutdown does not wait for targets.
    pub fn stop(&self) {
        self.requests.stop();
    }

    /// Returns the names of the targets that the configuration sets.
    pub fn configured(&self) -> impl Iterator<Item = &str> {
        self.settings.targets.keys().map(String::as_str)
    }

    /// Returns the target with a name or an address.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if `name` is neither the name of a configured target nor a valid address, or if the
    /// options of the target are not valid.
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

    /// Returns the default target if the configuration sets it.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if its address or options are not valid.
    pub fn default_target(&self) -> Result<Option<Arc<Target>>> {
        let is_set = self.settings.targets.contains_key(DEFAULT_TARGET);
        is_set.then(|| self.target(DEFAULT_TARGET)).transpose()
    }

    /// Starts writing the files of a segment.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or not allowed, or the local disk fails.
    ///
    /// # Examples
    ///
    /// The files of a segment at a target in memory, written and read back:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use hashbrown::HashMap;
    /// use tideline_archive::{Archive, ArchiveSettings, SegmentTarget};
    /// use tideline_chunk::{Presence, Run, RunColumn, SequenceSpan};
    /// # use tideline_archive::{Fields, ShapeField, TimelineMetadata};
    /// # use tideline_model::{ColumnData, FieldId, Identity, SegmentId, SequenceNumber, TableName, TimelineId};
    /// # struct Catalog;
    /// # impl TimelineMetadata for Catalog {
    /// #     fn identity(&self, _: TimelineId) -> Option<Arc<Identity>> {
    /// #         Identity::new("cpu".into(), Vec::new()).ok().map(Arc::new)
    /// #     }
    /// #     fn attributes(&self, _: TimelineId) -> Option<String> { None }
    /// #     fn tag_keys(&self, _: &str) -> Vec<String> { Vec::new() }
    /// # }
    /// # impl Fields for Catalog {
    /// #     fn of_measurement(&self, _: &str) -> Vec<ShapeField> { Vec::new() }
    /// #     fn name(&self, _: FieldId) -> Option<String> { Some("usage".into()) }
    /// # }
    /// # let folder = tempfile::tempdir()?;
    /// # let values = ColumnData::Float(vec![0.5, 0.25]);
    /// # let columns = vec![RunColumn { field: FieldId(1), presence: Presence::All, values }];
    /// # let run = Run { timestamps: vec![1_000, 2_000], columns };
    /// # let sequences = SequenceSpan { lowest: SequenceNumber(1), highest: SequenceNumber(2) };
    /// let archive = Archive::open(ArchiveSettings::new(folder.path().to_owned()))?;
    /// let target = SegmentTarget {
    ///     origin: "feedc0de".to_owned(),
    ///     table: TableName::new("metrics")?,
    ///     segment: SegmentId(7),
    ///     target: "memory:///".to_owned(),
    /// };
    /// let mut writer = archive.writer(target, &Catalog, &Catalog)?;
    /// writer.add(TimelineId::MIN, &run, sequences)?;
    /// let written = writer.finish(&mut || true)?;
    ///
    /// let mut reader = archive.reader(&Arc::new(written.copy), None, 0)?;
    /// for extent in written.extents {
    ///     let (timeline, extent) = extent?;
    ///     assert_eq!(timeline, TimelineId::MIN);
    ///     assert_eq!(reader.read(&extent, &|_: &str| Some(FieldId(1)))?, run);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writer<'a>(
        &self,
        segment_target: SegmentTarget,
        metadata: &'a dyn TimelineMetadata,
        fields: &'a dyn Fields,
    ) -> Result<ArchiveWriter<'a>> {
        self.check_allowed(&segment_target.target)?;
        let target = self.target(&segment_target.target)?;
        std::fs::create_dir_all(&self.settings.temporary).map_err(ArchiveError::local("making"))?;
        let rows = self.settings.own_file_rows;
        ArchiveWriter::new(
            segment_target,
            target,
            self.settings.temporary.clone(),
            rows,
            metadata,
            fields,
        )
    }

    /// Writes the description of a segment and returns its object name. This is the last step, after which the files
    /// are valid. The name is recorded in `sent` before the object is put.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or fails. [`ArchiveError::Damaged`] if an object of this name has other
    /// content.
    pub fn describe(
        &self,
        segment_target: &SegmentTarget,
        description: &Description,
        sent: &SentObjects,
    ) -> Result<String> {
        let (key, content) = described(segment_target, description);
        sent.note(&key);
        self.target(&segment_target.target)?
            .put_new(&key, &Bytes::from(content))?;
        Ok(key)
    }

    /// Returns the object name under which [`describe`](Self::describe) stores a description.
    pub fn description_name(&self, segment_target: &SegmentTarget, description: &Description) -> String {
        described(segment_target, description).0
    }

    /// Returns a reader of a segment for the given fields, or for all fields if `fields` is `None`.
    ///
    /// `ahead` is the maximum number of bytes to fetch ahead. Use zero to read a few timelines, and a larger number to
    /// read all of them.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the target of the segment is neither configured nor a valid address, or if its
    /// options are not valid.
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

    /// Returns the approximate memory of cached file blocks in bytes, at most [`ArchiveSettings::pages_bytes_max`].
    pub fn cached_bytes(&self) -> usize {
        self.footers.pages().bytes()
    }

    /// Reads every file of a segment and compares it with its recorded size, checksum, number of rows and time range.
    /// Compares the description with the checksum in its name. Ends after the first error that a retry may fix; the
    /// remaining objects count as unread.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the target of the segment is not valid. Objects that cannot be read are part of
    /// the result.
    pub fn verify(&self, copy: &ArchiveCopy) -> Result<Verified> {
        let files = copy.files.iter().chain([&copy.timelines]);
        let sidecar = Some(copy.sidecar.as_str()).filter(|key| !key.is_empty());
        self.verify_objects(&copy.target, files, sidecar)
    }

    /// Verifies files and a description. Ends after the first error that a retry may fix.
    fn verify_objects<'f>(
        &self,
        target: &str,
        files: impl Iterator<Item = &'f ArchiveFile>,
        description: Option<&str>,
    ) -> Result<Verified> {
        let target = self.target(target)?;
        let checks = files.map(|file| (file.key.as_str(), Some(file)));
        let mut checks = checks.chain(description.map(|key| (key, None)));
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
                    // Further reads would wait just as long and also fail.
                    if error.is_retryable() {
                        break;
                    }
                }
            }
        }
        let rest =
            checks.map(|(key, _)| format!("archive target {target}: {key:?} was not read after the error"));
        verified.unread.extend(rest);
        Ok(verified)
    }

    /// Returns the segments described at a target, with the object names of their descriptions. Needs no database. The
    /// entry of a damaged description is an error.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
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
                    return Err(opened.damaged(&key, "its checksum does not match"));
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

    /// Returns the name of the first object of a segment that is missing, or whose size differs from the recorded size;
    /// `None` if all objects exist with the right size. Does not check the size of the description. Reads no content.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn missing(&self, copy: &ArchiveCopy) -> Result<Option<String>> {
        let files = copy.files.iter().chain([&copy.timelines]);
        let files = files.map(|file| (file.key.as_str(), Some(file.bytes)));
        let sidecar = (!copy.sidecar.is_empty()).then_some((copy.sidecar.as_str(), None));
        self.first_missing(&copy.target, files.chain(sidecar))
    }

    /// Returns the name of the first object that is missing, or whose size differs from the given one.
    fn first_missing<'k>(
        &self,
        target: &str,
        objects: impl Iterator<Item = (&'k str, Option<u64>)>,
    ) -> Result<Option<String>> {
        let target = self.target(target)?;
        for (key, bytes) in objects {
            let found = target.size(key)?;
            if found.is_none() || bytes.is_some_and(|bytes| found != Some(bytes)) {
                return Ok(Some(key.to_owned()));
            }
        }
        Ok(None)
    }

    /// Removes the objects of a segment that is no longer in the manifest.
    ///
    /// # Errors
    ///
    /// Fails if the target fails. Objects that were not removed are removed later by
    /// [`remove_orphans`](Self::remove_orphans).
    pub fn remove(&self, copy: &ArchiveCopy) -> Result<()> {
        self.remove_objects(&copy.target, copy.newest_first())
    }

    /// Removes objects in the order of `keys`. The description of a segment must be its first key: without a
    /// description, no database treats the other objects as a complete segment.
    ///
    /// # Errors
    ///
    /// Fails if the target fails. Objects that were not removed are removed later by
    /// [`remove_orphans`](Self::remove_orphans).
    pub fn remove_objects<'k>(&self, target: &str, keys: impl IntoIterator<Item = &'k str>) -> Result<()> {
        let target = self.target(target)?;
        keys.into_iter().try_for_each(|key| target.delete(key))
    }

    /// Removes orphaned objects of a table and returns the number of removed objects.
    ///
    /// Orphans are objects of the database `origin` that were written before `before` (nanoseconds since the epoch) and
    /// for whose names `is_named` returns false. Settings that `origin` wrote before `before` are removed as well,
    /// without a call of `is_named`. The newest settings of `origin` are kept while the table has objects other than
    /// settings.
    ///
    /// # Errors
    ///
    /// Fails if the target fails.
    pub fn remove_orphans(
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

    /// Returns the tables that have objects at a target, written by any database.
    ///
    /// # Errors
    ///
    /// Fails if the target fails.
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

/// Returns the object name and the content of a description.
fn described(segment_target: &SegmentTarget, description: &Description) -> (String, Vec<u8>) {
    let content = serde_json::to_vec_pretty(description).expect("plain structures always serialise");
    (
        layout::sidecar_key(segment_target, &digest::sha256_hex(&content)),
        content,
    )
}

/// Removes temporary files that a crash has left.
fn remove_temporary(directory: &std::path::Path) {
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
            tracing::warn!(%error, path = %entry.path().display(), "could not remove a temporary file");
        }
    }
}
