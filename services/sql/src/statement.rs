//! Parsed statements and their conditions.
//!
//! The parser moves `NOT` into the tests of columns. As in SQL, a column without a value matches neither a comparison
//! nor its negation.

use std::fmt;

use serde::Deserialize;
use tideline_engine::model::{
    ColumnCompression, ColumnGroupSpec, ColumnSpec, Durability, IndexCover, IndexScope, KeyColumnSpec,
    PartPeriod, PartsSpec, RowLimit, Schedule as ModelSchedule, TierScope, TtlScope, WideSpec,
};
use tideline_openapi::policy::Schedule;
use tideline_openapi::query::WindowWidth;
use tideline_openapi::row_aggregate::AggregateFunction;

use crate::error::Position;
use crate::literal::Literal;

/// Statement.
#[derive(Debug)]
pub enum Statement {
    /// `SELECT`.
    Select(Select),
    /// `EXPLAIN SELECT`.
    Explain(Select),
    /// Statement that shows tables, their columns or their indexes.
    Show(ShowStatement),
    /// Statement that writes rows.
    Write(WriteStatement),
    /// Statement that changes tables or indexes.
    Change(Box<TableStatement>),
}

/// Statement that shows tables, their columns or their indexes.
#[derive(Debug)]
pub enum ShowStatement {
    /// `SHOW TABLES`.
    Tables,
    /// `DESCRIBE`.
    Columns(Name),
    /// `SHOW CREATE TABLE`.
    CreateTable(Name),
    /// `SHOW INDEX`.
    Indexes(Name),
}

/// Statement that writes rows.
#[derive(Debug)]
pub enum WriteStatement {
    /// `UPSERT` or `INSERT`.
    Upsert(Upsert),
    /// `UPDATE`.
    Update(Update),
    /// `DELETE`.
    Delete(Delete),
}

impl WriteStatement {
    /// Returns the table that the statement writes to.
    pub fn table(&self) -> &Name {
        match self {
            Self::Upsert(upsert) => &upsert.table,
            Self::Update(update) => &update.table,
            Self::Delete(delete) => &delete.table,
        }
    }
}

/// Statement that changes tables or indexes.
#[derive(Debug)]
pub enum TableStatement {
    /// `CREATE TABLE`.
    Create(CreateTable),
    /// `ALTER TABLE`.
    Alter(AlterTable),
    /// `DROP TABLE`.
    Drop {
        /// The table.
        table: Name,
        /// True if a missing table is not an error.
        if_exists: bool,
    },
    /// `CREATE INDEX`.
    CreateIndex(CreateIndex),
    /// `DROP INDEX`.
    DropIndex {
        /// The index.
        index: Name,
        /// The table.
        table: Name,
        /// True if a missing index is not an error.
        if_exists: bool,
    },
}

/// Name in a statement.
#[derive(Debug, Clone)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Position in the statement.
    pub at: Position,
}

/// `SELECT`.
#[derive(Debug)]
pub struct Select {
    /// The table.
    pub table: Name,
    /// Returned columns, or the count of the rows.
    pub columns: SelectColumns,
    /// `WHERE`.
    pub condition: Option<Predicate>,
    /// `ORDER BY`; empty if any order is allowed.
    pub order: Vec<OrderItem>,
    /// Position of `ORDER BY`.
    pub order_at: Position,
    /// `LIMIT`.
    pub limit: Option<u64>,
    /// True if the whole table may be read.
    pub allow_scan: bool,
}

/// Result columns of a `SELECT`.
#[derive(Debug)]
pub enum SelectColumns {
    /// `*`.
    All,
    /// `COUNT(*)`, with the name of the result column.
    Count(String),
    /// Columns with their names in the result.
    Listed(Vec<(Name, String)>),
    /// Groups of rows.
    Groups(Grouping),
}

/// Result of a `SELECT` with functions or `GROUP BY`.
#[derive(Debug)]
pub struct Grouping {
    /// `GROUP BY`.
    pub keys: Vec<GroupItem>,
    /// Result columns with their names.
    pub columns: Vec<(GroupColumn, String)>,
}

/// Key of groups: a column, or time windows of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupItem {
    /// Name of the column.
    pub column: String,
    /// Width of the windows, and their time zone if one is given; `None` for the values of the column itself.
    pub window: Option<(WindowWidth, Option<String>)>,
}

/// Result column of groups.
#[derive(Debug)]
pub enum GroupColumn {
    /// Key of the groups, by its number.
    Key(usize),
    /// `COUNT(*)`.
    Rows,
    /// Function of the values of a column.
    Function(String, AggregateFunction),
}

/// Column of `ORDER BY`.
#[derive(Debug)]
pub struct OrderItem {
    /// The column.
    pub column: Name,
    /// True for `DESC`.
    pub is_descending: bool,
}

/// `UPSERT` or `INSERT`.
#[derive(Debug)]
pub struct Upsert {
    /// The table.
    pub table: Name,
    /// The columns.
    pub columns: Vec<Name>,
    /// One list of values per row, each as long as `columns`.
    pub rows: Vec<Vec<Literal>>,
    /// Effect on existing rows.
    pub on_duplicate: OnDuplicate,
}

/// Effect of an `UPSERT` on an existing row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Changes the columns of the row.
    Update,
    /// Leaves the row unchanged.
    Ignore,
    /// Leaves the row unchanged, and returns an error.
    Error,
}

/// `UPDATE`.
#[derive(Debug)]
pub struct Update {
    /// The table.
    pub table: Name,
    /// Changes of columns.
    pub changes: Vec<(Name, Change)>,
    /// `WHERE`.
    pub condition: Predicate,
}

/// Change of a column.
#[derive(Debug)]
pub enum Change {
    /// Sets a value; NULL removes the column.
    Set(Literal),
    /// Adds a number.
    Add(i64),
}

/// `DELETE`.
#[derive(Debug)]
pub struct Delete {
    /// The table.
    pub table: Name,
    /// `WHERE`.
    pub condition: Option<Predicate>,
    /// True if all rows may be deleted.
    pub allow_scan: bool,
}

/// `CREATE TABLE`.
#[derive(Debug)]
pub struct CreateTable {
    /// The table.
    pub table: Name,
    /// True if an existing table is not an error.
    pub if_not_exists: bool,
    /// Settings of the rows.
    pub rows: WideSpec,
    /// Durability of writes; `None` = the default.
    pub durability: Option<Durability>,
}

/// `CREATE INDEX`.
#[derive(Debug)]
pub struct CreateIndex {
    /// The index.
    pub index: Name,
    /// The table.
    pub table: Name,
    /// True if an existing index is not an error.
    pub if_not_exists: bool,
    /// Stored columns of the index. The types are placeholders; the execution replaces them with the types in the
    /// table.
    pub key: Vec<KeyColumnSpec>,
    /// Covered columns.
    pub covers: IndexCover,
    /// Range in which entries are ordered: the whole index, or one partition.
    pub scope: IndexScope,
    /// `ALLOW_RISING_KEY`.
    pub allow_rising_key: bool,
    /// `TIER`.
    pub tier: TierScope,
}

/// `ALTER TABLE`.
#[derive(Debug)]
pub struct AlterTable {
    /// The table.
    pub table: Name,
    /// Columns to declare. The flag is true if an equal existing declaration is not an error.
    pub added: Vec<(ColumnSpec, bool)>,
    /// Columns to remove. The flag is true if a missing column is not an error.
    pub dropped: Vec<(Name, bool)>,
    /// Compressions to set.
    pub compressions: Vec<(Name, ColumnCompression)>,
    /// Settings to change.
    pub settings: TableOptions,
}

/// Reason why `TTL_OF` is refused.
pub(crate) const TTL_OF_NEEDS_TTL: &str = "the table has no TTL, which TTL_OF belongs to; set TTL as well";

/// Settings of a table in `WITH` or `SET`; `None` if a setting is not given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// `VERSIONS`.
    pub max_versions: Option<u32>,
    /// `VERSION_GUARD`; the inner `None` = no limit.
    pub version_guard: Option<Option<i64>>,
    /// `TTL` in nanoseconds; the inner `None` = data never expires.
    pub ttl: Option<Option<i64>>,
    /// `TTL_OF`, with its position.
    pub ttl_of: Option<(TtlScope, Position)>,
    /// Position of one of the settings of parts; `None` without such a setting.
    pub parts_at: Option<Position>,
    /// `PARTS_BY`.
    pub parts_by: Option<String>,
    /// `PARTS_EVERY`.
    pub parts_every: Option<PartPeriod>,
    /// `PARTS_KEEP` in nanoseconds; the inner `None` = parts are kept until they are dropped.
    pub parts_keep: Option<Option<i64>>,
    /// `PARTS_HOT` in nanoseconds; the inner `None` = parts stay in the hot tier.
    pub parts_hot: Option<Option<i64>>,
    /// `PARTS_WRITABLE` in nanoseconds; the inner `None` = rows of every part can be written.
    pub parts_writable: Option<Option<i64>>,
    /// `PARTS_ARCHIVE`, a target; the inner `None` = no archive.
    pub parts_archive: Option<Option<String>>,
    /// `PARTS_ARCHIVE_AFTER` in nanoseconds.
    pub parts_archive_after: Option<i64>,
    /// `PARTS_JOBS`.
    pub parts_jobs: Option<PartsJobs>,
    /// `PARTS_MIGRATE_SCHEDULE`.
    pub parts_migrate_schedule: Option<Schedule>,
    /// `PARTS_EXPIRE_SCHEDULE`.
    pub parts_expire_schedule: Option<Schedule>,
    /// `PARTS_ARCHIVE_SCHEDULE`.
    pub parts_archive_schedule: Option<Schedule>,
    /// `PARTS_MOVE_RATE`; the inner `None` = no limit.
    pub parts_move_rate: Option<Option<u64>>,
    /// `GROUPS`.
    pub groups: Option<Vec<ColumnGroupSpec>>,
    /// `LIMITS`.
    pub limits: Option<Vec<RowLimit>>,
    /// `ALLOW_RISING_KEY`.
    pub allow_rising_key: Option<bool>,
    /// `DURABILITY`.
    pub durability: Option<Durability>,
}

/// Schedules and rate of the jobs of parts. `PARTS_JOBS` holds its JSON form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartsJobs {
    /// Schedule of moves from the hot to the cold tier; `None` = continuous.
    #[serde(default)]
    pub migrate: Option<Schedule>,
    /// Schedule of the removal of hidden parts and expired rows; `None` = continuous.
    #[serde(default)]
    pub expire: Option<Schedule>,
    /// Schedule of archiving; `None` = continuous.
    #[serde(default)]
    pub archive_schedule: Option<Schedule>,
    /// Maximum number of bytes that jobs of the table read per second; `None` = no limit.
    #[serde(default)]
    pub move_bytes_per_second: Option<u64>,
}

impl TableOptions {
    /// Sets the schedules and the rate of parts: first those of `PARTS_JOBS`, then those of the other settings. The
    /// engine checks the schedules.
    ///
    /// # Errors
    ///
    /// A message if the options have a schedule of archiving and the parts have no archive.
    pub(crate) fn apply_jobs(&self, parts: &mut PartsSpec) -> Result<(), String> {
        if let Some(jobs) = &self.parts_jobs {
            jobs.apply_to(parts)?;
        }
        for (given, schedule) in [
            (&self.parts_migrate_schedule, &mut parts.migrate),
            (&self.parts_expire_schedule, &mut parts.expire),
        ] {
            if let Some(given) = given {
                *schedule = given.clone().into();
            }
        }
        if let Some(rate) = self.parts_move_rate {
            parts.move_bytes_per_second = rate;
        }
        match (&self.parts_archive_schedule, &mut parts.archive) {
            (None, _) => Ok(()),
            (Some(given), Some(archive)) => {
                archive.schedule = given.clone().into();
                Ok(())
            }
            (Some(_), None) => Err(
                "PARTS_ARCHIVE_SCHEDULE needs an archive; set PARTS_ARCHIVE and PARTS_ARCHIVE_AFTER as well"
                    .to_owned(),
            ),
        }
    }
}

impl PartsJobs {
    /// Sets the schedules and the rate of parts. Missing members are set to their defaults.
    ///
    /// # Errors
    ///
    /// A message if the parts have a schedule of archiving and no archive.
    fn apply_to(&self, parts: &mut PartsSpec) -> Result<(), String> {
        let schedule = |given: &Option<Schedule>| given.clone().map(ModelSchedule::from).unwrap_or_default();
        parts.migrate = schedule(&self.migrate);
        parts.expire = schedule(&self.expire);
        parts.move_bytes_per_second = self.move_bytes_per_second;
        match &mut parts.archive {
            Some(archive) => archive.schedule = schedule(&self.archive_schedule),
            None if self.archive_schedule.is_some() => {
                return Err(
                    "PARTS_JOBS: archive_schedule needs an archive; set PARTS_ARCHIVE and PARTS_ARCHIVE_AFTER as well"
                        .to_owned(),
                );
            }
            None => {}
        }
        Ok(())
    }
}

/// Condition. The lists of `And` and `Or` have at least two elements.
#[derive(Debug, Clone)]
pub enum Predicate {
    /// All conditions must be true.
    And(Vec<Self>),
    /// At least one condition must be true.
    Or(Vec<Self>),
    /// Test of a column.
    Test(Name, ColumnTest),
}

/// Comparison of a column with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`.
    Equal,
    /// `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

impl Comparison {
    /// Returns the comparison that is true exactly if this one is false, for columns with a value.
    pub fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// Returns the comparison with its operands exchanged.
    pub fn exchanged(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Returns the operator.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// Test of a column. A column without a value matches only [`IsNull`](Self::IsNull).
#[derive(Debug, Clone)]
pub enum ColumnTest {
    /// Comparison with a value.
    Compare(Comparison, Literal),
    /// `IN`, or `NOT IN` if the flag is true.
    In(Vec<Literal>, bool),
    /// `BETWEEN`, both ends included, or `NOT BETWEEN` if the flag is true.
    Between(Box<[Literal; 2]>, bool),
    /// `LIKE 'text%'`, or `NOT LIKE` if the flag is true.
    Prefix(String, bool),
    /// `LIKE 'text'` without a wildcard, or `NOT LIKE` if the flag is true. The same as a comparison, but only of texts.
    SameText(Literal, bool),
    /// `IS NULL`.
    IsNull,
    /// `IS NOT NULL`.
    IsNotNull,
}

impl Predicate {
    /// Joins conditions by `AND`; `None` for an empty list.
    pub fn all(mut conditions: Vec<Self>) -> Option<Self> {
        match conditions.len() {
            0 | 1 => conditions.pop(),
            _ => Some(Self::And(conditions)),
        }
    }

    /// Returns the conditions that are joined by `AND` at the top level.
    pub fn into_conjuncts(self) -> Vec<Self> {
        match self {
            Self::And(conditions) => conditions.into_iter().flat_map(Self::into_conjuncts).collect(),
            other => vec![other],
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut join = |conditions: &[Self], operator: &str| {
            f.write_str("(")?;
            for (number, condition) in conditions.iter().enumerate() {
                if number > 0 {
                    f.write_str(operator)?;
                }
                write!(f, "{condition}")?;
            }
            f.write_str(")")
        };
        match self {
            Self::And(conditions) => join(conditions, " AND "),
            Self::Or(conditions) => join(conditions, " OR "),
            Self::Test(column, test) => write!(f, "{} {test}", quoted(&column.text)),
        }
    }
}

impl fmt::Display for ColumnTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Self::Compare(comparison, value) => write!(f, "{} {value}", comparison.symbol()),
            Self::In(values, negated) => {
                write!(f, "{}IN (", not(negated))?;
                for (number, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if number > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Self::Between(ends, negated) => {
                write!(f, "{}BETWEEN {} AND {}", not(negated), ends[0], ends[1])
            }
            Self::Prefix(text, negated) => {
                write!(f, "{}LIKE '{}%'", not(negated), text.replace('\'', "''"))
            }
            Self::SameText(text, negated) => {
                let comparison = if *negated {
                    Comparison::NotEqual
                } else {
                    Comparison::Equal
                };
                write!(f, "{} {text}", comparison.symbol())
            }
            Self::IsNull => f.write_str("IS NULL"),
            Self::IsNotNull => f.write_str("IS NOT NULL"),
        }
    }
}

/// Returns a name as it is written in a statement. A name is in backticks unless it consists of letters, digits and
/// `_`, does not begin with a digit, and is not reserved.
pub fn quoted(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_word = !name.is_empty() && name.bytes().all(is_plain) && !name.as_bytes()[0].is_ascii_digit();
    match is_word && !crate::parse::is_reserved(name) {
        true => name.to_owned(),
        false => format!("`{}`", name.replace('`', "``")),
    }
}
