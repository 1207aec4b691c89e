//! Tests of the command line with a server behind a TLS proxy: success with trusted and errors with untrusted
//! certificates.
//!
//! The proxy has a certificate of an authority that each test creates.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::lab::Lab;

/// Proxy that terminates TLS in front of a server. Ends when dropped.
struct Proxy {
    _runtime: Runtime,
    address: SocketAddr,
    /// Certificate of the authority that issued the proxy's certificate, in PEM.
    authority: String,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .expect("a key and its certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = Runtime::new().expect("a runtime");
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a port");
        let address = listener.local_addr().expect("it listens");
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await.ok()?;
                    let mut server = TcpStream::connect(server).await.ok()?;
                    copy_bidirectional(&mut client, &mut server).await.ok()
                });
            }
        });
        Self {
            _runtime: runtime,
            address,
            authority: authority.pem(),
        }
    }
}

fn behind_tls() -> (Lab, Proxy) {
    let lab = Lab::start();
    let server = lab.url.trim_start_matches("http://").parse().expect("an address");
    let proxy = Proxy::start(server);
    (lab, proxy)
}

#[test]
fn servers_of_https_are_reached_with_the_authority_that_is_named() {
    let (lab, proxy) = behind_tls();
    let ca = lab.file("ca.pem", &proxy.authority);
    let points = lab.file("points.lp", "room,host=a temperature=20 1700000000000000000\n");
    let port = proxy.address.port();
    for host in ["127.0.0.1", "localhost"] {
        let server = format!("https://{host}:{port}");
        lab.ok(&["write", "--server", &server, "--ca", &ca, &points]);
        let all = [
            "query",
            "-m",
            "room",
            "--from",
            "2023-11-14",
            "--to",
            "2023-11-16",
            "--json",
        ];
        let response = lab.ok(&[&all[..], &["--server", &server, "--ca", &ca]].concat());
        assert!(response.contains("20"), "{response}");
    }
    // A profile can name the CA file with its server.
    let profiles = format!("[profiles.lab]\nserver = \"https://localhost:{port}\"\nca_file = \"~/ca.pem\"\n");
    std::fs::create_dir_all(lab.path(".config/tideline")).expect("a folder");
    lab.file(".config/tideline/profiles.toml", profiles);
    lab.ok(&["tables", "list", "--profile", "lab"]);
}

#[test]
fn a_server_that_is_not_trusted_gets_nothing() {
    let (lab, proxy) = behind_tls();
    let other = Proxy::start(proxy.address);
    let ca = lab.file("other.pem", &other.authority);
    let points = lab.file("points.lp", "room,host=a temperature=20\n");
    let server = format!("https://{}", proxy.address);
    for trusted in [&[][..], &["--ca", &ca]] {
        let ended = lab.run(&[&["write", "--server", &server, &points], trusted].concat());
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(
            ended.err.contains("no TLS connection") && ended.err.contains("--ca"),
            "{ended:?}"
        );
    }
    let ended = lab.run(&["tables", "list", "--json", "--server", &server]);
    assert!(
        ended.err.contains(r#""code":"tls""#) && ended.err.contains(r#""retryable":false"#),
        "{ended:?}"
    );
    let clear = lab.url.replace("http://", "https://");
    let ended = lab.run(&["tables", "list", "--server", &clear]);
    assert!(ended.code == 1 && ended.err.contains("use http://"), "{ended:?}");
    let ended = lab.run(&["tables", "list", "--ca", &ca]);
    assert!(
        ended.code == 2 && ended.err.contains("https:// servers only"),
        "{ended:?}"
    );
    let ended = lab.run(&["tables", "list", "--server", &server, "--ca", &points]);
    assert!(
        ended.code == 2 && ended.err.contains("no certificate"),
        "{ended:?}"
    );
    let found = lab.run(&["find", "measurement=room"]);
    assert!(
        found.code == 1 && found.err.contains("room"),
        "nothing was written: {found:?}"
    );
}
