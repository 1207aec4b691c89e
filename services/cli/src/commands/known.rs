//! Unknown names of a query: reported with similar names, instead of an empty result.
//!
//! The server returns the unknown names with suggestions. This module decides whether they are an error or a
//! warning.

use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{CliError, Result};

/// Unknown names of a query.
#[derive(Debug, Default)]
pub(crate) struct UnknownNames {
    /// Messages for users: one sentence per unknown name.
    messages: Vec<String>,
    /// True if the result would lack requested data.
    is_fatal: bool,
}

/// Checks the names of a query before it is sent, because a streamed result cannot be taken back.
///
/// # Errors
///
/// Returns an error if a field or a tag to group by is unknown. An unknown name in the condition is an error if no
/// timeline matches. If timelines match anyway, as for `rack!=r1`, the unknown name is a warning on standard error.
pub(crate) fn check(client: &Client, query: &Value) -> Result<()> {
    find(client, query)?.report()
}

/// Returns the unknown names of a query. Its timelines are selected, but no point is read.
pub(crate) fn find(client: &Client, query: &Value) -> Result<UnknownNames> {
    let mut query = query.clone();
    // The unknown names do not depend on the range. A short range saves the server the estimate for most segments.
    query["range"] = json!({"start": 0, "end": 1});
    if let Some(query) = query.as_object_mut() {
        // The page token is only valid for the unchanged query.
        query.remove("page");
    }
    let explained = client.parse(&client.post(&client.of_table("/explain"), &query)?)?;
    Ok(of_plan(client, &explained, &query))
}

/// Returns the unknown names of an explained query.
pub(crate) fn of_plan(client: &Client, explained: &Value, query: &Value) -> UnknownNames {
    let is_empty = explained["plan"]["timelines"] == 0;
    let groups = query["aggregate"]["group_by"].as_array().cloned();
    let groups = groups.unwrap_or_default();
    UnknownNames::of(client, explained, |kind, name| {
        is_empty || kind == "field" || (kind == "tag" && groups.iter().any(|group| group == name))
    })
}

impl UnknownNames {
    /// Reads `suggestions` of a response. `is_fatal` is called with the kind of a name (`measurement`, `tag`,
    /// `attribute`, `field`) and the name.
    pub(crate) fn of(client: &Client, response: &Value, is_fatal: impl Fn(&str, &str) -> bool) -> Self {
        let mut unknown = Self::default();
        for suggestion in response["suggestions"].as_array().into_iter().flatten() {
            let kinds = ["measurement", "tag", "attribute", "field"];
            let named = kinds
                .iter()
                .find_map(|kind| Some((*kind, suggestion[*kind].as_str()?)));
            let Some((kind, name)) = named else { continue };
            unknown.is_fatal |= is_fatal(kind, name);
            let similar = suggestion["did_you_mean"].as_array().into_iter().flatten();
            let similar: Vec<&str> = similar.filter_map(Value::as_str).collect();
            let prefix = match kind {
                "field" => "none of these measurements has the".to_owned(),
                _ => format!("table {} has no", client.table()),
            };
            let meant = match similar.as_slice() {
                [] => String::new(),
                names => format!("; did you mean {}?", names.join(" or ")),
            };
            unknown.messages.push(format!("{prefix} {kind} {name:?}{meant}"));
        }
        unknown
    }

    /// Converts a refusal with status 400 into an unknown name. Other errors are returned.
    pub(crate) fn refused(error: CliError) -> Result<Self> {
        match error {
            CliError::Refused(refusal) if refusal.status == 400 => Ok(Self {
                messages: vec![refusal.message],
                is_fatal: true,
            }),
            other => Err(other),
        }
    }

    /// Returns true if the result would lack requested data.
    pub(crate) const fn is_fatal(&self) -> bool {
        self.is_fatal
    }

    /// Prints the messages as warnings.
    pub(crate) fn warn(&self) {
        for message in &self.messages {
            eprintln!("warning: {message}");
        }
    }

    /// Prints the messages as warnings, unless they are an error.
    ///
    /// # Errors
    ///
    /// Returns [`CliError::UnknownName`] with the messages if the result would lack requested data.
    pub(crate) fn report(self) -> Result<()> {
        if self.is_fatal {
            return Err(CliError::UnknownName(self.messages.join("\n")));
        }
        self.warn();
        Ok(())
    }
}
