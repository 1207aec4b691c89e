//! Values of any size: round trips, ranges, conditions, forms in rows and tables, uploads that end early, removal.
//!
//! `tideline-wide-table` tests the storage of the pieces; the suite `large_values` tests kills of the process.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::HttpSettings;
use tideline_testkit::Random;

use crate::client::{Response, Server, compressed};

const KEY: &str = "%7B%22id%22%3A%22a%20b%22%7D";

fn create(server: &Server, name: &str) {
    let body = json!({"name": name, "model": "wide", "wide": {
        "key": [{"name": "id", "type": "string"}],
        "columns": [
            {"name": "photo", "type": "binary"}, {"name": "text", "type": "string"},
            {"name": "n", "type": "i64"}, {"name": "document", "type": "json"}
        ],
        "max_versions": 2
    }});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
}

fn path(table: &str, column: &str) -> String {
    format!("/v1/tables/{table}/blobs/{column}?key={KEY}")
}

fn put(server: &Server, path: &str, body: &[u8]) -> Response {
    server.send("PUT", path, &[("content-type", "application/octet-stream")], body)
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    server
        .json("POST", &format!("/v1/tables/{path}"), &body.to_string())
        .expect(200)
}

fn row(server: &Server, table: &str) -> Value {
    let rows = post(
        server,
        &format!("{table}/rows/get"),
        &json!({"keys": [{"id": "a b"}]}),
    );
    rows["rows"][0].clone()
}

fn content(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .take(bytes)
        .collect()
}

/// Removes the values that no row refers to, unless the job has already done so. Returns the number of remaining
/// values.
fn remove(server: &Server, table: &str) -> u64 {
    let table = server.engine.wide_table(table).expect("a table");
    let id = table.table().points().id();
    let removed = server
        .engine
        .remove_unnamed_values(id, &mut |_| ControlFlow::Continue(()));
    removed.expect("a removal").expect("it ends").values
}

#[test]
fn values_of_every_size_are_read_as_they_were_written_in_any_range() {
    let seed = tideline_testkit::seed("blobs");
    let random = &mut Random::new(seed);
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(Arc::clone(&disk), HttpSettings::default());
    create(&server, "t");
    let path = path("t", "photo");
    let sizes = [
        0, 1, 1_000, 65_536, 65_537, 262_143, 262_144, 262_145, 524_288, 3_000_000, 9_000_001,
    ];
    for (number, size) in sizes.into_iter().enumerate() {
        let content = content(random, size);
        let written = put(&server, &path, &content).expect(200);
        assert_eq!(
            (&written["bytes"], &written["type"]),
            (&json!(size), &json!("binary"))
        );
        assert_eq!(written["large"], json!(size > 65_536), "seed {seed}");
        if number % 3 == 1 {
            drop(std::mem::replace(
                &mut server,
                Server::on(Arc::clone(&disk), HttpSettings::default()),
            ));
        }
        let read = server.get(&path);
        assert_eq!(read.status, 200);
        assert!(read.body == content, "seed {seed}, {size} bytes");
        assert_eq!(read.header("content-length"), size.to_string());
        assert_eq!(read.header("accept-ranges"), "bytes");
        assert_eq!(read.header("content-type"), "application/octet-stream");
        let tag = read.header("etag").to_owned();
        assert_eq!(
            tag,
            format!("\"{}\"", written["checksum"].as_str().expect("a text"))
        );
        let head = server.send("HEAD", &path, &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), size.to_string());
        let known = server.send("GET", &path, &[("if-none-match", &tag)], b"");
        assert_eq!((known.status, known.body.len()), (304, 0));
        for _ in 0..6 {
            let first = random.below(size as u64 + 2) as usize;
            let last = first + random.below(300_000) as usize;
            let range = format!("bytes={first}-{last}");
            let part = server.send("GET", &path, &[("range", &range)], b"");
            if first >= size {
                assert_eq!(part.status, 416, "seed {seed}");
                assert_eq!(part.header("content-range"), format!("bytes */{size}"));
                continue;
            }
            let end = size.min(last + 1);
            assert_eq!(part.status, 206);
            assert!(part.body == content[first..end], "seed {seed}, {range} of {size}");
            let sent = format!("bytes {first}-{}/{size}", end - 1);
            assert_eq!(part.header("content-range"), sent);
            let other = [("range", range.as_str()), ("if-range", "\"0\"")];
            assert_eq!(server.send("GET", &path, &other, b"").body.len(), size);
        }
    }
    // Two versions are kept.
    assert_eq!(remove(&server, "t"), 2, "seed {seed}");
    let get = json!({"keys": [{"id": "a b"}], "versions": 2});
    let versions = post(&server, "t/rows/get", &get)["rows"][0]["columns"]["photo"].clone();
    for (version, size) in versions
        .as_array()
        .expect("a list")
        .iter()
        .zip([9_000_001, 3_000_000])
    {
        assert_eq!(version["value"]["large"]["bytes"], size);
        let version = version["version"].as_str().expect("a time");
        let read = server.get(&format!("{path}&version={version}"));
        assert_eq!(
            (read.body.len(), read.header("tideline-version")),
            (size, version)
        );
    }
    server
        .get(&format!("{path}&version=2020-01-01T00:00:00Z"))
        .expect(404);
}

#[test]
fn a_large_value_is_an_object_in_rows_and_tables() {
    let server = Server::start();
    create(&server, "t");
    let text = "é".repeat(1_100_000);
    let written = server.send(
        "PUT",
        &path("t", "text"),
        &[("content-type", "text/plain")],
        text.as_bytes(),
    );
    let checksum = written.expect(200)["checksum"].clone();
    let free = path("t", "free%2Fcolumn");
    let sent = server.send(
        "PUT",
        &free,
        &[("content-type", "text/markdown")],
        text.as_bytes(),
    );
    assert_eq!(sent.expect(200)["type"], "string");
    put(&server, &path("t", "photo"), &[b'x'; 99_999]).expect(200);
    let found = row(&server, "t");
    let columns = &found["columns"];
    assert_eq!(columns["photo"]["large"]["bytes"], 99_999);
    let large = &columns["text"]["large"];
    assert_eq!(
        (&large["type"], &large["bytes"], &large["checksum"]),
        (&json!("string"), &json!(2_200_000), &checksum)
    );
    for (column, kind) in [
        ("text", "text/plain; charset=utf-8"),
        ("free/column", "text/plain; charset=utf-8"),
    ] {
        let href = columns[column]["large"]["href"].as_str().expect("an address");
        let read = server.get(href);
        assert_eq!((read.status, read.header("content-type")), (200, kind));
        assert!(read.body == text.as_bytes());
    }
    let inline = |bytes: u64| {
        let get = json!({"keys": [{"id": "a b"}]}).to_string();
        let path = format!("/v1/tables/t/rows/get?inline_bytes={bytes}");
        server.json("POST", &path, &get)
    };
    let whole = inline(99_999).expect(200)["rows"][0]["columns"].clone();
    assert_eq!(
        (&whole["photo"], &whole["text"]),
        (&json!("eHh4".repeat(33_333)), &columns["text"])
    );
    assert_eq!(
        inline(99_998).expect(200)["rows"][0]["columns"]["photo"],
        columns["photo"]
    );
    assert_eq!(inline(2_097_153).status, 400);
    // Writes of rows do not accept the object.
    let back = json!({"rows": [{"op": "put", "key": {"id": "b"}, "columns": {"text": columns["text"]}}]});
    server
        .json("POST", "/v1/tables/t/rows", &back.to_string())
        .expect(422);
    let sql = json!({"statement": "SELECT * FROM t WHERE id = 'a b'"});
    let selected = server.json("POST", "/v1/sql", &sql.to_string()).expect(200);
    assert_eq!(
        selected["rows"][0]["text"]["large"]["bytes"], 2_200_000,
        "{selected}"
    );
    let scan = json!({"allow_scan": true}).to_string();
    let scanned = |accept: &str, scan: &str| {
        let headers = [("content-type", "application/json"), ("accept", accept)];
        server.send("POST", "/v1/tables/t/rows/scan", &headers, scan.as_bytes())
    };
    let csv = scanned("text/csv", &scan);
    let csv = String::from_utf8(csv.body).expect("text");
    let header = csv.lines().next().expect("a header");
    assert_eq!(header, "id,photo,text,n,document,*");
    let line = csv.lines().nth(1).expect("a row");
    assert!(
        line.starts_with("a b,,,,,") && line.contains("\"\"large\"\""),
        "{line}"
    );
    for accept in [
        "application/vnd.apache.arrow.stream",
        "application/vnd.apache.parquet",
    ] {
        assert_eq!(scanned(accept, &scan).status, 200, "{accept}");
    }
    let alone = json!({"allow_scan": true, "columns": ["text"]}).to_string();
    let refused = scanned("text/csv", &alone);
    assert_eq!(refused.status, 400);
    assert!(String::from_utf8_lossy(&refused.body).contains("text*"));
    // Conditions can test whether a large value exists, but not its content.
    for (condition, count) in [
        (json!({"column": "text", "exists": true}), 1),
        (json!({"column": "text", "suffix": "é"}), 0),
    ] {
        let body = json!({"allow_scan": true, "where": condition});
        assert_eq!(
            post(&server, "t/rows/count", &body)["count"],
            count,
            "{condition}"
        );
    }
    let why = json!({"key": {"id": "a b"}, "where": {"column": "text", "prefix": "é"}});
    let why = post(&server, "t/rows/why", &why);
    assert!(
        why.to_string().contains("streamed values are not compared"),
        "{why}"
    );
    // Only functions that read the content skip streamed values.
    let count = |functions: Value| {
        let metrics = json!([{"column": "text", "functions": functions}]);
        let body = json!({"allow_scan": true, "metrics": metrics});
        post(&server, "t/rows/aggregate", &body)
    };
    let counted = count(json!(["count"]));
    assert!(
        counted["groups"][0]["metrics"]["text"]["count"] == 1 && counted["other_types"] == 0,
        "{counted}"
    );
    assert_eq!(count(json!(["count", "max"]))["other_types"], 1);
}

#[test]
fn overwritten_values_are_removed_before_the_row_buffer_is_full() {
    let server = Server::start();
    create(&server, "t");
    for fill in 0..6 {
        put(&server, &path("t", "photo"), &[fill; 100_000]).expect(200);
    }
    assert_eq!(remove(&server, "t"), 2, "the table keeps two versions");
    assert!(server.get(&path("t", "photo")).body == [5; 100_000]);
}

#[test]
fn a_streamed_text_of_up_to_2_mib_is_like_a_text_that_is_written_with_its_row() {
    let server = Server::start();
    create(&server, "t");
    let text = "alpha ".repeat(20_000);
    let written = put(&server, &path("t", "text"), text.as_bytes()).expect(200);
    assert_eq!(
        (&written["bytes"], &written["large"]),
        (&json!(120_000), &json!(true))
    );
    let rows = json!({"rows": [{"op": "put", "key": {"id": "written"}, "columns": {"text": text}}]});
    post(&server, "t/rows", &rows);
    assert_eq!(row(&server, "t")["columns"]["text"], text);
    let prefix = json!({"column": "text", "prefix": "alpha"});
    for (condition, expected) in [(prefix.clone(), 2), (json!({"not": prefix}), 0)] {
        let body = json!({"allow_scan": true, "where": condition});
        assert_eq!(
            post(&server, "t/rows/count", &body)["count"],
            expected,
            "{condition}"
        );
    }
    let tag = format!("\"{}\"", written["checksum"].as_str().expect("a text"));
    let read = server.get(&path("t", "text"));
    assert!(read.header("etag") == tag && read.body == text.as_bytes());
    let changed = format!("{}&if_checksum={}", path("t", "text"), tag.trim_matches('"'));
    put(&server, &changed, "beta ".repeat(20_000).as_bytes()).expect(200);
    put(&server, &changed, text.as_bytes()).expect(409);
    // A row has at most 8 MiB of values that are written with it, so further texts are streamed.
    let large = "é".repeat(900_000);
    for number in 0..6 {
        let path = path("t", &format!("free{number}"));
        let headers = [("content-type", "text/plain")];
        server.send("PUT", &path, &headers, large.as_bytes()).expect(200);
        assert!(server.get(&path).body == large.as_bytes(), "{number}");
    }
    let columns = row(&server, "t")["columns"].clone();
    let streamed = |number: u64| !columns[format!("free{number}")]["large"].is_null();
    assert!(
        !streamed(0) && streamed(5),
        "the form depends on the size of the row"
    );
}

#[test]
fn an_upload_may_be_compressed() {
    let server = Server::start();
    create(&server, "t");
    let photo = path("t", "photo");
    for (encoding, packed) in compressed(&content(&mut Random::new(1), 300_000)) {
        let written = server.send("PUT", &photo, &[("content-encoding", encoding)], &packed);
        assert_eq!(written.expect(200)["bytes"], 300_000, "{encoding}");
        let cut = &packed[..packed.len() / 2];
        let refused = server.send("PUT", &photo, &[("content-encoding", encoding)], cut);
        assert_eq!(refused.expect(400)["code"], "invalid", "{encoding}");
    }
}

#[test]
fn headers_give_conditions_of_a_write() {
    let server = Server::start();
    create(&server, "t");
    let photo = path("t", "photo");
    let big = vec![b'x'; 200_000];
    let put_if = |header: (&str, &str)| server.send("PUT", &photo, &[header], &big).status;
    assert_eq!(put_if(("if-match", "*")), 412);
    assert_eq!(put_if(("if-none-match", "*")), 200);
    assert_eq!(put_if(("if-none-match", "*")), 412);
    let tag = server.get(&photo).header("etag").to_owned();
    assert_eq!(put_if(("if-match", "\"0000000000000000\"")), 412);
    assert_eq!(put_if(("if-match", &tag)), 200);
    assert_eq!(put_if(("if-match", "*")), 200);
    for header in [
        ("if-match", "\"a\", \"b\""),
        ("if-match", "W/\"0000000000000000\""),
        ("if-none-match", &tag),
    ] {
        assert_eq!(put_if(header), 400, "{header:?}");
    }
    let both = format!("{photo}&if_absent=false");
    assert_eq!(server.send("PUT", &both, &[("if-match", "*")], &big).status, 400);
    server.engine.seal().expect("flushed");
    assert_eq!(remove(&server, "t"), 2, "two values were replaced");
}

#[test]
fn an_upload_that_cannot_be_read_is_refused_with_its_cause() {
    let server = Server::with(HttpSettings {
        body_timeout: Duration::from_millis(200),
        ..HttpSettings::default()
    });
    create(&server, "t");
    let photo = path("t", "photo");
    let mut slow = server.connect();
    let head = |length: u64| {
        format!(
            "PUT {photo} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    slow.write_all(head(100_000).as_bytes()).expect("sent");
    slow.write_all(b"only this").expect("sent");
    assert_eq!(Response::read(&mut slow).expect(408)["code"], "body_too_slow");
    let mut large = server.connect();
    large.write_all(head((1 << 30) + 1).as_bytes()).expect("sent");
    let refused = Response::read(&mut large).expect(400);
    assert_eq!(
        (&refused["code"], &refused["limit"]),
        (&"over_limit".into(), &(1_u64 << 30).into()),
        "{refused}"
    );
    let packed = server.send("PUT", &photo, &[("content-encoding", "gzip")], b"not gzip");
    assert_eq!(packed.expect(400)["code"], "invalid");
    server.get(&photo).expect(404);
}

#[test]
fn a_write_is_refused_without_a_trace() {
    let server = Server::start();
    create(&server, "t");
    let big = vec![b'x'; 200_000];
    put(&server, &path("t", "photo"), &big).expect(200);
    let before = row(&server, "t");
    let mut bad_text = big.clone();
    bad_text.push(0xff);
    let checksum = before["columns"]["photo"]["large"]["checksum"]
        .as_str()
        .expect("a text")
        .to_owned();
    let of = |column: &str, more: &str| format!("{}{more}", path("t", column));
    for (path, body, status) in [
        (of("text", ""), &bad_text, 400),
        (of("n", ""), &big, 400),
        (of("document", ""), &big, 400),
        (of("id", ""), &big, 400),
        (of("photo", "&if_absent=true"), &big, 409),
        (of("text", "&if_absent=false"), &big, 409),
        (of("photo", "&if_checksum=0000000000000000"), &big, 409),
        (of("photo", "&if_checksum=1"), &big, 400),
        (
            of("photo", &format!("&if_checksum={checksum}&if_absent=true")),
            &big,
            400,
        ),
        (of("photo", "&other=1"), &big, 400),
        ("/v1/tables/t/blobs/photo?key=%7B%7D".to_owned(), &big, 400),
        ("/v1/tables/t/blobs/photo?key=1".to_owned(), &big, 400),
        ("/v1/tables/missing/blobs/photo?key=%7B%7D".to_owned(), &big, 404),
    ] {
        assert_eq!(put(&server, &path, body).status, status, "{path}");
    }
    assert_eq!(row(&server, "t"), before);
    assert_eq!(
        remove(&server, "t"),
        1,
        "refused uploads have removed their pieces"
    );
    put(
        &server,
        &of("photo", &format!("&if_checksum={checksum}")),
        b"other",
    )
    .expect(200);
    put(&server, &of("text", "&if_absent=true"), &big).expect(200);
    for (path, status) in [
        (of("n", ""), 404),
        (
            "/v1/tables/t/blobs/photo?key=%7B%22id%22%3A%22c%22%7D".to_owned(),
            404,
        ),
        (of("id", ""), 400),
    ] {
        assert_eq!(server.get(&path).status, status, "{path}");
    }
    let set = json!({"rows": [{"op": "update", "key": {"id": "a b"}, "columns": {"n": 1}}]});
    post(&server, "t/rows", &set);
    assert_eq!(
        server.get(&of("n", "")).status,
        400,
        "a number is not read as bytes"
    );
}

#[test]
fn an_upload_that_ends_early_changes_nothing() {
    let server = Server::start();
    create(&server, "t");
    put(&server, &path("t", "photo"), &vec![1; 100_000]).expect(200);
    let before = row(&server, "t");
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000000\r\n\r\n",
        path("t", "photo")
    );
    let mut stream = server.connect();
    stream.write_all(head.as_bytes()).expect("head sent");
    stream.write_all(&vec![2; 9_000_000]).expect("a part of the body");
    drop(stream);
    let began = std::time::Instant::now();
    // The server soon detects the end of the connection and removes the pieces.
    while remove(&server, "t") != 1 || !server.engine.memory().to_string().starts_with("0 ") {
        assert!(
            began.elapsed().as_secs() < 20,
            "the upload ends: {}",
            server.engine.memory()
        );
        std::thread::yield_now();
    }
    assert_eq!(row(&server, "t"), before);
}

#[test]
fn overwritten_and_deleted_values_are_removed_and_copies_have_their_own() {
    let server = Server::start();
    create(&server, "t");
    let body = json!({"name": "u", "model": "wide", "wide": {
        "key": [{"name": "id", "type": "string"}],
        "columns": [{"name": "photo", "type": "binary"}]
    }});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
    let content = vec![7; 700_000];
    put(&server, &path("t", "photo"), &content).expect(200);
    let copy = json!({"into": "u", "wait": true}).to_string();
    let copied = server.json("POST", "/v1/tables/t/rows/rekey", &copy).expect(200);
    assert_eq!(copied["state"], "done", "{copied}");
    let clear = json!({"rows": [{"op": "update", "key": {"id": "a b"}, "clear": ["photo"]}]});
    post(&server, "t/rows", &clear);
    server.get(&path("t", "photo")).expect(404);
    assert_eq!(remove(&server, "t"), 0);
    assert_eq!(remove(&server, "u"), 1);
    assert!(server.get(&path("u", "photo")).body == content);
    let delete = json!({"prefix": {"id": "a b"}});
    post(&server, "u/rows/delete", &delete);
    assert_eq!(remove(&server, "u"), 0);
    put(&server, &path("u", "photo"), &content).expect(200);
    remove(&server, "u");
    let metrics = String::from_utf8(server.get("/metrics").body).expect("text");
    for line in [
        "tideline_row_large_values{table=\"u\"} 1",
        "tideline_row_large_value_bytes{table=\"u\"} 700000",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
