//! A cluster of three nodes with three copies: the conformance suite, and reads while one node is paused.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{Backend, Partition, RequestCounts, RowChange, Space};
use tideline_backend_cassandra::CassandraBackend;
use tideline_model::Durability;
use tideline_testkit::cassandra::{CassandraNode, NodeSettings};

use crate::conformance::conforms;
use crate::keyspace::{Keyspace, SHARD};

/// Number of nodes, and of copies of each row.
const NODES: u8 = 3;
const ROWS: Partition = Partition::space(Space(2), 0);
/// Number of reads of each row. The coordinator of each read is one of the nodes, chosen at random.
const READS: usize = 100;

fn reads(backend: &CassandraBackend) -> RequestCounts {
    let all = backend.requests();
    *all.iter().find(|counts| counts.kind == "read").expect("reads")
}

#[test]
#[ignore = "takes four minutes and 5 GiB of memory"]
fn three_nodes_conform_and_reads_go_around_a_paused_one() {
    let settings = |seed| NodeSettings {
        seed,
        ..NodeSettings::default()
    };
    let Some(first) = CassandraNode::start(&settings(None)) else {
        return;
    };
    let seed = Some(first.ip());
    let mut joined: Vec<CassandraNode> = (1..NODES)
        .map(|_| CassandraNode::start(&settings(seed)).expect("the first node has started"))
        .collect();
    let keyspace = Arc::new(Keyspace::replicated(first.address(), NODES));
    conforms(&keyspace, &|_| true);

    keyspace.empty();
    let backend = keyspace.open();
    let lease = backend.take(SHARD).expect("the shard is free");
    let changes: Vec<RowChange> = (0..10_u8)
        .map(|key| RowChange {
            key: Bytes::from(vec![key]),
            value: Some(Bytes::from_static(b"value")),
        })
        .collect();
    let written = backend.write(ROWS, &changes, lease.stamp_min, Durability::Synced);
    written.expect("a write");
    let read_all = || {
        for _ in 0..READS {
            for change in &changes {
                let found = backend.get(ROWS, &change.key).expect("a read");
                assert_eq!(found, change.value);
            }
        }
    };
    read_all();
    let before = reads(&backend);
    let paused = joined.last_mut().expect("a node");
    paused.pause();
    read_all();
    let after = reads(&backend);
    paused.resume();
    assert!(after.speculative > before.speculative, "{before:?}, {after:?}");
    assert_eq!(
        (after.repeated, after.failed),
        (before.repeated, before.failed),
        "no read waited for its timeout"
    );
}
