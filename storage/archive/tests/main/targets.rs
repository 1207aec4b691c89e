//! Tests of targets: addresses, option files, checks, access control, size limits, and removal of orphans.
//!
//! Messages must not contain credentials.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hashbrown::HashMap;
use tideline_archive::{Archive, ArchiveError, ArchiveSettings, CheckStep, DEFAULT_TARGET, TargetOptions};
use tideline_model::ValueType;
use tideline_model::time::NANOS_PER_SECOND;

use crate::kit::{Known, Points, archive, archive_with, floats, in_directory, segment_target, write};

#[test]
fn a_good_target_passes_every_check_and_keeps_nothing_of_it() {
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    for address in [in_directory(directory.path()), "memory:///".to_owned()] {
        let target = archive.target(&address).expect("known");
        let check = target.check("a token");
        assert!(check.is_good(), "{check:?}");
        assert_eq!(check.steps.len(), 6);
        assert_eq!(target.list("").expect("listed"), []);
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    let directory = tempfile::tempdir().expect("made");
    let closed = directory.path().join("closed");
    std::fs::write(&closed, "a file, not a directory").expect("written");
    let archive = archive(directory.path());
    let target = archive
        .target(&format!("file://{}/inside", closed.display()))
        .expect("known");
    let check = target.check("a token");
    assert!(!check.is_good());
    let (step, failure) = check.steps.last().expect("something was tried");
    assert_eq!(*step, CheckStep::Create);
    let failure = failure.as_deref().unwrap_or_default();
    assert!(failure.contains("closed"), "{failure}");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).expect("set");
}

#[test]
fn what_names_no_target_is_refused_with_what_would() {
    let directory = tempfile::tempdir().expect("made");
    let options = TargetOptions([("nonsense".to_owned(), "secret-value".to_owned())].into());
    let named = ("s3://bucket/place".to_owned(), options);
    let archive = archive_with(directory.path(), HashMap::from([("named".to_owned(), named)]));
    for (address, part) in [
        ("here", "s3://bucket/prefix"),
        ("ftp://host/x", "ftp://host/x"),
        ("https://example.org/x", "not known"),
        ("s3://user:word@bucket/x", "credentials"),
        ("s3://AKIAEXAMPLE@bucket/x", "credentials"),
        ("s3://bucket/x#secret", "credentials"),
        ("s3://bucket/x?secret=1", "credentials"),
        ("named", "nonsense"),
    ] {
        let error = archive.target(address).expect_err("it is refused").to_string();
        assert!(error.contains(part), "{address}: {error}");
        assert!(
            !error.contains("secret-value") && !error.contains(":word") && !error.contains("AKIA"),
            "{error}"
        );
    }
    let shown = format!(
        "{:?}",
        TargetOptions([("key".to_owned(), "secret-value".to_owned())].into())
    );
    assert!(!shown.contains("secret-value"));
}

#[test]
fn options_are_read_from_a_file_and_their_values_are_not_repeated() {
    let directory = tempfile::tempdir().expect("made");
    let file = directory.path().join("credentials");
    std::fs::write(
        &file,
        "# mine\naccess_key_id = one\n\nSECRET_ACCESS_KEY = \"two\"\n",
    )
    .expect("written");
    let options = TargetOptions::read(&file).expect("it reads");
    assert_eq!(options.0["secret_access_key"], "two");
    assert_eq!(options.0.len(), 2);
    std::fs::write(&file, "access_key_id: hidden").expect("written");
    let error = TargetOptions::read(&file).expect_err("another form").to_string();
    assert!(error.contains("line 1") && !error.contains("hidden"), "{error}");
}

#[test]
fn a_directory_that_is_missing_is_unreachable_and_loses_nothing() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let points = Points::from([(id, vec![floats(0, NANOS_PER_SECOND, 10, 1, |row| row as f64)])]);
    let folder = tempfile::tempdir().expect("made");
    let directory = folder.path().join("disk");
    let archive = archive(folder.path());
    let address = in_directory(&directory);
    let (copy, _) = write(&archive, &address, &known, &points);
    // The file system of the target is not mounted.
    let unmounted = folder.path().join("unmounted");
    std::fs::rename(&directory, &unmounted).expect("moved");
    let verified = archive.verify(&copy).expect("a known target");
    assert_eq!(verified.wrong, [""; 0]);
    assert!(verified.unread[0].contains("does not exist"), "{verified:?}");
    let key = copy.newest_first().next().expect("an object");
    let error = archive.described_keys(&address, [key]).map(|found| found.keys);
    assert!(error.as_ref().is_err_and(ArchiveError::is_retryable), "{error:?}");
    std::fs::rename(&unmounted, &directory).expect("moved back");
    let verified = archive.verify(&copy).expect("a known target");
    assert!(verified.is_sound(), "{verified:?}");
}

/// Checks that `remove_orphans` removes only objects of the given database that are not referenced and are old enough.
#[test]
fn orphans_are_swept_and_nothing_else() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let points = Points::from([(id, vec![floats(0, NANOS_PER_SECOND, 10, 1, |row| row as f64)])]);
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let address = in_directory(directory.path());
    let (copy, _) = write(&archive, &address, &known, &points);
    let is_named = |key: &str| copy.keys().any(|named| named == key);
    let unknown = |_: &str| false;
    let remove_orphans = |origin: &str, before: i64, is_named: &dyn Fn(&str) -> bool| {
        archive
            .remove_orphans(&address, "default", origin, before, is_named)
            .expect("removed")
    };
    assert_eq!(remove_orphans("feedc0de", i64::MAX, &is_named), 0);
    assert_eq!(remove_orphans("0therone", i64::MAX, &unknown), 0);
    assert_eq!(remove_orphans("feedc0de", 0, &unknown), 0);
    assert_eq!(
        archive
            .target(&address)
            .expect("known")
            .list("default/")
            .expect("listed")
            .len(),
        3
    );
    assert_eq!(remove_orphans("feedc0de", i64::MAX, &unknown), 3);
    assert_eq!(
        archive
            .target(&address)
            .expect("known")
            .list("default/")
            .expect("listed"),
        []
    );
}

/// Checks that files of a target inside a table folder of another target are not treated as files of that table.
#[test]
fn a_target_below_another_is_not_swept_with_it() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let points = Points::from([(id, vec![floats(0, NANOS_PER_SECOND, 9_000, 1, |row| row as f64)])]);
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let above = in_directory(directory.path());
    for below in ["default", "default/_shared", "default/_segments"] {
        let below = format!("{above}/{below}");
        let (copy, _) = write(&archive, &below, &known, &points);
        let removed = archive.remove_orphans(&above, "default", "feedc0de", i64::MAX, &|_| false);
        assert_eq!(removed.expect("removed"), 0, "{below}");
        assert!(archive.verify(&copy).expect("known").is_sound(), "{below}");
        assert_eq!(archive.described(&above).expect("listed").len(), 0, "{below}");
        archive.remove(&copy).expect("removed");
    }
    let (_, _) = write(&archive, &above, &known, &points);
    std::fs::create_dir_all(directory.path().join("files/others/stuff")).expect("made");
    assert_eq!(archive.tables(&above).expect("listed"), ["default"]);
}

/// Opens an archive with a configured directory and further allowed addresses.
fn allowing(directory: &Path, allowed: &[&str]) -> Archive {
    let base = "file:///srv/archive%20of/mine/".to_owned();
    let allowed = allowed.iter().map(|prefix| prefix.parse().expect("a prefix"));
    let settings = ArchiveSettings {
        targets: HashMap::from([(DEFAULT_TARGET.to_owned(), (base, TargetOptions::default()))]),
        allowed: Some(allowed.collect()),
        ..ArchiveSettings::new(directory.join("scratch"))
    };
    Archive::open(settings).expect("opens")
}

#[test]
fn requests_name_only_targets_that_the_operator_allows() {
    let directory = tempfile::tempdir().expect("made");
    let archive = allowing(
        directory.path(),
        &[
            "s3://bucket/metrics",
            "gs://other",
            "abfss://box@account.example/x",
        ],
    );
    for address in [
        "default",
        "file:///srv/archive%20of/mine",
        "file:///srv/archive of/mine/deeper/still",
        "FILE:///srv/archive%20of/mine/deeper",
        "file:///srv/archive of/mine/deeper/../other",
        "s3://bucket/metrics",
        "s3://bucket/metrics/a/b/",
        "S3://bucket/metrics/a",
        "gs://other/anything",
    ] {
        archive
            .check_allowed(address)
            .unwrap_or_else(|error| panic!("{address}: {error}"));
    }
    for address in [
        "file:///etc",
        "FILE:///etc",
        " file:///etc",
        "\tfile:///etc",
        "file:/etc",
        "file:etc",
        "file:///srv/archive%20of/mine/../../../etc",
        "file:///srv/archive%20of/mine/%2e%2e/other",
        "file:///srv/archive%20of/mine/.%2E/other",
        "file:///srv/archive%20of/mine\\..\\..\\etc",
        "file:///srv/archive%20of/mineelse",
        "file:///srv/archive%20of",
        "memory:///",
        "Memory:///x",
        "s3://bucket",
        "s3://bucket/metricselse",
        "s3://bucket/metrics/../secrets",
        "s3://bucket/metrics/%2e%2e/secrets",
        "s3://bucket2/metrics",
        "s3a://bucket/metrics",
        "https://bucket.s3.eu-west-1.amazonaws.com/metrics",
        "gs://bucket/metrics",
        "abfss://jar@account.example/x",
        "abfss://box@account.evil/x",
    ] {
        let error = archive.allow(address).expect_err(address);
        let text = error.to_string();
        assert!(
            matches!(error, ArchiveError::NotAllowed { .. }) && text.contains("archive.allowed_targets"),
            "{address}: {text}"
        );
    }
    for address in [
        "file:///srv/archive%20of/mine/x%2F..%2F..%2F..%2Fetc",
        "file:///srv/archive%20of/mine/x%5C..",
        "s3://bucket/metrics%2F..%2Fsecrets",
        "s3://bucket@evil/metrics",
        "s3://user:word@bucket/metrics",
        "s3://bucket/metrics?x=1",
        "s3:///metrics",
        "ftp://bucket/metrics",
        "bucket/metrics",
    ] {
        let error = archive.allow(address).expect_err(address);
        assert!(
            matches!(error, ArchiveError::BadTarget { .. }),
            "{address}: {error}"
        );
    }
    assert_eq!(archive.open_targets(), 0, "nothing that is refused is opened");
}

#[test]
fn nothing_is_written_to_a_target_that_is_not_allowed_any_more() {
    let directory = tempfile::tempdir().expect("made");
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let points = Points::from([(id, vec![floats(0, NANOS_PER_SECOND, 10, 1, |row| row as f64)])]);
    let address = in_directory(directory.path());
    let (copy, _) = write(&archive(directory.path()), &address, &known, &points);
    let strict = allowing(directory.path(), &[]);
    assert!(
        strict.verify(&copy).expect("known").is_sound(),
        "its files are still read"
    );
    let refused = strict
        .writer(segment_target(&address), &known, &known)
        .map(drop)
        .expect_err("refused");
    assert!(matches!(refused, ArchiveError::NotAllowed { .. }), "{refused}");
}

#[test]
fn targets_that_requests_name_are_forgotten_again() {
    let directory = tempfile::tempdir().expect("made");
    let archive = allowing(directory.path(), &["s3://bucket/metrics"]);
    archive.allow("default").expect("configured");
    for n in 0..200 {
        archive
            .allow(&format!("s3://bucket/metrics/{n}"))
            .expect("allowed");
    }
    assert_eq!(archive.open_targets(), 33, "32 and the configured one");
}

#[test]
fn a_description_that_is_too_large_is_not_read() {
    let directory = tempfile::tempdir().expect("made");
    let folder = directory.path().join("files/default/_segments");
    std::fs::create_dir_all(&folder).expect("made");
    let address = in_directory(directory.path());
    let name = format!("00aa-7-{}.json", "0".repeat(32));
    let file = std::fs::File::create(folder.join(&name)).expect("made");
    file.set_len(200 << 20).expect("a sparse file");
    let archive = archive(directory.path());
    let error = archive
        .description(&address, &format!("default/_segments/{name}"))
        .map(drop)
        .expect_err("too large");
    assert!(error.to_string().contains("209715200 bytes"), "{error}");
    // Objects with other names are not read at all.
    let odd = "default/_segments/00aa-7-short.json";
    let error = archive
        .description(&address, odd)
        .map(drop)
        .expect_err("its name");
    assert!(error.to_string().contains("its name"), "{error}");
    let got = archive.target(&address).expect("known").traffic().bytes_got;
    assert_eq!(got, 0, "nothing was read");
}

/// Checks that an unused archive creates no folders.
#[test]
fn an_archive_that_is_not_used_leaves_no_trace() {
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    archive.target("file:///nowhere").expect("known");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
}
