//! Tests of the golden file, and of journals after failed writes.
//!
//! The tests cover repeated appends of unknown outcome, damaged and missing files, and kills while the end of a file is
//! rewritten.

use tideline_backend::ErrorKind;

use super::*;

const SHARD: Shard = Shard(0x0102);
const EPOCH: Epoch = Epoch(3);

impl ShardJournal {
    /// Replaces the active file by one that cannot be written.
    pub(crate) fn fail_next_write(&mut self) {
        let active = self.active.as_mut().expect("a file that is appended to");
        active.file = File::open(self.folder.join(active.id.name())).expect("open");
    }
}

fn entry(sequence: u64, value: &'static [u8]) -> JournalEntry {
    JournalEntry {
        sequence: SequenceNumber(sequence),
        value: Bytes::from_static(value),
    }
}

fn entries(journal: &ShardJournal) -> Vec<(u64, Bytes)> {
    let mut seen = Vec::new();
    let replay = journal.replay(EPOCH, SequenceNumber(0)).expect("replay");
    replay
        .run(None, &mut |sequence, value| {
            seen.push((sequence.0, value));
            Ok(())
        })
        .expect("replay");
    seen
}

/// File that format 1 writes for two appends with a sync between them.
const GOLDEN: &[u8] = include_bytes!("../../golden/0102-0000000000000003-00000000.journal");

#[test]
fn the_golden_file_is_written_and_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = ShardJournal::new(folder.path(), SHARD);
    let first = [entry(7, b"first"), entry(9, b"")];
    journal.append(EPOCH, &first, Durability::Synced).expect("append");
    let second = [entry(300, b"second append")];
    journal
        .append(EPOCH, &second, Durability::Buffered)
        .expect("append");
    let name = journal.files[0].id.name();
    let written = fs::read(folder.path().join(&name)).expect("read");
    assert_eq!(written, GOLDEN, "the format of journal files has changed");

    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(name), GOLDEN).expect("write");
    let journals = Journals::open(folder.path(), folder.path(), false).expect("open");
    let seen = entries(&journals.shard(SHARD).lock());
    let wanted = [
        (7, Bytes::from_static(b"first")),
        (9, Bytes::new()),
        (300, Bytes::from_static(b"second append")),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn an_append_of_unknown_outcome_may_be_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = ShardJournal::new(folder.path(), SHARD);
    let append = |journal: &mut ShardJournal, sequence| {
        journal.append(EPOCH, &[entry(sequence, b"v")], Durability::Synced)
    };
    append(&mut journal, 1).expect("append");
    let acknowledged = journal.files.clone();
    append(&mut journal, 2).expect("append");
    // Simulates a second append that was written completely, but whose sync failed.
    journal.acknowledged = Some((EPOCH, SequenceNumber(1)));
    journal.files = acknowledged;
    let error = io::Error::other("sync");
    let id = journal.active.as_ref().expect("active").id;
    assert_eq!(journal.break_at(id, &error).kind(), ErrorKind::Unknown);
    assert_eq!(
        append(&mut journal, 2).expect_err("broken").kind(),
        ErrorKind::Unavailable
    );
    journal.heal().expect("heal");
    assert_eq!(entries(&journal).len(), 1, "the failed append is gone");
    append(&mut journal, 2).expect("the same again");
    append(&mut journal, 3).expect("append");
    let sequences: Vec<_> = entries(&journal)
        .into_iter()
        .map(|(sequence, _)| sequence)
        .collect();
    assert_eq!(sequences, [1, 2, 3], "handed out once");
    assert_eq!(
        journal.files.len(),
        2,
        "nothing is appended to a file that failed"
    );
}

#[test]
fn a_journal_that_can_create_no_file_stays_broken_until_it_can() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("journal");
    let mut journal = ShardJournal::new(&folder, SHARD);
    let append = |journal: &mut ShardJournal| journal.append(EPOCH, &[entry(1, b"v")], Durability::Synced);
    assert_eq!(
        append(&mut journal).expect_err("no folder").kind(),
        ErrorKind::Unavailable
    );
    assert!(journal.broken().is_some());
    journal.heal().expect_err("still no folder");
    assert!(journal.broken().is_some());
    fs::create_dir(&folder).expect("a folder");
    journal.heal().expect("heal");
    assert_eq!(journal.broken(), None);
    append(&mut journal).expect("the same again");
    assert_eq!(entries(&journal).len(), 1);
}

#[test]
fn damage_in_an_older_file_and_a_missing_file_are_corrupt() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = ShardJournal::new(folder.path(), SHARD);
    for sequence in 1..=3 {
        journal.cut(SequenceNumber(sequence));
        journal
            .append(EPOCH, &[entry(sequence, b"value")], Durability::Synced)
            .expect("append");
    }
    let paths: Vec<_> = journal
        .files
        .iter()
        .map(|file| folder.path().join(file.id.name()))
        .collect();
    assert_eq!(paths.len(), 3);
    let middle = fs::read(&paths[1]).expect("read");
    fs::write(&paths[1], &middle[..middle.len() - 1]).expect("damage");
    let opened = Journals::open(folder.path(), folder.path(), false);
    assert_eq!(opened.expect_err("damaged").kind(), ErrorKind::Corrupt);
    let found = survey(folder.path()).expect("read").findings();
    assert_eq!(found.len(), 2, "{found:?}");
    fs::remove_file(&paths[1]).expect("remove");
    let opened = Journals::open(folder.path(), folder.path(), false);
    assert_eq!(opened.expect_err("missing").kind(), ErrorKind::Corrupt);
}

#[test]
fn a_kill_while_the_end_is_written_again_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = ShardJournal::new(folder.path(), SHARD);
    for sequence in 1..=9 {
        let durability = match sequence {
            1..=6 => Durability::Synced,
            _ => Durability::Buffered,
        };
        journal
            .append(EPOCH, &[entry(sequence, b"some value")], durability)
            .expect("append");
    }
    let name = journal.files[0].id.name();
    let path = folder.path().join(&name);
    let whole = fs::read(&path).expect("read");
    let (frame, synced) = (28 + 10, 48 + 6 * (28 + 10));
    assert_eq!(whole.len(), synced + 3 * frame);
    let end = [
        b"TLJRNEND".as_slice(),
        &(synced as u64).to_le_bytes(),
        // Placeholder for the checksum, which is not compared.
        &[0; 8],
        &whole[synced..],
    ]
    .concat();
    let end_path = folder.path().join(format!("{name}.end"));
    ending::Ending::write(
        folder.path(),
        journal.files[0].id,
        synced as u64,
        &whole[synced..],
    )
    .expect("write");
    let written = fs::read(&end_path).expect("read");
    assert_eq!(written[..16], end[..16]);
    assert_eq!(written[24..], end[24..]);
    let halves = [&whole[..synced], &whole[..synced + 7], &whole];
    for (n, half) in halves.into_iter().enumerate() {
        fs::write(&path, half).expect("cut");
        fs::write(&end_path, &written).expect("write");
        fs::write(folder.path().join(format!("{name}.end.new")), b"half").expect("write");
        fs::write(
            folder.path().join("0009-0000000000000003-00000000.journal.end"),
            b"of none",
        )
        .expect("write");
        let found = survey(folder.path()).expect("read");
        assert_eq!((found.entries, found.findings()), (9, Vec::new()), "{n}");
        let journals = Journals::open(folder.path(), folder.path(), false).expect("open");
        assert_eq!(entries(&journals.shard(SHARD).lock()).len(), 9, "{n}");
        assert_eq!(fs::read(&path).expect("read"), whole);
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1, "{n}");
    }
    // An incomplete copy is ignored.
    fs::write(&path, &whole[..synced + frame]).expect("cut");
    fs::write(&end_path, &written[..written.len() - 1]).expect("write");
    let journals = Journals::open(folder.path(), folder.path(), false).expect("open");
    assert_eq!(entries(&journals.shard(SHARD).lock()).len(), 7);
}

/// Marker file with the sequence 300, before its checksum.
const MARKER: &[u8; 16] = b"TLHISTRY\x2c\x01\0\0\0\0\0\0";

/// Creates a journal with a history of three files: sequences 0 to 9, 10 to 19 and 20 to 29.
fn with_history(root: &Path) -> ShardJournal {
    let folder = root.join("journal");
    fs::create_dir_all(&folder).expect("a folder");
    let mut journal = ShardJournal::new(&folder, SHARD);
    journal.keep_history(Some(SequenceNumber(0))).expect("kept");
    for start in [0, 10, 20, 30] {
        journal.cut(SequenceNumber(start));
        let entries: Vec<_> = (start..start + 10).map(|at| entry(at, b"value")).collect();
        journal
            .append(EPOCH, &entries, Durability::Synced)
            .expect("append");
    }
    journal.forget(EPOCH, SequenceNumber(30)).expect("forget");
    assert_eq!(journal.history().units.len(), 3);
    journal
}

fn page(journal: &ShardJournal, from: u64) -> (u64, bool, Vec<u64>, u64) {
    let reader = journal
        .history_reader(SequenceNumber(from), &BTreeMap::new())
        .expect("files");
    let page = reader.page(usize::MAX, &|_| None).expect("a page");
    let sequences = page.entries.iter().map(|entry| entry.sequence.0);
    (page.from.0, page.is_damaged, sequences.collect(), page.next.0)
}

/// Creates a journal with a history and without entries.
fn with_empty_history(root: &Path) -> ShardJournal {
    let folder = root.join("journal");
    fs::create_dir_all(&folder).expect("a folder");
    let mut journal = ShardJournal::new(&folder, SHARD);
    journal.keep_history(Some(SequenceNumber(0))).expect("kept");
    journal
}

/// Appends 60 entries of 10 KB each, and moves them to the history.
fn append_to_history(journal: &mut ShardJournal, from: u64) {
    let entries: Vec<_> = (from..from + 60).map(|at| entry(at, &[7; 10_000])).collect();
    journal
        .append(EPOCH, &entries, Durability::Synced)
        .expect("append");
    journal.forget(EPOCH, SequenceNumber(from + 60)).expect("forget");
}

/// Returns the names of the journal files in a history, sorted, without the sequences in front.
fn names_in_history(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("history")).expect("files");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names
        .filter_map(|name| Some(name.split_once('-')?.1.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn files_of_an_epoch_have_different_ids_after_all_were_forgotten() {
    let root = tempfile::tempdir().expect("a folder");
    let mut journal = with_empty_history(root.path());
    for from in [0, 60] {
        append_to_history(&mut journal, from);
        let all = (from..from + 60).collect();
        assert_eq!(page(&journal, from), (from, false, all, from + 60));
    }
    drop(journal);
    let journals = Journals::open(&root.path().join("journal"), root.path(), false).expect("open");
    append_to_history(&mut journals.shard(SHARD).lock(), 120);
    let name = |generation| format!("0102-0000000000000003-0000000{generation}.journal");
    assert_eq!(names_in_history(root.path()), [0, 1, 2].map(name));
}

/// Earlier builds gave the same id to several files of a history.
#[test]
fn files_of_a_history_with_the_same_id_are_read_completely() {
    let (root, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (root, other) = (root.expect("a folder"), other.expect("a folder"));
    append_to_history(&mut with_empty_history(root.path()), 0);
    append_to_history(&mut with_empty_history(other.path()), 60);
    for file in fs::read_dir(other.path().join("history")).expect("files") {
        let file = file.expect("a file");
        let to = root.path().join("history").join(file.file_name());
        fs::copy(file.path(), to).expect("copy");
    }
    let names = names_in_history(root.path());
    assert_eq!(names, ["0102-0000000000000003-00000000.journal"; 2]);

    let journals = Journals::open(&root.path().join("journal"), root.path(), false).expect("open");
    let journal = journals.shard(SHARD);
    for from in [0, 60] {
        let all = (from..120).collect();
        assert_eq!(page(&journal.lock(), from), (from, false, all, 120));
    }
}

#[test]
fn the_marker_of_a_history_has_its_format() {
    let root = tempfile::tempdir().expect("a folder");
    let mut journal = ShardJournal::new(&root.path().join("journal"), SHARD);
    journal.keep_history(Some(SequenceNumber(300))).expect("kept");
    let written = fs::read(root.path().join("history/0102.from")).expect("a marker");
    let checksum = xxhash_rust::xxh3::xxh3_64(MARKER).to_le_bytes();
    assert_eq!(written, [&MARKER[..], &checksum].concat());
}

#[test]
fn damage_in_a_history_is_a_gap_and_the_entries_around_it_are_read() {
    let root = tempfile::tempdir().expect("a folder");
    let journal = with_history(root.path());
    assert_eq!(page(&journal, 0), (0, false, (0..20).collect(), 20));
    let history = root.path().join("history");
    let live = root.path().join("journal");
    assert_eq!(
        history_findings(&history, &live).expect("read"),
        Vec::<String>::new()
    );

    let damaged = fs::read_dir(&history)
        .expect("files")
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().contains("0000000000000013-"))
        .expect("the file with the entries 10 to 19");
    let mut bytes = fs::read(&damaged).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).expect("write");
    let (from, is_damaged, sequences, next) = page(&journal, 0);
    assert_eq!((from, is_damaged), (0, false));
    assert!((10..20).contains(&next), "{next}");
    assert_eq!(sequences, (0..next).collect::<Vec<_>>());
    // The page that begins with the damage continues with the next file.
    assert_eq!(page(&journal, next), (20, true, (20..30).collect(), 30));
    let findings = history_findings(&history, &live).expect("read");
    assert_eq!(findings.len(), 1, "{findings:?}");

    // A start reads none of the files, and finds all of them.
    let journals = Journals::open(&root.path().join("journal"), root.path(), false).expect("open");
    let journal = journals.shard(SHARD);
    assert_eq!(journal.lock().history().units.len(), 3);
    assert_eq!(page(&journal.lock(), 30), (30, false, (30..40).collect(), 40));
}

/// Each file of a history of four is removed in turn; the last one is in the folder of the journal.
#[test]
fn a_missing_file_of_a_history_is_a_gap() {
    for (name, missing) in [("09-", 0..10), ("13-", 10..20), ("1d-", 20..30)] {
        let root = tempfile::tempdir().expect("a folder");
        drop(with_history(root.path()));
        let history = root.path().join("history");
        let live = root.path().join("journal");
        let removed = fs::read_dir(&history)
            .expect("files")
            .map(|file| file.expect("a file").path())
            .find(|path| path.to_string_lossy().contains(&format!("00000000000000{name}")))
            .expect("the file");
        fs::remove_file(removed).expect("remove");
        let findings = history_findings(&history, &live).expect("read");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("is missing"), "{findings:?}");

        let journals = Journals::open(&live, root.path(), false).expect("open");
        let journal = journals.shard(SHARD);
        let (mut next, mut seen, mut gaps) = (0, Vec::new(), Vec::new());
        while next < 40 {
            let (from, is_damaged, sequences, after) = page(&journal.lock(), next);
            if from > next {
                assert!(is_damaged);
                gaps.push(next..from);
            }
            seen.extend(sequences);
            next = after;
        }
        assert_eq!(gaps, std::slice::from_ref(&missing));
        let expected = (0..40).filter(|sequence| !missing.contains(sequence));
        assert_eq!(seen, expected.collect::<Vec<u64>>());
    }
}

/// The first file is not kept, because the history begins after it. It is forgotten before the next file begins.
#[test]
fn skipped_numbers_at_the_begin_of_a_history_are_not_a_gap() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("journal");
    fs::create_dir_all(&folder).expect("a folder");
    let mut journal = ShardJournal::new(&folder, SHARD);
    append_to_history(&mut journal, 0);
    journal.keep_history(Some(SequenceNumber(60))).expect("kept");
    append_to_history(&mut journal, 100);
    assert_eq!(page(&journal, 60), (60, false, (100..160).collect(), 160));
}

/// Numbers of failed appends are used up, so a file need not begin at the number after the file before it.
#[test]
fn skipped_numbers_of_a_history_are_not_a_gap() {
    let root = tempfile::tempdir().expect("a folder");
    let mut journal = with_empty_history(root.path());
    append_to_history(&mut journal, 0);
    append_to_history(&mut journal, 100);
    assert_eq!(page(&journal, 60), (60, false, (100..160).collect(), 160));
    let (history, live) = (root.path().join("history"), root.path().join("journal"));
    assert_eq!(
        history_findings(&history, &live).expect("read"),
        Vec::<String>::new()
    );
    // The first file is freed. A reader that has read all of it is at its end.
    journal.keep_history(Some(SequenceNumber(60))).expect("kept");
    assert_eq!(page(&journal, 60), (60, false, (100..160).collect(), 160));
    journal.keep_history(Some(SequenceNumber(100))).expect("kept");
    assert_eq!(page(&journal, 0), (100, false, (100..160).collect(), 160));
    assert_eq!(
        history_findings(&history, &live).expect("read"),
        Vec::<String>::new()
    );
}
