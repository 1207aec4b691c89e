//! Roles of tokens.
//!
//! One enum defines their names for stored tokens, the API and the command line. `tideline-access` defines what a role
//! allows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Role of a token. A token has one or more roles, and may perform every action that one of its roles allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads and searches data, and observes the server. Changes nothing.
    Reader,
    /// Writes and deletes data. Reads nothing, so that the token of an agent reveals no data.
    Writer,
    /// Runs the server: tables, indexes, policies, jobs, archive, change streams. Also reads, but does not write data.
    Operator,
    /// May do everything, including the management of tokens.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Writer, Self::Operator, Self::Admin];

    /// Returns the name used in requests, responses and stored tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| format!("{name:?} is not a role; roles are reader, writer, operator and admin"))
    }
}
