//! Types of columns in SQL, and the `CREATE TABLE` statement of a table.
//!
//! The returned statement parses to the same settings.

use std::fmt::Write as _;

use sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};
use tideline_engine::model::time::{NANOS_PER_DAY, format_duration};
use tideline_engine::model::wide::{KeyOrder, KeySource};
use tideline_engine::model::{
    ColumnCompression, ColumnType, Durability, KeyColumnSpec, TableSpec, TtlScope, WideSpec,
};
use tideline_openapi::policy::Schedule;
use tideline_openapi::wide::{ColumnGroup, RowRateLimit};

use crate::statement::quoted;

/// Returns the column type of an SQL type.
///
/// # Errors
///
/// A message for types without a matching column type, and for types with a length, because lengths are not enforced.
pub fn type_of(data_type: &DataType) -> Result<ColumnType, String> {
    use ExactNumberInfo::None as Any;
    Ok(match data_type {
        DataType::Varchar(None) | DataType::Char(None) | DataType::Text | DataType::String(None) => {
            ColumnType::String
        }
        DataType::TinyInt(None)
        | DataType::SmallInt(None)
        | DataType::Int(None)
        | DataType::Integer(None)
        | DataType::BigInt(None)
        | DataType::Int64 => ColumnType::I64,
        DataType::IntUnsigned(None)
        | DataType::IntegerUnsigned(None)
        | DataType::BigIntUnsigned(None)
        | DataType::Unsigned
        | DataType::UInt64 => ColumnType::U64,
        DataType::Float(Any) | DataType::Double(Any) | DataType::DoublePrecision | DataType::Real => {
            ColumnType::F64
        }
        DataType::Bool | DataType::Boolean => ColumnType::Bool,
        DataType::Varbinary(None) | DataType::Binary(None) | DataType::Blob(None) => ColumnType::Binary,
        DataType::Decimal(Any) | DataType::Numeric(Any) => ColumnType::Decimal,
        DataType::JSON => ColumnType::Json,
        DataType::Timestamp(None, TimezoneInfo::None) => ColumnType::Timestamp,
        other => {
            let text: String = other.to_string().chars().take(40).collect();
            let advice = match text.split_once('(') {
                Some((name, _)) => format!("lengths and digits are not enforced, so write {name} alone"),
                None => "use VARCHAR, BIGINT, BIGINT UNSIGNED, DOUBLE, BOOLEAN, VARBINARY, DECIMAL, JSON or TIMESTAMP"
                    .to_owned(),
            };
            return Err(format!("the type {text} is not supported; {advice}"));
        }
    })
}

/// Returns the SQL name of a column type.
pub fn type_name(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::String => "VARCHAR",
        ColumnType::I64 => "BIGINT",
        ColumnType::U64 => "BIGINT UNSIGNED",
        ColumnType::F64 => "DOUBLE",
        ColumnType::Bool => "BOOLEAN",
        ColumnType::Binary => "VARBINARY",
        ColumnType::Decimal => "DECIMAL",
        ColumnType::Json => "JSON",
        ColumnType::Timestamp => "TIMESTAMP",
    }
}

/// Returns the logical columns of a key with their types and orders. The columns of `reverse` and `splice` have the
/// order of the stored column.
pub fn key_columns(spec: &WideSpec) -> Vec<(&str, ColumnType, KeyOrder)> {
    let mut columns = Vec::new();
    for column in &spec.key {
        match &column.source {
            KeySource::Type(column_type) => columns.push((column.name.as_str(), *column_type, column.order)),
            KeySource::Generated(_) => columns.push((&column.name, ColumnType::I64, column.order)),
            KeySource::Reverse(reverse) => {
                columns.push((&reverse.of.name, reverse.of.column_type, column.order));
            }
            KeySource::Splice(splice) => {
                let spliced = splice.columns.iter();
                columns.extend(spliced.map(|of| (of.name.as_str(), of.column_type, column.order)));
            }
            KeySource::HashPrefix(_) | KeySource::Bucket(_) => {}
        }
    }
    columns
}

/// Returns the SQL text of a key column in a `PRIMARY KEY` clause.
pub fn key_column_text(column: &KeyColumnSpec) -> String {
    let list = |names: &[String]| {
        names
            .iter()
            .map(|name| quoted(name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (text, default_name) = match &column.source {
        KeySource::Type(_) => (quoted(&column.name), None),
        KeySource::Generated(_) => (format!("generated({})", quoted(&column.name)), None),
        KeySource::HashPrefix(hash) => (
            format!("hash_prefix({}, {})", list(&hash.of), hash.hex),
            Some("hash_prefix"),
        ),
        KeySource::Bucket(bucket) => (
            format!("bucket({}, {})", list(&bucket.of), bucket.count),
            Some("bucket"),
        ),
        KeySource::Reverse(reverse) => (format!("reverse({})", quoted(&reverse.of.name)), Some("reverse")),
        KeySource::Splice(splice) => {
            let spliced = splice.columns.iter().map(|of| match of.pad {
                Some(digits) => format!("pad({}, {digits})", quoted(&of.name)),
                None => quoted(&of.name),
            });
            let mut arguments: Vec<String> = spliced.collect();
            if splice.delimiter != ',' {
                arguments.push(format!("'{}'", splice.delimiter.to_string().replace('\'', "''")));
            }
            (format!("splice({})", arguments.join(", ")), Some("splice"))
        }
    };
    let alias = match default_name {
        Some(default) if column.name != default => format!(" AS {}", quoted(&column.name)),
        _ => String::new(),
    };
    let order = match column.order {
        KeyOrder::Ascending => "",
        KeyOrder::Descending => " DESC",
    };
    format!("{text}{alias}{order}")
}

/// Returns the statement that creates a table with the same settings, but without its indexes.
pub fn create_table(table: &str, spec: &TableSpec, rows: &WideSpec) -> String {
    let mut text = format!("CREATE TABLE {} (", quoted(table));
    for (name, column_type, _) in key_columns(rows) {
        let _ = write!(text, "\n  {} {},", quoted(name), type_name(column_type));
    }
    for column in &rows.columns {
        let _ = write!(
            text,
            "\n  {} {}{},",
            quoted(&column.name),
            type_name(column.column_type),
            match column.compression {
                ColumnCompression::Auto => String::new(),
                other => format!(" COMPRESSION {}", other.name()),
            }
        );
    }
    let key: Vec<String> = rows.key.iter().map(key_column_text).collect();
    let _ = write!(text, "\n  PRIMARY KEY ({})\n)", key.join(", "));
    let mut settings = Vec::new();
    if rows.max_versions != 1 {
        settings.push(format!("VERSIONS = {}", rows.max_versions));
    }
    match rows.version_guard {
        None => settings.push("VERSION_GUARD = 'none'".to_owned()),
        Some(NANOS_PER_DAY) => {}
        Some(guard) => settings.push(format!("VERSION_GUARD = '{}'", format_duration(guard))),
    }
    if rows.allow_rising_key {
        settings.push("ALLOW_RISING_KEY = TRUE".to_owned());
    }
    if let Some(ttl) = rows.ttl {
        settings.push(format!("TTL = '{}'", format_duration(ttl.after)));
        if ttl.of == TtlScope::Cell {
            settings.push("TTL_OF = 'cell'".to_owned());
        }
    }
    if let Some(parts) = &rows.parts {
        settings.push(format!("PARTS_BY = {}", quoted(&parts.by)));
        settings.push(format!("PARTS_EVERY = '{}'", parts.every));
        for (name, age) in [
            ("PARTS_KEEP", parts.keep),
            ("PARTS_HOT", parts.hot),
            ("PARTS_WRITABLE", parts.writable),
        ] {
            if let Some(age) = age {
                settings.push(format!("{name} = '{}'", format_duration(age)));
            }
        }
        if let Some(archive) = &parts.archive {
            settings.push(format!(
                "PARTS_ARCHIVE = '{}'",
                archive.target.replace('\'', "''")
            ));
            let after = format_duration(archive.after);
            settings.push(format!("PARTS_ARCHIVE_AFTER = '{after}'"));
        }
        let archived = parts.archive.as_ref().map(|archive| &archive.schedule);
        for (name, schedule) in [
            ("PARTS_MIGRATE_SCHEDULE", Some(&parts.migrate)),
            ("PARTS_EXPIRE_SCHEDULE", Some(&parts.expire)),
            ("PARTS_ARCHIVE_SCHEDULE", archived),
        ] {
            if let Some(schedule) = schedule.filter(|schedule| !schedule.is_continuous()) {
                let schedule = Schedule::from(schedule).to_string();
                settings.push(format!("{name} = '{}'", schedule.replace('\'', "''")));
            }
        }
        if let Some(rate) = parts.move_bytes_per_second {
            settings.push(format!("PARTS_MOVE_RATE = {rate}"));
        }
    }
    if !rows.groups.is_empty() {
        let groups: Vec<ColumnGroup> = rows.groups.iter().map(ColumnGroup::from).collect();
        let groups = serde_json::to_string(&groups).unwrap_or_default();
        settings.push(format!("GROUPS = '{}'", groups.replace('\'', "''")));
    }
    if !rows.limits.is_empty() {
        let limits: Vec<RowRateLimit> = rows.limits.iter().map(RowRateLimit::from).collect();
        let limits = serde_json::to_string(&limits).unwrap_or_default();
        settings.push(format!("LIMITS = '{limits}'"));
    }
    if spec.durability == Durability::Buffered {
        settings.push("DURABILITY = 'buffered'".to_owned());
    }
    if !settings.is_empty() {
        let _ = write!(text, " WITH ({})", settings.join(", "));
    }
    text
}
