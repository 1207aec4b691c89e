//! Tantivy index in a dedicated folder: opening with checks, the offline check, creation, and the writer.
//!
//! Both kinds of indexes of this crate are disposable: their data is also stored elsewhere. An index that fails a check
//! is therefore not repaired but created again, and filled from the original data.

use std::path::{Path, PathBuf};

use tantivy::directory::error::OpenReadError;
use tantivy::index::SegmentComponent;
use tantivy::indexer::IndexWriterOptions;
use tantivy::merge_policy::LogMergePolicy;
use tantivy::schema::Schema;
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, TantivyError};

/// Name of the file that lists the segments of the last commit.
const META_FILE: &str = "meta.json";
/// Files that every segment has.
const SEGMENT_FILES: [SegmentComponent; 6] = [
    SegmentComponent::Postings,
    SegmentComponent::Positions,
    SegmentComponent::FastFields,
    SegmentComponent::FieldNorms,
    SegmentComponent::Terms,
    SegmentComponent::Store,
];
/// Ratio of deleted documents above which a segment is rewritten.
const DELETED_RATIO_MAX: f32 = 0.3;

/// Opens the index of a folder and decodes the payload of its last commit. The payload is `None` if the index has no
/// commit yet.
///
/// # Errors
///
/// An error of the file system, or a message if the schema differs, a checksum is wrong or the payload cannot be
/// decoded.
pub(crate) fn open<P>(
    folder: &Path,
    schema: &Schema,
    decode: impl FnOnce(&str) -> Option<P>,
) -> tantivy::Result<(Index, Option<P>)> {
    let unsound = |what: &str| TantivyError::SystemError(what.to_owned());
    let index = Index::open_in_dir(folder)?;
    if index.schema() != *schema {
        return Err(unsound("different schema"));
    }
    if let Some(damage) = damage_of(&index, folder)? {
        return Err(unsound(&damage));
    }
    let meta = index.load_metas()?;
    let decoded = match meta.payload {
        None if meta.segments.is_empty() => None,
        payload => {
            let decoded = decode(&payload.unwrap_or_default());
            Some(decoded.ok_or_else(|| unsound("unreadable position"))?)
        }
    };
    Ok((index, decoded))
}

/// Compares the files of an index with their checksums, and changes nothing. Returns a description of the damage;
/// `None` if the index is sound, or if the folder holds no index. Reads all files of the last commit.
pub fn check(folder: &Path) -> Option<String> {
    if folder.exists() && !folder.is_dir() {
        return Some(format!("{} is not a folder", folder.display()));
    }
    if !folder.join(META_FILE).exists() {
        return None;
    }
    let damage = Index::open_in_dir(folder).and_then(|index| damage_of(&index, folder));
    damage.unwrap_or_else(|error| Some(format!("{}: {error}", folder.display())))
}

/// Describes the files of the last commit that are damaged, missing, or not in the list of files. Returns `None` if all
/// files are sound.
///
/// [`Index::validate_checksum`] checks only files in tantivy's list of managed files. If the list is lost, it checks no
/// file, and files that are missing as well are found only by the first use of the index.
fn damage_of(index: &Index, folder: &Path) -> tantivy::Result<Option<String>> {
    let listed = index.directory().list_managed_files();
    let (mut wrong, mut missing, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
    for segment in index.load_metas()?.segments {
        let deletes = segment.has_deletes().then_some(SegmentComponent::Delete);
        for component in SEGMENT_FILES.into_iter().chain(deletes) {
            let file = segment.relative_path(component);
            let path = folder.join(&file);
            match index.directory().validate_checksum(&file) {
                Ok(true) if listed.contains(&file) => {}
                Ok(true) => unlisted.push(path),
                Ok(false) => wrong.push(path),
                Err(OpenReadError::FileDoesNotExist(_)) => missing.push(path),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let mut damage = Vec::new();
    for (what, mut files) in [
        ("wrong checksum of", wrong),
        ("missing:", missing),
        ("not in the list of files:", unlisted),
    ] {
        if !files.is_empty() {
            files.sort();
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            damage.push(format!("{what} {}", files.join(", ")));
        }
    }
    Ok((!damage.is_empty()).then(|| damage.join("; ")))
}

/// Creates an empty index. Creates the folder if it does not exist; otherwise deletes its files. Folders inside it are
/// kept, because they hold other indexes, unless they have the name of a file of tantivy.
///
/// # Errors
///
/// An error of the file system.
pub(crate) fn create(folder: &Path, schema: Schema) -> tantivy::Result<Index> {
    if folder.exists() && !folder.is_dir() {
        std::fs::remove_file(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|file| Ok(file?.path()))
        .collect::<std::io::Result<_>>()?;
    for file in &files {
        // The names of all files of tantivy contain a dot, and the names of folders of other indexes do not.
        let is_of_tantivy = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().contains(&b'.'));
        match file.is_dir() {
            true if is_of_tantivy => std::fs::remove_dir_all(file)?,
            true => {}
            false => std::fs::remove_file(file)?,
        }
    }
    Index::create_in_dir(folder, schema)
}

/// Creates a reader that shows later commits only after a reload.
pub(crate) fn reader(index: &Index) -> tantivy::Result<IndexReader> {
    index
        .reader_builder()
        .reload_policy(ReloadPolicy::Manual)
        .try_into()
}

/// Creates a writer with one thread that indexes and one that merges. `merged_segments` is the minimum number of
/// segments of similar size that are merged into one.
///
/// # Errors
///
/// An error of the file system, or if the index has another writer.
pub(crate) fn writer(
    index: &Index,
    heap_bytes: usize,
    merged_segments: usize,
) -> tantivy::Result<IndexWriter> {
    let options = IndexWriterOptions::builder()
        .num_worker_threads(1)
        .num_merge_threads(1)
        .memory_budget_per_thread(heap_bytes)
        .build();
    let writer: IndexWriter = index.writer_with_options(options)?;
    let mut policy = LogMergePolicy::default();
    policy.set_min_num_segments(merged_segments);
    policy.set_del_docs_ratio_before_merge(DELETED_RATIO_MAX);
    writer.set_merge_policy(Box::new(policy));
    // A new writer starts with the operation number of the last commit. A merge that starts from that commit would
    // treat a delete with that number as already applied and restore the deleted documents. The empty batch uses up
    // the number.
    writer.run(Vec::new())?;
    Ok(writer)
}
