//! Tests of row keys: they sort like the stored tuples, decode to the same row, and other bytes are refused.
//!
//! Random layouts with all modifiers are compared with tuples of their stored columns.

use super::*;

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(2_000))]

    #[test]
    fn rows_read_back((columns, rows) in tables(1..2)) {
        let layout = layout_of(&columns);
        let key = encoded(&layout, &rows[0]);
        prop_assert_eq!(layout.decode(&key), Ok(rows[0].clone()));
    }

    #[test]
    fn keys_sort_as_stored_tuples((columns, rows) in tables(2..8)) {
        let (layout, schema) = (layout_of(&columns), stored_schema(&columns));
        for pair in rows.windows(2) {
            let order = encoded(&layout, &pair[0]).cmp(&encoded(&layout, &pair[1]));
            let tuples = [stored_tuple(&columns, &pair[0]), stored_tuple(&columns, &pair[1])];
            prop_assert_eq!(order, cmp_tuples(&schema, &tuples[0], &tuples[1]), "{:?}", pair);
        }
    }

    #[test]
    fn logical_columns_are_in_the_order_of_the_stored_ones((columns, rows) in tables(1..2)) {
        let layout = layout_of(&columns);
        let names: Vec<&str> = layout.logical().iter().map(|column| column.name.as_str()).collect();
        prop_assert_eq!(&names, &logical_names(&columns));
        prop_assert!(layout.logical().is_sorted_by_key(|column| column.stored));
        let generated = columns.iter().find(|column| matches!(column.source, KeySource::Generated(_)));
        let generated = generated.and_then(|column| names.iter().position(|name| *name == column.name));
        prop_assert_eq!(layout.generated(), generated);
        for (column, value) in layout.logical().iter().zip(&rows[0]) {
            prop_assert_eq!(column.kind, value.kind());
        }
        let schema = stored_schema(&columns);
        for (stored, column) in layout.stored().iter().zip(schema.columns()) {
            prop_assert_eq!((stored.kind(), stored.order()), (column.kind, column.order));
        }
    }

    #[test]
    fn rows_with_equal_first_columns_form_one_partition((columns, rows) in tables(2..12)) {
        let layout = layout_of(&columns);
        let is_hash = |column: &KeyColumnSpec| {
            matches!(column.source, KeySource::HashPrefix(_) | KeySource::Bucket(_))
        };
        let first = columns.iter().take_while(|column| is_hash(column)).count() + 1;
        let mut partitions: Vec<(Vec<OwnedValue>, Vec<OwnedValue>, Vec<u8>)> = Vec::new();
        for row in &rows {
            let key = encoded(&layout, row);
            let length = layout.partition_len(&key).expect("valid");
            // `partition_len` accepts exactly the bytes of the partition, and fails if one byte is missing.
            prop_assert_eq!(layout.partition_len(&key[..length]), Ok(length));
            prop_assert!(layout.partition_len(&key[..length - 1]).is_err());
            // The other columns do not change the partition, and can have values of any type.
            let mut values = vec![KeyValue::Boolean(true); row.len()];
            for number in layout.partition_columns() {
                values[*number] = row[*number].borrowed();
            }
            let mut partition = Vec::new();
            prop_assert_eq!(layout.encode_partition(&values, &mut partition), Ok(()));
            prop_assert_eq!(&partition[..], &key[..length]);
            let tuple = stored_tuple(&columns, row)[..first].to_vec();
            let logical = layout.partition_columns().iter().map(|number| row[*number].clone()).collect();
            partitions.push((tuple, logical, key[..length].to_vec()));
        }
        for (tuple, logical, bytes) in &partitions {
            for (other_tuple, other_logical, other_bytes) in &partitions {
                prop_assert_eq!(tuple == other_tuple, bytes == other_bytes);
                prop_assert!(logical != other_logical || tuple == other_tuple);
            }
        }
    }

    #[test]
    fn a_changed_key_is_refused_or_canonical(
        (columns, rows) in tables(1..2),
        at in any::<Index>(),
        change in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let layout = layout_of(&columns);
        let mut key = encoded(&layout, &rows[0]);
        let at = at.index(key.len());
        key[at] ^= change;
        if cut {
            key.truncate(at);
        }
        if let Ok(row) = layout.decode(&key) {
            prop_assert_eq!(encoded(&layout, &row), key);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(
        columns in declarations(),
        key in vec(prop_oneof![select(&[0, 1, b',', b'0', b'a', 0xff][..]), any::<u8>()], 0..40),
    ) {
        let layout = layout_of(&columns);
        if let Ok(row) = layout.decode(&key) {
            prop_assert_eq!(encoded(&layout, &row), key);
        }
    }
}

#[test]
fn a_wrong_hash_is_damage() {
    let of_order = layout_of(&[hash("h", &["order"], 4), plain("order", ColumnType::U64)]);
    let mut key = encoded(&of_order, &[200_001_u64.into()]);
    key[..4].copy_from_slice(b"ddba");
    let damage = of_order.decode(&key).expect_err("damaged");
    assert_eq!(
        damage.to_string(),
        "a stored key is damaged in column `h`: it holds ddba, the hash of its columns is ee8f"
    );
    let of_order = layout_of(&[
        descending(bucket("b", &["order"], 16)),
        plain("order", ColumnType::U64),
    ]);
    let mut key = encoded(&of_order, &[200_001_u64.into()]);
    key[0] ^= 1;
    let damage = of_order.decode(&key).expect_err("damaged");
    assert!(matches!(damage, StoredKeyDamage::Hash { .. }), "{damage}");
}

#[test]
fn the_last_value_is_read_without_hashes() {
    let layout = layout_of(&[
        hash("h", &["order"], 4),
        plain("order", ColumnType::String),
        descending(plain("number", ColumnType::I64)),
    ]);
    let mut key = encoded(&layout, &["a\0b".into(), (-7_i64).into()]);
    assert_eq!(layout.last_value(&key), Ok(Some((-7_i64).into())));
    key[0] ^= 1;
    assert_eq!(layout.last_value(&key), Ok(Some((-7_i64).into())));
    let cut = layout.last_value(&key[..key.len() - 1]);
    assert!(matches!(cut, Err(StoredKeyDamage::Column { .. })), "{cut:?}");
    key.push(0);
    let long = layout.last_value(&key);
    assert_eq!(long, Err(StoredKeyDamage::TrailingBytes { bytes: 1 }));
}

#[test]
fn damage_names_the_column() {
    let layout = layout_of(&[
        splice(
            "s",
            ',',
            &[
                ("seller", ColumnType::String, None),
                ("no", ColumnType::U64, Some(3)),
            ],
        ),
        reverse("r", "n", ColumnType::I64),
    ]);
    let damage = |key: &[u8]| layout.decode(key).expect_err("damaged").to_string();
    let key = encoded(&layout, &["x".into(), 7_u64.into(), 5_i64.into()]);
    assert_eq!(key, *b"x,007\0\x015000000000000000000\0\x01");
    for text in ["x", "x,07", "x,0007", "x,+07", "x,,007", "x y,007"] {
        let expected =
            format!("a stored key is damaged in column `s`: {text:?} is not a text of its columns");
        let key = format!("{text}\0\u{1}5000000000000000000\0\u{1}");
        assert_eq!(damage(key.as_bytes()), expected);
    }
    // The number exceeds `i64::MAX`.
    let key = b"x,007\0\x019999999999999999999\0\x01";
    assert!(damage(key).starts_with("a stored key is damaged in column `r`: "));
    assert_eq!(
        damage(b"x,007\0\x01500"),
        "a stored key is damaged in column `r`: the key ends inside it"
    );
    assert_eq!(
        damage(b"x,007\0\x015000000000000000000\0\x01??"),
        "a stored key is damaged: 2 bytes follow its last column"
    );
    assert_eq!(
        damage(&[1; 8_161]),
        "a stored key is damaged: it has 8161 bytes, over the limit of 8160"
    );
}
