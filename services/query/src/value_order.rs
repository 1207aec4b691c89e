//! Order of values of any type, shared by ranks and sorted rows.

use std::cmp::Ordering;

use tideline_engine::model::Value;

use crate::accumulate::scalar::Scalar;
use crate::point_query::RankOrder;
use crate::result::ValueRef;

/// Compares two values. Numbers come first, by their exact values, then booleans, then strings; `order` applies within
/// each of these kinds. Histograms (all equal), NaN and missing values follow in this sequence in both orders.
pub(crate) fn compare(a: Option<ValueRef<'_>>, b: Option<ValueRef<'_>>, order: RankOrder) -> Ordering {
    let position = |value: Option<ValueRef<'_>>| match value {
        Some(ValueRef::Float(value)) if value.is_nan() => 4,
        Some(ValueRef::Float(_) | ValueRef::Signed(_) | ValueRef::Unsigned(_)) => 0,
        Some(ValueRef::Boolean(_)) => 1,
        Some(ValueRef::String(_)) => 2,
        Some(ValueRef::Histogram(_)) => 3,
        None => 5,
    };
    let by_value = match (a, b) {
        (Some(ValueRef::String(a)), Some(ValueRef::String(b))) => a.cmp(b),
        _ => match (a.and_then(scalar), b.and_then(scalar)) {
            (Some(a), Some(b)) if position(Some(a.into())) < 4 => a.compare_values(b),
            _ => Ordering::Equal,
        },
    };
    position(a).cmp(&position(b)).then(match order {
        RankOrder::Lowest => by_value,
        RankOrder::Highest => by_value.reverse(),
    })
}

/// Compares two owned values like [`compare`].
pub(crate) fn compare_values(a: Option<&Value>, b: Option<&Value>, order: RankOrder) -> Ordering {
    compare(a.map(ValueRef::from), b.map(ValueRef::from), order)
}

fn scalar(value: ValueRef<'_>) -> Option<Scalar> {
    Some(match value {
        ValueRef::Float(value) => Scalar::Float(value),
        ValueRef::Signed(value) => Scalar::Signed(value),
        ValueRef::Unsigned(value) => Scalar::Unsigned(value),
        ValueRef::Boolean(value) => Scalar::Boolean(value),
        ValueRef::String(_) | ValueRef::Histogram(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place_in_both_orders() {
        let text = |text: &str| Some(Value::String(text.into()));
        let rising = [
            Some(Value::Float(f64::NEG_INFINITY)),
            Some(Value::Signed(-3)),
            Some(Value::Float(2.5)),
            Some(Value::Signed(9_007_199_254_740_992)),
            Some(Value::Unsigned(9_007_199_254_740_993)),
            Some(Value::Boolean(false)),
            Some(Value::Boolean(true)),
            text("a"),
            text("b"),
            Some(Value::Float(f64::NAN)),
            None,
        ];
        let sorted = |order| {
            let mut values: Vec<usize> = (0..rising.len()).rev().collect();
            values.sort_by(|a, b| compare_values(rising[*a].as_ref(), rising[*b].as_ref(), order));
            values
        };
        assert_eq!(sorted(RankOrder::Lowest), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(sorted(RankOrder::Highest), [4, 3, 2, 1, 0, 6, 5, 8, 7, 9, 10]);
        let (one, same) = (Some(Value::Signed(1)), Some(Value::Float(1.0)));
        assert!(compare_values(one.as_ref(), same.as_ref(), RankOrder::Highest).is_eq());
        let minus = Some(Value::Float(-0.0));
        let zero = Some(Value::Float(0.0));
        assert!(compare_values(minus.as_ref(), zero.as_ref(), RankOrder::Lowest).is_eq());
    }
}
