//! The committed description of the interface.

use std::path::Path;

use crate::client::Server;

/// Set it to write the document anew: `TIDELINE_WRITE_OPENAPI=1 cargo test -p tideline-http`.
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
        "openapi/openapi.json is stale; write it anew with {WRITE}=1 and look at the difference"
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
        // A list or a flattened detail shows the example of what it holds.
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
        let answer = server.get(&format!("/docs/{file}"));
        assert!(answer.status == 200 && !answer.body.is_empty(), "{file}");
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
