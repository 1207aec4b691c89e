//! Tests that the index is disposable: damage, loss and inconsistency change the duration of a search, never its
//! result. Also tests several tables in one index, and commits triggered by [`SearchIndex::notify`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_condition::operators::Equals;
use tideline_condition::{Condition, Literal, Subject};
use tideline_model::{Ordinal, TableId};
use tideline_search_index::{IndexOptions, SearchIndex};
use tideline_timeline_catalog::AttributeValue;

use crate::harness::{Database, options};

fn fill(database: &mut Database, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let (host, rack) = (format!("h{n}"), (n % 10).to_string());
        database.add("cpu", &[("host", &host), ("rack", &rack)], None);
    }
}

fn rack(number: u32) -> Condition {
    Condition::tag("rack", number.to_string())
}

#[test]
fn a_folder_that_vanishes_at_run_time_is_rebuilt() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..1_000);
    database.flush();
    database.delete_folder();
    fill(&mut database, 1_000..1_100);
    assert_eq!(database.check(&rack(3)).len(), 110);
    database.flush();
    assert_eq!(database.check(&rack(3)).len(), 110);
    database.restart();
    database.flush();
    assert_eq!(database.check(&rack(3)).len(), 110);
}

#[test]
fn every_damaged_file_is_noticed_at_the_next_start() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..300);
    database.flush();
    database.index.close();
    let files = std::fs::read_dir(database.folder()).expect("a folder");
    let names: Vec<_> = files.map(|file| file.expect("an entry").file_name()).collect();
    let mut damaged = 0;
    for name in names {
        let path = database.folder().join(&name);
        // A start after earlier damage may have replaced the files, so this file may be missing. Lock files are empty.
        let Ok(mut bytes) = std::fs::read(&path) else {
            continue;
        };
        if bytes.is_empty() {
            continue;
        }
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("a writable folder");
        damaged += 1;
        database.reopen_index();
        for number in [3, 11] {
            database.check(&rack(number));
        }
        database.flush();
        database.check(&Condition::Not(Box::new(rack(4))));
        database.index.close();
    }
    assert!(damaged >= 2, "there were files to damage");
}

#[test]
fn a_catalog_that_lost_timelines_is_indexed_anew() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..50);
    database.restart();
    fill(&mut database, 50..60);
    database.flush();
    database.restart_without_journal();
    // The ordinals of the lost timelines are reused.
    for n in 0..10u32 {
        database.add("mem", &[("host", &format!("other-{n}"))], None);
    }
    assert_eq!(database.check(&rack(3)).len(), 5);
    database.flush();
    assert_eq!(database.check(&rack(3)).len(), 5);
    assert_eq!(database.check(&Condition::tag("host", "h55")).len(), 0);
    assert_eq!(database.check(&Condition::tag("host", "other-5")).len(), 1);
}

#[test]
fn edits_before_a_commit_are_caught_up_after_a_restart() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..20);
    let owned = |name: &str| Some(AttributeValue::Text(name.to_owned()));
    database.edit(Ordinal(3), "owner", owned("ops"));
    database.flush();
    database.edit(Ordinal(3), "owner", owned("dev"));
    database.edit(Ordinal(4), "owner", owned("ops"));
    database.restart();
    for _ in 0..2 {
        assert_eq!(database.check(&owner("ops")).iter().collect::<Vec<_>>(), [4]);
        assert_eq!(database.check(&owner("dev")).iter().collect::<Vec<_>>(), [3]);
        database.flush();
    }
}

fn owner(name: &str) -> Condition {
    let test = Equals(Literal::Text(name.to_owned()));
    Condition::leaf(Subject::Attribute("owner".to_owned()), test)
}

/// A timeline with a document is removed and added again before the index is updated: first without a restart of the
/// process between the two changes, then with one.
#[test]
fn attributes_of_before_a_removal_are_not_found_after_a_restart() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..20);
    let owned = |name: &str| Some(AttributeValue::Text(name.to_owned()));
    for ordinal in [3, 4, 5] {
        database.edit(Ordinal(ordinal), "owner", owned("ops"));
    }
    database.flush();
    for restarts in [false, true] {
        database.remove(Ordinal(4));
        fill(&mut database, 0..20);
        if restarts {
            database.restart();
        }
        for _ in 0..2 {
            assert_eq!(database.check(&owner("ops")).iter().collect::<Vec<_>>(), [3, 5]);
            assert_eq!(database.check(&rack(4)).len(), 2);
            database.flush();
        }
        database.edit(Ordinal(4), "owner", owned("ops"));
        database.flush();
    }
    // The newest edit is lost with the timeline, so the next edit reuses its number.
    database.remove(Ordinal(4));
    database.restart();
    database.edit(Ordinal(6), "owner", owned("dev"));
    database.edit(Ordinal(5), "owner", owned("dev"));
    for _ in 0..2 {
        assert_eq!(database.check(&owner("ops")).iter().collect::<Vec<_>>(), [3]);
        assert_eq!(database.check(&owner("dev")).iter().collect::<Vec<_>>(), [5, 6]);
        database.flush();
    }
}

#[test]
fn removed_timelines_vanish_at_once_and_their_documents_with_the_next_commit() {
    let mut database = Database::new(TableId(1));
    fill(&mut database, 0..1_000);
    database.flush();
    for ordinal in (0..1_000).filter(|n| n % 3 == 0) {
        database.remove(Ordinal(ordinal));
    }
    let not = |number| Condition::Not(Box::new(rack(number)));
    for _ in 0..3 {
        assert_eq!(database.check(&rack(3)).len(), 66);
        assert_eq!(database.check(&not(3)).len(), 600);
        assert_eq!(database.check(&Condition::All).len(), 666);
        assert_eq!(database.index.status().documents, 666);
        database.flush();
    }
    assert!(!database.index.status().rebuilding);
    database.remove(Ordinal(1));
    database.restart();
    assert_eq!(database.check(&rack(1)).len(), 66);
    fill(&mut database, 0..1_000);
    assert_eq!(database.check(&rack(3)).len(), 100);
    assert_eq!(database.check(&rack(1)).len(), 100);
    database.flush();
    assert_eq!(database.check(&not(3)).len(), 900);
}

/// Deletes so much of the first commit that the second commit starts a merge. Reopening the index interrupts
/// the merge, which is repeated during the third commit.
#[test]
fn merges_never_bring_documents_back() {
    for _ in 0..4 {
        let mut database = Database::new(TableId(1));
        fill(&mut database, 0..7);
        database.flush();
        (0..3).for_each(|gone| database.remove(Ordinal(gone)));
        fill(&mut database, 7..16);
        database.flush();
        database.reopen_index();
        (3..4)
            .chain(8..10)
            .for_each(|gone| database.remove(Ordinal(gone)));
        fill(&mut database, 16..30);
        database.flush();
        for more in 30..34 {
            fill(&mut database, more..more + 1);
            database.flush();
            database.check(&Condition::All);
        }
    }
}

#[test]
fn tables_share_an_index_without_seeing_each_other() {
    let mut one = Database::new(TableId(1));
    let mut two = Database::new(TableId(2));
    // The catalog of the second database is also indexed by the index of the first.
    one.index.attach(Arc::clone(&two.catalog));
    fill(&mut one, 0..100);
    fill(&mut two, 50..250);
    one.index.flush().expect("a sound disk");
    assert_eq!(one.index.status().documents, 300);
    let find = |catalog, model| one.index.search(catalog, &rack(3), model).expect("valid").len();
    assert_eq!(find(&one.catalog, &one.model), 10);
    assert_eq!(find(&two.catalog, &two.model), 20);
    one.index.detach(TableId(2));
    one.index.flush().expect("a sound disk");
    assert_eq!(one.index.status().documents, 100);
    assert_eq!(
        one.index
            .search(&one.catalog, &rack(3), &one.model)
            .expect("valid")
            .len(),
        10
    );
    one.index.attach(Arc::clone(&two.catalog));
    one.index.flush().expect("a sound disk");
    assert_eq!(
        one.index
            .search(&two.catalog, &rack(3), &two.model)
            .expect("valid")
            .len(),
        20
    );
    // Simulates a start that attaches one table and removes all others.
    one.reopen_index();
    one.index.detach_others();
    one.flush();
    assert_eq!(one.check(&rack(3)).len(), 10);
}

#[test]
fn a_notice_leads_to_a_commit_and_a_closed_index_still_answers() {
    let mut database = Database::new(TableId(1));
    database.index.close();
    let eager = IndexOptions {
        commit_delay: Duration::from_millis(1),
        idle_after: Duration::from_millis(1),
        ..options()
    };
    database.index = SearchIndex::open(&database.folder(), eager).expect("an index");
    database.index.attach(Arc::clone(&database.catalog));
    fill(&mut database, 0..500);
    database.index.notify();
    let start = Instant::now();
    while database.index.status().documents < 500 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            database.index.status()
        );
        std::thread::yield_now();
    }
    database.index.close();
    fill(&mut database, 500..600);
    assert_eq!(database.check(&rack(3)).len(), 60);
    assert!(database.index.flush().is_err(), "a closed index commits nothing");
}
