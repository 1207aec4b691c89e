//! Descriptions in words of the rules that hide data.
//!
//! A description contains the rule, the values of the table that apply, and a remedy if there is one.

use tideline_engine::WideTable;
use tideline_engine::model::time::format_duration;
use tideline_engine::model::{ColumnType, TtlScope};
use tideline_engine::rows::CellValue;
use tideline_engine::why::{Hidden, HidingRule, KeyTrace, PartVisibility, VersionTrace};
use tideline_openapi::row_why::{WhyCode, WhyHidden};

use super::{plain, text};

/// Describes the rules of a table that apply to one key.
pub(super) struct Words<'t> {
    table: &'t WideTable,
    trace: &'t KeyTrace,
}

impl<'t> Words<'t> {
    pub(super) fn new(table: &'t WideTable, trace: &'t KeyTrace) -> Self {
        Self { table, trace }
    }

    /// Returns the reason why reads do not return a row, or one of its writes.
    pub(super) fn row(&self, hidden: &Hidden) -> WhyHidden {
        self.reason(hidden, None)
    }

    /// Returns the reason why reads do not return a version.
    pub(super) fn version(&self, hidden: &Hidden, version: &VersionTrace) -> WhyHidden {
        self.reason(hidden, Some(version))
    }

    fn reason(&self, hidden: &Hidden, version: Option<&VersionTrace>) -> WhyHidden {
        let at = hidden
            .since
            .map_or_else(String::new, |since| format!(" at {}", text(since)));
        let (code, reason) = match hidden.rule {
            HidingRule::Deleted => (WhyCode::Deleted, format!("a delete of the row{at} came later")),
            HidingRule::RangeDeleted => (
                WhyCode::RangeDeleted,
                "a delete of a range of keys, which covered the row, came later".to_owned(),
            ),
            HidingRule::Replaced => (
                WhyCode::Replaced,
                format!("a put{at} replaced the whole row; an update keeps the other columns"),
            ),
            HidingRule::NewerCopy => (
                WhyCode::NewerCopy,
                "the row was written again and flushed; the copy in the block is replaced when the block is packed again"
                    .to_owned(),
            ),
            HidingRule::Cleared => (
                WhyCode::Cleared,
                format!("a write{at} removed all versions of the column that were stored before"),
            ),
            HidingRule::SameTime => (
                WhyCode::SameVersion,
                "a later write stored another value with the same version".to_owned(),
            ),
            HidingRule::MaxVersions => (WhyCode::MaxVersions, self.surplus(version)),
            HidingRule::RowExpired => (WhyCode::Expired, self.row_expired()),
            HidingRule::CellExpired => (
                WhyCode::Expired,
                format!("the version expired {} after its timestamp, as ttl and ttl_of require", self.ttl()),
            ),
            HidingRule::PartHidden => (
                WhyCode::PartHidden,
                format!(
                    "the part {} is older than parts.keep allows, so its rows are hidden and will be dropped; a longer \
                     keep shows them again until then",
                    self.part_name()
                ),
            ),
            HidingRule::PartDropped => (WhyCode::PartDropped, self.part_dropped()),
        };
        WhyHidden {
            code,
            since: hidden.since.map(text),
            by: hidden.by,
            reason,
        }
    }

    /// Returns the reason why reads do not return a key for which nothing is stored.
    pub(super) fn not_stored(&self) -> WhyHidden {
        let visibility = self.trace.part.map(|part| part.visibility);
        if visibility == Some(PartVisibility::Dropped) {
            return plain(WhyCode::PartDropped, self.part_dropped());
        }
        let mut reason = String::from(
            "nothing is stored for the key: it was never written, or its row was deleted and the bytes are freed",
        );
        if self.trace.ttl.is_some() {
            reason.push_str(", or it has expired");
        }
        reason.push_str("; compare the values of the key, which are exact");
        plain(WhyCode::NotStored, reason)
    }

    pub(super) fn column_removed(&self) -> WhyHidden {
        plain(
            WhyCode::ColumnRemoved,
            "the column was declared with the table, and its declaration was removed, which hides its values for good"
                .to_owned(),
        )
    }

    /// Returns a remark on a value with a type that conditions and indexes do not compare; `None` for other values.
    pub(super) fn type_remark(
        &self,
        value: &CellValue<'_>,
        declared: Option<ColumnType>,
    ) -> Option<WhyHidden> {
        let found = value.column_type();
        let declared = declared.filter(|declared| *declared != found)?;
        Some(plain(
            WhyCode::OtherType,
            format!(
                "the value is a {found} and was written before the column was declared as {declared}: reads return it with \
                 its type, but conditions and indexes do not match it; write it again as {declared}"
            ),
        ))
    }

    /// Returns the time at which a version with this time expires; `None` unless versions expire one by one.
    pub(super) fn expiry_of_version(&self, time: i64) -> Option<String> {
        let ttl = self.trace.ttl.filter(|ttl| ttl.of == TtlScope::Cell)?;
        Some(text(time.saturating_add(ttl.after)))
    }

    fn surplus(&self, version: Option<&VersionTrace>) -> String {
        let kept = self.trace.versions_max;
        let mut reason = match kept {
            1 => {
                "the table keeps one version per column (max_versions), and the kept one is newer".to_owned()
            }
            kept => format!(
                "the table keeps {kept} versions per column (max_versions), and the kept ones are newer"
            ),
        };
        let is_future = |other: &&VersionTrace| {
            version.is_some_and(|version| version.column == other.column)
                && other.version.time > self.trace.now
        };
        if let Some(future) = self.trace.versions.iter().find(is_future) {
            reason.push_str(&format!(
                "; the version {} is in the future, as of a client with a wrong clock, so it hides all writes until then: \
                 remove it with remove_versions or clear, and set version_guard",
                text(future.version.time)
            ));
        }
        reason
    }

    fn row_expired(&self) -> String {
        let written = self.trace.time.map(text).unwrap_or_default();
        format!(
            "the row expired {} after its last write at {written}, as ttl requires; each write of the row prolongs its life",
            self.ttl()
        )
    }

    fn ttl(&self) -> String {
        self.trace
            .ttl
            .map_or_else(String::new, |ttl| format_duration(ttl.after))
    }

    fn part_dropped(&self) -> String {
        format!(
            "the part {} was dropped, by a request or because it was older than parts.keep allows; this cannot be undone, and \
             writes to it are refused",
            self.part_name()
        )
    }

    fn part_name(&self) -> String {
        let every = self.table.settings().parts.as_ref().map(|parts| parts.every);
        let name = every
            .zip(self.trace.part)
            .map(|(every, part)| every.part_name(part.number));
        name.unwrap_or_default()
    }
}
