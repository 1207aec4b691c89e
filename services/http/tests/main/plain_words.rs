//! Error messages use terms of JSON and of the request, not of the implementation language.
//!
//! Sends malformed variants of the examples in the OpenAPI document to every operation, and checks that each status is
//! documented.

use serde_json::{Value, json};

use crate::client::Server;

/// Terms of Rust and serde that errors must not contain.
const TERMS: &[&str] = &[
    "untagged",
    "variant",
    "struct ",
    "enum ",
    "serde",
    "eserializ",
    "invalid type",
    "invalid value:",
    "invalid length",
    "unknown field",
    "missing field `",
    "duplicate field `",
    "expected u8",
    "expected u16",
    "expected u32",
    "expected u64",
    "expected usize",
    "expected i32",
    "expected i64",
    "expected f64",
    "to a `",
    "expected a map",
    "expected a sequence",
    "found map",
    "found sequence",
    "EOF",
    "expected value",
    "expected ident",
    "tuple",
    "newtype",
    "unit value",
    "digit found",
    "target type",
    "float literal",
    "recursion limit",
    "Some(",
    "None",
    "Utf8Error",
];

/// Unexpected values that replace each part of an example.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("odd"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!({"odd": 1}),
    ]
}

/// Returns variants of an example with one part replaced, removed or added.
fn malformed(example: &Value) -> Vec<Value> {
    let mut places = Vec::new();
    gather(example, String::new(), &mut places);
    let mut all = Vec::new();
    for place in places {
        for odd in odd_values() {
            let mut body = example.clone();
            *body.pointer_mut(&place).expect("it was gathered") = odd;
            all.push(body);
        }
        let mut more = example.clone();
        if let Some(Value::Object(members)) = more.pointer_mut(&place) {
            members.insert("odd".into(), json!(1));
            all.push(more);
        }
        let (parent, name) = place.rsplit_once('/').unwrap_or_default();
        let mut fewer = example.clone();
        if let Some(Value::Object(members)) = fewer.pointer_mut(parent) {
            members.remove(name);
            all.push(fewer);
        }
    }
    all
}

fn gather(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                gather(member, format!("{place}/{name}"), places);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                gather(value, format!("{place}/{at}"), places);
            }
        }
        _ => {}
    }
    places.push(place);
}

#[track_caller]
fn assert_plain(what: &str, text: &str) {
    for term in TERMS {
        assert!(
            !text.contains(term),
            "the error of {what} contains {term:?}: {text}"
        );
    }
}

#[track_caller]
fn assert_documented(operation: &Value, status: u16, what: &str) {
    assert!(
        operation["responses"][status.to_string()].is_object(),
        "{what} returns {status}, which openapi.json does not contain"
    );
}

/// Returns the example of a body or parameter, from the part itself or from its schema.
fn example(document: &Value, part: &Value) -> Value {
    let named = part["schema"]["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    match (&part["example"], named) {
        (Value::Null, Some(name)) => document["components"]["schemas"][name]["example"].clone(),
        (example, _) => example.clone(),
    }
}

/// Returns each operation with its method and path.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
    });
    operations.collect()
}

/// Fills the parameters of a path.
fn filled(path: &str, fill: impl Fn(&str) -> String) -> String {
    let parts = path.split('/').map(|part| match part.strip_prefix('{') {
        Some(name) => fill(name.trim_end_matches('}')),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

fn usual(name: &str) -> String {
    match name {
        "table" => "default".into(),
        "id" => "3f2a9c017bde45a18c40f1e29d3b6a57".into(),
        "job" | "query" => "1".into(),
        _ => "x".into(),
    }
}

#[test]
fn malformed_bodies_are_refused_in_plain_words() {
    let server = Server::start();
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let (mut bodies, mut refused) = (0, 0);
    for (method, path, operation) in operations(&document) {
        let content = &operation["requestBody"]["content"]["application/json"];
        let example = example(&document, content);
        if example.is_null() {
            continue;
        }
        let address = filled(&path, usual);
        let is_watch = path.ends_with("/watch");
        let mut texts: Vec<String> = malformed(&example)
            .into_iter()
            // A watch without a duration would never end.
            .filter(|body| !is_watch || body["for"].is_string())
            .map(|mut body| {
                if is_watch && body["for"] == example["for"] {
                    body["for"] = json!("0s");
                }
                body.to_string()
            })
            .collect();
        let whole = example.to_string();
        texts.extend(["", "{", "[", "nul", "{\"a\":}", "{a:1}", "\u{feff}{}"].map(str::to_owned));
        texts.push(whole[..whole.len() / 2].to_owned());
        texts.push(format!("{whole}{whole}"));
        texts.push(format!("{}{}", "[".repeat(300), "]".repeat(300)));
        for text in texts {
            let response = server.send(
                &method,
                &address,
                &[("content-type", "application/json")],
                text.as_bytes(),
            );
            bodies += 1;
            assert_documented(&operation, response.status, &format!("{method} {path}"));
            if response.status >= 400 {
                refused += 1;
                assert_ne!(
                    response.status,
                    500,
                    "{method} {address} {text}: {}",
                    response.text()
                );
                assert_plain(&format!("{method} {address} {text}"), &response.text());
            }
        }
    }
    println!("{bodies} bodies, {refused} refused");
    assert!(
        bodies > 1_000 && refused > 500,
        "{bodies} bodies, {refused} refused"
    );
}

#[test]
fn malformed_parameters_are_refused_in_plain_words() {
    let server = Server::start();
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let odd = [
        "odd",
        "-1",
        "1.5",
        "99999999999999999999999",
        "",
        "%FF",
        "%7B",
        "a&odd=1",
    ];
    let mut asked = 0;
    for (method, path, operation) in operations(&document) {
        // A watch would never end.
        if path.ends_with("/watch") {
            continue;
        }
        let mut addresses = Vec::new();
        let names: Vec<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{'))
            .collect();
        for name in names.iter().map(|name| name.trim_end_matches('}')) {
            for value in odd.iter().filter(|value| !value.is_empty()) {
                let fill = |other: &str| {
                    if other == name {
                        (*value).to_owned()
                    } else {
                        usual(other)
                    }
                };
                addresses.push(filled(&path, fill));
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().expect("a name");
            if parameter["in"] == "query" {
                let address = filled(&path, usual);
                addresses.extend(odd.iter().map(|value| format!("{address}?{name}={value}")));
                addresses.push(format!("{address}?{name}=1&{name}=2"));
            }
        }
        for address in addresses {
            let response = server.send(&method, &address, &[], b"");
            asked += 1;
            assert_documented(&operation, response.status, &address);
            if response.status >= 400 {
                assert_plain(&format!("{method} {address}"), &response.text());
            }
        }
    }
    println!("{asked} requests");
    assert!(asked > 500, "{asked} requests");
}

#[test]
fn responses_of_the_layers_are_documented() {
    let secret = tideline_http::Secret::new("0123456789abcdef").expect("long enough");
    let settings = tideline_http::HttpSettings {
        token: Some(secret),
        ..tideline_http::HttpSettings::default()
    };
    let (with_token, open) = (Server::with(settings), Server::start());
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let (mut unauthenticated, mut forbidden, mut unread) = (0, 0, 0);
    for (method, path, operation) in operations(&document) {
        let address = filled(&path, usual);
        if !path.ends_with("/watch") {
            let response = with_token.send(&method, &address, &[], b"");
            unauthenticated += usize::from(response.status == 401);
            assert_documented(&operation, response.status, &format!("{method} {path}"));
        }
        if method != "GET" {
            let response = open.send(&method, &address, &[("origin", "http://elsewhere.example")], b"");
            assert_eq!(response.status, 403, "{method} {path}");
            forbidden += 1;
            assert_documented(&operation, response.status, &format!("{method} {path}"));
        }
        if !operation["requestBody"].is_null() {
            let response = open.send(&method, &address, &[("content-type", "image/png")], b"x");
            unread += usize::from(response.status == 415);
            assert_documented(&operation, response.status, &format!("{method} {path}"));
        }
    }
    assert!(
        unauthenticated > 100 && forbidden > 40 && unread > 20,
        "{unauthenticated} {forbidden} {unread}"
    );
}

#[test]
fn deep_json_names_the_limit_and_the_actual_depth() {
    let server = Server::start();
    let deep = format!("{}{{\"and\":[]}}{}", "{\"not\":".repeat(200), "}".repeat(200));
    let body = format!("{{\"where\":{deep}}}");
    let response = server
        .post("/v1/tables/default/timelines/search", "application/json", body)
        .expect(400);
    assert_eq!(
        (&response["limit"], &response["actual"]),
        (&json!(127), &json!(203)),
        "{response}"
    );
    assert_eq!(response["code"], "over_limit");
}

#[test]
fn errors_name_the_place() {
    let server = Server::start();
    for (body, message) in [
        (
            r#"{"aggregate":{"functions":["median"]}}"#,
            "/aggregate/functions/0: \"median\" is not one of count",
        ),
        (
            r#"{"limit":"x"}"#,
            "/limit: expected a whole number that is not negative, found the text \"x\"",
        ),
        (
            r#"{"aggregate":{"group_by":"host"}}"#,
            "/aggregate/group_by: expected a list of tags, or \"timeline\"",
        ),
    ] {
        let response = server.post("/v1/tables/default/query", "application/json", body);
        let said = response.expect(400);
        assert!(
            said["message"]
                .as_str()
                .is_some_and(|text| text.starts_with(message)),
            "{said}"
        );
    }
    let response = server.get("/v1/tables/default/tags?limit=many").expect(400);
    assert_eq!(response["message"], "parameter limit: not a whole number");
    let response = server.get("/v1/jobs/first").expect(400);
    assert_eq!(
        response["message"],
        "job in the path: expected a whole number that is not negative, found the text \"first\""
    );
}
