//! Names of job kinds in stored rows.
//!
//! Earlier builds stored five kinds under shorter names than the API uses. Rows keep the short names, so that earlier
//! builds and this build read each other's rows.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tideline_engine::model::JobKind;

/// Kind of jobs as stored in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredKind(pub(crate) JobKind);

/// Kinds whose stored name differs from [`JobKind::name`].
const SHORTER: [(JobKind, &str); 5] = [
    (JobKind::CleanCatalog, "catalog"),
    (JobKind::SetAttributes, "attributes"),
    (JobKind::AttachArchive, "attach"),
    (JobKind::SweepArchive, "sweep"),
    (JobKind::WriteSettings, "settings"),
];

impl StoredKind {
    fn name(self) -> &'static str {
        let shorter = SHORTER.iter().find(|(kind, _)| *kind == self.0);
        shorter.map_or(self.0.name(), |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        JobKind::ALL
            .map(Self)
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl Serialize for StoredKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for StoredKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::parse(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is not a kind of jobs")))
    }
}

/// Serializes the kind of a job in its stored form.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
pub(crate) fn serialize<S: Serializer>(kind: &JobKind, to: S) -> Result<S::Ok, S::Error> {
    StoredKind(*kind).serialize(to)
}

/// Deserializes the kind of a job from its stored form.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<JobKind, D::Error> {
    StoredKind::deserialize(from).map(|StoredKind(kind)| kind)
}
