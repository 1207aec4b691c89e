//! Fair shares: while one client uses as many resources as it can, requests of other clients still succeed.
//!
//! Covers permits of queries and writes, watches, connections and bytes of request bodies.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tideline_http::HttpSettings;

use crate::client::{Response, Server};

const POINTS: &str = "/v1/tables/default/points";
const QUERY: &str = "/v1/tables/default/query";

/// Returns settings with a trusted proxy at the address of the tests, so that each request can set its client.
fn behind_a_proxy() -> HttpSettings {
    HttpSettings {
        trusted_proxies: vec!["127.0.0.1".parse().expect("a network")],
        ..HttpSettings::default()
    }
}

fn from(server: &Server, client: &str, method: &str, path: &str, body: &str) -> Response {
    let forwarded = format!("for={client}");
    let headers = [("forwarded", &*forwarded), ("content-type", "application/json")];
    server.send(method, path, &headers, body.as_bytes())
}

/// Opens a watch and reads the status of the response.
fn watch(server: &Server, header: &str) -> (u16, TcpStream) {
    use std::io::Read as _;
    let mut stream = server.connect();
    let head = format!("GET /v1/tables/default/watch HTTP/1.1\r\nhost: localhost\r\n{header}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).expect("an answer begins");
    let status = String::from_utf8_lossy(&begin[9..]).parse().expect("a status");
    (status, stream)
}

#[test]
fn a_client_with_all_query_turns_does_not_keep_others_out() {
    const THREADS: usize = 60;
    const HEAVY: &str = r#"{"aggregate": {"functions": ["mean", "min", "max"], "window": "1m"},
        "range": {"start": "2023-11-14T00:00:00Z", "end": "2023-11-16T00:00:00Z"}}"#;
    let server = Server::with(HttpSettings {
        queries_in_flight_max: 3,
        turn_timeout: Duration::from_secs(20),
        ..behind_a_proxy()
    });
    let mut lines = String::new();
    for at in 0..60_000 {
        writeln!(lines, "m,host=a v={at}.25 {}", 1_700_000_000 + at).expect("memory");
    }
    server
        .post(&format!("{POINTS}?precision=s"), "text/plain", lines)
        .expect(200);
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    from(&server, "192.0.2.1", "POST", QUERY, HEAVY).expect(200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // From here on, nearly all of these requests wait for a permit.
        while answered.load(Ordering::Relaxed) < THREADS {
            std::thread::yield_now();
        }
        let mut before: Vec<usize> = (0..9)
            .map(|_| {
                let before = answered.load(Ordering::Relaxed);
                from(&server, "192.0.2.2", "POST", QUERY, "{\"limit\":1}").expect(200);
                answered.load(Ordering::Relaxed) - before
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        before.sort_unstable();
        assert!(
            before[4] < THREADS / 3,
            "requests of the other client that ran first: {before:?}"
        );
    });
}

#[test]
fn the_last_fifth_of_watches_is_for_newcomers() {
    let server = Server::with(HttpSettings {
        watches_max: 10,
        turn_timeout: Duration::from_millis(50),
        ..behind_a_proxy()
    });
    let mut open = Vec::new();
    let statuses: Vec<u16> = (0..10)
        .map(|_| {
            let (status, stream) = watch(&server, "forwarded: for=192.0.2.1");
            open.push(stream);
            status
        })
        .collect();
    assert_eq!(statuses, [[200; 8].as_slice(), &[503; 2]].concat());
    let (status, newcomer) = watch(&server, "x-forwarded-for: 192.0.2.2");
    assert_eq!(status, 200, "another client is accepted");
    let metrics = server.get("/metrics").text();
    assert!(
        metrics.contains("tideline_share_refusals_total{resource=\"watches\"} 2"),
        "{metrics}"
    );
    drop((open, newcomer));
}

#[test]
fn a_client_names_itself_only_through_a_trusted_proxy() {
    let server = Server::with(HttpSettings {
        trusted_proxies: vec!["10.0.0.0/8".parse().expect("a network")],
        watches_max: 5,
        turn_timeout: Duration::from_millis(50),
        ..HttpSettings::default()
    });
    let mut open = Vec::new();
    for n in 1..=4 {
        let (status, stream) = watch(&server, &format!("forwarded: for=192.0.2.{n}"));
        assert_eq!(status, 200);
        open.push(stream);
    }
    let (status, _) = watch(&server, "forwarded: for=192.0.2.5");
    assert_eq!(status, 503, "all of these are one client");
}

#[test]
fn many_agents_of_one_address_write_while_no_other_client_does() {
    let server = Server::with(HttpSettings {
        writes_in_flight_max: 5,
        ..behind_a_proxy()
    });
    let written = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for agent in 0..100 {
            let (server, written) = (&server, &written);
            threads.spawn(move || {
                for at in 0..5 {
                    let line = format!("cpu,host=h{agent} busy={at} {}", 1_700_000_000 + at);
                    let response = from(server, "192.0.2.1", "POST", "/write?precision=s", &line);
                    written.fetch_add(usize::from(response.status == 204), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(written.into_inner(), 500);
}

#[test]
fn one_client_cannot_keep_all_connections_busy() {
    let server = Server::with(HttpSettings {
        connections_max: 10,
        ..behind_a_proxy()
    });
    let head = "POST /v1/tables/default/points HTTP/1.1\r\nhost: localhost\r\nforwarded: for=192.0.2.1\r\n\
        expect: 100-continue\r\ncontent-length: 6\r\n\r\n";
    let mut busy: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(head.as_bytes()).expect("sent");
            assert_eq!(Response::read_one(&mut stream).status, 100);
            stream
        })
        .collect();
    let refused = from(&server, "192.0.2.1", "GET", "/v1/tables", "").expect(503);
    assert!(
        refused["message"]
            .as_str()
            .expect("a message")
            .contains("192.0.2.1"),
        "{refused}"
    );
    from(&server, "192.0.2.2", "GET", "/v1/tables", "").expect(200);
    for stream in &mut busy {
        stream.write_all(b"m f=1\n").expect("sent");
        assert_eq!(Response::read_one(stream).status, 200);
    }
}

#[test]
fn one_client_cannot_hold_all_bytes_of_bodies() {
    let server = Server::with(HttpSettings {
        bodies_in_flight_bytes_max: 1_000_000,
        ..behind_a_proxy()
    });
    let head = |client: u8| {
        format!(
            "POST {POINTS} HTTP/1.1\r\nhost: localhost\r\nforwarded: for=192.0.2.{client}\r\nexpect: 100-continue\r\n\
             content-length: 100000\r\n\r\n"
        )
    };
    let mut open = Vec::new();
    let mut statuses = |client| {
        let mut stream = server.connect();
        stream.write_all(head(client).as_bytes()).expect("sent");
        let status = Response::read_one(&mut stream).status;
        open.push(stream);
        status
    };
    let of_one: Vec<u16> = (0..9).map(|_| statuses(1)).collect();
    assert_eq!(of_one, [100, 100, 100, 100, 100, 100, 100, 100, 503]);
    assert_eq!((statuses(2), statuses(3)), (100, 100));
}
