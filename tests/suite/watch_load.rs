//! Benchmark, ignored by default: throughput of writers with a thousand open watches, compared with the
//! throughput without watches.
//!
//! `cargo test -p tideline-tests --test suite -- --ignored --nocapture watch_load` prints the throughputs.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tideline_runtime::background;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, Server, wait};

/// Number of open watches in a measurement.
const WATCHES: usize = 1_000;
/// Number of writers, each with a separate connection.
const WRITERS: usize = 4;
/// Number of points per request, each of a different machine.
const BATCH_POINTS: usize = 100;
/// Duration of each measurement.
const MEASURED: Duration = Duration::from_secs(6);
const PAIRS: usize = 3;

/// Kind of the open watches.
#[derive(Debug, Clone, Copy)]
enum Watched {
    /// Each watch selects one machine.
    OneMachineEach,
    /// Each watch selects all machines.
    Everything,
}

fn open(address: SocketAddr, watched: Watched, at: usize) -> TcpStream {
    let request = match watched {
        Watched::OneMachineEach => {
            format!(r#"{{"timelines": {{"where": {{"tag": "host", "equals": "host-{at}"}}}}}}"#)
        }
        Watched::Everything => "{}".to_owned(),
    };
    let mut stream = TcpStream::connect(address).expect("connects");
    let head = format!(
        "POST /v1/tables/default/watch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{request}",
        request.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.set_nonblocking(true).expect("set");
    stream
}

/// Returns the number of acknowledged points per second.
fn throughput(server: &Server) -> f64 {
    let (done, points) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (done, points, client) = (&done, &points, server.client());
            scope.spawn(move || {
                let mut time = 0;
                while !done.load(Ordering::Relaxed) {
                    time += 1;
                    let line = |at: usize| {
                        format!(
                            "cpu,host=host-{} usage={at}.5,writer={writer}i\n",
                            writer * 250 + at
                        )
                    };
                    let lines: String = (0..BATCH_POINTS).map(line).collect();
                    client
                        .post_lines(&format!("/write?n={time}"), &lines)
                        .expect_status(204);
                    points.fetch_add(BATCH_POINTS as u64, Ordering::Relaxed);
                }
            });
        }
        wait::pause(MEASURED);
        done.store(true, Ordering::Relaxed);
    });
    points.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// Returns the number of acknowledged points per second with open watches, and the number of bytes that the watches
/// received.
fn beside(server: &Server, watched: Watched) -> (f64, u64) {
    let address = server
        .address_within(Duration::from_secs(10))
        .expect("it listens");
    let mut streams: Vec<TcpStream> = (0..WATCHES).map(|at| open(address, watched, at)).collect();
    let (done, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (is_done, count) = (Arc::clone(&done), Arc::clone(&received));
    // Clients of watches usually run on other machines, so this thread must not take the cores of the
    // writers.
    let reader = thread::spawn(move || {
        background::enter();
        let mut bytes = vec![0; 1 << 16];
        while !is_done.load(Ordering::Relaxed) {
            for stream in &mut streams {
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            }
            wait::pause(Duration::from_millis(50));
        }
    });
    wait::pause(Duration::from_secs(2));
    let before = received.load(Ordering::Relaxed);
    let points = throughput(server);
    let bytes = received.load(Ordering::Relaxed) - before;
    done.store(true, Ordering::Relaxed);
    reader.join().expect("no panic");
    (points, bytes)
}

#[test]
#[ignore = "measures for a minute, on a quiet machine"]
fn writers_beside_a_thousand_watches() {
    for watched in [Watched::OneMachineEach, Watched::Everything] {
        let folder = DataFolder::new();
        let server = folder.start(&Launch::default());
        throughput(&server);
        let mut shares = Vec::new();
        for pair in 0..PAIRS {
            let alone = throughput(&server);
            let (with_watches, bytes) = beside(&server, watched);
            let share = with_watches / alone;
            println!(
                "{watched:?}, pair {pair}: {alone:.0} points/s alone, {with_watches:.0} with {WATCHES} watches \
                 ({:.0} %), which received {} MB",
                share * 100.0,
                bytes / 1_000_000
            );
            assert!(bytes > 0, "{watched:?}: the watches received nothing");
            shares.push(share);
            wait::pause(Duration::from_secs(2));
        }
        shares.sort_by(f64::total_cmp);
        println!("{watched:?}: median {:.0} %", shares[PAIRS / 2] * 100.0);
    }
}
