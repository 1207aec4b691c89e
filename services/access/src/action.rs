//! Actions of requests, and the roles that allow them.
//!
//! An action is the kind of operation that a route performs. A [`Role`] is a set of actions under a name that users
//! give to a token.

use std::fmt;

pub use tideline_model::Role;

/// Action of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Read figures and states of the server, such as metrics, the clock and the storage engine.
    Observe,
    /// Read and search data.
    Read,
    /// Write and delete data: points, rows, messages, attributes, timelines.
    Write,
    /// Create, change and drop tables and indexes; manage policies, jobs, the archive, change streams and running
    /// queries.
    Operate,
    /// Create, list, rotate and revoke tokens.
    Administer,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 5] = [
        Self::Observe,
        Self::Read,
        Self::Write,
        Self::Operate,
        Self::Administer,
    ];

    /// Returns the name, as in the OpenAPI document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Read => "read",
            Self::Write => "write",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// Returns true if a role allows the action.
    pub const fn is_allowed_to(self, role: Role) -> bool {
        match role {
            Role::Reader => matches!(self, Self::Observe | Self::Read),
            Role::Writer => matches!(self, Self::Write),
            Role::Operator => matches!(self, Self::Observe | Self::Read | Self::Operate),
            Role::Admin => true,
        }
    }

    /// Returns the action with a name; `None` if there is no such action.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_allow_exactly_their_actions() {
        let allowed = |role: Role| -> Vec<&str> {
            let actions = Action::ALL
                .into_iter()
                .filter(|action| action.is_allowed_to(role));
            actions.map(Action::name).collect()
        };
        assert_eq!(allowed(Role::Reader), ["observe", "read"]);
        assert_eq!(allowed(Role::Writer), ["write"]);
        assert_eq!(allowed(Role::Operator), ["observe", "read", "operate"]);
        assert_eq!(
            allowed(Role::Admin),
            ["observe", "read", "write", "operate", "administer"]
        );
    }

    #[test]
    fn names_are_read_back() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
        assert!("owner".parse::<Role>().is_err());
        assert_eq!(Action::from_name("own"), None);
    }
}
