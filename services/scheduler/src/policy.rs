//! Checks of a policy: contradictory settings, and schedules that are invalid or never run.
//!
//! Each error names the member and an example of a valid value.

use chrono_tz::TZ_VARIANTS;
use tideline_engine::model::time::format_duration;
use tideline_engine::model::{ArchivePolicy, PartsSpec, Policy, Schedule, TableSpec};

use crate::schedule::{ScheduleError, validate};

/// Number of letters of a time zone name per tolerated spelling mistake.
const LETTERS_PER_ERROR: usize = 3;

/// Error of a policy with a contradiction or an invalid schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy.{member}: {reason}")]
pub struct ContradictoryPolicy {
    /// Wrong member of the policy.
    pub member: &'static str,
    /// Reason, with an example of a valid value.
    pub reason: String,
}

type Result<T> = std::result::Result<T, ContradictoryPolicy>;

/// Checks a policy as a whole.
///
/// # Errors
///
/// Returns an error if `cold_ttl` or an archive is set without a shorter `hot_ttl`, or if points would expire before
/// they are archived or at the same age. Also returns an error if an archive is combined with `cold_ttl`, if it keeps
/// points longer than `retention`, or if a schedule is invalid.
///
/// # Examples
///
/// ```
/// use tideline_engine::model::Policy;
/// use tideline_engine::model::time::NANOS_PER_DAY;
/// use tideline_scheduler::policy::check;
///
/// let mut policy = Policy::default();
/// policy.cold_ttl = Some(30 * NANOS_PER_DAY);
/// assert_eq!(check(&policy), Ok(()));
///
/// policy.cold_ttl = policy.hot_ttl;
/// let error = check(&policy).expect_err("points would expire when they become cold");
/// assert_eq!(error.member, "cold_ttl");
/// ```
pub fn check(policy: &Policy) -> Result<()> {
    let cold_ttl = |reason| ContradictoryPolicy {
        member: "cold_ttl",
        reason,
    };
    match (policy.hot_ttl, policy.cold_ttl) {
        (None, Some(_)) => {
            return Err(cold_ttl(
                "without a hot_ttl no point ever becomes cold; set hot_ttl too, to an age such as \"7d\", or retention \
                 instead"
                    .into(),
            ));
        }
        (Some(hot), Some(cold)) if cold <= hot => {
            return Err(cold_ttl(format!(
                "{} is not above hot_ttl, which is {}: points move to the cold tier at hot_ttl and leave it \
                 at cold_ttl; use a longer age, such as {:?}, or null for never",
                format_duration(cold),
                format_duration(hot),
                format_duration(hot.saturating_mul(4))
            )));
        }
        _ => {}
    }
    if let Some(archive) = &policy.archive {
        check_archive(policy, archive)?;
    }
    check_schedule("migrate", &policy.migrate)?;
    check_schedule("expire", &policy.expire)
}

/// Checks the schedules of the parts of a table. Tables without parts have no schedules to check.
///
/// # Errors
///
/// The errors of [`check_parts`].
pub fn check_schedules_of_parts(spec: &TableSpec) -> std::result::Result<(), String> {
    let parts = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
    parts.map_or(Ok(()), check_parts)
}

/// Checks the schedules of parts.
///
/// # Errors
///
/// Returns a message with the name of the setting if a schedule is invalid or never runs.
pub fn check_parts(parts: &PartsSpec) -> std::result::Result<(), String> {
    let archive = parts.archive.as_ref().map(|archive| &archive.schedule);
    let schedules = [("migrate", Some(&parts.migrate)), ("expire", Some(&parts.expire))];
    for (member, schedule) in schedules.into_iter().chain([("archive.schedule", archive)]) {
        let checked = schedule.map_or(Ok(()), |schedule| check_schedule(member, schedule));
        checked.map_err(|error| format!("parts.{}: {}", error.member, error.reason))?;
    }
    Ok(())
}

fn check_archive(policy: &Policy, archive: &ArchivePolicy) -> Result<()> {
    let wrong = |reason| {
        Err(ContradictoryPolicy {
            member: "archive",
            reason,
        })
    };
    if policy.cold_ttl.is_some() {
        return wrong(
            "cannot be combined with cold_ttl: points leave the cold tier either for files or for good; set \
             cold_ttl to null, and retention to the age at which files are deleted too"
                .into(),
        );
    }
    match policy.hot_ttl {
        None => {
            return wrong(
                "without a hot_ttl no point ever becomes cold, and only cold points are archived".into(),
            );
        }
        Some(hot) if archive.after <= hot => {
            return wrong(format!(
                "after is {}, which is not above hot_ttl, {}: points move to the cold tier at hot_ttl and \
                 into files at after; use a longer age, such as {:?}",
                format_duration(archive.after),
                format_duration(hot),
                format_duration(hot.saturating_mul(4))
            ));
        }
        Some(_) => {}
    }
    check_kept(policy, archive)?;
    check_schedule("archive", &archive.schedule)
}

/// Checks that points are kept longer than `archive.after`, and that `archive.keep` does not exceed the retention.
fn check_kept(policy: &Policy, archive: &ArchivePolicy) -> Result<()> {
    let after = archive.after;
    let too_short = |member, name: &str, age: i64| {
        Err(ContradictoryPolicy {
            member,
            reason: format!(
                "{name}{} is not above archive.after, which is {}: points would expire before they are \
                 archived; use a longer age, such as {:?}, or null for ever",
                format_duration(age),
                format_duration(after),
                format_duration(after.saturating_mul(4))
            ),
        })
    };
    match (archive.keep, policy.retention) {
        (Some(keep), _) if keep <= after => too_short("archive", "keep, ", keep),
        (_, Some(retention)) if retention <= after => too_short("retention", "", retention),
        (Some(keep), Some(retention)) if keep > retention => Err(ContradictoryPolicy {
            member: "archive",
            reason: format!(
                "keep, {}, is above retention, which is {}: retention removes archived points too; use at \
                 most that age, or null for the same age",
                format_duration(keep),
                format_duration(retention)
            ),
        }),
        _ => Ok(()),
    }
}

fn check_schedule(member: &'static str, schedule: &Schedule) -> Result<()> {
    let Schedule::Cron {
        expression,
        time_zone,
    } = schedule
    else {
        return Ok(());
    };
    validate(expression, time_zone).map_err(|error| ContradictoryPolicy {
        member,
        reason: match &error {
            ScheduleError::TimeZone(_) => match similar_zone(time_zone) {
                Some(zone) => format!("{error}; did you mean {zone}?"),
                None => error.to_string(),
            },
            ScheduleError::Expression { .. } | ScheduleError::Never(_) => {
                format!("{error}; write one such as \"0 3 * * *\", every night at three")
            }
        },
    })
}

/// Returns the time zone that is most similar to a text, by its whole name or its city: `berlin` yields
/// `Europe/Berlin`. `None` if no name is similar enough, or if the text is longer than 64 bytes.
fn similar_zone(text: &str) -> Option<&'static str> {
    if text.len() > 64 {
        return None;
    }
    let text = text.to_ascii_lowercase().replace(' ', "_");
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let city = name.rsplit('/').next().unwrap_or(&name);
        let by_city = strsim::damerau_levenshtein(city, &text);
        strsim::damerau_levenshtein(&name, &text).min(by_city)
    };
    let zones = TZ_VARIANTS.iter().map(|zone| zone.name());
    let nearest = zones.map(|name| (distance(name), name.len(), name)).min()?;
    (nearest.0 <= text.len() / LETTERS_PER_ERROR).then_some(nearest.2)
}

#[cfg(test)]
mod tests {
    use tideline_openapi::policy::PolicyChanges;

    use super::*;

    fn applied(json: &str) -> Policy {
        let changes: PolicyChanges = serde_json::from_str(json).expect(json);
        changes.applied_to(Policy::default())
    }

    #[test]
    fn a_policy_that_cannot_be_kept_is_refused_by_member() {
        for (json, member, said) in [
            (
                r#"{"cold_ttl": "7d"}"#,
                "cold_ttl",
                "7d is not above hot_ttl, which is 7d",
            ),
            (r#"{"hot_ttl": "30d", "cold_ttl": "3d"}"#, "cold_ttl", "\"120d\""),
            (
                r#"{"hot_ttl": null, "cold_ttl": "3d"}"#,
                "cold_ttl",
                "without a hot_ttl",
            ),
            (
                r#"{"migrate": {"cron": "every night"}}"#,
                "migrate",
                "\"0 3 * * *\"",
            ),
            (r#"{"expire": {"cron": "0 0 30 2 *"}}"#, "expire", "never comes"),
            (
                r#"{"archive": {"target": "default", "after": "90d"}, "retention": "90d"}"#,
                "retention",
                "90d is not above archive.after, which is 90d",
            ),
            (
                r#"{"archive": {"target": "default", "after": "90d", "keep": "30d"}}"#,
                "archive",
                "keep, 30d is not above archive.after",
            ),
            (
                r#"{"archive": {"target": "default", "after": "90d", "keep": "400d"}, "retention": "365d"}"#,
                "archive",
                "keep, 400d, is above retention, which is 365d",
            ),
            (
                r#"{"expire": {"cron": "0 3 * * *", "time_zone": "Europe/Berlim"}}"#,
                "expire",
                "did you mean Europe/Berlin?",
            ),
        ] {
            let message = check(&applied(json)).expect_err(json).to_string();
            assert!(
                message.starts_with(&format!("policy.{member}: ")),
                "{json}: {message}"
            );
            assert!(message.contains(said), "{json}: {message}");
        }
        let never_cold = applied(r#"{"hot_ttl": null, "retention": "1d"}"#);
        assert_eq!((check(&never_cold), never_cold.hot_ttl), (Ok(()), None));
    }

    #[test]
    fn schedules_of_parts_that_never_run_are_refused_by_member() {
        let parts = |changes: serde_json::Value| {
            let mut parts = serde_json::json!({"by": "at", "every": "day"});
            let members = parts.as_object_mut().expect("an object");
            members.extend(changes.as_object().expect("an object").clone());
            check_parts(&serde_json::from_value(parts).expect("settings"))
        };
        let cron =
            |expression: &str| serde_json::json!({"cron": {"expression": expression, "time_zone": "UTC"}});
        for (changes, said) in [
            (
                serde_json::json!({"migrate": cron("every night")}),
                "parts.migrate: ",
            ),
            (serde_json::json!({"expire": cron("0 0 30 2 *")}), "never comes"),
            (
                serde_json::json!({"archive": {"target": "default", "after": 5, "schedule": cron("60 3 * * *")}}),
                "parts.archive.schedule: ",
            ),
        ] {
            let error = parts(changes.clone()).expect_err("it is refused");
            assert!(
                error.starts_with("parts.") && error.contains(said),
                "{changes}: {error}"
            );
        }
        assert_eq!(parts(serde_json::json!({"migrate": cron("0 3 * * *")})), Ok(()));
    }

    #[test]
    fn a_time_zone_is_guessed_by_its_place() {
        for (text, zone) in [
            ("berlin", Some("Europe/Berlin")),
            ("america/new york", Some("America/New_York")),
            ("Asia/Tokio", Some("Asia/Tokyo")),
            ("utc", Some("UTC")),
            ("middle of nowhere", None),
            ("", None),
        ] {
            assert_eq!(similar_zone(text), zone, "{text}");
        }
    }
}
