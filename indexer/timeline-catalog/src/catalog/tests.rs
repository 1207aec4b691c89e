//! Tests of registration, admission, visibility, names and removal.
//!
//! They run without a backend and call [`Catalog::mark_durable`] and [`Catalog::remove`] directly, as the write path
//! does.

use super::*;
use crate::names::NameSelection;
use crate::raw_keys::LastKey;

const ALL: NameSelection<'_> = NameSelection {
    prefix: "",
    after: None,
    limit: usize::MAX,
};

fn catalog() -> Catalog {
    let options = CatalogOptions {
        source_tags: vec!["host".to_owned(), "instance".to_owned()],
        raw_key_budget: Arc::new(RawKeyBudget::new(1 << 20)),
        unflushed: Arc::default(),
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
    super::encoded(identity).expect("short")
}

#[test]
fn a_timeline_is_registered_once_and_visible_when_durable() {
    let catalog = catalog();
    let cpu = identity("cpu", &[("host", "a"), ("dc", "x")]);
    let first = catalog.register(&cpu, Some(b"cpu,host=a,dc=x")).expect("room");
    assert_eq!((first.ordinal, first.new), (Ordinal(0), true));
    let again = catalog.register(&cpu, Some(b"cpu,dc=x,host=a")).expect("known");
    assert_eq!(again, Registered { new: false, ..first });
    let reader = catalog.reader();
    assert_eq!(
        reader.by_key(b"cpu,host=a,dc=x", &mut LastKey::default()),
        Some(Ordinal(0))
    );
    assert_eq!(
        reader.by_key(b"cpu,dc=x,host=a", &mut LastKey::default()),
        Some(Ordinal(0))
    );
    assert_eq!(reader.by_key(b"cpu,dc=x", &mut LastKey::default()), None);
    assert_eq!(reader.id(Ordinal(0)), first.id);
    assert!(reader.needs_identity(Ordinal(0)));
    assert!(reader.entry(Ordinal(0)).is_none());
    assert_eq!(reader.by_id(first.id), None);
    assert_eq!(reader.tag_keys(&ALL), []);
    let mut bytes = Vec::new();
    reader.encode_identity(Ordinal(0), &mut bytes);
    assert_eq!(bytes, encoded(&cpu));
    drop(reader);

    catalog.mark_durable(&[Ordinal(0), Ordinal(0)]);
    let reader = catalog.reader();
    assert!(!reader.needs_identity(Ordinal(0)));
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
    catalog.mark_durable(&ordinals);
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
        Ordinal(0),
        "an ordinal that names nothing is given out"
    );
    let reader = catalog.reader();
    assert!((1..5).all(|hole| reader.entry(Ordinal(hole)).is_none()));
}

#[test]
fn the_first_timeline_fixes_the_source_tags() {
    let catalog = catalog();
    catalog
        .set_source_tags(vec!["rack".to_owned()])
        .expect("still empty");
    let cpu = identity("cpu", &[("host", "a"), ("rack", "r")]);
    let registered = catalog.register(&cpu, None).expect("room");
    catalog.mark_durable(&[registered.ordinal]);
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

fn id_of(catalog: &Catalog, ordinal: Ordinal) -> TimelineId {
    catalog.reader().id(ordinal)
}

#[test]
fn a_removed_timeline_is_gone_from_everything_and_comes_back_as_itself() {
    let catalog = catalog();
    let (a, b) = (
        identity("cpu", &[("host", "a"), ("dc", "x")]),
        identity("cpu", &[("host", "b"), ("dc", "x")]),
    );
    let ordinals = [&a, &b].map(|identity| {
        let registered = catalog.register(identity, Some(identity.tags()[1].1.as_bytes()));
        registered.expect("room").ordinal
    });
    catalog.mark_durable(&ordinals);
    let id = id_of(&catalog, ordinals[0]);
    catalog.remove(&[TimelineId::MIN, id, id]);
    let listed = |names: Vec<crate::CountedName>| -> Vec<(String, u32)> {
        names
            .into_iter()
            .map(|counted| (counted.name, counted.timelines))
            .collect()
    };
    {
        let reader = catalog.reader();
        assert_eq!(reader.visible().iter().collect::<Vec<_>>(), [ordinals[1].0]);
        assert!(reader.entry(ordinals[0]).is_none());
        assert_eq!(reader.by_id(id), None);
        assert_eq!(listed(reader.measurements(&ALL)), [("cpu".to_owned(), 1)]);
        assert_eq!(listed(reader.tag_values("host", &ALL)), [("b".to_owned(), 1)]);
        assert_eq!(listed(reader.tag_values("dc", &ALL)), [("x".to_owned(), 1)]);
        assert!(reader.needs_identity(ordinals[0]));
        assert_eq!(reader.tag(ordinals[0], "host"), Some("a"), "its identity stays");
        assert_eq!(
            reader.by_key(b"a", &mut LastKey::default()),
            Some(ordinals[0]),
            "cached keys stay right"
        );
        assert_eq!(reader.known_id(ordinals[0]), Some(id));
    }
    assert_eq!(catalog.len(), 1);
    let again = catalog.register(&a, None).expect("known");
    assert_eq!(
        again,
        Registered {
            ordinal: ordinals[0],
            id,
            new: false
        }
    );
    catalog.mark_durable(&ordinals);
    assert_eq!(
        (catalog.len(), catalog.reader().by_id(id)),
        (2, Some(ordinals[0]))
    );
    catalog.remove(&[id, id_of(&catalog, ordinals[1])]);
    let reader = catalog.reader();
    assert_eq!(listed(reader.tag_keys(&ALL)), []);
    assert_eq!(listed(reader.measurements(&ALL)), []);
}

#[test]
fn a_timeline_is_admitted_by_the_tags_that_are_new_with_it() {
    let catalog = catalog();
    let known = identity("cpu", &[("host", "a"), ("pod", "1")]);
    let registered = catalog.register(&known, None).expect("room");
    catalog.mark_durable(&[registered.ordinal]);
    let mut requested: Vec<Vec<(String, String)>> = Vec::new();
    let mut offer = |identity: &Identity, answer: bool| {
        let admit = |novel: &[(&str, &str)]| {
            let owned = novel
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            requested.push(owned.collect());
            answer
        };
        catalog
            .register_admitted(identity, Some(identity.tags()[1].1.as_bytes()), admit)
            .expect("room")
    };
    assert_eq!(offer(&known, false).map(|known| known.new), Some(false));
    let other = identity("cpu", &[("host", "a"), ("pod", "2")]);
    assert_eq!(offer(&other, false), None);
    let taken = offer(&other, true).expect("admitted");
    assert!(taken.new);
    assert_eq!(offer(&other, false).map(|known| known.new), Some(false));
    let pod = vec![("pod".to_owned(), "2".to_owned())];
    assert_eq!(requested, [pod.clone(), pod], "no admission for known timelines");
    assert_eq!(
        catalog.reader().by_key(b"2", &mut LastKey::default()),
        Some(taken.ordinal)
    );
}
