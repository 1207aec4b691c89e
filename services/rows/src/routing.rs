//! Shards of a search index that can hold the rows of a condition.
//!
//! A condition chooses shards if it allows only certain values of every routing column: by `equals` or `in`, alone or
//! in conjunctions. A disjunction chooses the shards of all its alternatives. Each test restricts the matching rows, so
//! the chosen shards contain all of them. A value that has no exact counterpart among the values of its column
//! chooses nothing.

use hashbrown::HashMap;
use tideline_engine::WideTable;
use tideline_engine::condition::operators::{Equals, In};
use tideline_engine::condition::{Condition, Literal, Subject, Test};
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_engine::model::Timestamp;
use tideline_engine::row_search::{Routing, ShardSet};
use tideline_engine::row_values::{bytes_of_hex, decimal_of_text};

/// Maximum number of combinations of values whose shards are computed. A condition with more of them chooses all
/// shards.
const COMBINATIONS_MAX: usize = 10_000;
/// Exclusive upper bound of the magnitude of doubles that equal at most one integer.
const EXACT_END: f64 = (1_u64 << 53) as f64;

/// Returns the shards that can hold rows that match a condition. The literals of `condition` have the form in which the
/// values of rows are compared.
pub(crate) fn shards_of(table: &WideTable, routing: &Routing, condition: &Condition) -> ShardSet {
    match condition {
        Condition::Or(alternatives) => {
            let each = alternatives.iter().map(|inner| shards_of(table, routing, inner));
            each.fold(ShardSet::EMPTY, ShardSet::union)
        }
        Condition::And(_) | Condition::Leaf { .. } => {
            let mut values = HashMap::new();
            let inner = conjunction(table, routing, condition, &mut values);
            inner.intersection(combined(routing, &values))
        }
        Condition::All | Condition::Not(_) | Condition::Saved(_) => ShardSet::ALL,
    }
}

/// Adds the values that a conjunction allows for routing columns to `values`, by the numbers of the columns. Returns
/// the shards that its disjunctions choose.
fn conjunction(
    table: &WideTable,
    routing: &Routing,
    condition: &Condition,
    values: &mut HashMap<usize, Vec<KeyValue<'static>>>,
) -> ShardSet {
    match condition {
        Condition::And(conditions) => {
            let each = conditions
                .iter()
                .map(|inner| conjunction(table, routing, inner, values));
            each.fold(ShardSet::ALL, ShardSet::intersection)
        }
        Condition::Leaf {
            subject: Subject::Column(name),
            test,
        } => {
            let logical = table.layout().logical();
            let number = logical.iter().position(|column| column.name == *name);
            let number = number.filter(|number| routing.columns().contains(number));
            let allowed = number.and_then(|number| Some((number, allowed(test, logical[number].kind)?)));
            if let Some((number, allowed)) = allowed
                && values
                    .get(&number)
                    .is_none_or(|known| known.len() > allowed.len())
            {
                values.insert(number, allowed);
            }
            ShardSet::ALL
        }
        // Only columns of the key choose shards.
        Condition::Leaf { .. } => ShardSet::ALL,
        other => shards_of(table, routing, other),
    }
}

/// Returns the only values that pass a test of a key column; `None` if other values pass too, or if they cannot be
/// listed.
fn allowed(test: &Test, kind: KeyKind) -> Option<Vec<KeyValue<'static>>> {
    match test {
        Test::Equals(Equals(literal)) => Some(vec![value_of(literal, kind)?]),
        Test::In(In(literals)) => literals.iter().map(|literal| value_of(literal, kind)).collect(),
        _ => None,
    }
}

/// Returns the only value of a key column that equals a literal; `None` if there may be none, or several.
fn value_of(literal: &Literal, kind: KeyKind) -> Option<KeyValue<'static>> {
    match (kind, literal) {
        (KeyKind::String, Literal::Text(text)) => Some(KeyValue::String(text.clone().into())),
        (KeyKind::Boolean, Literal::Boolean(value)) => Some(KeyValue::Boolean(*value)),
        (KeyKind::Signed, literal) => i64::try_from(integer(literal)?).ok().map(KeyValue::Signed),
        (KeyKind::Unsigned, literal) => u64::try_from(integer(literal)?).ok().map(KeyValue::Unsigned),
        (KeyKind::Timestamp, Literal::Signed(nanos)) => {
            Timestamp::from_nanos(*nanos).ok().map(KeyValue::Timestamp)
        }
        (KeyKind::Decimal, Literal::Text(text)) => decimal_of_text(text).map(KeyValue::Decimal),
        (KeyKind::Binary, Literal::Text(text)) => {
            bytes_of_hex(text).map(|bytes| KeyValue::Binary(bytes.into()))
        }
        _ => None,
    }
}

fn integer(literal: &Literal) -> Option<i128> {
    match literal {
        Literal::Signed(number) => Some((*number).into()),
        Literal::Unsigned(number) => Some((*number).into()),
        Literal::Float(number) if number.fract() == 0.0 && number.abs() < EXACT_END => Some(*number as i128),
        _ => None,
    }
}

/// Returns the shards of all combinations of values; all shards if a routing column can have any value.
fn combined(routing: &Routing, values: &HashMap<usize, Vec<KeyValue<'static>>>) -> ShardSet {
    let listed: Option<Vec<_>> = routing
        .columns()
        .iter()
        .map(|number| values.get(number))
        .collect();
    let Some(listed) = listed else {
        return ShardSet::ALL;
    };
    let combinations = listed
        .iter()
        .try_fold(1_usize, |product, values| product.checked_mul(values.len()));
    let Some(combinations) = combinations.filter(|count| *count <= COMBINATIONS_MAX) else {
        return ShardSet::ALL;
    };
    let mut shards = ShardSet::EMPTY;
    for combination in 0..combinations {
        let mut rest = combination;
        let mut chosen = Vec::with_capacity(listed.len());
        for values in &listed {
            chosen.push(&values[rest % values.len()]);
            rest /= values.len();
        }
        shards.insert(routing.shard_of(chosen.into_iter()));
        if shards.len_of(routing.shards()) == routing.shards() {
            break;
        }
    }
    shards
}
