//! Checks of the analyzers in table settings, both of text attributes of timelines and of columns of search indexes.

use tideline_model::{SearchAnalyzer, TableSpec};
use tideline_timeline_catalog::attributes::ATTRIBUTE_KEY_BYTES_MAX;

use crate::error::{EngineError, Result};

/// Maximum number of attributes of a table that have an analyzer.
const ATTRIBUTE_ANALYZERS_MAX: usize = 64;

/// Checks the analyzers of attributes in new or altered settings.
///
/// # Errors
///
/// [`EngineError::OverLimit`] for too many analyzers or a key that is too long. [`EngineError::Invalid`] for an empty
/// key, for n-grams of a length other than 2 to 4, and for analyzers of a table without timelines.
pub(crate) fn check_attribute_analyzers(spec: &TableSpec) -> Result<()> {
    let analyzers = &spec.attribute_analyzers;
    if !analyzers.is_empty() && !spec.model.has_timelines() {
        return Err(EngineError::Invalid(format!(
            "attribute_analyzers are for timelines; a table of the model {} has none. Use `analyzer` of a search index",
            spec.model
        )));
    }
    limit(
        "number of attribute_analyzers",
        ATTRIBUTE_ANALYZERS_MAX,
        analyzers.len(),
    )?;
    for (key, analyzer) in analyzers {
        if key.is_empty() {
            return Err(EngineError::Invalid(
                "attribute_analyzers: an attribute key must not be empty".into(),
            ));
        }
        limit("bytes of an attribute key", ATTRIBUTE_KEY_BYTES_MAX, key.len())?;
        check_analyzer("attribute", key, *analyzer)?;
    }
    Ok(())
}

/// Checks the analyzer of the column or attribute `name`. `what` is the word for it in an error message: "column" or
/// "attribute".
///
/// # Errors
///
/// [`EngineError::Invalid`] for n-grams of a length other than 2 to 4.
pub(crate) fn check_analyzer(what: &str, name: &str, analyzer: SearchAnalyzer) -> Result<()> {
    match analyzer {
        SearchAnalyzer::Ngram(length) if !(2..=4).contains(&length) => Err(EngineError::Invalid(format!(
            "{what} {name:?}: ngram of {length} characters; 2 to 4 are possible"
        ))),
        _ => Ok(()),
    }
}

fn limit(what: &'static str, limit: usize, actual: usize) -> Result<()> {
    match actual > limit {
        true => Err(EngineError::OverLimit {
            what,
            limit: limit as u64,
            actual: actual as u64,
        }),
        false => Ok(()),
    }
}
