//! Mapping of the databases and buckets of InfluxDB clients to tables and tags.
//!
//! If a table has the name of the database, points are written to that table; `CREATE DATABASE` creates such a table.
//! Otherwise points are written to the default table, and each timeline gets the tag `db` with the database name. Two
//! databases therefore do not mix, and no table has to be created first. A line that already has a tag `db` (some
//! Telegraf inputs set it) keeps that tag unchanged.

use tideline_engine::catalog::NameSelection;
use tideline_engine::model::{Ordinal, RejectReason, SeriesError, SeriesResolver};
use tideline_engine::{Engine, Table};
use tideline_ingest_protocols::series_key;

/// Name of the tag that holds the database name.
const TAG: &str = "db";

/// Returns true if the default table has a timeline whose tag `db` is `database`.
pub fn is_tag(engine: &Engine, default: &Table, database: &str) -> bool {
    // Names are sorted, so the first name with the prefix `database` is `database` itself if that name exists.
    let first = NameSelection {
        prefix: database,
        after: None,
        limit: 1,
    };
    let names = engine.tag_values(default, TAG, &first);
    names.iter().any(|found| found.name == database)
}

/// Tag `,db=<name>` in escaped form, ready to be appended to a raw series key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseTag(Vec<u8>);

impl DatabaseTag {
    /// Creates the tag of a database; fails if the name cannot be a tag value.
    pub(crate) fn new(database: &str) -> Result<Self, SeriesError> {
        let mut key = Vec::new();
        series_key::write("m", [(TAG, database)], &mut key)?;
        Ok(Self(key.split_off(1)))
    }

    /// Returns the bytes to append to a series key.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Resolver that appends the tag to every series key without a tag `db`.
#[derive(Debug)]
pub(crate) struct TaggingResolver<'t, R> {
    tag: &'t DatabaseTag,
    inner: R,
    key: Vec<u8>,
}

impl<'t, R> TaggingResolver<'t, R> {
    pub(crate) fn new(tag: &'t DatabaseTag, inner: R) -> Self {
        Self {
            tag,
            inner,
            key: Vec::new(),
        }
    }
}

impl<R: SeriesResolver> SeriesResolver for TaggingResolver<'_, R> {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        if has_tag(key) {
            return self.inner.resolve(key);
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.key.extend_from_slice(&self.tag.0);
        self.inner.resolve(&self.key)
    }
}

/// Returns true if a raw key has a tag `db`: an unescaped comma followed by `db=`.
fn has_tag(key: &[u8]) -> bool {
    let mut at = memchr::memmem::find_iter(key, b",db=");
    at.any(|at| at == 0 || key[at - 1] != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<String>);

    impl SeriesResolver for &mut Seen {
        fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
            self.0.push(String::from_utf8_lossy(key).into_owned());
            Ok(Ordinal(0))
        }
    }

    #[test]
    fn every_timeline_gets_the_tag_unless_it_has_one() {
        let tag = DatabaseTag::new("my db,1").expect("can be a tag");
        let mut seen = Seen::default();
        let mut resolver = TaggingResolver::new(&tag, &mut seen);
        for key in [
            "cpu,host=a",
            "cpu",
            "pg,db=shop,host=a",
            r"cpu,host=a\,db\=b",
            r"cpu\,db=1",
        ] {
            resolver.resolve(key.as_bytes()).expect("resolves");
        }
        assert_eq!(
            seen.0,
            [
                r"cpu,host=a,db=my\ db\,1",
                r"cpu,db=my\ db\,1",
                "pg,db=shop,host=a",
                r"cpu,host=a\,db\=b,db=my\ db\,1",
                r"cpu\,db=1,db=my\ db\,1",
            ]
        );
        assert!(DatabaseTag::new("line\nend").is_err() && DatabaseTag::new("back\\").is_err());
    }
}
