//! Conditions on the newest values of a row and on its key.
//!
//! Values are compared in the forms of [`row_values`](tideline_engine::row_values), according to the declared types of
//! their columns. Literals are converted to the same forms once per request.
//!
//! A test that the declared type of a column does not support is refused. Undeclared columns support all tests. A literal
//! for an undeclared column is compared with values of each type that it can have. A literal with a type, in the form of
//! writes, is compared only with values of this type.

use std::cell::OnceCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;
use tideline_engine::condition::literal::LiteralForms;
use tideline_engine::condition::operators::{Between, Compare, Equals, In, NotEquals};
use tideline_engine::condition::text::TextTest;
use tideline_engine::condition::{Condition, Literal, Matcher, Node, Record, Subject, Test, ValueRef};
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::key_codec::tuple::{DECIMAL_SCALE_MAX, Decimal, KeyValue};
use tideline_engine::model::{ColumnType, SearchAnalyzer, Timestamp};
use tideline_engine::row_search::{Highlight, RowForm, RowIndex, highlights};
use tideline_engine::row_values::{decimal_text, each_compared, hex};
use tideline_engine::rows::{ColumnName, Mutation};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::condition::RowFilter;

use crate::error::{Result, RowsError};
use crate::value::{cell_of, found_instead_of_time, shown, type_of, utc};

/// Compiled condition on rows of one table.
#[derive(Debug)]
pub struct RowMatcher {
    matcher: Matcher,
    /// Tested columns by name.
    targets: HashMap<String, Target>,
    /// True if values are tested as a search index tests them. An index does not hold long keywords.
    is_for_index: bool,
}

/// Column that a condition tests.
#[derive(Debug)]
enum Target {
    /// Position of a logical key column, and its type.
    Key(usize, ColumnType),
    /// Stored name of a column, and its declared type.
    Column(ColumnName<'static>, Option<ColumnType>),
}

impl RowMatcher {
    /// Compiles a condition. Relative times such as `now-1h` are resolved against the time of the engine. Takes up to a
    /// second, so it must not be called on an async thread.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a value does not have the type of its column, or if a test does not support this type,
    /// and the errors of [`Matcher::compile`].
    pub fn new(engine: &Engine, table: &WideTable, condition: &RowFilter) -> Result<Self> {
        Self::compile(engine, table, condition, &|_| SearchAnalyzer::Words)
    }

    /// Compiles a condition for a search. Texts are split into words by the analyzers of the index. Texts that are too
    /// long for a keyword pass only tests of words, and `exists`.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), and [`RowsError::Invalid`] for a test that the index cannot evaluate.
    pub fn for_index(
        engine: &Engine,
        table: &WideTable,
        index: &RowIndex,
        condition: &RowFilter,
    ) -> Result<Self> {
        let analyzer_of = |subject: &Subject| {
            let Subject::Column(name) = subject else {
                return SearchAnalyzer::Words;
            };
            let of_column = index.columns().iter().find_map(|column| match column.form {
                RowForm::Text(analyzer) if column.name == *name => Some(analyzer),
                _ => None,
            });
            of_column.unwrap_or_default()
        };
        let compiled = Self::compile(engine, table, condition, &analyzer_of)?;
        index.check(compiled.root()).map_err(RowsError::Invalid)?;
        Ok(Self {
            is_for_index: true,
            ..compiled
        })
    }

    fn compile(
        engine: &Engine,
        table: &WideTable,
        condition: &RowFilter,
        analyzer_of: &dyn Fn(&Subject) -> SearchAnalyzer,
    ) -> Result<Self> {
        let mut targets = HashMap::new();
        let condition = convert(table, &condition.0, &mut targets)?.resolve(engine.now());
        let matcher = Matcher::compile_analyzed(&condition, analyzer_of, engine.memory(), &|| false);
        Ok(Self {
            matcher: matcher.map_err(EngineError::from)?,
            targets,
            is_for_index: false,
        })
    }

    /// Returns the names of the tested columns, sorted.
    pub fn columns(&self) -> Vec<String> {
        let mut names: Vec<String> = self.targets.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the reserved memory of the compiled patterns, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.matcher.memory_bytes()
    }

    /// Returns the compiled condition.
    pub fn root(&self) -> &Node {
        self.matcher.root()
    }

    /// Returns the texts of a row that the condition matched.
    pub fn highlights(&self, layout: &KeyLayout, key: &[u8], row: &Mutation<'_>) -> Vec<Highlight> {
        let record = RowRecord {
            matcher: self,
            layout,
            key,
            values: OnceCell::new(),
            row: Some(row),
        };
        highlights(self.root(), &record)
    }

    /// Returns true if a row matches. `row` is `None` for a row that does not exist.
    pub fn matches(&self, layout: &KeyLayout, key: &[u8], row: Option<&Mutation<'_>>) -> bool {
        let record = RowRecord {
            matcher: self,
            layout,
            key,
            values: OnceCell::new(),
            row,
        };
        match self.is_for_index {
            true => matches_as_indexed(self.root(), &record),
            false => self.matcher.matches(&record),
        }
    }
}

/// Returns true if a search index finds a row with the values of the record.
fn matches_as_indexed(node: &Node, record: &RowRecord<'_, '_>) -> bool {
    match node {
        Node::And(nodes) => nodes.iter().all(|node| matches_as_indexed(node, record)),
        Node::Or(nodes) => nodes.iter().any(|node| matches_as_indexed(node, record)),
        Node::Not(node) => !matches_as_indexed(node, record),
        Node::Text(_, TextTest::Words(_) | TextTest::Phrase(_)) => node.matches(record),
        node => node.matches(&WithoutLongTexts(record)),
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
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let Subject::Column(name) = subject else {
            return false;
        };
        match self.matcher.targets.get(name) {
            Some(Target::Key(number, column_type)) => {
                let values = self
                    .values
                    .get_or_init(|| self.layout.decode(self.key).unwrap_or_default());
                let value = values.get(*number).map(cell_of);
                value.is_some_and(|value| each_compared(&value, Some(*column_type), &mut take))
            }
            Some(Target::Column(name, declared)) => {
                let newest = self.row.and_then(|row| row.column(name)?.newest());
                newest.is_some_and(|version| each_compared(&version.value, *declared, &mut take))
            }
            None => false,
        }
    }
}

/// Row whose texts that are too long for a keyword pass no comparison and no pattern.
struct WithoutLongTexts<'w, 'r, 'm>(&'w RowRecord<'r, 'm>);

impl Record for WithoutLongTexts<'_, '_, '_> {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        self.0.any_value(subject, |value| match value {
            ValueRef::Text(_) if !RowForm::Keyword.holds(value) => take(ValueRef::Opaque),
            value => take(value),
        })
    }
}

/// Returns the columns that every matching row has a value in, because the condition tests them for equality or by
/// bounds, each with true for equality.
pub(crate) fn required_columns(filter: &RowFilter) -> Vec<(&str, bool)> {
    let mut columns = Vec::new();
    let mut conditions = vec![&filter.0];
    while let Some(condition) = conditions.pop() {
        match condition {
            Condition::And(inner) => conditions.extend(inner),
            Condition::Leaf {
                subject: Subject::Column(name),
                test,
            } => match test {
                Test::Equals(_) => columns.push((name.as_str(), true)),
                Test::Compare(_) | Test::Between(_) | Test::Within(_) => columns.push((name, false)),
                _ => {}
            },
            _ => {}
        }
    }
    columns
}

/// Returns true if a condition has tests whose compilation can take long: patterns, fuzzy texts and words.
pub(crate) fn has_patterns(condition: &Condition) -> bool {
    match condition {
        Condition::And(conditions) | Condition::Or(conditions) => conditions.iter().any(has_patterns),
        Condition::Not(inner) => has_patterns(inner),
        Condition::Leaf { test, .. } => matches!(
            test,
            Test::Wildcard(_) | Test::Regex(_) | Test::Fuzzy(_) | Test::Words(_) | Test::Phrase(_)
        ),
        Condition::All | Condition::Saved(_) => false,
    }
}

/// Returns a condition whose literals have the form in which the values of rows are compared.
///
/// # Errors
///
/// [`RowsError::Invalid`] if a value does not have the type of its column, or if a test does not support this type.
pub(crate) fn compared(table: &WideTable, filter: &RowFilter) -> Result<Condition> {
    convert(table, &filter.0, &mut HashMap::new())
}

/// Converts the literals of a condition to the form in which the values of rows are compared. Adds the tested columns
/// to `targets`.
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
            subject: Subject::Column(name),
            test,
        } => {
            let target = target(table, name);
            let declared = match &target {
                Target::Key(_, column_type) => Some(*column_type),
                Target::Column(_, declared) => *declared,
            };
            let test = convert_test(test, declared).map_err(|reason| {
                RowsError::Invalid(match declared {
                    Some(declared) => format!("condition: column {name:?} has the type {declared}; {reason}"),
                    None => format!("condition: column {name:?}: {reason}"),
                })
            })?;
            targets.insert(name.clone(), target);
            Condition::leaf(Subject::Column(name.clone()), test)
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

/// Converts the literals of a test. The error describes a literal that does not have the declared type, or a test that
/// the declared type does not support.
fn convert_test(test: &Test, declared: Option<ColumnType>) -> std::result::Result<Test, String> {
    use std::ops::Bound;
    let literal = |literal: &Literal| convert_literal(literal, declared);
    let bound = |bound: &Bound<Literal>| -> std::result::Result<Bound<Literal>, String> {
        Ok(match bound {
            Bound::Included(value) => Bound::Included(literal(value)?),
            Bound::Excluded(value) => Bound::Excluded(literal(value)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    };
    Ok(match test {
        Test::Equals(Equals(value)) => Equals(literal(value)?).into(),
        Test::NotEquals(NotEquals(value)) => NotEquals(literal(value)?).into(),
        Test::In(In(values)) => In(values
            .iter()
            .map(literal)
            .collect::<std::result::Result<_, _>>()?)
        .into(),
        Test::Compare(Compare { low, high }) => Compare {
            low: bound(low)?,
            high: bound(high)?,
        }
        .into(),
        Test::Between(Between(ends)) => {
            let [from, to] = &**ends;
            Between(Box::new([literal(from)?, literal(to)?])).into()
        }
        Test::Prefix(_) => on_texts(test, "prefix", declared)?,
        Test::Suffix(_) => on_texts(test, "suffix", declared)?,
        Test::Wildcard(_) => on_texts(test, "wildcard", declared)?,
        Test::Regex(_) => on_texts(test, "regex", declared)?,
        Test::Fuzzy(_) => on_texts(test, "fuzzy", declared)?,
        Test::Words(_) => on_texts(test, "text", declared)?,
        Test::Phrase(_) => on_texts(test, "phrase", declared)?,
        Test::Near(_) => on_points(test, "near", declared)?,
        Test::WithinBox(_) => on_points(test, "box", declared)?,
        Test::Polygon(_) => on_points(test, "polygon", declared)?,
        Test::Within(_) => match declared {
            None | Some(ColumnType::Timestamp) => test.clone(),
            Some(_) => return Err("`range` tests timestamps".into()),
        },
        Test::Exists(_) => test.clone(),
    })
}

/// Returns a test of texts unchanged; an error if the declared type has no texts. `name` is the member of the test in
/// requests.
fn on_texts(test: &Test, name: &str, declared: Option<ColumnType>) -> std::result::Result<Test, String> {
    match declared {
        None | Some(ColumnType::String | ColumnType::Json) => Ok(test.clone()),
        Some(_) => Err(format!("`{name}` tests texts")),
    }
}

/// Returns a test of geo points unchanged; an error if the declared type has no geo points. `name` is the member of the
/// test in requests.
fn on_points(test: &Test, name: &str, declared: Option<ColumnType>) -> std::result::Result<Test, String> {
    match declared {
        None | Some(ColumnType::Json) => Ok(test.clone()),
        Some(_) => Err(format!("`{name}` tests geo points")),
    }
}

/// Converts a literal to the form in which values of the declared type are compared; without a declared type, to the
/// forms for all types. The error describes the literal.
pub(crate) fn convert_literal(
    literal: &Literal,
    declared: Option<ColumnType>,
) -> std::result::Result<Literal, String> {
    let declared = match (literal, declared) {
        (Literal::Typed(typed), Some(declared)) if typed.column_type != declared => {
            return Err(format!("found a value of type {}", typed.column_type));
        }
        (Literal::Typed(typed), Some(declared)) => return convert_literal(&typed.value, Some(declared)),
        (Literal::Typed(typed), None) => {
            let converted = convert_literal(&typed.value, Some(typed.column_type))
                .map_err(|found| format!("{found}, which is no value of the type {}", typed.column_type))?;
            return Ok(of_type(converted, typed.column_type));
        }
        (_, Some(declared)) => declared,
        (literal, None) => return Ok(of_any_type(literal)),
    };
    let number = number_text(literal);
    let converted = match (declared, literal) {
        (ColumnType::String, Literal::Text(_))
        | (ColumnType::Bool, Literal::Boolean(_))
        | (
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64,
            Literal::Signed(_) | Literal::Unsigned(_) | Literal::Float(_) | Literal::Digits(_),
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
        (ColumnType::Json, _) => Some(literal.clone()),
        _ => None,
    };
    converted.ok_or_else(|| {
        let json = serde_json::to_string(literal).unwrap_or_default();
        match (declared, literal) {
            (ColumnType::Timestamp, Literal::Text(text)) => found_instead_of_time(&json, Some(text.as_str())),
            (ColumnType::F64, Literal::Text(text))
                if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") =>
            {
                format!(
                    "found {}; conditions compare only with finite numbers",
                    shown(&json)
                )
            }
            _ => format!("found {}", shown(&json)),
        }
    })
}

fn decimal_literal(number: Decimal) -> Literal {
    Literal::Text(decimal_text(number))
}

/// Returns a number in JSON syntax; `None` for other literals.
fn number_text(literal: &Literal) -> Option<String> {
    match literal {
        Literal::Signed(number) => Some(number.to_string()),
        Literal::Unsigned(number) => Some(number.to_string()),
        Literal::Float(number) => Some(number.to_string()),
        Literal::Digits(digits) => Some(digits.to_string()),
        _ => None,
    }
}

/// Returns the literal for an undeclared column that is compared only with values of one type. `converted` has the form
/// of declared columns of this type. Integers and doubles are one type.
fn of_type(converted: Literal, column_type: ColumnType) -> Literal {
    let mut forms = LiteralForms::default();
    match column_type {
        ColumnType::Timestamp => forms.nanos = Some(converted),
        ColumnType::Decimal => forms.decimal = Some(converted),
        ColumnType::Binary => forms.bytes = Some(converted),
        _ => return converted,
    }
    Literal::Forms(Box::new(forms))
}

/// Returns the literal for an undeclared column that is compared with values of each type that it can have.
fn of_any_type(literal: &Literal) -> Literal {
    let forms = match literal {
        Literal::Text(text) => {
            let time = Timestamp::parse_rfc3339(text)
                .or_else(|| utc(text).and_then(|text| Timestamp::parse_rfc3339(&text)));
            LiteralForms {
                plain: None,
                nanos: time.map(|time| Literal::Signed(time.nanos())),
                decimal: Decimal::parse(text).map(decimal_literal),
                bytes: STANDARD.decode(text).ok().map(|bytes| Literal::Text(hex(&bytes))),
            }
        }
        literal => LiteralForms {
            nanos: matches!(literal, Literal::Signed(_) | Literal::Unsigned(_)).then(|| literal.clone()),
            decimal: number_text(literal)
                .and_then(|number| decimal_bound(&number))
                .map(Literal::Text),
            ..LiteralForms::default()
        },
    };
    if forms == LiteralForms::default() {
        return literal.clone();
    }
    let plain = Some(literal.clone());
    Literal::Forms(Box::new(LiteralForms { plain, ..forms }))
}

/// Returns a text that sorts among the texts of decimals as the number sorts among the decimals. For a number that no
/// decimal is equal to, it is the text of no decimal. Returns `None` if the text is not a number in JSON syntax.
fn decimal_bound(number: &str) -> Option<String> {
    /// Sorts after all hexadecimal digits.
    const AFTER: char = '~';
    /// Number of digits of the largest mantissa. Some numbers of as many digits exceed it.
    const DIGITS_MAX: i64 = 39;
    if let Some(decimal) = Decimal::parse(number) {
        return Some(decimal_text(decimal));
    }
    let (is_negative, number) = number
        .strip_prefix('-')
        .map_or((false, number), |number| (true, number));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    if !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = all.trim_start_matches('0');
    // The number is 0.digits × 10^point.
    let zeros = (all.len() - digits.len()) as i64;
    let point = (whole.len() as i64 - zeros).saturating_add(exponent.parse().ok()?);
    if digits.is_empty() {
        return Some(decimal_text(Decimal::ZERO));
    }
    // The nearest decimal toward 0: its digits, and those after the decimal point, are limited.
    let places = point
        .saturating_add(DECIMAL_SCALE_MAX.into())
        .clamp(0, DIGITS_MAX) as usize;
    let length = places.min(digits.len());
    let sign = if is_negative { "-" } else { "" };
    let cut = |length: usize| Decimal::parse(&format!("{sign}0.{}e{point}", &digits[..length]));
    let nearest = match length {
        0 => Some(Decimal::ZERO),
        _ => cut(length).or_else(|| {
            let limit = if is_negative { i128::MIN } else { i128::MAX };
            let scale = u8::try_from(DIGITS_MAX - point).ok();
            let limit = scale.and_then(|scale| Decimal::new(limit, scale).ok());
            let candidates = [limit, cut(length - 1)].into_iter().flatten();
            if is_negative {
                candidates.min()
            } else {
                candidates.max()
            }
        }),
    };
    Some(match (nearest.map(decimal_text), is_negative) {
        (Some(text), false) => format!("{text}{AFTER}"),
        (Some(mut text), true) => {
            let last = text.pop().map_or(AFTER, |last| char::from(last as u8 - 1));
            format!("{text}{last}{AFTER}")
        }
        // Above all decimals, or below all.
        (None, false) => AFTER.to_string(),
        (None, true) => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use tideline_engine::condition::{Domain, json};

    use super::*;

    /// Converts a test of the column `x`, which has the declared type. The error is the reason for the refusal.
    fn converted(test: &str, declared: Option<ColumnType>) -> std::result::Result<Test, String> {
        let text = format!(r#"{{"column":"x",{test}}}"#);
        match json::from_str(Domain::Rows, &text).expect(&text) {
            Condition::Leaf { test, .. } => convert_test(&test, declared),
            other => panic!("not a leaf: {other:?}"),
        }
    }

    #[test]
    fn tests_need_a_type_that_supports_them() {
        let on_texts = ["prefix", "suffix", "wildcard", "regex", "fuzzy", "text", "phrase"];
        let on_texts = on_texts.map(|name| (name, format!(r#""{name}":"a""#)));
        let on_points = [
            ("near", r#""near":{"lat":1,"lon":2,"meters":3}"#),
            ("box", r#""box":{"south":1,"west":2,"north":3,"east":4}"#),
            (
                "polygon",
                r#""polygon":[{"lat":1,"lon":2},{"lat":3,"lon":4},{"lat":5,"lon":2}]"#,
            ),
        ];
        let range = r#""range":{"start":"now-1h"}"#;
        for declared in ColumnType::ALL {
            let is_text = matches!(declared, ColumnType::String | ColumnType::Json);
            for (name, test) in &on_texts {
                let refusal = (!is_text).then(|| format!("`{name}` tests texts"));
                assert_eq!(converted(test, Some(declared)).err(), refusal, "{declared}");
            }
            for (name, test) in on_points {
                let refusal = (declared != ColumnType::Json).then(|| format!("`{name}` tests geo points"));
                assert_eq!(converted(test, Some(declared)).err(), refusal, "{declared}");
            }
            let refusal = (declared != ColumnType::Timestamp).then(|| "`range` tests timestamps".to_owned());
            assert_eq!(converted(range, Some(declared)).err(), refusal, "{declared}");
            assert!(
                converted(r#""exists":true"#, Some(declared)).is_ok(),
                "{declared}"
            );
        }
        let points = on_points.iter().map(|(_, test)| *test);
        for test in on_texts
            .iter()
            .map(|(_, test)| test.as_str())
            .chain(points)
            .chain([range])
        {
            assert!(converted(test, None).is_ok(), "{test}");
        }
    }

    #[test]
    fn numbers_for_decimals_keep_their_digits() {
        for (number, text) in [
            (
                r#""equals":1234567890123456.76"#,
                r#""equals":"1234567890123456.76""#,
            ),
            (
                r#""not_equals":0.10000000000000000001"#,
                r#""not_equals":"0.10000000000000000001""#,
            ),
            (
                r#""in":[-1234567890123456.76,18446744073709551617]"#,
                r#""in":["-1234567890123456.76","18446744073709551617"]"#,
            ),
            (
                r#""gt":1234567890123456.75,"lte":1234567890123456.76"#,
                r#""gt":"1234567890123456.75","lte":"1234567890123456.76""#,
            ),
            (
                r#""between":[9007199254740993,12345678901234567.8e3]"#,
                r#""between":["9007199254740993","12345678901234567800"]"#,
            ),
            (r#""equals":5.320"#, r#""equals":"5.32""#),
        ] {
            let converted = |test| converted(test, Some(ColumnType::Decimal)).expect(test);
            assert_eq!(converted(number), converted(text), "{number}");
        }
        let near = converted(r#""equals":1234567890123456.8"#, Some(ColumnType::Decimal));
        let exact = converted(r#""equals":1234567890123456.76"#, Some(ColumnType::Decimal));
        assert_ne!(near, exact);
        let refused = converted(r#""equals":1234567890123456.76"#, Some(ColumnType::Timestamp));
        assert_eq!(refused, Err("found the number 1234567890123456.76".into()));
        let refused = converted(r#""gt":"NaN""#, Some(ColumnType::F64));
        let said = "found the text \"NaN\"; conditions compare only with finite numbers";
        assert_eq!(refused, Err(said.into()));
    }

    #[test]
    fn numbers_that_are_not_decimals_sort_among_them() {
        let max = "170141183460469231731687303715884105727";
        let beyond_max = "170141183460469231731687303715884105728";
        // In increasing order. A decimal can have the value, or not.
        let ordered = [
            ("-1e300", false),
            ("-170141183460469231731687303715884105729", false),
            ("-170141183460469231731687303715884105728", true),
            ("-1.00000000000000000000000000000000000000000001", false),
            ("-1", true),
            ("-1e-38", true),
            ("-1e-50", false),
            ("0", true),
            ("0.000e9", true),
            ("1e-50", false),
            ("1e-38", true),
            ("1.5e-38", false),
            ("0.12345678901234567890123456789012345678", true),
            ("0.123456789012345678901234567890123456789", false),
            ("1.7014118346046923173168730371588410572", true),
            ("1.70141183460469231731687303715884105727", true),
            ("1.70141183460469231731687303715884105728", false),
            ("1.7014118346046923173168730371588410573", true),
            ("2e5", true),
            (max, true),
            (beyond_max, false),
            ("1e39", false),
            ("1e300", false),
        ];
        let texts = ordered.map(|(number, is_decimal)| {
            assert_eq!(Decimal::parse(number).is_some(), is_decimal, "{number}");
            (number, decimal_bound(number).expect(number))
        });
        for pair in texts.windows(2) {
            let [(low, below), (high, above)] = pair else {
                continue;
            };
            // Numbers beyond the largest decimals, and both forms of 0, have the same text.
            let is_same = above == below;
            let may_be_same = Decimal::parse(high).is_some() == Decimal::parse(low).is_some();
            assert!(
                below < above || is_same && may_be_same,
                "{low} {below}, {high} {above}"
            );
        }
        assert_eq!(decimal_bound("1.50"), decimal_bound("15e-1"));
        assert_eq!(decimal_bound("soon"), None);
    }

    #[test]
    fn a_literal_with_a_type_is_compared_with_this_type_only() {
        let typed = |value: &str| converted(&format!(r#""equals":{value}"#), None);
        let forms = |forms: LiteralForms| -> std::result::Result<Test, String> {
            Ok(Test::Equals(Equals(Literal::Forms(Box::new(forms)))))
        };
        let decimal = decimal_text(Decimal::parse("1.5").expect("a decimal"));
        assert_eq!(
            typed(r#"{"type":"decimal","value":"1.5"}"#),
            forms(LiteralForms {
                decimal: Some(Literal::Text(decimal)),
                ..LiteralForms::default()
            })
        );
        assert_eq!(
            typed(r#"{"type":"timestamp","value":"1970-01-01T00:00:01Z"}"#),
            forms(LiteralForms {
                nanos: Some(Literal::Signed(1_000_000_000)),
                ..LiteralForms::default()
            })
        );
        assert_eq!(
            typed(r#"{"type":"binary","value":"AAE="}"#),
            forms(LiteralForms {
                bytes: Some(Literal::Text("0001".into())),
                ..LiteralForms::default()
            })
        );
        assert_eq!(
            typed(r#"{"type":"i64","value":"7"}"#),
            Ok(Test::Equals(Equals(Literal::Signed(7))))
        );
        let of_declared = |value: &str| converted(&format!(r#""equals":{value}"#), Some(ColumnType::Decimal));
        assert_eq!(
            of_declared(r#"{"type":"decimal","value":1.5}"#),
            of_declared("1.5")
        );
        assert_eq!(
            of_declared(r#"{"type":"i64","value":1}"#),
            Err("found a value of type i64".into())
        );
        assert_eq!(
            typed(r#"{"type":"timestamp","value":"soon"}"#),
            Err("found the text \"soon\", which is no value of the type timestamp".into())
        );
    }

    #[test]
    fn bounds_on_both_sides_are_converted() {
        let test = r#""gte":"2026-01-01T00:00:00Z","lt":"2026-02-01T00:00:00Z""#;
        let expected = r#""gte":1767225600000000000,"lt":1769904000000000000"#;
        assert_eq!(
            converted(test, Some(ColumnType::Timestamp)),
            converted(expected, Some(ColumnType::I64))
        );
    }
}
