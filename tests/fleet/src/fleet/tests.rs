//! Tests of the guarantees of a seed: stable bytes, shape and order of the rows.
//!
//! A hash of many rows is fixed, because benchmarks of different versions must load the same data.

use std::collections::HashSet;

use super::*;
use crate::host::TAGS;

const START: i64 = 1_451_606_400_000_000_000;
const STEP: i64 = 10_000_000_000;

fn lines(fleet: &mut Fleet, rows: usize) -> Vec<String> {
    let mut out = Vec::new();
    fleet.write_rows(rows, &mut out);
    let text = String::from_utf8(out).expect("line protocol is text");
    assert!(text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

/// Returns the FNV-1a hash, so that the expected output of many rows is one number.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    let mut out = Vec::new();
    Fleet::new(42, 100, START, STEP).write_rows(10_000, &mut out);
    let text = std::str::from_utf8(&out).expect("line protocol is text");
    assert_eq!(
        text.lines().next(),
        Some(
            "cpu,hostname=host_0,region=ap-southeast-2,datacenter=ap-southeast-2a,rack=27,os=Ubuntu16.04LTS,arch=x64,team=CHI,\
             service=4,service_version=1,service_environment=staging \
             usage_user=86i,usage_system=76i,usage_idle=51i,usage_nice=35i,usage_iowait=20i,\
             usage_irq=45i,usage_softirq=10i,usage_steal=25i,usage_guest=32i,usage_guest_nice=96i 1451606400000000000"
        )
    );
    assert_eq!(digest(&out), 17_034_524_462_409_220_874);
}

#[test]
fn seeds_differ() {
    assert_ne!(
        lines(&mut Fleet::new(1, 10, START, STEP), 10),
        lines(&mut Fleet::new(2, 10, START, STEP), 10)
    );
}

#[test]
fn batches_of_any_size_join_to_the_same_rows() {
    let whole = lines(&mut Fleet::new(5, 7, START, STEP), 100);
    let mut fleet = Fleet::new(5, 7, START, STEP);
    let mut joined = Vec::new();
    for rows in [1, 6, 0, 13, 80] {
        joined.extend(if rows == 0 {
            Vec::new()
        } else {
            lines(&mut fleet, rows)
        });
    }
    assert_eq!(joined, whole);
}

#[test]
fn all_hosts_at_one_instant_come_before_the_next() {
    let mut fleet = Fleet::new(9, 3, START, STEP);
    let order: Vec<(usize, i64)> = (0..7)
        .map(|_| {
            let row = fleet.next_row();
            (row.host, row.timestamp - START)
        })
        .collect();
    assert_eq!(
        order,
        [
            (0, 0),
            (1, 0),
            (2, 0),
            (0, STEP),
            (1, STEP),
            (2, STEP),
            (0, 2 * STEP)
        ]
    );
    assert_eq!(fleet.timestamp(), START + 2 * STEP);
}

#[test]
fn a_line_says_what_its_row_says() {
    let mut written = Fleet::new(13, 50, START, STEP);
    let mut expected = written.clone();
    for line in lines(&mut written, 500) {
        let row = expected.next_row();
        let (head, rest) = line.split_once(' ').expect("tags end with a space");
        let (fields, timestamp) = rest.split_once(' ').expect("fields end with a space");
        let tags = expected.hosts()[row.host].tags();
        assert_eq!(
            head,
            tags.iter().fold("cpu".to_owned(), |text, (key, value)| format!(
                "{text},{key}={value}"
            ))
        );
        let named: Vec<String> = FIELDS
            .iter()
            .zip(row.values)
            .map(|(field, value)| format!("{field}={value}i"))
            .collect();
        assert_eq!(fields, named.join(","));
        assert_eq!(timestamp, row.timestamp.to_string());
    }
}

#[test]
fn values_walk_within_bounds_and_reach_both() {
    let mut fleet = Fleet::new(17, 20, START, STEP);
    let mut last = vec![[None; FIELDS.len()]; 20];
    let mut seen = HashSet::new();
    for _ in 0..20 * 2_000 {
        let row = fleet.next_row();
        for (field, value) in row.values.into_iter().enumerate() {
            assert!((0..=100).contains(&value));
            if let Some(before) = last[row.host][field].replace(value) {
                assert!(value.abs_diff(before) <= 7, "{before} became {value}");
            }
            seen.insert(value);
        }
    }
    assert_eq!(seen.len(), 101);
}

#[test]
fn a_marked_fleet_says_so_in_every_line() {
    let spec = FleetSpec {
        measurement: "fleet_cpu",
        mark: Some(("origin", "simulated")),
        ..FleetSpec::new(1, 4, START, STEP)
    };
    for line in lines(&mut Fleet::from_spec(&spec), 8) {
        assert!(line.starts_with("fleet_cpu,hostname=host_"));
        assert!(line.contains(",origin=simulated usage_user="));
        assert_eq!(line.matches(',').count(), TAGS.len() + 1 + FIELDS.len() - 1);
    }
}

#[test]
fn a_fleet_has_at_least_one_host() {
    assert_eq!(Fleet::new(1, 0, START, STEP).next_row().host, 0);
    assert_eq!(Fleet::new(1, 0, START, STEP).hosts().len(), 1);
}
