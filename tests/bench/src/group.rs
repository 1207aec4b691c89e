//! Figures that are measured together, on servers of their own.

use std::str::FromStr;

/// A group of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Ingest, disk, questions and starts of the sets S, M and C.
    Spine,
    /// A day of M moved to the cold tier.
    Tiers,
    /// A day of M moved on into files, weighed and asked there.
    Archive,
    /// Five years of a hundred timelines in random order.
    Backfill,
    /// A million timelines.
    Million,
    /// The command `tideline write` beside the plainest loader.
    Write,
    /// A million timelines, described and found.
    Find,
    /// What Prometheus and its agents send and ask.
    Prometheus,
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "spine" => Ok(Self::Spine),
            "tiers" => Ok(Self::Tiers),
            "archive" => Ok(Self::Archive),
            "backfill" => Ok(Self::Backfill),
            "million" => Ok(Self::Million),
            "write" => Ok(Self::Write),
            "find" => Ok(Self::Find),
            "prometheus" => Ok(Self::Prometheus),
            _ => Err(format!(
                "{text:?} is not one of the groups spine, tiers, archive, backfill, million, write, find and \
                 prometheus"
            )),
        }
    }
}
