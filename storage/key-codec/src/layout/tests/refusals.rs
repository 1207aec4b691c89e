//! Tests of refused declarations and values, with their messages.
//!
//! The messages are part of the API: they name the column and describe the limit and the remedy.

use super::*;

/// Returns the message of a refused declaration.
#[track_caller]
fn refusal(columns: &[KeyColumnSpec]) -> String {
    KeyLayout::new(columns, false).expect_err("refused").to_string()
}

/// Returns the message of a refused key of the columns `first` and `s`, a plain string.
#[track_caller]
fn refused_before_s(first: KeyColumnSpec) -> String {
    refusal(&[first, plain("s", ColumnType::String)])
}

#[test]
fn a_key_has_1_to_8_columns() {
    assert_eq!(refusal(&[]), "the key has 0 columns; declare 1 to 8");
    let nine: Vec<KeyColumnSpec> = (0..9)
        .map(|n| plain(&format!("c{n}"), ColumnType::String))
        .collect();
    assert_eq!(refusal(&nine), "the key has 9 columns; declare 1 to 8");
    assert_eq!(layout_of(&nine[..8]).logical().len(), 8);
}

#[test]
fn names_have_a_form_and_are_unique() {
    for name in ["", "1a", "a-b", "é", "a b", &"a".repeat(256)] {
        let expected = format!(
            "key column name {name:?} is not valid: use a letter or `_`, then letters, digits and `_`, at most 255 bytes"
        );
        assert_eq!(refused_before_s(plain(name, ColumnType::String)), expected);
        assert_eq!(refused_before_s(reverse("r", name, ColumnType::String)), expected);
    }
    layout_of(&[plain(&"_".repeat(255), ColumnType::String)]);
    let twice = "two key columns have the name `s`; names are unique over logical and computed columns";
    assert_eq!(refused_before_s(plain("s", ColumnType::String)), twice);
    assert_eq!(refused_before_s(reverse("r", "s", ColumnType::String)), twice);
    assert_eq!(
        refused_before_s(reverse("x", "x", ColumnType::String)),
        twice.replace("`s`", "`x`")
    );
    assert_eq!(refused_before_s(hash("s", &["s"], 4)), twice);
}

#[test]
fn some_types_are_not_in_keys() {
    for column_type in [ColumnType::F64, ColumnType::Json] {
        assert_eq!(
            refused_before_s(plain("x", column_type)),
            format!(
                "key column `x` has type {column_type}, which keys cannot hold; use string, i64, u64, bool, binary, \
                 decimal or timestamp"
            )
        );
    }
}

#[test]
fn a_rising_first_column_needs_consent() {
    for first in [
        plain("x", ColumnType::Timestamp),
        descending(plain("x", ColumnType::Timestamp)),
        generated("x"),
    ] {
        let columns = [first, plain("s", ColumnType::String)];
        assert_eq!(
            refusal(&columns),
            "the first key column `x` rises with time, so all writes go to one end of the order; put a column that \
             spreads writes before it, or begin the key with a `hash_prefix`, or begin the key with a `bucket`; \
             `allow_rising_key` accepts it as it is"
        );
        layout_of(&columns);
        // Each of the three remedies of the message is accepted.
        for before in [
            plain("b", ColumnType::I64),
            hash("b", &["x"], 4),
            bucket("b", &["x"], 16),
        ] {
            assert!(KeyLayout::new(&[before, columns[0].clone()], false).is_ok());
        }
    }
    assert_eq!(
        refusal(&[plain("s", ColumnType::String), generated("a"), generated("b")]),
        "key columns `a` and `b` are both generated; a key has at most one generated column"
    );
}

#[test]
fn the_key_of_an_index_ends_with_the_rest_of_the_primary_key() {
    let primary = [
        hash("h", &["a"], 2),
        plain("a", ColumnType::String),
        generated("id"),
    ];
    let names = |index: &[KeyColumnSpec], is_local| -> Vec<String> {
        let layout = KeyLayout::of_index(&primary, index, is_local, false).expect("a valid index");
        layout
            .stored()
            .iter()
            .map(|column| column.name().to_owned())
            .collect()
    };
    let n = plain("n", ColumnType::I64);
    assert_eq!(names(std::slice::from_ref(&n), false), ["n", "a", "id"]);
    assert_eq!(
        names(&[n.clone(), descending(plain("id", ColumnType::I64))], false),
        ["n", "id", "a"]
    );
    assert_eq!(names(&[n], true), ["h", "a", "n", "id"]);
    for rising in [plain("id", ColumnType::I64), plain("at", ColumnType::Timestamp)] {
        let index = [rising];
        let refused = KeyLayout::of_index(&primary, &index, false, false);
        assert!(
            matches!(refused, Err(LayoutError::RisingKey { .. })),
            "{refused:?}"
        );
        assert!(KeyLayout::of_index(&primary, &index, false, true).is_ok());
        assert!(KeyLayout::of_index(&primary, &index, true, false).is_ok());
    }
    let twice = KeyLayout::of_index(&primary, &[plain("a", ColumnType::String)], true, false);
    assert!(
        matches!(twice, Err(LayoutError::DuplicateName { .. })),
        "{twice:?}"
    );
}

#[test]
fn hashes_refer_to_logical_columns() {
    assert_eq!(
        refused_before_s(hash("h", &[], 4)),
        "key column `h` hashes no column; list logical columns of the key in `of`"
    );
    assert_eq!(
        refused_before_s(bucket("h", &["h"], 4)),
        "key column `h` hashes `h`, which is not a logical column of the key; it has `s`"
    );
    assert_eq!(
        refused_before_s(bucket("h", &["s", "s"], 4)),
        "key column `h` hashes `s` twice; list it once"
    );
    assert_eq!(
        refusal(&[hash("h", &["x"], 4)]),
        "key column `h` hashes `x`, which is not a logical column of the key; it has no logical columns"
    );
}

#[test]
fn hashes_have_sizes_and_places() {
    for digits in [0, 9] {
        assert_eq!(
            refused_before_s(hash("h", &["s"], digits)),
            format!("hash prefix `h` has {digits} digits; `hex` is 1 to 8")
        );
    }
    for count in [0, 1, 257] {
        assert_eq!(
            refused_before_s(bucket("h", &["s"], count)),
            format!("key column `h` has {count} buckets; `count` is 2 to 256")
        );
    }
    assert_eq!(
        refusal(&[
            plain("a", ColumnType::I64),
            bucket("b", &["s"], 4),
            plain("s", ColumnType::String)
        ]),
        "bucket `b` is key column 2; a bucket spreads rows only as the first key column"
    );
    assert_eq!(
        refusal(&[plain("s", ColumnType::String), hash("h", &["s"], 4)]),
        "key column `h` is the last one, where its hash changes nothing; put it before the columns that it hashes"
    );
}

#[test]
fn reversed_and_spliced_columns_have_texts() {
    assert_eq!(
        refused_before_s(reverse("r", "x", ColumnType::Bool)),
        "`x` is reversed and has type bool; reverse a column of type string, i64 or u64"
    );
    let string = |name| (name, ColumnType::String, None);
    let spliced = |delimiter, columns: &[(&str, ColumnType, Option<u8>)]| {
        refused_before_s(splice("j", delimiter, columns))
    };
    assert_eq!(
        spliced(',', &[string("a")]),
        "splice `j` has 1 columns; list 2 to 8, or use a plain column for one value"
    );
    assert_eq!(
        spliced(',', &[string("a"), ("b", ColumnType::Decimal, None)]),
        "`b` is spliced and has type decimal; splice columns of type string, i64 or u64"
    );
    assert_eq!(
        spliced(',', &[string("a"), ("b", ColumnType::I64, None)]),
        "`b` is a spliced integer without `pad`; give the digits of its largest value, 1 to 20"
    );
    for digits in [0, 21] {
        assert_eq!(
            spliced(',', &[string("a"), ("b", ColumnType::U64, Some(digits))]),
            format!("`b` is padded to {digits} digits; `pad` is 1 to 20")
        );
    }
    assert_eq!(
        spliced(',', &[string("a"), ("b", ColumnType::String, Some(4))]),
        "`b` is a spliced string with `pad`; only integers are padded, so omit it"
    );
    assert_eq!(
        spliced('–', &[string("a"), string("b")]),
        "splice `j` has the delimiter '–'; use one ASCII character, such as `,`"
    );
    assert_eq!(
        spliced(':', &[string("a"), ("b", ColumnType::U64, Some(4))]),
        "splice `j` has integers and the delimiter ':'; use one that sorts before `0`, such as `,`"
    );
}

#[test]
fn refused_values_leave_the_buffer_unchanged() {
    let layout = layout_of(&[
        reverse("r", "n", ColumnType::I64),
        splice(
            "j",
            ',',
            &[
                ("seller", ColumnType::String, None),
                ("no", ColumnType::U64, Some(2)),
            ],
        ),
        plain("tail", ColumnType::String),
    ]);
    let refused = |row: &[KeyValue<'_>]| {
        let mut out = b"before".to_vec();
        let error = layout.encode(row, &mut out).expect_err("refused");
        assert_eq!(out, b"before");
        error.to_string()
    };
    let row = |n: i64, seller: &'static str, no: u64| [n.into(), seller.into(), no.into(), "t".into()];
    assert_eq!(
        refused(&row(-1, "x", 1)),
        "key column `n` is stored as text and cannot hold the negative number -1; use 0 or more"
    );
    assert_eq!(
        refused(&row(1, "x", 100)),
        "key column `no` holds numbers of at most 2 digits; 100 has more"
    );
    assert_eq!(
        refused(&row(1, "x,y", 1)),
        "key column `seller` is joined with others by ','; its text must not contain ',', which does not sort after \
         the delimiter"
    );
    assert!(refused(&row(1, "x y", 1)).contains("must not contain ' '"));
    assert_eq!(
        refused(&row(1, "x", 1)[..3]),
        "the key has 3 values, the table has 4 key columns; give one value per column"
    );
    assert_eq!(
        refused(&[1_i64.into(), 1_u64.into(), 1_u64.into(), "t".into()]),
        "key column `seller` has type string; the value has type u64"
    );
    let long = "t".repeat(8_160);
    let mut with_tail = row(1, "x", 1);
    with_tail[3] = long.as_str().into();
    assert_eq!(
        refused(&with_tail),
        "the key has 8189 encoded bytes, over the limit of 8160; shorten the values"
    );
}
