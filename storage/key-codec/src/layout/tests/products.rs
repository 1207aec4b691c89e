//! Tests of products of lists: number, limit and combinations.

use super::*;

fn three_columns() -> KeyLayout {
    layout_of(&[
        plain("a", ColumnType::I64),
        plain("b", ColumnType::I64),
        plain("c", ColumnType::I64),
    ])
}

fn list(numbers: std::ops::Range<i64>) -> Vec<OwnedValue> {
    numbers.map(KeyValue::from).collect()
}

#[test]
fn a_product_has_every_combination_once() {
    let product = three_columns()
        .product(&[list(0..3), [list(0..3), list(1..3)].concat(), list(0..3)], 27)
        .expect("27 keys");
    assert_eq!(product.count(), 27);
    assert_eq!(product.factors().collect::<Vec<_>>(), [3, 3, 3]);
    let combinations: Vec<Vec<OwnedValue>> = product.iter().collect();
    assert_eq!(product.iter().size_hint(), (27, Some(27)));
    let expected = (0..27_i64).map(|number| {
        [number / 9, number / 3 % 3, number % 3]
            .map(KeyValue::from)
            .to_vec()
    });
    assert_eq!(combinations, expected.collect::<Vec<_>>());
}

#[test]
fn a_product_over_the_limit_is_refused_before_keys_are_made() {
    let lists = [list(0..3), list(0..23), list(0..29)];
    assert!(three_columns().product(&lists, 2_001).is_ok());
    let error = three_columns().product(&lists, 2_000).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "lists of 3 × 23 × 29 values select 2001 keys, over the limit of 2000; shorten a list, or split the request"
    );
}

#[test]
fn a_product_over_64_bits_is_refused() {
    let columns: Vec<KeyColumnSpec> = ["a", "b", "c", "d", "e"]
        .map(|name| plain(name, ColumnType::I64))
        .into();
    let error = layout_of(&columns)
        .product(&vec![list(0..10_000); 5], u64::MAX)
        .expect_err("refused");
    let LayoutError::ProductTooLarge { actual, factors, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*actual, factors.as_slice()), (None, &[10_000; 5][..]));
    assert!(
        error
            .to_string()
            .contains("select more than 18446744073709551615 keys")
    );
}

#[test]
fn lists_fit_the_columns() {
    let layout = three_columns();
    assert_eq!(
        layout
            .product(&[list(0..3), Vec::new()], 10)
            .expect("none")
            .iter()
            .count(),
        0
    );
    let none: Vec<Vec<OwnedValue>> = layout.product(&[], 10).expect("one").iter().collect();
    assert_eq!(none, [Vec::new()]);
    assert!(matches!(
        layout.product(&vec![list(0..1); 4], 10),
        Err(LayoutError::PrefixCount { limit: 3, actual: 4 })
    ));
    assert!(matches!(
        layout.product(&[vec!["x".into()]], 10),
        Err(LayoutError::WrongKind { .. })
    ));
}
