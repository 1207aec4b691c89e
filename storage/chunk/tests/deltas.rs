//! A delta gives back what was received, in its order.

use proptest::prelude::*;
use tideline_chunk::{Delta, DeltaError};

use crate::samples::delta;
use crate::workload::{cpu_delta, encoded_delta};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

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
        println!("{per_row:.2} bytes a row with {machines} machines");
        assert!(
            per_row < most,
            "{per_row:.2} bytes a row with {machines} machines"
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
