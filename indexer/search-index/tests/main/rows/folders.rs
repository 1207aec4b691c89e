//! Folders of indexes over rows: several shards, damaged or lost files, and the position of the journal that an index
//! stores.
//!
//! An index whose files do not belong together must be created again, because its searches would miss rows.

use super::*;

#[test]
fn an_index_with_other_columns_or_damage_is_created_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let open_with = |columns, cells_expire| {
        let traits = RowTraits {
            has_parts: true,
            cells_expire,
        };
        RowIndex::open(folder.path(), columns, traits, Sharding::one(), HEAP_BYTES).expect("a folder")
    };
    let open = |columns| open_with(columns, false);
    let filled = |index: &RowIndex| {
        let row = Row {
            key: b"k".to_vec(),
            time: 0,
            cells: vec![Vec::new(); COLUMNS.len()],
        };
        index
            .replace(vec![row.key.clone()], vec![index.document(&row)])
            .expect("a writer");
        index
            .commit(&RowPosition {
                end: 7,
                build: Some("6b".to_owned()),
            })
            .expect("a writer");
        index.release_writer().expect("no merge fails");
        assert_eq!(index.documents(), 1);
    };
    let (index, position) = open(columns());
    assert_eq!(position, None);
    filled(&index);
    drop(index);
    let (index, position) = open(columns());
    assert_eq!(
        position.expect("a commit"),
        RowPosition {
            end: 7,
            build: Some("6b".to_owned())
        }
    );
    drop(index);

    for (columns, cells_expire) in [(columns()[1..].to_vec(), false), (columns(), true)] {
        let (index, position) = open_with(columns, cells_expire);
        assert_eq!((position, index.documents()), (None, 0));
        filled(&index);
        drop(index);
    }
    let (index, _) = open(columns());
    filled(&index);
    drop(index);
    let files = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|file| file.expect("a file").path());
    let damaged = files.filter(|path| path.extension().is_some_and(|extension| extension == "fast"));
    for path in damaged {
        let mut bytes = std::fs::read(&path).expect("a file");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&path, bytes).expect("a file");
    }
    let (index, position) = open(columns());
    assert_eq!((position, index.documents()), (None, 0));
}

/// Without its list of files, tantivy checks no file.
#[test]
fn an_index_with_lost_files_is_created_again() {
    type Damage = fn(&Path);
    let remove = |folder: &Path, extension: &str| {
        for file in std::fs::read_dir(folder).expect("a folder") {
            let path = file.expect("a file").path();
            if path.extension().is_some_and(|of| of == extension) {
                std::fs::remove_file(path).expect("a file");
            }
        }
    };
    let lose = |folder: &Path, extension: &str| {
        std::fs::write(folder.join(".managed.json"), "[]").expect("a file");
        remove(folder, extension);
    };
    let replaced: Damage = |folder| {
        std::fs::remove_file(folder.join("meta.json")).expect("a file");
        std::fs::create_dir_all(folder.join("meta.json/inner")).expect("a folder");
    };
    let a_file: Damage = |folder| {
        std::fs::remove_dir_all(folder).expect("a folder");
        std::fs::write(folder, "x").expect("a file");
    };
    let unlisted: Damage = |folder| std::fs::remove_file(folder.join(".managed.json")).expect("a file");
    let extensions = ["idx", "term", "pos", "fast", "fieldnorm", "store"];
    for number in 0..2 * extensions.len() + 3 {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("7");
        let (index, _) = open_shards(&folder);
        index.clear().expect("a writer");
        index_rows(&index, 0..9, 7);
        index.release_writer().expect("no merge fails");
        drop(index);
        assert_eq!(check_folder(&folder), None);
        match number.checked_sub(2 * extensions.len()) {
            None if number % 2 == 0 => lose(&folder, extensions[number / 2]),
            None => remove(&folder, extensions[number / 2]),
            Some(other) => [replaced, a_file, unlisted][other](&folder),
        }
        assert!(check_folder(&folder).is_some(), "{number}");
        let (index, position) = open_shards(&folder);
        assert_eq!((position, index.documents()), (None, 0), "{number}");
        index_rows(&index, 0..9, 8);
        assert_eq!(index.documents(), 9, "{number}");
    }
}

/// Opens an index with three shards.
fn open_shards(folder: &Path) -> (RowIndex, Option<u64>) {
    let opened = RowIndex::open(folder, columns(), RowTraits::default(), sharding(3), HEAP_BYTES);
    let (index, position) = opened.expect("a folder");
    (index, position.map(|position| position.end))
}

/// Indexes a row for each number, and commits them with the position `end`.
fn index_rows(index: &RowIndex, numbers: std::ops::Range<u8>, end: u64) {
    let row = |number| Row {
        key: vec![number],
        time: 0,
        cells: vec![Vec::new(); COLUMNS.len()],
    };
    let rows: Vec<Row> = numbers.map(row).collect();
    let keys = rows.iter().map(|row| row.key.clone()).collect();
    let documents = rows.iter().map(|row| index.document(row)).collect();
    index.replace(keys, documents).expect("a writer");
    index.commit(&RowPosition { end, build: None }).expect("a writer");
}

/// Copies the files of a folder, without the folders in it.
fn copy_files(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).expect("a folder") {
        let path = file.expect("a file").path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            std::fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}

#[test]
fn a_search_reads_only_the_chosen_shards() {
    let folder = tempfile::tempdir().expect("a folder");
    let (index, _) = open_shards(folder.path());
    index_rows(&index, 0..10, 1);
    let matcher = compiled(&Condition::All).expect("a valid condition");
    for (chosen, expected) in [
        (ShardSet::ALL, (0..10).collect::<Vec<u8>>()),
        (set_of([1]), vec![1, 4, 7]),
        (set_of([0, 2]), vec![0, 2, 3, 5, 6, 8, 9]),
        (ShardSet::EMPTY, vec![]),
    ] {
        let shown = RowsShown {
            shards: chosen,
            ..RowsShown::default()
        };
        let found: Vec<u8> = all_pages(&index, &matcher, &[], 2, shown).concat();
        assert_eq!(found, expected, "{chosen:?}");
        assert_eq!(index.documents_of(chosen), expected.len() as u64);
        let query = RowFacetQuery {
            root: matcher.root(),
            by: &[],
            metrics: &[],
            limit: 1,
            is_by_value: true,
            is_stopped: &|| false,
        };
        let counted = index.facets(&query, shown).expect("counts");
        assert_eq!(counted.rows, expected.len() as u64);
    }
    assert_eq!(index.shards(), 3);
    assert_eq!(index.time_of(&[4]).expect("a sound index"), Some(0));
}

#[test]
fn an_index_without_one_of_its_shards_is_created_again() {
    for lost in 0..3 {
        let folder = tempfile::tempdir().expect("a folder");
        let (index, position) = open_shards(folder.path());
        assert_eq!(position, None);
        // The first commit after `clear` stores the position in all shards.
        index.clear().expect("a writer");
        index_rows(&index, 0..2, 7);
        index.release_writer().expect("no merge fails");
        drop(index);
        let (index, position) = open_shards(folder.path());
        assert_eq!((position, index.documents()), (Some(7), 2));
        drop(index);
        std::fs::remove_file(shard_folder(folder.path(), lost).join("meta.json")).expect("a file");
        let (index, position) = open_shards(folder.path());
        assert_eq!((position, index.documents()), (None, 0), "{lost}");
    }
}

#[test]
fn an_index_has_no_position_between_its_removal_of_documents_and_the_next_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let (index, _) = open_shards(folder.path());
    index_rows(&index, 0..9, 7);
    index.clear().expect("a writer");
    index.release_writer().expect("no merge fails");
    drop(index);
    let (_, position) = open_shards(folder.path());
    assert_eq!(position, None);
}

#[test]
fn a_commit_that_a_crash_interrupts_leaves_the_position_of_the_commit_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = tempfile::tempdir().expect("a folder");
    let (index, _) = open_shards(folder.path());
    index.clear().expect("a writer");
    index_rows(&index, 0..9, 7);
    copy_files(folder.path(), before.path());
    index_rows(&index, 9..18, 8);
    index.release_writer().expect("no merge fails");
    drop(index);
    // The first shard is committed last, so a crash can leave its files of the commit before.
    copy_files(before.path(), folder.path());
    let (index, position) = open_shards(folder.path());
    assert_eq!((position, index.documents()), (Some(7), 15));
    // The changes after the position are indexed again.
    index_rows(&index, 9..18, 8);
    assert_eq!(index.documents(), 18);
}
