//! The committed OpenAPI document.
//!
//! The document must match the generated one and describe every operation with an example. Its page must work without
//! internet access. Further tests check operation ids, joined schemas, requests for a missing table, and the files of
//! the guide.

use std::path::Path;

use serde_json::Value;

use crate::client::{Response, Server};

/// Environment variable with which the first test rewrites the document: `TIDELINE_WRITE_OPENAPI=1 cargo test
/// -p tideline-http`.
const WRITE: &str = "TIDELINE_WRITE_OPENAPI";

#[test]
fn the_committed_document_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/openapi.json");
    let mut generated = tideline_http::document().to_pretty_json().expect("serialises");
    generated.push('\n');
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &generated).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "openapi/openapi.json is stale; rewrite it with {WRITE}=1 and check the difference"
    );
}

#[test]
fn every_operation_is_described_with_an_example() {
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1"))
    );
    let schemas = &document["components"]["schemas"];
    let has_example = |content: &serde_json::Value| {
        let name = content["schema"]["$ref"]
            .as_str()
            .and_then(|name| name.rsplit('/').next());
        let schema = name.map(|name| &schemas[name]);
        // The example of a list or of a flattened schema is the example of its members.
        let in_schema = schema.is_some_and(|schema| {
            schema.to_string().contains("\"example\"") || schema.to_string().contains("$ref")
        });
        !content["example"].is_null() || in_schema
    };
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let name = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{name} has no summary");
            assert!(operation["tags"].is_array(), "{name} has no tag");
            let bodies = operation["requestBody"]["content"]
                .as_object()
                .into_iter()
                .flatten();
            for (kind, content) in bodies {
                assert!(has_example(content), "{name}: the body {kind} has no example");
            }
            let responses = operation["responses"].as_object().expect("responses");
            assert!(!responses.is_empty(), "{name} has no response");
            for (status, response) in responses {
                for (kind, content) in response["content"].as_object().into_iter().flatten() {
                    assert!(
                        has_example(content),
                        "{name}: the answer {status} {kind} has no example"
                    );
                }
            }
        }
    }
}

#[test]
fn the_page_works_without_the_internet() {
    let server = Server::start();
    assert_eq!(server.get("/docs").status, 303);
    let page = server.get("/docs/");
    assert_eq!(page.status, 200);
    for policy in ["default-src 'self'", "frame-ancestors 'none'"] {
        assert!(
            page.header("content-security-policy").contains(policy),
            "{:?}",
            page.headers
        );
    }
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert!(
        !page.text().contains("//"),
        "the page names no other host: {}",
        page.text()
    );
    for file in ["swagger-ui-bundle.js", "swagger-ui.css", "swagger-initializer.js"] {
        let response = server.get(&format!("/docs/{file}"));
        assert!(response.status == 200 && !response.body.is_empty(), "{file}");
    }
    assert!(
        server
            .get("/docs/swagger-initializer.js")
            .text()
            .contains("/openapi.json")
    );
    let document = server.get("/openapi.json").expect(200);
    assert!(document["paths"]["/v1/tables/{table}/points"]["post"].is_object());
}

#[test]
fn operations_have_names_of_their_own() {
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| (format!("{method} {path}"), &operation["operationId"]))
    });
    let mut known = std::collections::HashMap::new();
    for (operation, name) in operations {
        let name = name.as_str().unwrap_or_else(|| panic!("{operation} has no name"));
        if let Some(other) = known.insert(name.to_owned(), operation.clone()) {
            panic!("{operation} and {other} are both called {name}");
        }
    }
}

#[test]
fn what_joins_schemas_allows_their_members() {
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    for (name, schema) in schemas {
        for part in schema["allOf"].as_array().into_iter().flatten() {
            let of = part["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            let part = of.map_or(part, |of| &schemas[of]);
            assert_ne!(
                part["additionalProperties"], false,
                "{name}: {of:?} refuses the members of the others"
            );
        }
    }
}

#[test]
fn every_operation_below_a_missing_table_is_not_found() {
    let server = Server::start();
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let paths = document["paths"].as_object().expect("paths");
    let mut asked = 0;
    for (path, item) in paths
        .iter()
        .filter(|(path, _)| path.starts_with("/v1/tables/{table}"))
    {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let request = ExampleRequest::new(&document, path, operation, "nope");
            let response = request.send(&server, method, &[]);
            let address = request.address;
            assert_eq!(response.status, 404, "{method} {address}: {}", response.text());
            asked += 1;
        }
    }
    assert!(asked > 50, "{asked} operations");
}

#[test]
fn the_guide_has_pages_search_and_no_inline_code() {
    let server = Server::start();
    for (file, content_type) in [
        ("points", "text/html"),
        ("points.md", "text/html"),
        ("guide.css", "text/css"),
        ("guide.js", "text/javascript"),
        ("search.json", "application/json"),
    ] {
        let part = server.get(&format!("/guide/{file}"));
        assert_eq!(part.status, 200, "{file}");
        assert!(part.header("content-type").starts_with(content_type), "{file}");
    }
    let page = server.get("/guide/points");
    assert!(
        page.header("content-security-policy")
            .contains("script-src 'self'")
    );
    assert!(!page.text().contains("<style") && !page.text().contains("<script>"));
    assert_eq!(server.get("/guide/nothing").expect(404)["code"], "not_found");
}

/// Request of an operation, with the examples of the document.
#[derive(Debug)]
pub(crate) struct ExampleRequest {
    pub(crate) address: String,
    content_type: String,
    body: String,
}

impl ExampleRequest {
    /// Creates the request of an operation. `table` replaces the name of the table in the path.
    pub(crate) fn new(document: &Value, path: &str, operation: &Value, table: &str) -> Self {
        let example = |part: &Value| {
            let named = part["schema"]["$ref"]
                .as_str()
                .and_then(|path| path.rsplit('/').next());
            let of_schema = named.map(|name| document["components"]["schemas"][name]["example"].clone());
            match &part["example"] {
                Value::Null => of_schema.unwrap_or_default(),
                example => example.clone(),
            }
        };
        let text = |example: Value| match example {
            Value::String(text) => Some(text),
            Value::Null => None,
            other => Some(other.to_string()),
        };
        let mut address = path.replace("{table}", table);
        let mut query = Vec::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().expect("a name");
            let text = text(example(parameter));
            match parameter["in"].as_str() {
                Some("path") => {
                    address = address.replace(&format!("{{{name}}}"), text.as_deref().unwrap_or("x"));
                }
                Some("query") => query.extend(text.map(|text| {
                    let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
                    format!("{name}={text}")
                })),
                _ => {}
            }
        }
        if !query.is_empty() {
            address = format!("{address}?{}", query.join("&"));
        }
        let content = operation["requestBody"]["content"]
            .as_object()
            .and_then(|all| all.iter().next());
        let (content_type, body) = content
            .map_or((String::new(), String::new()), |(content_type, content)| {
                (content_type.clone(), text(example(content)).unwrap_or_default())
            });
        Self {
            address,
            content_type,
            body,
        }
    }

    /// Sends the request with further headers.
    pub(crate) fn send(&self, server: &Server, method: &str, headers: &[(&str, &str)]) -> Response {
        let mut headers = headers.to_vec();
        if !self.content_type.is_empty() {
            headers.push(("content-type", &self.content_type));
        }
        server.send(
            &method.to_uppercase(),
            &self.address,
            &headers,
            self.body.as_bytes(),
        )
    }
}
