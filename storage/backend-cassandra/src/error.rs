//! Errors of the driver, classified by the possible effect of the request.
//!
//! A request that the coordinator refused at once had no effect. After a timeout or a lost connection, the request may
//! have had an effect, or may still have one later.

use std::io::{self, ErrorKind};
use std::time::Duration;

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError, UseKeyspaceError,
};
use tideline_backend::BackendError;

use crate::options::CassandraOptions;
use crate::tls;

/// Retry delay that is reported if the cluster has too few nodes for a quorum.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Possible effect of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request had no effect. Another try can succeed.
    NotDone,
    /// The request may have its effect, now or later. Repeating it is safe only if it is idempotent.
    Unknown,
    /// The request itself is not valid. Another try fails too.
    Final,
}

/// Failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) effect: Effect,
    pub(crate) error: BackendError,
}

impl Failure {
    fn unavailable(effect: Effect, reason: String) -> Self {
        let error = BackendError::Unavailable {
            reason,
            retry_after: RETRY_AFTER,
        };
        Self { effect, error }
    }

    fn last(error: BackendError) -> Self {
        Self {
            effect: Effect::Final,
            error,
        }
    }

    /// Classifies an error of a request.
    pub(crate) fn of(error: &ExecutionError) -> Self {
        match error {
            ExecutionError::LastAttemptError(attempt) => Self::of_attempt(attempt),
            ExecutionError::RequestTimeout(after) => Self {
                effect: Effect::Unknown,
                error: BackendError::Timeout { after: *after },
            },
            ExecutionError::EmptyPlan => {
                let reason = "the driver has found no node of the data center".to_owned();
                Self::unavailable(Effect::NotDone, reason)
            }
            ExecutionError::ConnectionPoolError(_)
            | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_)) => {
                Self::unavailable(Effect::NotDone, format!("the cluster cannot be reached: {error}"))
            }
            ExecutionError::BadQuery(_) => Self::last(BackendError::Misconfigured {
                reason: format!("the driver refuses a statement: {error}"),
            }),
            other => Self::unavailable(Effect::Unknown, other.to_string()),
        }
    }

    fn of_attempt(attempt: &RequestAttemptError) -> Self {
        let RequestAttemptError::DbError(kind, message) = attempt else {
            return Self::unavailable(Effect::Unknown, format!("a request failed: {attempt}"));
        };
        let described = || format!("the cluster reports: {kind}: {message}");
        match kind {
            DbError::Unavailable { required, alive, .. } => Self::unavailable(
                Effect::NotDone,
                format!("{alive} nodes with the data are up; {required} are needed for a quorum"),
            ),
            DbError::Overloaded | DbError::IsBootstrapping | DbError::RateLimitReached { .. } => {
                Self::unavailable(Effect::NotDone, described())
            }
            DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => {
                Self::unavailable(Effect::Unknown, described())
            }
            DbError::ReadFailure { .. } if is_dead_rows(message) => {
                Self::last(BackendError::TooManyDead { reason: described() })
            }
            DbError::Invalid if is_size(message) => Self::last(BackendError::Misconfigured {
                reason: format!("a limit of the cluster is too low: {message}"),
            }),
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::ProtocolError => Self::last(BackendError::Misconfigured { reason: described() }),
            _ => Self::unavailable(Effect::Unknown, described()),
        }
    }
}

/// Returns true if a message is about a read that met too many deleted rows. Nodes with `read_thresholds_enabled` name
/// only the setting.
fn is_dead_rows(message: &str) -> bool {
    ["TOO_MANY_TOMBSTONES", "tombstone_failure_threshold"]
        .iter()
        .any(|part| message.contains(part))
}

/// Returns true if a message is about the size of a request.
fn is_size(message: &str) -> bool {
    ["too big", "too large", "Batch too large"]
        .iter()
        .any(|part| message.contains(part))
}

/// Classifies an error of the first connection.
pub(crate) fn of_connection(options: &CassandraOptions, error: &NewSessionError) -> BackendError {
    let reason = format!(
        "cannot connect to the cluster at {}: {error}",
        options.contact.join(", ")
    );
    if let Some(failure) = encryption_failure(error) {
        let advice = tls::advice(failure, options.ca_file.as_deref());
        return BackendError::Misconfigured {
            reason: format!("{reason}; {advice}"),
        };
    }
    match error {
        NewSessionError::EmptyKnownNodesList | NewSessionError::IllegalConfig(_) => {
            BackendError::Misconfigured { reason }
        }
        _ if is_login_refused(error) => BackendError::Misconfigured {
            reason: format!("{reason}; check cassandra.user and cassandra.password_file"),
        },
        _ => BackendError::Unavailable {
            reason,
            retry_after: RETRY_AFTER,
        },
    }
}

/// Returns the error of the last connection, if nodes answered but none could be used.
fn last_connection(error: &NewSessionError) -> Option<&ConnectionError> {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error,
        })) => Some(last_connection_error),
        _ => None,
    }
}

/// Returns true if a node demands another user or password.
fn is_login_refused(error: &NewSessionError) -> bool {
    let Some(ConnectionError::ConnectionSetupRequestError(failed)) = last_connection(error) else {
        return false;
    };
    matches!(
        failed.get_error(),
        ConnectionSetupRequestErrorKind::MissingAuthentication
            | ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _)
    )
}

/// Returns the error of an encrypted connection, such as that of an unknown certificate, or of a node that does not
/// encrypt. The driver reports every error of an encrypted connection as invalid data, and never reports an error of a
/// plain connection in this way.
fn encryption_failure(error: &NewSessionError) -> Option<&io::Error> {
    match last_connection(error) {
        Some(ConnectionError::IoError(failure)) if failure.kind() == ErrorKind::InvalidData => Some(failure),
        _ => None,
    }
}

/// Classifies an error of selecting a keyspace.
pub(crate) fn of_keyspace(keyspace: &str, error: &UseKeyspaceError) -> BackendError {
    match error {
        UseKeyspaceError::RequestError(RequestAttemptError::DbError(DbError::Invalid, _)) => {
            no_keyspace(keyspace)
        }
        UseKeyspaceError::RequestError(attempt) => Failure::of_attempt(attempt).error,
        _ => BackendError::Unavailable {
            reason: format!("keyspace {keyspace} cannot be used: {error}"),
            retry_after: RETRY_AFTER,
        },
    }
}

/// Returns the error for a keyspace that does not exist.
pub(crate) fn no_keyspace(keyspace: &str) -> BackendError {
    BackendError::Misconfigured {
        reason: format!("there is no keyspace {keyspace}: create it with `tideline backend schema`"),
    }
}

/// Classifies an error of preparing a statement: a missing table or right is a wrong setting.
pub(crate) fn of_preparation(options: &CassandraOptions, error: &PrepareError) -> BackendError {
    let keyspace = &options.keyspace;
    if let PrepareError::AllAttemptsFailed {
        first_attempt: RequestAttemptError::DbError(kind, message),
    } = error
    {
        match kind {
            DbError::Invalid => {
                return BackendError::Misconfigured {
                    reason: format!(
                        "keyspace {keyspace} lacks a table or column of this build: {message}. Run `tideline backend \
                         schema` again, which creates missing tables without rows; if the table had data, restore it \
                         from a snapshot of the cluster instead"
                    ),
                };
            }
            DbError::Unauthorized => {
                return BackendError::Misconfigured {
                    reason: missing_right(options, message),
                };
            }
            _ => {}
        }
    }
    BackendError::Unavailable {
        reason: format!("cannot prepare a statement: {error}"),
        retry_after: RETRY_AFTER,
    }
}

/// Returns the reason for a request that the user may not send, with the statement that grants the right.
pub(crate) fn missing_right(options: &CassandraOptions, message: &str) -> String {
    let (keyspace, user) = (&options.keyspace, options.user.as_deref().unwrap_or("anonymous"));
    let right = match message.contains("MODIFY") {
        true => "MODIFY",
        false => "SELECT",
    };
    format!("{message}; run as an administrator: GRANT {right} ON KEYSPACE {keyspace} TO {user}")
}

/// Returns the error for a response whose form does not match its statement.
pub(crate) fn unexpected(what: &str, error: impl std::fmt::Display) -> BackendError {
    BackendError::Corrupt {
        reason: format!("the answer of the cluster to {what} cannot be read: {error}"),
    }
}
