//! Domains of conditions: the subjects and forms that each supports.

use crate::condition::Subject;

/// Kind of objects that a condition selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Timelines by tags, attributes and properties.
    Timelines,
    /// Points by the values of their fields.
    Values,
}

impl Domain {
    /// Returns true if saved searches can be used.
    pub fn has_saved(self) -> bool {
        self == Self::Timelines
    }

    /// Returns the JSON members that name a subject.
    pub fn subject_members(self) -> &'static [&'static str] {
        match self {
            Self::Timelines => &["tag", "attribute", "property"],
            Self::Values => &["field"],
        }
    }

    /// Returns the subject that a command-line key names.
    pub(crate) fn typed_subject(self, key: &str) -> Subject {
        if self == Self::Values {
            return Subject::Field(key.to_owned());
        }
        match key {
            "measurement" => Subject::Measurement,
            "source" => Subject::Source,
            "id" => Subject::Id,
            "first_seen" => Subject::FirstSeen,
            "last_seen" => Subject::LastSeen,
            _ => match (key.strip_prefix('@'), key.strip_prefix("tag:")) {
                (Some(name), _) => Subject::Attribute(name.to_owned()),
                (None, Some(name)) => Subject::Tag(name.to_owned()),
                (None, None) => Subject::Tag(key.to_owned()),
            },
        }
    }
}
