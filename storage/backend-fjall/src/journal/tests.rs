//! The golden file, and what a failed write leaves.

use tideline_backend::ErrorKind;

use super::*;

const SHARD: Shard = Shard(0x0102);
const EPOCH: Epoch = Epoch(3);

impl ShardJournal {
    /// Puts a file that cannot be written in place of the active one.
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

/// What format 1 made of two appends, a sync between them.
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
    let journals = Journals::open(folder.path()).expect("open");
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
    append(&mut journal, 2).expect("append");
    // As if the second append had been written whole and its sync had failed.
    journal.acknowledged = Some((EPOCH, SequenceNumber(1)));
    let error = io::Error::other("sync");
    let id = journal.active.as_ref().expect("active").id;
    assert_eq!(journal.break_at(id, &error).kind(), ErrorKind::Unknown);
    assert_eq!(
        append(&mut journal, 2).expect_err("broken").kind(),
        ErrorKind::Unavailable
    );
    journal.heal().expect("heal");
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
    let opened = Journals::open(folder.path());
    assert_eq!(opened.expect_err("damaged").kind(), ErrorKind::Corrupt);
    assert!(verify(folder.path()).is_err());
    fs::remove_file(&paths[1]).expect("remove");
    let opened = Journals::open(folder.path());
    assert_eq!(opened.expect_err("missing").kind(), ErrorKind::Corrupt);
}
