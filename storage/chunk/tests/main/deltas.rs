//! Tests of deltas: decoding returns the encoded delta in the same order, size limits hold, and malformed deltas are
//! rejected.

use proptest::prelude::*;
use tideline_chunk::{DELETE_TIMELINES_MAX, DeleteRecord, Delta, DeltaError};
use tideline_model::{TimeRange, TimelineId};

use crate::samples::delta;
use crate::workload::{cpu_delta, encoded_delta};

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(150))]

    #[test]
    fn a_delta_reads_back(delta in delta()) {
        let bytes = encoded_delta(&delta);
        prop_assert_eq!(Delta::table_of(&bytes), Ok(delta.table));
        let read = Delta::decode(&bytes);
        prop_assert_eq!(read.as_ref(), Ok(&delta));
    }
}

#[test]
fn a_batch_takes_the_bytes_a_row_that_were_promised() {
    for (machines, most) in [(1_000, 11.0), (4_000, 16.0)] {
        let per_row = encoded_delta(&cpu_delta(5, 10_000, machines)).len() as f64 / 10_000.0;
        println!("{per_row:.2} bytes per row with {machines} machines");
        assert!(
            per_row < most,
            "{per_row:.2} bytes per row with {machines} machines"
        );
    }
}

#[test]
fn a_malformed_delta_is_refused() {
    let good = cpu_delta(1, 10, 2);
    let mut nameless = good.clone();
    nameless.groups[0].fields.pop();
    let mut ragged = good.clone();
    ragged.groups[0].timestamps.pop();
    let mut homeless = good.clone();
    homeless.timelines.pop();
    for delta in [nameless, ragged, homeless] {
        let mut bytes = vec![1, 2, 3];
        let outcome = delta.encode(&mut bytes);
        assert!(matches!(outcome, Err(DeltaError::Malformed(_))), "{outcome:?}");
        assert_eq!(bytes, [1, 2, 3]);
    }
}

/// Returns a delete of `count` timelines with increasing ids.
fn delete_of(count: usize) -> Delta {
    let id = |number: usize| TimelineId((number as u128).to_be_bytes());
    Delta {
        delete: Some(DeleteRecord {
            timelines: (0..count).map(id).collect(),
            range: TimeRange::ALL,
            removes_timelines: false,
        }),
        ..Delta::default()
    }
}

#[test]
fn a_delete_is_bounded_and_in_order() {
    let most = delete_of(DELETE_TIMELINES_MAX);
    assert_eq!(Delta::decode(&encoded_delta(&most)).as_ref(), Ok(&most));

    let mut bytes = vec![1, 2, 3];
    let outcome = delete_of(DELETE_TIMELINES_MAX + 1).encode(&mut bytes);
    assert_eq!(outcome, Err(DeltaError::DeleteTooLarge(DELETE_TIMELINES_MAX + 1)));
    for places in [[0, 0], [1, 0]] {
        let mut delta = delete_of(2);
        if let Some(delete) = &mut delta.delete {
            delete.timelines = places.map(|place| delete.timelines[place]).to_vec();
        }
        let outcome = delta.encode(&mut bytes);
        assert!(matches!(outcome, Err(DeltaError::Malformed(_))), "{outcome:?}");
    }
    // Identities are those of all removed timelines, and only of these.
    for (removes, identities) in [(true, 1), (true, 3), (false, 2)] {
        let mut delta = delete_of(2);
        delta.removed = vec![vec![1, 2]; identities];
        if let Some(delete) = &mut delta.delete {
            delete.removes_timelines = removes;
        }
        let outcome = delta.encode(&mut bytes);
        assert!(matches!(outcome, Err(DeltaError::Malformed(_))), "{outcome:?}");
    }
    assert_eq!(bytes, [1, 2, 3]);
}
