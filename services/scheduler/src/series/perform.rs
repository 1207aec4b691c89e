//! Performs one unit of work on series tables.

use tideline_engine::model::JobKind;
use tideline_engine::moves::RewriteCause;

use super::Series;
use crate::maintenance::{Outcome, Planned, WorkError};
use crate::run::Run;

impl Series {
    pub(super) fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        if work.kind == JobKind::Seal {
            return self.perform_seal(run);
        }
        let Some(table) = work.table else {
            return Err(cannot_be_planned(work.kind));
        };
        let done = match work.kind {
            JobKind::Fold => self.rewrite(work, table, RewriteCause::Fold, run)?,
            JobKind::Migrate => self.rewrite(work, table, RewriteCause::Migrate, run)?,
            JobKind::Purge => self.rewrite(work, table, RewriteCause::Purge, run)?,
            JobKind::Archive => self.archive(work, table, run)?,
            JobKind::Evict => self.evict(work, table)?,
            JobKind::Restore => self.restore(work, table, run)?,
            JobKind::Expire => {
                let dropped = self.work.drop_segments(table, &work.inputs)?;
                format!("{dropped} segments dropped")
            }
            JobKind::CleanCatalog => {
                let removed = self.work.clean_catalog(table)?;
                return Ok(Outcome::round(removed, format!("{removed} timelines removed")));
            }
            JobKind::SweepArchive => {
                let removed = self.work.sweep_archive(table)?;
                return Ok(Outcome::round(removed, format!("{removed} files removed")));
            }
            JobKind::WriteSettings => {
                let written = self.work.write_settings(table)?;
                let text = format!("settings written next to the files in {written} more targets");
                return Ok(Outcome::round(written, text));
            }
            JobKind::Seal
            | JobKind::SetAttributes
            | JobKind::AttachArchive
            | JobKind::BuildIndex
            | JobKind::RemoveExpired
            | JobKind::Rekey
            | JobKind::SurveyRows
            | JobKind::FanOut => {
                return Err(cannot_be_planned(work.kind));
            }
        };
        Ok(Outcome::done(done))
    }
}

fn cannot_be_planned(kind: JobKind) -> WorkError {
    WorkError::Overtaken(format!("{kind} cannot be planned"))
}
