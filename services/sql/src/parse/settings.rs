//! Parser of the settings of a table, in `WITH` of `CREATE TABLE` and `SET` of `ALTER TABLE`.
//!
//! A setting is a name, `=` and a value: a text, a whole number or a word. Names may be written as texts, as in
//! Lindorm.

use sqlparser::tokenizer::Token;
use tideline_engine::model::time::{NANOS_PER_SECOND, parse_duration};
use tideline_engine::model::{Durability, PartPeriod, TtlScope};
use tideline_openapi::policy::Schedule;
use tideline_openapi::wide::{ColumnGroup, RowRateLimit};

use super::cursor::Cursor;
use crate::Position;
use crate::error::{Result, SqlError};
use crate::statement::{PartsJobs, TableOptions};

/// Parses a list of settings, with or without parentheses.
pub(super) fn settings(cursor: &mut Cursor<'_>) -> Result<TableOptions> {
    let mut options = TableOptions::default();
    let has_parentheses = cursor.token(&Token::LParen);
    loop {
        Setting::parse(cursor)?.apply(&mut options)?;
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    if has_parentheses {
        cursor.expect_token(&Token::RParen)?;
    }
    Ok(options)
}

/// Name and value of a setting.
struct Setting {
    /// Name in capital letters.
    name: String,
    at: Position,
    value: String,
    value_at: Position,
}

impl Setting {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let at = cursor.at();
        let name = match cursor.text() {
            Some(text) => text,
            None => cursor.name("the name of a setting")?.text,
        };
        cursor.expect_token(&Token::Eq)?;
        let value_at = cursor.at();
        let value = if let Some(text) = cursor.text() {
            text
        } else if let Some(number) = cursor.whole_number() {
            number.to_string()
        } else {
            cursor.name("the value of the setting")?.text
        };
        Ok(Self {
            name: name.to_ascii_uppercase(),
            at,
            value,
            value_at,
        })
    }

    /// Sets the option of this setting.
    fn apply(self, options: &mut TableOptions) -> Result<()> {
        match self.name.as_str() {
            "VERSIONS" => {
                let versions = self.value.parse().ok();
                options.max_versions = Some(versions.ok_or_else(|| self.wrong("a whole number"))?);
            }
            "VERSION_GUARD" => options.version_guard = Some(self.duration_or_none("1d")?),
            "ALLOW_RISING_KEY" => {
                let truth = self.word(&[("true", true), ("false", false)], "TRUE or FALSE")?;
                options.allow_rising_key = Some(truth);
            }
            "DURABILITY" => {
                let known = [("synced", Durability::Synced), ("buffered", Durability::Buffered)];
                options.durability = Some(self.word(&known, "'synced' or 'buffered'")?);
            }
            "TTL" => options.ttl = Some(self.ttl()?),
            "TTL_OF" => {
                let known = [("row", TtlScope::Row), ("cell", TtlScope::Cell)];
                options.ttl_of = Some((self.word(&known, "'row' or 'cell'")?, self.at));
            }
            "GROUPS" => {
                let groups: Vec<ColumnGroup> = serde_json::from_str(&self.value).map_err(|_| {
                    self.wrong(
                        r#"a JSON list of groups such as '[{"name": "texts", "columns": ["description"]}]'"#,
                    )
                })?;
                options.groups = Some(groups.into_iter().map(ColumnGroup::into_spec).collect());
            }
            "LIMITS" => {
                let limits: Vec<RowRateLimit> = serde_json::from_str(&self.value).map_err(|_| {
                    self.wrong(
                        r#"a JSON list of limits such as '[{"older_than": "30d", "reads_per_second": 500}]'"#,
                    )
                })?;
                options.limits = Some(limits.into_iter().map(RowRateLimit::into_spec).collect());
            }
            _ => return self.apply_of_parts(options),
        }
        Ok(())
    }

    /// Sets the option of a setting of parts. All other settings were handled before.
    fn apply_of_parts(self, options: &mut TableOptions) -> Result<()> {
        match self.name.as_str() {
            "PARTS_EVERY" => {
                let known = PartPeriod::ALL.map(|every| (every.name(), every));
                options.parts_every = Some(self.word(&known, "'day', 'week' or 'month'")?);
            }
            "PARTS_KEEP" => options.parts_keep = Some(self.duration_or_none("365d")?),
            "PARTS_HOT" => options.parts_hot = Some(self.duration_or_none("365d")?),
            "PARTS_WRITABLE" => options.parts_writable = Some(self.duration_or_none("365d")?),
            "PARTS_ARCHIVE_AFTER" => {
                let after = parse_duration(&self.value);
                let after = after.ok_or_else(|| self.wrong("a duration such as '365d'"))?;
                options.parts_archive_after = Some(after);
            }
            "PARTS_JOBS" => {
                let jobs: PartsJobs = serde_json::from_str(&self.value).map_err(|_| {
                    self.wrong(
                        r#"a JSON object with migrate, expire, archive_schedule and move_bytes_per_second such as '{"migrate": {"cron": "0 3 * * *"}}'"#,
                    )
                })?;
                options.parts_jobs = Some(jobs);
            }
            "PARTS_MIGRATE_SCHEDULE" => options.parts_migrate_schedule = Some(self.schedule()),
            "PARTS_EXPIRE_SCHEDULE" => options.parts_expire_schedule = Some(self.schedule()),
            "PARTS_ARCHIVE_SCHEDULE" => options.parts_archive_schedule = Some(self.schedule()),
            "PARTS_MOVE_RATE" => {
                let rate = match self.value.eq_ignore_ascii_case("none") {
                    true => None,
                    false => Some(
                        self.value
                            .parse::<u64>()
                            .map_err(|_| self.wrong("a number of bytes per second, or 'none'"))?,
                    ),
                };
                options.parts_move_rate = Some(rate);
            }
            "PARTS_BY" => options.parts_by = Some(self.value),
            "PARTS_ARCHIVE" => {
                options.parts_archive =
                    Some((!self.value.eq_ignore_ascii_case("none")).then_some(self.value));
            }
            "COMPRESSION" => {
                return Err(SqlError::refused(
                    self.at,
                    "the setting COMPRESSION is not supported for a table; write it after the type of a column, such as \
                     text VARCHAR COMPRESSION zstd",
                ));
            }
            other => {
                return Err(SqlError::refused(
                    self.at,
                    format!(
                        "the setting {other} is not supported; a table has VERSIONS, VERSION_GUARD, \
                         ALLOW_RISING_KEY, DURABILITY, TTL, TTL_OF, PARTS_BY, PARTS_EVERY, PARTS_KEEP, \
                         PARTS_HOT, PARTS_WRITABLE, PARTS_ARCHIVE, PARTS_ARCHIVE_AFTER, PARTS_MIGRATE_SCHEDULE, \
                         PARTS_EXPIRE_SCHEDULE, PARTS_ARCHIVE_SCHEDULE, PARTS_MOVE_RATE, PARTS_JOBS, GROUPS and \
                         LIMITS"
                    ),
                ));
            }
        }
        options.parts_at = Some(self.at);
        Ok(())
    }

    /// Returns the time-to-live in nanoseconds; `None` if data never expires. A plain number is a number of seconds, as
    /// in Lindorm.
    fn ttl(&self) -> Result<Option<i64>> {
        if let Ok(seconds) = self.value.parse::<i64>() {
            return Ok(Some(seconds.saturating_mul(NANOS_PER_SECOND)));
        }
        self.duration_or(|| self.wrong("a number of seconds, a duration such as '30d', or 'none'"))
    }

    /// Returns the schedule of jobs. The engine checks the cron expression and the time zone.
    fn schedule(&self) -> Schedule {
        Schedule::from_text(&self.value)
    }

    fn duration_or_none(&self, example: &str) -> Result<Option<i64>> {
        self.duration_or(|| self.wrong(&format!("a duration such as '{example}', or 'none'")))
    }

    /// Returns a duration in nanoseconds; `None` for the word `none`.
    fn duration_or(&self, wrong: impl FnOnce() -> SqlError) -> Result<Option<i64>> {
        match self.value.eq_ignore_ascii_case("none") {
            true => Ok(None),
            false => parse_duration(&self.value).map(Some).ok_or_else(wrong),
        }
    }

    /// Returns the meaning of a word, without regard to case.
    fn word<T: Copy>(&self, known: &[(&str, T)], expected: &str) -> Result<T> {
        let mut known = known.iter();
        let found = known.find(|(word, _)| word.eq_ignore_ascii_case(&self.value));
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| self.wrong(expected))
    }

    fn wrong(&self, expected: &str) -> SqlError {
        let Self { name, value, .. } = self;
        SqlError::invalid(
            self.value_at,
            format!("{name}: expected {expected}, found {value:?}"),
        )
    }
}
