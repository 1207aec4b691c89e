//! Groups of benchmark figures that are measured together. Each group starts separate servers.

use std::str::FromStr;

/// Group of benchmark figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Ingest, disk usage, queries and server starts with the sets S, M and C.
    Spine,
    /// Move of one day of M to the cold tier, cold queries, and the interference of both with other work.
    Tiers,
    /// Move of one day of M into archive files, their size, and queries on them.
    Archive,
    /// Five years of 100 timelines in random order.
    Backfill,
    /// One million timelines.
    Million,
    /// The command `tideline write` compared with a plain loader.
    Write,
    /// Search among one million timelines with attributes.
    Find,
    /// Remote write and PromQL queries.
    Prometheus,
    /// OTLP metrics.
    Otlp,
    /// Rows of wide tables.
    Rows,
    /// Ten million rows. Nine of ten are deleted by their keys.
    Deletes,
    /// Ten million rows with a search index.
    Search,
    /// Messages of feeds.
    Feeds,
    /// Change streams.
    Changes,
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
            "otlp" => Ok(Self::Otlp),
            "rows" => Ok(Self::Rows),
            "deletes" => Ok(Self::Deletes),
            "search" => Ok(Self::Search),
            "feeds" => Ok(Self::Feeds),
            "changes" => Ok(Self::Changes),
            _ => Err(format!(
                "{text:?} is not one of the groups spine, tiers, archive, backfill, million, write, find, \
                 prometheus, otlp, rows, deletes, search, feeds and changes"
            )),
        }
    }
}
