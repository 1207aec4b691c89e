//! Conditions on the newest values of a row and on its key.
//!
//! Values are compared by the declared types of their columns: timestamps as nanoseconds, and decimals and bytes as
//! texts that sort like the values. Literals are converted in the same way, once per request. Values of undeclared
//! columns are compared if they are texts, numbers or booleans.

use std::cell::OnceCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;
use tideline_engine::condition::operators::{Between, Compare, Equals, In, NotEquals};
use tideline_engine::condition::{Condition, Literal, Matcher, Record, Subject, Test, ValueRef};
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::key_codec::tuple::{ColumnOrder, Decimal, KeyColumn, KeyKind, KeySchema, KeyValue};
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::rows::{CellValue, ColumnName, Mutation};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::condition::ValueCondition;

use crate::error::{Result, RowsError};
use crate::value::{cell_of, type_of};

/// Compiled condition on rows of one table.
#[derive(Debug)]
pub struct RowMatcher {
    matcher: Matcher,
    /// Tested columns by name.
    targets: HashMap<String, Target>,
}

/// Column that a condition tests.
#[derive(Debug)]
enum Target {
    /// Number of a logical key column, and its type.
    Key(usize, ColumnType),
    /// Stored name of a column, and its declared type.
    Column(ColumnName<'static>, Option<ColumnType>),
}

impl RowMatcher {
    /// Compiles a condition.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a value does not have the type of its column, and the errors of [`Matcher::compile`].
    pub fn new(engine: &Engine, table: &WideTable, condition: &ValueCondition) -> Result<Self> {
        let mut targets = HashMap::new();
        let condition = convert(table, &condition.0, &mut targets)?;
        let matcher = Matcher::compile(&condition, engine.memory(), &|| false).map_err(EngineError::from)?;
        Ok(Self { matcher, targets })
    }

    /// Returns the names of the tested columns, sorted.
    pub fn columns(&self) -> Vec<String> {
        let mut names: Vec<String> = self.targets.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns true if a row matches. `row` is `None` for a row that does not exist.
    pub fn matches(&self, layout: &KeyLayout, key: &[u8], row: Option<&Mutation<'_>>) -> bool {
        let values = OnceCell::new();
        self.matcher.matches(&RowRecord {
            matcher: self,
            layout,
            key,
            values,
            row,
        })
    }
}

/// Row on which a condition is tested.
struct RowRecord<'r, 'm> {
    matcher: &'r RowMatcher,
    layout: &'r KeyLayout,
    key: &'r [u8],
    /// Values of the key columns. They are decoded when the condition first tests a key column.
    values: OnceCell<Vec<KeyValue<'r>>>,
    row: Option<&'r Mutation<'m>>,
}

impl Record for RowRecord<'_, '_> {
    fn any_value(&self, subject: &Subject, take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let Subject::Field(name) = subject else {
            return false;
        };
        match self.matcher.targets.get(name) {
            Some(Target::Key(number, column_type)) => {
                let values = self
                    .values
                    .get_or_init(|| self.layout.decode(self.key).unwrap_or_default());
                let value = values.get(*number).map(cell_of);
                value.is_some_and(|value| compared(&value, Some(*column_type), take))
            }
            Some(Target::Column(name, declared)) => {
                let newest = self.row.and_then(|row| row.column(name)?.newest());
                newest.is_some_and(|version| compared(&version.value, *declared, take))
            }
            None => false,
        }
    }
}

/// Passes a value to `take` in the form in which it is compared, and returns the result of `take`.
fn compared(
    value: &CellValue<'_>,
    declared: Option<ColumnType>,
    mut take: impl FnMut(ValueRef<'_>) -> bool,
) -> bool {
    if declared.is_some_and(|declared| declared != value.column_type()) {
        return take(ValueRef::Opaque);
    }
    match value {
        CellValue::String(text) => take(ValueRef::Text(text)),
        CellValue::I64(number) => take(ValueRef::Signed(*number)),
        CellValue::U64(number) => take(ValueRef::Unsigned(*number)),
        CellValue::F64(number) => take(ValueRef::Float(*number)),
        CellValue::Bool(value) => take(ValueRef::Boolean(*value)),
        CellValue::Timestamp(time) if declared.is_some() => take(ValueRef::Signed(time.nanos())),
        CellValue::Decimal(number) if declared.is_some() => take(ValueRef::Text(&decimal_text(*number))),
        CellValue::Binary(bytes) if declared.is_some() => take(ValueRef::Text(&hex(bytes))),
        _ => take(ValueRef::Opaque),
    }
}

/// Returns bytes as hexadecimal digits, which sort like the bytes.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Returns the encoded key of a decimal in hexadecimal. These texts sort like the decimals.
fn decimal_text(number: Decimal) -> String {
    let mut key = Vec::new();
    let column = KeyColumn {
        kind: KeyKind::Decimal,
        order: ColumnOrder::Ascending,
    };
    let encoded = KeySchema::new([column]).and_then(|schema| schema.encode(&[number.into()], &mut key));
    debug_assert!(encoded.is_ok(), "a decimal is a key");
    hex(&key)
}

/// Converts the literals of a condition to the form in which the values of rows are compared, and adds the tested
/// columns to `targets`.
fn convert(
    table: &WideTable,
    condition: &Condition,
    targets: &mut HashMap<String, Target>,
) -> Result<Condition> {
    let mut all = |conditions: &[Condition]| -> Result<Vec<Condition>> {
        conditions
            .iter()
            .map(|inner| convert(table, inner, targets))
            .collect()
    };
    Ok(match condition {
        Condition::And(conditions) => Condition::And(all(conditions)?),
        Condition::Or(conditions) => Condition::Or(all(conditions)?),
        Condition::Not(inner) => Condition::Not(Box::new(convert(table, inner, targets)?)),
        Condition::Leaf {
            subject: Subject::Field(name),
            test,
        } => {
            let target = target(table, name);
            let declared = match &target {
                Target::Key(_, column_type) => Some(*column_type),
                Target::Column(_, declared) => *declared,
            };
            let test = convert_test(test, |literal| {
                convert_literal(literal, declared).map_err(|found| {
                    let declared = declared.map_or("none", ColumnType::name);
                    RowsError::Invalid(format!(
                        "condition: column {name:?} has the type {declared}; {found}"
                    ))
                })
            })?;
            targets.insert(name.clone(), target);
            Condition::leaf(Subject::Field(name.clone()), test)
        }
        other => other.clone(),
    })
}

fn target(table: &WideTable, name: &str) -> Target {
    match table.layout().logical_number(name) {
        Ok(number) => Target::Key(number, type_of(table.layout().logical()[number].kind)),
        Err(_) => {
            let (column, declared) = table.column(name);
            Target::Column(column, declared)
        }
    }
}

fn convert_test(test: &Test, literal: impl Fn(&Literal) -> Result<Literal>) -> Result<Test> {
    use std::ops::Bound;
    let bound = |bound: &Bound<Literal>| -> Result<Bound<Literal>> {
        Ok(match bound {
            Bound::Included(value) => Bound::Included(literal(value)?),
            Bound::Excluded(value) => Bound::Excluded(literal(value)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    };
    Ok(match test {
        Test::Equals(Equals(value)) => Equals(literal(value)?).into(),
        Test::NotEquals(NotEquals(value)) => NotEquals(literal(value)?).into(),
        Test::In(In(values)) => In(values.iter().map(literal).collect::<Result<_>>()?).into(),
        Test::Compare(Compare { low, high }) => Compare {
            low: bound(low)?,
            high: bound(high)?,
        }
        .into(),
        Test::Between(Between(ends)) => {
            let [from, to] = &**ends;
            Between(Box::new([literal(from)?, literal(to)?])).into()
        }
        other => other.clone(),
    })
}

/// Converts a literal to the form in which values of the declared type are compared. The error describes the literal.
fn convert_literal(literal: &Literal, declared: Option<ColumnType>) -> std::result::Result<Literal, String> {
    let Some(declared) = declared else {
        return Ok(literal.clone());
    };
    let number = match literal {
        Literal::Signed(number) => Some(number.to_string()),
        Literal::Unsigned(number) => Some(number.to_string()),
        Literal::Float(number) => Some(number.to_string()),
        _ => None,
    };
    let converted = match (declared, literal) {
        (ColumnType::String, Literal::Text(_))
        | (ColumnType::Bool, Literal::Boolean(_))
        | (
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64,
            Literal::Signed(_) | Literal::Unsigned(_) | Literal::Float(_),
        ) => Some(literal.clone()),
        (ColumnType::I64 | ColumnType::U64, Literal::Text(text)) => {
            let signed = text.parse().map(Literal::Signed);
            signed.or_else(|_| text.parse().map(Literal::Unsigned)).ok()
        }
        (ColumnType::Timestamp, Literal::Text(text)) => {
            Timestamp::parse_rfc3339(text).map(|time| Literal::Signed(time.nanos()))
        }
        (ColumnType::Timestamp, Literal::Signed(_)) => Some(literal.clone()),
        (ColumnType::Decimal, Literal::Text(text)) => Decimal::parse(text).map(decimal_literal),
        (ColumnType::Decimal, _) => number.as_deref().and_then(Decimal::parse).map(decimal_literal),
        (ColumnType::Binary, Literal::Text(text)) => {
            let bytes = STANDARD.decode(text).ok();
            bytes.map(|bytes| Literal::Text(hex(&bytes)))
        }
        (ColumnType::Json, _) => return Err("columns of this type support only the test `exists`".into()),
        _ => None,
    };
    converted.ok_or_else(|| {
        let json = serde_json::to_string(literal).unwrap_or_default();
        format!("found {}", crate::value::shown(&json))
    })
}

fn decimal_literal(number: Decimal) -> Literal {
    Literal::Text(decimal_text(number))
}
