//! Tests of `tideline config` and `--version`.
//!
//! Also tests that the server refuses to start on a public address without a token or TLS.

use std::fs;

use rustix::process::Signal;

use crate::process::{Running, output, text, tideline};

#[test]
fn check_reports_validity_by_its_exit_status() {
    let right = output(tideline(&["config", "check"]));
    assert_eq!(right.status.code(), Some(0), "{}", text(&right.stderr));

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tideline.toml");
    fs::write(&file, "[server]\nlisten = \"127.0.0.1:1\"\ndata_dirr = \"x\"\n").expect("a file in it");
    let mut command = tideline(&["config", "check", "--config"]);
    command.arg(&file);
    let wrong = output(command);
    assert_eq!(wrong.status.code(), Some(2));
    let said = text(&wrong.stderr);
    assert!(
        said.contains("tideline.toml:3: unknown key server.data_dirr; did you mean server.data_dir?"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn files_that_the_configuration_names_are_checked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broken = folder.path().join("broken");
    fs::write(&broken, "neither hashes nor keys").expect("a file");
    let missing = folder.path().join("missing");
    let keys: &[&str] = &["TIDELINE__AUTH__JWT_ISSUER", "TIDELINE__AUTH__JWT_AUDIENCE"];
    for (setting, others) in [
        ("TIDELINE__AUTH__HASHES_FILE", &[][..]),
        ("TIDELINE__AUTH__JWKS_FILE", keys),
        (
            "TIDELINE__HTTP__TLS_CERTIFICATE_FILE",
            &["TIDELINE__HTTP__TLS_KEY_FILE"],
        ),
        ("TIDELINE__WEBHOOKS__CA_FILE", &[]),
        ("TIDELINE__ARCHIVE__OPTIONS_FILE", &[]),
        (
            "TIDELINE__CASSANDRA__PASSWORD_FILE",
            &["TIDELINE__CASSANDRA__USER"],
        ),
    ] {
        for file in [&broken, &missing] {
            // The server reads the certificates of webhooks later, and any text is a password.
            if *file == broken && (setting.contains("WEBHOOKS") || setting.contains("PASSWORD")) {
                continue;
            }
            for command in [&["config", "check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
                let mut command = tideline(command);
                command.env("TIDELINE__SERVER__DATA_DIR", folder.path().join("data"));
                if setting.contains("ARCHIVE") {
                    command.env("TIDELINE__ARCHIVE__TARGET", "memory:");
                }
                if setting.contains("CASSANDRA") {
                    command.env("TIDELINE__STORAGE__BACKEND", "cassandra");
                    command.env("TIDELINE__CASSANDRA__CONTACT", "127.0.0.1:1");
                }
                for name in [setting].iter().chain(others) {
                    command.env(name, file);
                }
                let refused = output(command);
                let said = text(&refused.stderr);
                assert_eq!(refused.status.code(), Some(2), "{setting}: {said}");
                assert!(said.contains(file.to_str().expect("a name")), "{setting}: {said}");
            }
        }
    }
    assert!(!folder.path().join("data").exists());
}

#[cfg(feature = "cassandra")]
#[test]
fn addresses_of_a_cluster_are_checked_before_a_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let data_dir = data.to_str().expect("a name");
    let place = ["--keyspace", "tideline", "--contact"];
    for command in [
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--backend",
            "cassandra",
            "--data-dir",
            data_dir,
        ][..],
        &["backend", "schema", "--replication", "1"],
        &["backend", "check"],
        &["backend", "owner"],
        &["backend", "copy", "--to", "cassandra", "--data-dir", data_dir],
    ] {
        for (contact, advertise, reason) in [
            ("127.0.0.1:abc", "db-1:8490", "\"127.0.0.1:abc\" is not a host"),
            ("127.0.0.1:0", "db-1:8490", "\"127.0.0.1:0\" is not a host"),
            (
                "127.0.0.1:1",
                "nohostport",
                "\"nohostport\" is not an address with a port",
            ),
        ] {
            let mut started = tideline(command);
            started.args(place).arg(contact);
            started.env("TIDELINE__CASSANDRA__ADVERTISE", advertise);
            let refused = output(started);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{command:?}: {said}");
            assert!(said.contains(reason), "{command:?}: {said}");
        }
    }
    assert!(!data.exists(), "nothing has been touched");
}

#[test]
fn archive_options_without_a_target_are_refused() {
    let mut command = tideline(&["config", "check"]);
    command.env("TIDELINE__ARCHIVE__OPTIONS_FILE", "options");
    let refused = output(command);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("archive.options_file has no effect"), "{said}");
}

#[test]
fn show_names_the_origin_and_hides_the_token() {
    let mut command = tideline(&["config", "show", "--listen", "0.0.0.0:9", "--tls", "proxy"]);
    command.env("TIDELINE__AUTH__TOKEN", "a-token-of-this-test-0123456789");
    let shown = output(command);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let text = text(&shown.stdout);
    assert!(!text.contains("a-token-of-this-test"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("listen = \"0.0.0.0:9\"") && line.ends_with("# flag --listen"))
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("token = ") && line.ends_with("TIDELINE__AUTH__TOKEN"))
    );
}

#[test]
fn the_reference_is_a_configuration() {
    let reference = output(tideline(&["config", "reference"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tideline.toml");
    fs::write(&file, &reference.stdout).expect("a file in it");
    let mut command = tideline(&["config", "check"]);
    command.env("TIDELINE_CONFIG", &file);
    let checked = output(command);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[test]
fn a_public_address_without_a_token_does_not_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let mut command = tideline(&["serve", "--listen", "0.0.0.0:0", "--tls", "off", "--data-dir"]);
    command.arg(&data);
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("flag --listen") && said.contains("no token is set"),
        "{said}"
    );
    assert!(!data.exists(), "nothing has been touched");
}

#[test]
fn a_public_address_in_clear_text_does_not_start_unless_an_earlier_release_made_the_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let public = || {
        let mut command = tideline(&["serve", "--listen", "0.0.0.0:0", "--data-dir"]);
        command
            .arg(&data)
            .env("TIDELINE__AUTH__TOKEN", "a-token-of-this-test-0123456789");
        command
    };
    let refused = output(public());
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("but in clear text") && said.contains("http.tls"),
        "{said}"
    );
    assert!(!data.exists(), "nothing has been touched");

    // A folder that this release has created for a loopback address does not count as a folder of
    // an earlier release.
    let (server, _) = Running::serve(&data);
    server.signal(Signal::TERM);
    assert!(server.end().0.success());
    assert_eq!(output(public()).status.code(), Some(2));

    fs::remove_file(data.join("installation")).expect("the mark of this release");
    let mut server = Running::start(public());
    let warned = server.wait_for(|line| line.contains("next major version"));
    assert!(warned.contains("WARN"), "{warned}");
    let line = server.wait_for(|line| line.starts_with("listening on "));
    let port = line
        .split(':')
        .nth(2)
        .and_then(|port| port.split(',').next())
        .expect("a port");
    let ready = output(tideline(&[
        "ready",
        "--server",
        &format!("http://127.0.0.1:{port}"),
    ]));
    let shown = text(&ready.stdout);
    assert!(
        ready.status.success() && shown.contains("in clear text"),
        "{shown}"
    );
    server.signal(Signal::TERM);
    assert!(server.end().0.success());
}

#[test]
fn the_version_names_the_product() {
    let version = output(tideline(&["--version"]));
    assert!(text(&version.stdout).starts_with(concat!("tideline ", env!("CARGO_PKG_VERSION"))));
}
