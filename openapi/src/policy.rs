//! Policies for the aging of the points of a table.
//!
//! [`Policy`] is the complete policy in responses, [`PolicyChanges`] a partial policy in requests. A member
//! that is missing in a request stays unchanged, and `null` removes it; for a schedule, `null` selects
//! `continuous`. Wrong members are reported by name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tideline_model::{ArchivePolicy as ModelArchivePolicy, Policy as ModelPolicy, Schedule as ModelSchedule};
use utoipa::ToSchema;

use crate::time::DurationText;

/// Maximum number of characters of a wrong value in a message.
const SHOWN_CHARS_MAX: usize = 80;

/// Policy of a table. Ages count back from now; a `null` age means never.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "hot_ttl": "7d",
    "cold_ttl": null,
    "retention": "90d",
    "archive": null,
    "timeline_ttl": null,
    "migrate": {"cron": "0 3 * * *", "time_zone": "Europe/Berlin"},
    "expire": "continuous",
    "move_bytes_per_second": 33_554_432,
    "timelines_per_minute": 100_000
}))]
pub struct Policy {
    /// Age at which points move from the hot to the cold tier.
    pub hot_ttl: Option<DurationText>,
    /// Age at which points in the cold tier are deleted; above `hot_ttl`. Not allowed together with `archive`.
    pub cold_ttl: Option<DurationText>,
    /// Age at which points expire in every tier. They are hidden immediately, and their bytes are freed later.
    pub retention: Option<DurationText>,
    /// Target and age for moving points from the cold tier into files.
    pub archive: Option<ArchivePolicy>,
    /// Time without writes after which a timeline is removed with all its points.
    pub timeline_ttl: Option<DurationText>,
    /// Schedule of moves from the hot to the cold tier.
    pub migrate: Schedule,
    /// Schedule for freeing the bytes of expired points and timelines.
    pub expire: Schedule,
    /// Maximum read rate of moves of this table, bytes per second; `null` = no limit.
    pub move_bytes_per_second: Option<u64>,
    /// Maximum number of new timelines per minute; `null` = the server's limit, `tables.timelines_per_minute`.
    /// Lines beyond the limit are rejected, and the reason contains the tag with the most new values.
    pub timelines_per_minute: Option<u64>,
}

/// Archive policy: target and age for moving points from the cold tier into Parquet files on an object store. Queries
/// still include archived points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "target": "default", "after": "90d", "schedule": {"cron": "0 4 * * *", "time_zone": "UTC"},
    "keep_cold": "30d", "keep": "2555d"
}))]
pub struct ArchivePolicy {
    /// `default` for the target in the server's configuration, or an address that the operator allows:
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`.
    pub target: String,
    /// Age at which points move from the cold tier into files; above `hot_ttl`.
    pub after: DurationText,
    /// Schedule of the moves into files. Default `continuous`.
    #[serde(default = "continuous")]
    pub schedule: Schedule,
    /// Time for which points also stay in the cold tier after they have reached the age `after`. Queries read them
    /// from the cold tier during this time. `null` = points leave the cold tier when their files are verified.
    #[serde(default)]
    pub keep_cold: Option<DurationText>,
    /// Age at which archived points expire; above `after` and at most `retention`. They are hidden immediately, and
    /// their files are removed later. `null` = only `retention` applies.
    #[serde(default)]
    pub keep: Option<DurationText>,
}

fn continuous() -> Schedule {
    Schedule::Word(ScheduleWord::Continuous)
}

/// Schedule of a kind of job: `"continuous"`, or a cron expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected \"continuous\", or an object with cron and optionally time_zone"
)]
#[schema(example = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}))]
pub enum Schedule {
    /// Start as soon as the job has work.
    Word(ScheduleWord),
    /// Start at the times of a cron expression, and after a restart if such a time was missed.
    Cron(CronSchedule),
}

/// Schedule given as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleWord {
    /// Start as soon as the job has work.
    Continuous,
}

/// Cron schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}))]
pub struct CronSchedule {
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first.
    pub cron: String,
    /// Name in the IANA time zone database. Default `UTC`.
    #[serde(default = "utc")]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".into()
}

/// Word between the cron expression and the time zone of a schedule as text.
const IN_ZONE: &str = " in ";

impl Schedule {
    /// Parses the text form, which the command line and SQL use: `continuous`, or a cron expression, possibly followed
    /// by `in` and a time zone, such as `0 3 * * * in Europe/Berlin`. The words can be in any case. The server checks the
    /// expression and the zone.
    pub fn from_text(text: &str) -> Self {
        let text = text.trim();
        if text.eq_ignore_ascii_case("continuous") {
            return continuous();
        }
        // The lowercase text has the same positions, because only ASCII letters change.
        let (cron, time_zone) = match text.to_ascii_lowercase().rfind(IN_ZONE) {
            Some(at) => (text[..at].trim(), text[at + IN_ZONE.len()..].trim().to_owned()),
            None => (text, utc()),
        };
        Self::Cron(CronSchedule {
            cron: cron.to_owned(),
            time_zone,
        })
    }
}

impl fmt::Display for Schedule {
    /// Formats the text form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(ScheduleWord::Continuous) => f.write_str("continuous"),
            Self::Cron(CronSchedule { cron, time_zone }) if *time_zone == utc() => f.write_str(cron),
            Self::Cron(CronSchedule { cron, time_zone }) => write!(f, "{cron}{IN_ZONE}{time_zone}"),
        }
    }
}

/// Changes of a policy. Missing members stay unchanged; `null` removes a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"hot_ttl": "3d", "retention": "90d", "timeline_ttl": null}))]
pub struct PolicyChanges {
    /// Age at which points move from the hot to the cold tier. Default `7d`; `null` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DurationText>)]
    pub hot_ttl: Option<Option<DurationText>>,
    /// Age at which points in the cold tier are deleted; above `hot_ttl`. Not allowed together with `archive`.
    /// Default `null` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DurationText>)]
    pub cold_ttl: Option<Option<DurationText>>,
    /// Age at which points expire in every tier. They are hidden immediately, and their bytes are freed later. Default
    /// `null` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DurationText>)]
    pub retention: Option<Option<DurationText>>,
    /// Target and age for moving points from the cold tier into files. Default `null` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ArchivePolicy>)]
    pub archive: Option<Option<ArchivePolicy>>,
    /// Time without writes after which a timeline is removed with all its points. Default `null` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DurationText>)]
    pub timeline_ttl: Option<Option<DurationText>>,
    /// Schedule of moves from the hot to the cold tier. Default `continuous`, also selected by `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate: Option<Schedule>,
    /// Schedule for freeing the bytes of expired points and timelines. Default `continuous`, also selected by `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire: Option<Schedule>,
    /// Maximum read rate of moves of this table, bytes per second, at least 1. Default `null` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub move_bytes_per_second: Option<Option<u64>>,
    /// Maximum number of new timelines per minute, at least 1. Default `null` = the server's limit,
    /// `tables.timelines_per_minute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub timelines_per_minute: Option<Option<u64>>,
}

/// Policy member that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Name of the member.
    pub member: &'static str,
    /// Reason, with a valid example.
    pub reason: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy.{}: {}", self.member, self.reason)
    }
}

impl std::error::Error for PolicyError {}

/// Members as they were sent, so that an error can name the wrong member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default, deserialize_with = "sent")]
    hot_ttl: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    cold_ttl: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    retention: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    archive: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    timeline_ttl: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    migrate: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    expire: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    move_bytes_per_second: Option<Value>,
    #[serde(default, deserialize_with = "sent")]
    timelines_per_minute: Option<Value>,
}

/// Deserializes a member that was sent, including `null`.
fn sent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for PolicyChanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = Form::deserialize(deserializer)?;
        Self::try_from(form).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<Form> for PolicyChanges {
    type Error = PolicyError;

    fn try_from(form: Form) -> Result<Self, PolicyError> {
        Ok(Self {
            hot_ttl: age("hot_ttl", form.hot_ttl)?,
            cold_ttl: age("cold_ttl", form.cold_ttl)?,
            retention: age("retention", form.retention)?,
            archive: archive(form.archive)?,
            timeline_ttl: age("timeline_ttl", form.timeline_ttl)?,
            migrate: schedule("migrate", form.migrate)?,
            expire: schedule("expire", form.expire)?,
            move_bytes_per_second: limit("move_bytes_per_second", form.move_bytes_per_second)?,
            timelines_per_minute: limit("timelines_per_minute", form.timelines_per_minute)?,
        })
    }
}

fn age(member: &'static str, sent: Option<Value>) -> Result<Option<Option<DurationText>>, PolicyError> {
    nullable(sent, |value| {
        let duration = value
            .as_str()
            .map(str::to_owned)
            .and_then(|text| text.try_into().ok());
        let duration = duration.filter(|DurationText(nanos)| *nanos > 0);
        duration.ok_or_else(|| PolicyError {
            member,
            reason: format!(
                "{} is not a valid age; use one above zero and below 292 years such as \"7d\" or \"12h\", or null",
                shown(value)
            ),
        })
    })
}

fn archive(sent: Option<Value>) -> Result<Option<Option<ArchivePolicy>>, PolicyError> {
    nullable(sent, |value| {
        // The target can contain a secret, such as a signature in its query string, so no error quotes the value.
        let read = match value.is_object() {
            true => ArchivePolicy::deserialize(value).map_err(|error| error.to_string()),
            false => Err("it is not an object".to_owned()),
        };
        let read = read.and_then(|archive| {
            let ages = [("after", Some(&archive.after)), ("keep", archive.keep.as_ref())];
            let wrong = ages
                .iter()
                .find(|(_, age)| age.is_some_and(|DurationText(nanos)| *nanos <= 0));
            match wrong {
                Some((name, _)) => Err(format!("{name} is not above zero")),
                None => Ok(archive),
            }
        });
        read.map_err(|reason| PolicyError {
            member: "archive",
            reason: format!(
                "not a valid archive policy ({reason}); use an object such as \
                 {{\"target\": \"default\", \"after\": \"90d\"}}, or null"
            ),
        })
    })
}

fn limit(member: &'static str, sent: Option<Value>) -> Result<Option<Option<u64>>, PolicyError> {
    nullable(sent, |value| {
        value
            .as_u64()
            .filter(|limit| *limit > 0)
            .ok_or_else(|| PolicyError {
                member,
                reason: format!(
                    "{} is not a valid limit; use a whole number from 1 such as 1000000, or null for no limit",
                    shown(value)
                ),
            })
    })
}

fn schedule(member: &'static str, sent: Option<Value>) -> Result<Option<Schedule>, PolicyError> {
    let read = nullable(sent, |value| {
        Schedule::deserialize(value).map_err(|_| PolicyError {
            member,
            reason: format!(
                "{} is not a valid schedule; use \"continuous\", or an object such as \
                 {{\"cron\": \"0 3 * * *\", \"time_zone\": \"Europe/Berlin\"}}",
                shown(value)
            ),
        })
    })?;
    Ok(read.map(|schedule| schedule.unwrap_or(Schedule::Word(ScheduleWord::Continuous))))
}

/// Applies `read` to a member that was sent and is not `null`.
fn nullable<T>(
    sent: Option<Value>,
    read: impl FnOnce(&Value) -> Result<T, PolicyError>,
) -> Result<Option<Option<T>>, PolicyError> {
    match sent {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(None)),
        Some(value) => read(&value).map(|value| Some(Some(value))),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl PolicyChanges {
    /// Returns `policy` with these changes. Consistency between members is checked by the scheduler.
    pub fn applied_to(self, mut policy: ModelPolicy) -> ModelPolicy {
        let nanos = |age: Option<DurationText>| age.map(|DurationText(nanos)| nanos);
        let Self {
            hot_ttl,
            cold_ttl,
            retention,
            archive,
            timeline_ttl,
            migrate,
            expire,
            move_bytes_per_second,
            timelines_per_minute,
        } = self;
        set(&mut policy.hot_ttl, hot_ttl.map(nanos));
        set(&mut policy.cold_ttl, cold_ttl.map(nanos));
        set(&mut policy.retention, retention.map(nanos));
        set(
            &mut policy.archive,
            archive.map(|archive| archive.map(Into::into)),
        );
        set(&mut policy.timeline_ttl, timeline_ttl.map(nanos));
        set(&mut policy.migrate, migrate.map(Into::into));
        set(&mut policy.expire, expire.map(Into::into));
        set(&mut policy.move_bytes_per_second, move_bytes_per_second);
        set(&mut policy.timelines_per_minute, timelines_per_minute);
        policy
    }
}

fn set<T>(setting: &mut T, change: Option<T>) {
    if let Some(value) = change {
        *setting = value;
    }
}

impl From<ArchivePolicy> for ModelArchivePolicy {
    fn from(archive: ArchivePolicy) -> Self {
        Self {
            target: archive.target,
            after: archive.after.0,
            schedule: archive.schedule.into(),
            keep_cold: archive.keep_cold.map(|DurationText(nanos)| nanos),
            keep: archive.keep.map(|DurationText(nanos)| nanos),
        }
    }
}

impl From<&ModelArchivePolicy> for ArchivePolicy {
    fn from(archive: &ModelArchivePolicy) -> Self {
        Self {
            target: archive.target.clone(),
            after: DurationText(archive.after),
            schedule: Schedule::from(&archive.schedule),
            keep_cold: archive.keep_cold.map(DurationText),
            keep: archive.keep.map(DurationText),
        }
    }
}

impl From<Schedule> for ModelSchedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Word(ScheduleWord::Continuous) => Self::Continuous,
            Schedule::Cron(CronSchedule { cron, time_zone }) => Self::Cron {
                expression: cron,
                time_zone,
            },
        }
    }
}

impl From<&ModelSchedule> for Schedule {
    fn from(schedule: &ModelSchedule) -> Self {
        match schedule {
            ModelSchedule::Continuous => Self::Word(ScheduleWord::Continuous),
            ModelSchedule::Cron {
                expression,
                time_zone,
            } => Self::Cron(CronSchedule {
                cron: expression.clone(),
                time_zone: time_zone.clone(),
            }),
        }
    }
}

impl From<&ModelPolicy> for Policy {
    fn from(policy: &ModelPolicy) -> Self {
        Self {
            hot_ttl: policy.hot_ttl.map(DurationText),
            cold_ttl: policy.cold_ttl.map(DurationText),
            retention: policy.retention.map(DurationText),
            archive: policy.archive.as_ref().map(ArchivePolicy::from),
            timeline_ttl: policy.timeline_ttl.map(DurationText),
            migrate: Schedule::from(&policy.migrate),
            expire: Schedule::from(&policy.expire),
            move_bytes_per_second: policy.move_bytes_per_second,
            timelines_per_minute: policy.timelines_per_minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use tideline_model::time::NANOS_PER_DAY;

    use super::*;

    fn changes(json: &str) -> Result<PolicyChanges, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn only_named_members_change_and_null_takes_away() {
        let before = ModelPolicy {
            cold_ttl: Some(30 * NANOS_PER_DAY),
            migrate: ModelSchedule::Cron {
                expression: "0 3 * * *".into(),
                time_zone: "UTC".into(),
            },
            timelines_per_minute: Some(5),
            ..ModelPolicy::default()
        };
        let same = changes("{}")
            .expect("nothing is named")
            .applied_to(before.clone());
        assert_eq!(same, before);
        let json = r#"{"hot_ttl": null, "retention": "1d12h", "migrate": null, "expire": {"cron": "*/5 * * * *"},
            "timelines_per_minute": 7, "archive": {"target": "default", "after": "60d", "keep_cold": "0s", "keep": "1000d"}, "cold_ttl": null}"#;
        let after = changes(json).expect("all are right").applied_to(before.clone());
        let expected = ModelPolicy {
            hot_ttl: None,
            cold_ttl: None,
            retention: Some(NANOS_PER_DAY / 2 * 3),
            archive: Some(ModelArchivePolicy {
                target: "default".into(),
                after: 60 * NANOS_PER_DAY,
                schedule: ModelSchedule::Continuous,
                keep_cold: Some(0),
                keep: Some(1_000 * NANOS_PER_DAY),
            }),
            migrate: ModelSchedule::Continuous,
            expire: ModelSchedule::Cron {
                expression: "*/5 * * * *".into(),
                time_zone: "UTC".into(),
            },
            timelines_per_minute: Some(7),
            ..before
        };
        assert_eq!(after, expected);
        let shown = serde_json::to_value(Policy::from(&after)).expect("plain data");
        assert_eq!(
            changes(&shown.to_string())
                .expect("it reads back")
                .applied_to(ModelPolicy::default()),
            after
        );
    }

    #[test]
    fn a_wrong_archive_policy_is_not_repeated() {
        for json in [
            r#"{"archive": "az://c/p?sig=planted"}"#,
            r#"{"archive": {"target": "az://c/p?sig=planted"}}"#,
            r#"{"archive": {"target": "az://c/p?sig=planted", "after": 7}}"#,
            r#"{"archive": ["az://c/p?sig=planted"]}"#,
        ] {
            let error = changes(json).expect_err(json);
            assert!(
                error.contains("policy.archive: not a valid") && !error.contains("planted"),
                "{json}: {error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_reason_and_example() {
        for (json, member, reason) in [
            (r#"{"hot_ttl": "7 days"}"#, "hot_ttl", "\"7 days\" is not a valid"),
            (r#"{"hot_ttl": 7}"#, "hot_ttl", "7 is not a valid age"),
            (r#"{"cold_ttl": "0s"}"#, "cold_ttl", "above zero"),
            (r#"{"retention": "300y"}"#, "retention", "below 292 years"),
            (r#"{"timeline_ttl": ["1d"]}"#, "timeline_ttl", "such as \"7d\""),
            (r#"{"archive": {"target": "default"}}"#, "archive", "after"),
            (
                r#"{"archive": {"target": "default", "after": "0s"}}"#,
                "archive",
                "above zero",
            ),
            (
                r#"{"archive": {"target": "default", "after": "1d", "keep": "0s"}}"#,
                "archive",
                "keep is not above zero",
            ),
            (r#"{"migrate": "nightly"}"#, "migrate", "\"continuous\""),
            (r#"{"expire": {"crom": "* * * * *"}}"#, "expire", "0 3 * * *"),
            (
                r#"{"move_bytes_per_second": 0}"#,
                "move_bytes_per_second",
                "from 1",
            ),
            (
                r#"{"timelines_per_minute": -1.5}"#,
                "timelines_per_minute",
                "-1.5 is not a valid limit",
            ),
        ] {
            let error = changes(json).expect_err(json);
            assert!(
                error.starts_with(&format!("policy.{member}: ")),
                "{json}: {error}"
            );
            assert!(error.contains(reason), "{json}: {error}");
        }
        let unknown = changes(r#"{"hot_tll": "7d"}"#).expect_err("a typing error");
        assert!(
            unknown.contains("`hot_tll`") && unknown.contains("`hot_ttl`"),
            "{unknown}"
        );
        let long = changes(&format!("{{\"hot_ttl\": \"{}\"}}", "x".repeat(10_000))).expect_err("long");
        assert!(long.len() < 300, "{long}");
    }

    #[test]
    fn schedules_have_a_text_form() {
        for (text, cron, time_zone) in [
            ("0 3 * * *", "0 3 * * *", "UTC"),
            ("0 3 * * * in Europe/Berlin", "0 3 * * *", "Europe/Berlin"),
            ("30 15 4 * * MON in Japan", "30 15 4 * * MON", "Japan"),
        ] {
            let schedule = Schedule::from_text(text);
            let expected = CronSchedule {
                cron: cron.to_owned(),
                time_zone: time_zone.to_owned(),
            };
            assert_eq!(schedule, Schedule::Cron(expected));
            assert_eq!(schedule.to_string(), text);
        }
        assert_eq!(Schedule::from_text(" Continuous "), continuous());
        let upper = Schedule::from_text("0 3 * * * IN Europe/Berlin");
        assert_eq!(upper.to_string(), "0 3 * * * in Europe/Berlin");
        assert_eq!(continuous().to_string(), "continuous");
    }
}
