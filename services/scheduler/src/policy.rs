//! Checks of a policy: contradictory settings, and schedules that are invalid or never run.
//!
//! Each error names the member and an example of a valid value. The engine checks the schedules of the parts of wide
//! tables.

use tideline_engine::model::time::format_duration;
use tideline_engine::model::{ArchivePolicy, Policy, Schedule};
use tideline_engine::schedule;

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
    schedule::check(schedule).map_err(|reason| ContradictoryPolicy { member, reason })
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
}
