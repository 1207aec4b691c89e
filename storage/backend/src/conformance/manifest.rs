//! Rules of manifests: versions, fencing, round trips, and limits.
//!
//! An edit must be atomic and durable, and must be refused if the epoch or version is not the current one.

use super::*;
use crate::error::ErrorKind;

pub(super) const RULES: &[Rule] = &[
    ("an untaken shard has an empty manifest", untaken_shards_are_empty),
    (
        "a manifest reads back as it was edited, also after a restart",
        manifests_round_trip,
    ),
    (
        "an edit needs the owner's epoch and the seen version",
        edits_are_fenced,
    ),
    ("an edit keeps the limits", edits_are_checked),
];

fn manifest_row(kind: ManifestKind, name: &[u8], detail: &[u8]) -> ManifestRow {
    ManifestRow {
        kind,
        name: Bytes::copy_from_slice(name),
        detail: Bytes::copy_from_slice(detail),
    }
}

fn untaken_shards_are_empty(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let manifest = backend.manifest(SHARD).expect("manifest");
    assert_eq!(
        (manifest.epoch, manifest.version, manifest.rows),
        (Epoch(0), 0, vec![])
    );
    let refused = backend.edit(SHARD, Epoch(0), 0, &[]).expect("edit");
    let none = EditOutcome::Refused {
        epoch: Epoch(0),
        version: 0,
    };
    assert_eq!(refused, none, "the shard has no owner");
}

fn manifests_round_trip(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    let mut wanted = Vec::new();
    for kind in ManifestKind::ALL {
        for name in [b"".as_slice(), b"\x00", b"b", b"\xff\xff"] {
            wanted.push(manifest_row(kind, name, &[kind as u8; 300]));
        }
    }
    let changes: Vec<_> = wanted.iter().rev().cloned().map(ManifestChange::Put).collect();
    let outcome = backend.edit(SHARD, epoch, 0, &changes).expect("edit");
    assert_eq!(outcome, EditOutcome::Applied { version: 1 });
    let other = Shard(1);
    let other_epoch = backend.take(other).expect("take").epoch;
    backend.edit(other, other_epoch, 0, &changes[..1]).expect("edit");

    let replaced = manifest_row(ManifestKind::Segment, b"b", b"");
    let removed = (ManifestKind::Table, Bytes::from_static(b"b"));
    let changes = [
        ManifestChange::Put(replaced.clone()),
        ManifestChange::Remove(removed.0, removed.1.clone()),
        ManifestChange::Remove(ManifestKind::Job, Bytes::from_static(b"missing")),
    ];
    let outcome = backend.edit(SHARD, epoch, 1, &changes).expect("edit");
    assert_eq!(outcome, EditOutcome::Applied { version: 2 });
    wanted.retain(|row| (row.kind, row.name.clone()) != removed);
    for row in &mut wanted {
        if (row.kind, &row.name) == (replaced.kind, &replaced.name) {
            row.detail = replaced.detail.clone();
        }
    }
    let check = |backend: &dyn Backend| {
        let manifest = backend.manifest(SHARD).expect("manifest");
        assert_eq!(manifest.epoch, epoch);
        assert_eq!(manifest.version, 2);
        assert_eq!(manifest.rows, wanted);
        assert_eq!(backend.manifest(other).expect("manifest").rows.len(), 1);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn edits_are_fenced(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let stale = backend.take(SHARD).expect("take").epoch;
    let put = ManifestChange::Put(manifest_row(ManifestKind::Cursor, b"c", b"1"));
    let put = std::slice::from_ref(&put);
    assert_eq!(
        backend.edit(SHARD, stale, 0, put).expect("edit"),
        EditOutcome::Applied { version: 1 }
    );
    let owner = backend.take(SHARD).expect("take").epoch;
    let refused = EditOutcome::Refused {
        epoch: owner,
        version: 1,
    };
    for (epoch, version) in [(stale, 1), (owner, 0), (owner, 2), (Epoch(owner.0 + 1), 1)] {
        let remove = [ManifestChange::Remove(
            ManifestKind::Cursor,
            Bytes::from_static(b"c"),
        )];
        let outcome = backend.edit(SHARD, epoch, version, &remove).expect("edit");
        assert_eq!(outcome, refused, "epoch {}, version {version}", epoch.0);
    }
    assert_eq!(backend.manifest(SHARD).expect("manifest").rows.len(), 1);
    assert_eq!(
        backend.edit(SHARD, owner, 1, put).expect("edit"),
        EditOutcome::Applied { version: 2 }
    );
}

fn edits_are_checked(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    let large = manifest_row(ManifestKind::Job, b"job", &vec![0; MANIFEST_ROW_BYTES_MAX]);
    let refused = backend.edit(SHARD, epoch, 0, &[ManifestChange::Put(large.clone())]);
    assert_eq!(refused.expect_err("too large").kind(), ErrorKind::TooLarge);
    let largest = ManifestRow {
        detail: large.detail.slice(large.name.len()..),
        ..large
    };
    let outcome = backend.edit(SHARD, epoch, 0, &[ManifestChange::Put(largest)]);
    assert_eq!(outcome.expect("edit"), EditOutcome::Applied { version: 1 });
}
