//! The same on a real S3 server, in this process.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tideline_archive::TargetOptions;
use tideline_model::ValueType;
use tideline_model::time::NANOS_PER_SECOND;

use crate::kit::{Known, Points, archive_with, flat, floats, read, write};

/// The secret that no answer may hold.
const SECRET: &str = "a-secret-access-key";

/// What goes wrong with the next request that it can go wrong with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// An object is stored, and the answer is lost.
    LostAnswer,
    /// "Slow down", before anything is done.
    Busy,
    /// A put is refused as a conflict, and nothing is stored.
    Conflict,
    /// The connection is closed instead of an answer to a read.
    Reset,
}

/// Faults that wait for their request.
type Faults = Arc<Mutex<VecDeque<Fault>>>;

/// A server over a directory, with one bucket; it lives as long as what is returned.
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
                async move {
                    let status = match fault {
                        Some(Fault::Busy) => 503,
                        Some(Fault::Conflict) => 409,
                        Some(Fault::Reset) => return Err(std::io::Error::other("reset")),
                        Some(Fault::LostAnswer) | None => {
                            let answer = Service::call(&service, request)
                                .await
                                .map_err(std::io::Error::other)?;
                            return match fault {
                                None => Ok(answer),
                                Some(_) => Err(std::io::Error::other("lost")),
                            };
                        }
                    };
                    let answer = Response::builder().status(status).body(s3s::Body::empty());
                    Ok(answer.expect("it is well-formed"))
                }
            });
            tokio::spawn(async move {
                let serving = Builder::new(TokioExecutor::new());
                drop(serving.serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    });
    (runtime, address)
}

fn next_fault(faults: &Faults, method: &Method) -> Option<Fault> {
    let mut faults = faults.lock().expect("nobody panics with it");
    let fits = |fault: &&Fault| match fault {
        Fault::LostAnswer | Fault::Conflict => *method == Method::PUT,
        Fault::Reset => *method == Method::GET,
        Fault::Busy => true,
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
    assert_eq!(archive.verify(&copy).expect("asked"), Vec::<String>::new());
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

/// Where nobody listens an error comes soon, and says that it may be tried again.
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
        .expect_err("nobody listens");
    assert!(error.is_retryable(), "{error}");
}

/// Whatever becomes of the answers: what is written is there once, and reads back.
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
    ]
    .into_iter()
    .enumerate()
    {
        let run = floats(number as i64, NANOS_PER_SECOND, 100, 1, |row| {
            (row + number) as f64
        });
        let points = Points::from([(id, vec![run])]);
        faults.lock().expect("nobody panics with it").extend(planned);
        let (copy, extents) = write(&archive, "s3", &known, &points);
        let back = read(&archive, &copy, &extents, &known, 0);
        assert_eq!(flat(&points[&id]), flat(&back[&id]));
        assert!(
            faults.lock().expect("nobody panics with it").is_empty(),
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
    // An object of the same name with other content is never taken for ours.
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
    let place = crate::kit::place("s3");
    let mut writer = archive.writer(place, &known, &known).expect("it begins");
    writer
        .add(id, &points[&id][0], crate::kit::sequences())
        .expect("added");
    let error = writer.finish().expect_err("the name is taken").to_string();
    assert!(error.contains("other content"), "{error}");
}
