//! Tests with an S3 server in this process.
//!
//! The server injects faults, so that the tests cover lost, delayed, truncated and changed responses.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tideline_archive::{Archive, ArchiveCopy, ArchiveError, ArchiveSettings, Extent, TargetOptions};
use tideline_chunk::Run;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{TimelineId, ValueType};

use crate::kit::{Known, Points, archive_with, flat, floats, read, write};

/// Secret that no message may contain.
const SECRET: &str = "a-secret-access-key";

/// Fault of the next request with a matching method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// An object is stored, and the response is lost.
    LostAnswer,
    /// The server responds "slow down" (503) and does nothing.
    Busy,
    /// A put is refused as a conflict (409), and nothing is stored.
    Conflict,
    /// The server responds "too many requests" (429) and does nothing.
    TooMany,
    /// The connection is closed instead of a response to a read.
    Reset,
    /// The connection is closed in the middle of a response to a read.
    Truncated,
    /// A response to a read is shorter than requested, with a matching length header.
    Short,
    /// One byte of a response to a read is changed.
    Corrupt,
    /// The server never responds.
    Silence,
}

/// Pending faults in the order of injection.
type Faults = Arc<Mutex<VecDeque<Fault>>>;

/// Starts a server of one bucket in a directory. The server runs until the returned runtime is dropped.
fn server(directory: &Path) -> (tokio::runtime::Runtime, SocketAddr) {
    server_with(directory, &Faults::default())
}

fn server_with(directory: &Path, faults: &Faults) -> (tokio::runtime::Runtime, SocketAddr) {
    std::fs::create_dir_all(directory.join("bucket")).expect("made");
    let files = s3s_fs::FileSystem::new(directory).expect("a directory");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single("key", SECRET));
    let service = builder.build();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("there are threads");
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let address = listener.local_addr().expect("bound");
    let faults = Arc::clone(faults);
    runtime.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let (service, faults) = (service.clone(), Arc::clone(&faults));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (service, fault) = (service.clone(), next_fault(&faults, request.method()));
                async move { answered(&service, request, fault).await }
            });
            tokio::spawn(async move {
                let serving = Builder::new(TokioExecutor::new());
                drop(serving.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    });
    (runtime, address)
}

async fn answered(
    service: &S3Service,
    request: Request<Incoming>,
    fault: Option<Fault>,
) -> std::io::Result<Response<s3s::Body>> {
    let status = match fault {
        Some(Fault::Busy) => Some(503),
        Some(Fault::TooMany) => Some(429),
        Some(Fault::Conflict) => Some(409),
        Some(Fault::Reset) => return Err(std::io::Error::other("reset")),
        Some(Fault::Silence) => std::future::pending().await,
        _ => None,
    };
    if let Some(status) = status {
        let answer = Response::builder().status(status).body(s3s::Body::empty());
        return Ok(answer.expect("it is well-formed"));
    }
    let answer = Service::call(service, request)
        .await
        .map_err(std::io::Error::other)?;
    if fault == Some(Fault::LostAnswer) {
        return Err(std::io::Error::other("lost"));
    }
    let (Some(fault), true) = (fault, answer.status().is_success()) else {
        return Ok(answer);
    };
    let (mut head, mut body) = answer.into_parts();
    let whole = body
        .store_all_limited(1 << 30)
        .await
        .map_err(std::io::Error::other)?;
    let mut bytes = whole.to_vec();
    match fault {
        Fault::Corrupt => bytes[whole.len() / 2] ^= 1,
        Fault::Short => {
            bytes.truncate(whole.len() / 2);
            head.headers.insert(CONTENT_LENGTH, bytes.len().into());
        }
        // Keeps the length header, so that the response is incomplete.
        _ => bytes.truncate(whole.len() / 2),
    }
    Ok(Response::from_parts(head, s3s::Body::from(bytes)))
}

fn next_fault(faults: &Faults, method: &Method) -> Option<Fault> {
    let mut faults = faults.lock().expect("it was never poisoned");
    let fits = |fault: &&Fault| match fault {
        Fault::LostAnswer | Fault::Conflict => *method == Method::PUT,
        Fault::Reset | Fault::Truncated | Fault::Short | Fault::Corrupt => *method == Method::GET,
        Fault::Busy | Fault::TooMany | Fault::Silence => true,
    };
    faults.front().filter(fits)?;
    faults.pop_front()
}

fn options(address: SocketAddr, secret: &str) -> TargetOptions {
    let pairs = [
        ("endpoint", format!("http://{address}")),
        ("region", "us-east-1".into()),
        ("access_key_id", "key".into()),
        ("secret_access_key", secret.into()),
    ];
    TargetOptions(pairs.map(|(name, value)| (name.to_owned(), value)).into())
}

#[test]
fn an_s3_server_keeps_an_archive() {
    let directory = tempfile::tempdir().expect("made");
    let (_server, address) = server(&directory.path().join("server"));
    let target = |secret: &str| ("s3://bucket/below/here".to_owned(), options(address, secret));
    let targets = HashMap::from([
        ("good".to_owned(), target(SECRET)),
        ("bad".to_owned(), target("wrong")),
    ]);
    let archive = archive_with(directory.path(), targets);
    let check = archive.target("good").expect("known").check("a token");
    assert!(check.is_good(), "{check:#?}");
    let refused = archive.target("bad").expect("known").check("a token");
    assert!(!refused.is_good());
    let said = format!("{refused:?} {archive:?}");
    assert!(
        !said.contains(SECRET) && said.contains("SignatureDoesNotMatch"),
        "{said}"
    );

    let mut known = Known::default();
    let mut points = Points::new();
    for number in 0..400 {
        let measurement = if number % 50 == 0 { "ra re/ü" } else { "cpu" };
        known.field(measurement, 1, "value", ValueType::Float);
        let id = known.timeline(number, measurement, &[("host", &format!("h{number}"))]);
        points.insert(
            id,
            vec![floats(
                -500 * NANOS_PER_SECOND,
                NANOS_PER_SECOND,
                1_000,
                1,
                |row| (row as f64).cos(),
            )],
        );
    }
    let (copy, extents) = write(&archive, "good", &known, &points);
    for ahead in [0, 1 << 20] {
        let back = read(&archive, &copy, &extents, &known, ahead);
        for (id, runs) in &points {
            assert_eq!(flat(runs), flat(&back[id]));
        }
    }
    assert!(archive.verify(&copy).expect("known").is_sound());
    let listed = archive
        .target("good")
        .expect("known")
        .list("default/")
        .expect("listed");
    assert_eq!(listed.len(), copy.keys().count());
    archive.remove(&copy).expect("removed");
    assert_eq!(
        archive
            .target("good")
            .expect("known")
            .list("default/")
            .expect("listed"),
        []
    );
}

/// If no server listens, the error is retryable.
#[test]
fn a_server_that_is_down_is_an_error_to_try_again() {
    let directory = tempfile::tempdir().expect("made");
    let (server, address) = server(&directory.path().join("server"));
    server.shutdown_background();
    let mut options = options(address, SECRET);
    options.0.insert("connect_timeout".into(), "1s".into());
    let targets = HashMap::from([("down".to_owned(), ("s3://bucket/x".to_owned(), options))]);
    let archive = archive_with(directory.path(), targets);
    let error = archive
        .target("down")
        .expect("known")
        .list("")
        .expect_err("no server listens");
    assert!(error.is_retryable(), "{error}");
}

/// Under several sequences of faults, objects are stored once and read back correctly.
#[test]
fn faults_of_the_server_lose_and_double_nothing() {
    let directory = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let (_server, address) = server_with(&directory.path().join("server"), &faults);
    let targets = HashMap::from([(
        "s3".to_owned(),
        ("s3://bucket".to_owned(), options(address, SECRET)),
    )]);
    let archive = archive_with(directory.path(), targets);
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    for (number, planned) in [
        &[Fault::LostAnswer][..],
        &[Fault::Conflict],
        &[Fault::Busy, Fault::Busy, Fault::LostAnswer, Fault::Busy],
        &[Fault::Conflict, Fault::LostAnswer, Fault::Reset, Fault::Busy],
        &[Fault::Reset, Fault::Reset],
        &[Fault::TooMany, Fault::Busy, Fault::TooMany],
        &[Fault::LostAnswer, Fault::Truncated, Fault::Truncated],
    ]
    .into_iter()
    .enumerate()
    {
        let run = floats(number as i64, NANOS_PER_SECOND, 100, 1, |row| {
            (row + number) as f64
        });
        let points = Points::from([(id, vec![run])]);
        faults.lock().expect("it was never poisoned").extend(planned);
        let (copy, extents) = write(&archive, "s3", &known, &points);
        let back = read(&archive, &copy, &extents, &known, 0);
        assert_eq!(flat(&points[&id]), flat(&back[&id]));
        assert!(
            faults.lock().expect("it was never poisoned").is_empty(),
            "{planned:?}"
        );
        let listed = archive
            .target("s3")
            .expect("known")
            .list("default/")
            .expect("listed");
        assert_eq!(listed.len(), copy.keys().count());
        archive.remove(&copy).expect("removed");
    }
    // An object of the same name with other content is never accepted.
    let run = floats(99, NANOS_PER_SECOND, 100, 1, |row| row as f64);
    let points = Points::from([(id, vec![run])]);
    let (copy, _) = write(&archive, "s3", &known, &points);
    let key = copy.files[0].key.replace('=', "%3D");
    let stored = [
        directory.path().join("server/bucket").join(&copy.files[0].key),
        directory.path().join("server/bucket").join(key),
    ];
    let stored = stored
        .iter()
        .find(|path| path.exists())
        .expect("it is a file there");
    std::fs::write(stored, "something else").expect("written");
    let segment_target = crate::kit::segment_target("s3");
    let mut writer = archive.writer(segment_target, &known, &known).expect("it begins");
    writer
        .add(id, &points[&id][0], crate::kit::sequences())
        .expect("added");
    let error = writer
        .finish(&mut || true)
        .expect_err("the name is taken")
        .to_string();
    assert!(error.contains("other content"), "{error}");
}

/// One timeline at an S3 server with injected faults, and its files on disk.
struct Stored {
    archive: Archive,
    copy: Arc<ArchiveCopy>,
    extents: Vec<(TimelineId, Extent)>,
    known: Known,
    points: Points,
    faults: Faults,
    address: (String, TargetOptions),
    directory: tempfile::TempDir,
    _server: tokio::runtime::Runtime,
}

fn stored() -> Stored {
    let directory = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let (server, address) = server_with(&directory.path().join("server"), &faults);
    let address = ("s3://bucket".to_owned(), options(address, SECRET));
    // Without a page cache every read sends requests.
    let archive = Archive::open(ArchiveSettings {
        pages_bytes_max: 0,
        targets: HashMap::from([("s3".to_owned(), address.clone())]),
        ..ArchiveSettings::new(directory.path().join("temporary"))
    })
    .expect("it opens");
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    // A smaller file would be fetched as a whole with its footer.
    let run = floats(0, NANOS_PER_SECOND, 30_000, 1, |row| (row as f64).sin());
    let points = Points::from([(id, vec![run])]);
    let (copy, extents) = write(&archive, "s3", &known, &points);
    Stored {
        archive,
        copy,
        extents,
        known,
        points,
        faults,
        address,
        directory,
        _server: server,
    }
}

impl Stored {
    fn plan(&self, faults: &[Fault]) {
        self.faults.lock().expect("it was never poisoned").extend(faults);
    }

    /// Reads the timeline with a new reader.
    fn read(&self) -> tideline_archive::Result<Run> {
        let mut reader = self.archive.reader(&self.copy, None, 0)?;
        reader.read(&self.extents[0].1, &|name: &str| self.known.id_of(name))
    }
}

/// After a wrong response during a query, the request is repeated or the read fails. Wrong bytes are never used.
#[test]
fn what_comes_back_short_or_changed_is_never_taken_for_the_points() {
    let stored = stored();
    for faults in [
        &[Fault::Busy, Fault::TooMany, Fault::Busy][..],
        &[Fault::Reset, Fault::Truncated],
        &[Fault::Short, Fault::Short],
        &[Fault::Corrupt],
    ] {
        stored.plan(faults);
        let run = stored
            .read()
            .unwrap_or_else(|error| panic!("{faults:?}: {error}"));
        assert_eq!(flat(&[run]), flat(stored.points.values().next().expect("one")));
        assert_eq!(
            stored.faults.lock().expect("it was never poisoned").len(),
            0,
            "{faults:?}"
        );
    }
    // The footer, which has a checksum, is cached by the first archive, but not by a new archive.
    let elsewhere = tempfile::tempdir().expect("made");
    let fresh = archive_with(
        elsewhere.path(),
        HashMap::from([("s3".to_owned(), stored.address.clone())]),
    );
    stored.plan(&[Fault::Corrupt, Fault::Corrupt]);
    let mut reader = fresh.reader(&stored.copy, None, 0).expect("it opens");
    let error = reader
        .read(&stored.extents[0].1, &|name: &str| stored.known.id_of(name))
        .expect_err("a byte of the footer is changed");
    assert!(
        !error.is_retryable() && error.to_string().contains("footer"),
        "{error}"
    );
    // Rows also have checksums. A single wrong response counts as a transmission error.
    stored.plan(&[Fault::Corrupt]);
    assert!(stored.read().is_ok());
    stored.plan(&[Fault::Corrupt, Fault::Corrupt]);
    let error = stored.read().expect_err("a byte of a page is changed");
    assert!(
        !error.is_retryable() && error.to_string().contains("checksum of bytes"),
        "{error}"
    );
    // A fault that outlasts all attempts is not reported as damage.
    stored.plan(&[Fault::Busy; 12]);
    let error = stored.read().expect_err("it is busy for too long");
    assert!(
        error.is_retryable() && error.to_string().contains("s3://bucket"),
        "{error}"
    );
    stored.faults.lock().expect("it was never poisoned").clear();
    assert!(stored.read().is_ok());
}

/// A read from a target without responses fails after about ten seconds, and immediately if the archive is stopped.
#[test]
fn a_silent_target_blocks_no_request_for_long() {
    let stored = stored();
    stored.plan(&[Fault::Silence]);
    let begun = Instant::now();
    let error = stored.read().expect_err("nothing comes");
    assert!(error.is_retryable(), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("s3://bucket") && said.contains("no response within 10 s"),
        "{said}"
    );
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    stored.plan(&[Fault::Silence]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stored.archive.verify(&stored.copy));
        while !stored.faults.lock().expect("it was never poisoned").is_empty() {
            std::thread::yield_now();
        }
        stored.archive.stop();
        let verified = waiting.join().expect("it ends").expect("known");
        assert_eq!(
            (verified.wrong.len(), verified.unread.len()),
            (0, 3),
            "{verified:?}"
        );
    });
    assert!(matches!(stored.read(), Err(ArchiveError::Stopped)));
}

/// Unreadable objects are not reported as wrong, neither if the server is busy nor if it denies access.
#[test]
fn only_what_is_wrong_is_called_so() {
    let stored = stored();
    let lost = stored
        .directory
        .path()
        .join("server/bucket")
        .join(&stored.copy.files[0].key);
    std::fs::remove_file(lost).expect("it is there");
    stored.plan(&[Fault::Busy; 40]);
    let verified = stored.archive.verify(&stored.copy).expect("known");
    assert_eq!(
        (verified.wrong.len(), verified.unread.len()),
        (0, 3),
        "{verified:?}"
    );
    stored.faults.lock().expect("it was never poisoned").clear();
    let verified = stored.archive.verify(&stored.copy).expect("known");
    assert_eq!(
        (verified.wrong.len(), verified.unread.len()),
        (1, 0),
        "{verified:?}"
    );
    assert!(verified.wrong[0].contains(&stored.copy.files[0].key));
    let error = stored.read().expect_err("it is gone");
    assert!(error.is_missing(), "{error}");
    let (address, mut options) = stored.address.clone();
    options.0.insert("secret_access_key".into(), "wrong".into());
    let elsewhere = tempfile::tempdir().expect("made");
    let refused = archive_with(
        elsewhere.path(),
        HashMap::from([("s3".to_owned(), (address, options))]),
    );
    let verified = refused.verify(&stored.copy).expect("known");
    assert_eq!(
        (verified.wrong.len(), verified.unread.len()),
        (0, 3),
        "{verified:?}"
    );
}
