//! Domains of conditions: the subjects and forms that each supports.

use crate::condition::Subject;

/// Kind of objects that a condition selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Timelines by tags, attributes and properties.
    Timelines,
    /// Points by the values of their fields.
    Values,
    /// Rows of wide tables by the values of their columns.
    Rows,
}

impl Domain {
    /// Returns true if saved searches can be used.
    pub fn has_saved(self) -> bool {
        self == Self::Timelines
    }

    /// Returns the names of the JSON members that hold a subject.
    pub fn subject_members(self) -> &'static [&'static str] {
        match self {
            Self::Timelines => &["tag", "attribute", "property"],
            Self::Values => &["field"],
            Self::Rows => &["column"],
        }
    }

    /// Returns the current name of a JSON member. Earlier clients use the name `field` for the column of a row.
    pub(crate) fn current_name(self, name: &str) -> &str {
        match (self, name) {
            (Self::Rows, "field") => "column",
            _ => name,
        }
    }

    /// Returns the subject of a command-line key.
    pub(crate) fn typed_subject(self, key: &str) -> Subject {
        match self {
            Self::Timelines => {}
            Self::Values => return Subject::Field(key.to_owned()),
            Self::Rows => return Subject::Column(key.to_owned()),
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
