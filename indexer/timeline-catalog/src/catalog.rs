//! The catalog of one table: who gets which id and ordinal, and who is visible when.

use parking_lot::{Mutex, RwLock};
use tideline_key_codec::timeline_id;
use tideline_model::{Identity, Ordinal, TableId, TimelineId};

use crate::reader::CatalogReader;
use crate::state::{Stage, State};
use crate::{CatalogError, Result};

/// Longest stored form of an identity, in bytes. A term of the search index holds 65,530 bytes, and a tag of
/// its own length must fit there.
pub const IDENTITY_BYTES_MAX: usize = 60 << 10;

/// The timelines of one table. All methods may be called from many threads.
///
/// Memory goes by the number of timelines: about 110 bytes each with ten tags of which one differs on every
/// machine, beside the cache of raw keys.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) table: TableId,
    pub(crate) state: RwLock<State>,
    /// Held while rows are written, so that an older row never lands on a newer one. Taken before `state`.
    pub(crate) writing: Mutex<()>,
}

/// What a catalog is opened with.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// Tags that name the machine, first present wins.
    pub source_tags: Vec<String>,
    /// Budget of the cache of raw keys, in bytes: a key costs its length and about 20 bytes.
    pub raw_key_cache_bytes: usize,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The timeline's dense number.
    pub ordinal: Ordinal,
    /// Its id.
    pub id: TimelineId,
    /// Whether it was not known before.
    pub new: bool,
}

impl Catalog {
    /// An empty catalog. [`Catalog::load`] opens one that has rows.
    pub fn new(table: TableId, options: CatalogOptions) -> Self {
        let CatalogOptions {
            source_tags,
            raw_key_cache_bytes,
        } = options;
        Self {
            table,
            state: RwLock::new(State::new(source_tags, raw_key_cache_bytes)),
            writing: Mutex::new(()),
        }
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Takes the lock for a batch of look-ups; see [`CatalogReader`] for what to beware of.
    pub fn reader(&self) -> CatalogReader<'_> {
        CatalogReader {
            state: self.state.read(),
        }
    }

    /// Visible timelines.
    pub fn len(&self) -> u64 {
        self.state.read().visible.len()
    }

    /// Whether no timeline is visible.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resident bytes, estimated from the sizes of all parts.
    pub fn memory_bytes(&self) -> usize {
        self.state.read().memory_bytes()
    }

    /// Replaces the source tags, which is possible until the first timeline is registered.
    pub fn set_source_tags(&self, source_tags: Vec<String>) -> Result<()> {
        let mut state = self.state.write();
        if state.next_ordinal() != Ordinal(0) && state.source_tags != source_tags {
            return Err(CatalogError::SourceTagsFixed);
        }
        state.source_tags = source_tags;
        Ok(())
    }

    /// Finds or adds a timeline, and remembers `raw_key` for [`CatalogReader::by_key`].
    ///
    /// 1. The id is derived from source, identity and salt 0.
    /// 2. Where a timeline with that id is another one (the hashes clash), the next salt is tried.
    /// 3. A free id is taken, with the next ordinal.
    ///
    /// A new timeline is invisible until it is [`announced`](Catalog::announced).
    pub fn register(&self, identity: &Identity, raw_key: Option<&[u8]>) -> Result<Registered> {
        let mut bytes = Vec::new();
        identity.encode(&mut bytes);
        if bytes.len() > IDENTITY_BYTES_MAX {
            return Err(CatalogError::OverLimit {
                what: "bytes of measurement and tags",
                limit: IDENTITY_BYTES_MAX,
                actual: bytes.len(),
            });
        }
        let mut state = self.state.write();
        let registered = state.find_or_insert(identity, &bytes)?;
        if let Some(raw_key) = raw_key {
            state.raw_keys.insert(raw_key, registered.ordinal);
        }
        Ok(registered)
    }

    /// Makes timelines visible: a delta that carries their identities has been committed. May be repeated.
    pub fn announced(&self, ordinals: &[Ordinal]) {
        let mut state = self.state.write();
        for ordinal in ordinals {
            state.announce(*ordinal);
        }
    }

    /// Takes a timeline from a committed delta of the journal, and makes it visible.
    ///
    /// The same id and ordinal may come any number of times, also after its row was loaded. Another ordinal for
    /// a known id, another id for a known ordinal, or another identity is a [`CatalogError::Conflict`].
    pub fn adopt(&self, id: TimelineId, ordinal: Ordinal, identity: &[u8]) -> Result<()> {
        let identity = Identity::decode(identity)?;
        let mut state = self.state.write();
        match state.ordinal_of(id) {
            Some(known) if known == ordinal && state.is_identity(known, &identity) => {}
            Some(_) => return Err(CatalogError::Conflict { id, ordinal }),
            None => state.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?,
        }
        state.announce(ordinal);
        Ok(())
    }

    /// Announced timelines whose row is not yet durable.
    pub fn unsaved(&self) -> usize {
        let state = self.state.read();
        let waiting = state.unsaved.iter();
        waiting
            .filter(|ordinal| state.stage(**ordinal) == Stage::Announced)
            .count()
    }
}

impl State {
    fn find_or_insert(&mut self, identity: &Identity, bytes: &[u8]) -> Result<Registered> {
        let source = identity.source(&self.source_tags);
        for salt in 0..=u32::MAX {
            let id = timeline_id(source, bytes, salt);
            match self.ordinal_of(id) {
                Some(ordinal) if self.is_identity(ordinal, identity) => {
                    let new = false;
                    return Ok(Registered { ordinal, id, new });
                }
                Some(_) => {}
                None => {
                    let ordinal = self.next_ordinal();
                    self.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?;
                    let new = true;
                    return Ok(Registered { ordinal, id, new });
                }
            }
        }
        Err(CatalogError::Full("ids for one hash"))
    }

    fn is_identity(&self, ordinal: Ordinal, identity: &Identity) -> bool {
        self.measurement(ordinal) == identity.measurement()
            && self.tags(ordinal).eq(borrowed(identity.tags()))
    }
}

fn borrowed(tags: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> + Clone {
    tags.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameSelection;

    const ALL: NameSelection<'_> = NameSelection {
        prefix: "",
        after: None,
        limit: usize::MAX,
    };

    fn catalog() -> Catalog {
        let options = CatalogOptions {
            source_tags: vec!["host".to_owned(), "instance".to_owned()],
            raw_key_cache_bytes: 1 << 20,
        };
        Catalog::new(TableId(3), options)
    }

    fn identity(measurement: &str, tags: &[(&str, &str)]) -> Identity {
        let tags = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Identity::new(measurement.to_owned(), tags.collect()).expect("valid")
    }

    fn encoded(identity: &Identity) -> Vec<u8> {
        let mut bytes = Vec::new();
        identity.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_timeline_is_registered_once_and_visible_when_announced() {
        let catalog = catalog();
        let cpu = identity("cpu", &[("host", "a"), ("dc", "x")]);
        let first = catalog.register(&cpu, Some(b"cpu,host=a,dc=x")).expect("room");
        assert_eq!((first.ordinal, first.new), (Ordinal(0), true));
        let again = catalog.register(&cpu, Some(b"cpu,dc=x,host=a")).expect("known");
        assert_eq!(again, Registered { new: false, ..first });
        let reader = catalog.reader();
        assert_eq!(reader.by_key(b"cpu,host=a,dc=x"), Some(Ordinal(0)));
        assert_eq!(reader.by_key(b"cpu,dc=x,host=a"), Some(Ordinal(0)));
        assert_eq!(reader.by_key(b"cpu,dc=x"), None);
        assert_eq!(reader.id(Ordinal(0)), first.id);
        assert!(reader.needs_announcement(Ordinal(0)));
        assert!(reader.entry(Ordinal(0)).is_none());
        assert_eq!(reader.by_id(first.id), None);
        assert_eq!(reader.tag_keys(&ALL), []);
        let mut bytes = Vec::new();
        reader.encode_identity(Ordinal(0), &mut bytes);
        assert_eq!(bytes, encoded(&cpu));
        drop(reader);

        catalog.announced(&[Ordinal(0), Ordinal(0)]);
        let reader = catalog.reader();
        assert!(!reader.needs_announcement(Ordinal(0)));
        assert_eq!(reader.by_id(first.id), Some(Ordinal(0)));
        let entry = reader.entry(Ordinal(0)).expect("visible");
        assert_eq!((entry.measurement(), entry.source()), ("cpu", Some("a")));
        assert_eq!(entry.tags().collect::<Vec<_>>(), [("dc", "x"), ("host", "a")]);
        assert_eq!((entry.tag("dc"), entry.tag("rack")), (Some("x"), None));
        drop(reader);
        assert_eq!((catalog.len(), catalog.unsaved()), (1, 1));
    }

    #[test]
    fn names_are_counted_and_listed_in_order() {
        let catalog = catalog();
        let mut ordinals = Vec::new();
        for n in 0..100 {
            let host = format!("h{n:03}");
            let tags = [
                ("host", host.as_str()),
                ("dc", if n % 4 == 0 { "x" } else { "y" }),
            ];
            let identity = identity(if n < 10 { "cpu" } else { "mem" }, &tags);
            ordinals.push(catalog.register(&identity, None).expect("room").ordinal);
        }
        catalog.announced(&ordinals);
        let reader = catalog.reader();
        let listed = |names: Vec<crate::CountedName>| -> Vec<(String, u32)> {
            names
                .into_iter()
                .map(|counted| (counted.name, counted.timelines))
                .collect()
        };
        let pairs = |pairs: &[(&str, u32)]| -> Vec<(String, u32)> {
            pairs
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        assert_eq!(
            listed(reader.measurements(&ALL)),
            pairs(&[("cpu", 10), ("mem", 90)])
        );
        assert_eq!(
            listed(reader.tag_keys(&ALL)),
            pairs(&[("dc", 100), ("host", 100)])
        );
        assert_eq!(
            listed(reader.tag_values("dc", &ALL)),
            pairs(&[("x", 25), ("y", 75)])
        );
        assert_eq!(reader.tag_values("rack", &ALL), []);
        assert_eq!(reader.tag_values("cpu", &ALL), [], "a measurement is no tag key");
        let page = NameSelection {
            prefix: "h09",
            after: Some("h091"),
            limit: 2,
        };
        assert_eq!(
            listed(reader.tag_values("host", &page)),
            pairs(&[("h092", 1), ("h093", 1)])
        );
    }

    #[test]
    fn clashing_hashes_get_different_ids() {
        let catalog = catalog();
        let cpu = identity("cpu", &[("host", "a")]);
        let id = timeline_id(Some("a"), &encoded(&cpu), 0);
        let occupant = [("host", "other")];
        catalog
            .state
            .write()
            .insert(id, Ordinal(0), "mem", occupant.into_iter())
            .expect("free");
        let registered = catalog.register(&cpu, None).expect("room");
        assert_eq!(registered.id, timeline_id(Some("a"), &encoded(&cpu), 1));
        assert_eq!(catalog.register(&cpu, None).expect("known").ordinal, Ordinal(1));
    }

    #[test]
    fn the_journal_may_repeat_itself_but_not_contradict() {
        let catalog = catalog();
        let (cpu, mem) = (
            identity("cpu", &[("host", "a")]),
            identity("mem", &[("host", "a")]),
        );
        let id = |identity: &Identity| timeline_id(Some("a"), &encoded(identity), 0);
        for _ in 0..2 {
            catalog
                .adopt(id(&cpu), Ordinal(5), &encoded(&cpu))
                .expect("new, then known");
        }
        assert_eq!((catalog.len(), catalog.unsaved()), (1, 1));
        let conflict = |id, ordinal, identity: &Identity| {
            let adopted = catalog.adopt(id, ordinal, &encoded(identity));
            assert!(
                matches!(adopted, Err(CatalogError::Conflict { .. })),
                "{adopted:?}"
            );
        };
        conflict(id(&cpu), Ordinal(6), &cpu);
        conflict(id(&mem), Ordinal(5), &mem);
        conflict(id(&cpu), Ordinal(5), &mem);
        assert!(catalog.adopt(id(&mem), Ordinal(6), b"damaged").is_err());
        let next = catalog.register(&mem, None).expect("room");
        assert_eq!(
            next.ordinal,
            Ordinal(6),
            "ordinals below a known one are never given out"
        );
        let reader = catalog.reader();
        assert!((0..5).all(|hole| reader.entry(Ordinal(hole)).is_none()));
    }

    #[test]
    fn the_first_timeline_fixes_the_source_tags() {
        let catalog = catalog();
        catalog
            .set_source_tags(vec!["rack".to_owned()])
            .expect("still empty");
        let cpu = identity("cpu", &[("host", "a"), ("rack", "r")]);
        let registered = catalog.register(&cpu, None).expect("room");
        catalog.announced(&[registered.ordinal]);
        assert_eq!(
            catalog
                .reader()
                .entry(registered.ordinal)
                .and_then(|entry| entry.source()),
            Some("r")
        );
        catalog
            .set_source_tags(vec!["rack".to_owned()])
            .expect("no change");
        let refused = catalog.set_source_tags(vec!["host".to_owned()]);
        assert!(matches!(refused, Err(CatalogError::SourceTagsFixed)));
    }

    #[test]
    fn an_identity_over_the_limit_is_refused() {
        let long = "x".repeat(IDENTITY_BYTES_MAX);
        let refused = catalog().register(&identity("cpu", &[("host", &long)]), None);
        assert!(matches!(
            refused,
            Err(CatalogError::OverLimit {
                limit: IDENTITY_BYTES_MAX,
                ..
            })
        ));
    }
}
