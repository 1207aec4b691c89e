//! Databases and buckets of InfluxDB clients.
//!
//! A name of an existing table writes there, and `CREATE DATABASE` creates one. Any other name writes to the default table, where
//! every timeline gets the tag `db` with that name, so that two databases do not mix and nothing has to be created first. A line that
//! bears a tag `db` of its own (some Telegraf inputs do) keeps it: its meaning is the user's.

use tideline_engine::catalog::NameSelection;
use tideline_engine::model::{Ordinal, RejectReason, SeriesError, SeriesResolver};
use tideline_engine::{Engine, Table};
use tideline_ingest_protocols::series_key;

/// The tag that holds the name.
const TAG: &str = "db";

/// Whether points of the default table bear the tag of a database.
pub fn is_tag(engine: &Engine, default: &Table, database: &str) -> bool {
    // Names come in order, and the shortest one with a prefix is the prefix.
    let first = NameSelection {
        prefix: database,
        after: None,
        limit: 1,
    };
    let names = engine.tag_values(default, TAG, &first);
    names.iter().any(|found| found.name == database)
}

/// `,db=<name>`, escaped, ready to be appended to a raw series key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseTag(Vec<u8>);

impl DatabaseTag {
    /// The tag of a database; a name that no tag can hold is refused.
    pub(crate) fn new(database: &str) -> Result<Self, SeriesError> {
        let mut key = Vec::new();
        series_key::write("m", [(TAG, database)], &mut key)?;
        Ok(Self(key.split_off(1)))
    }

    /// The tag as it is appended.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the tag to every series key that has none.
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

/// Whether a raw key has a tag `db`: a comma that no backslash takes the meaning of, then `db=`.
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
