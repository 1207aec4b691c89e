//! Tests of conditions by column name: order, missing columns, unknown and repeated names.

use super::*;

fn layout() -> KeyLayout {
    layout_of(&[
        plain("gid", ColumnType::String),
        plain("uid", ColumnType::I64),
        plain("time", ColumnType::Timestamp),
    ])
}

fn arranged(values: &[(&str, OwnedValue)], bounded: Option<&str>) -> Result<Vec<OwnedValue>, LayoutError> {
    layout().arrange(values.iter().cloned(), bounded)
}

#[test]
fn values_are_put_in_the_order_of_the_key() {
    let (gid, uid) = (KeyValue::from("g"), KeyValue::from(7_i64));
    let values = [("uid", uid.clone()), ("gid", gid.clone())];
    assert_eq!(arranged(&values, Some("time")), Ok(vec![gid.clone(), uid]));
    assert_eq!(arranged(&values[1..], Some("uid")), Ok(vec![gid]));
    assert_eq!(arranged(&[], Some("gid")), Ok(Vec::new()));
    assert_eq!(arranged(&[], None), Ok(Vec::new()));
}

#[test]
fn a_gap_names_the_missing_column() {
    let missing = |column: &str, missing: &str| {
        Err(LayoutError::MissingColumn {
            column: column.to_owned(),
            missing: missing.to_owned(),
        })
    };
    let uid = [("uid", KeyValue::from(7_i64))];
    assert_eq!(arranged(&uid, Some("time")), missing("uid", "gid"));
    assert_eq!(arranged(&[], Some("time")), missing("time", "gid"));
    assert_eq!(
        arranged(&[("gid", "g".into())], Some("time")),
        missing("time", "uid")
    );
    assert_eq!(
        arranged(&uid, None).expect_err("refused").to_string(),
        "key column `uid` cannot restrict the scan without a value of `gid`, which precedes it in the key; add an \
         equality on `gid`, or create a secondary index on `uid`"
    );
}

#[test]
fn names_are_known_and_given_once() {
    let gid = ("gid", KeyValue::from("g"));
    assert_eq!(
        arranged(&[("id", 1_i64.into())], None)
            .expect_err("refused")
            .to_string(),
        "`id` is not a key column; the key has `gid`, `uid`, `time`"
    );
    let twice = LayoutError::ColumnTwice {
        column: "gid".to_owned(),
    };
    assert_eq!(arranged(&[gid.clone(), gid.clone()], None), Err(twice.clone()));
    assert_eq!(arranged(&[gid], Some("gid")), Err(twice));
}
