//! Targets and patterns of hosts: accepted texts, refused texts and their errors.
//!
//! The refused addresses include the notations that have misled parsers of other products.

use tideline_webhooks::{HostPattern, Network, Target, TargetError, WebhookSettings};

fn settings(hosts: &[&str], networks: &[&str]) -> WebhookSettings {
    WebhookSettings {
        hosts: hosts.iter().map(|text| text.parse().expect("a host")).collect(),
        networks: networks
            .iter()
            .map(|text| text.parse().expect("a network"))
            .collect(),
        ..WebhookSettings::default()
    }
}

#[test]
fn addresses_on_allowed_hosts_are_targets() {
    let settings = settings(
        &[
            "hooks.example.com",
            "*.example.org",
            "bücher.example",
            "203.0.114.5",
            "[2600::5]",
            "127.0.0.1",
            "::ffff:127.0.0.1",
        ],
        &["127.0.0.1/32"],
    );
    for (text, normalised) in [
        ("https://hooks.example.com", "https://hooks.example.com/"),
        (
            "https://HOOKS.example.COM:443/a?b=c",
            "https://hooks.example.com/a?b=c",
        ),
        (
            "https://hooks.example.com:8443/ü",
            "https://hooks.example.com:8443/%C3%BC",
        ),
        ("https://a.example.org/", "https://a.example.org/"),
        ("https://a.b.example.org/", "https://a.b.example.org/"),
        ("https://BÜCHER.example/", "https://xn--bcher-kva.example/"),
        ("https://203.0.114.5/", "https://203.0.114.5/"),
        ("https://0xcb.0.114.5/", "https://203.0.114.5/"),
        ("https://[2600:0::5]/", "https://[2600::5]/"),
        ("https://127.0.0.1/", "https://127.0.0.1/"),
        ("http://127.0.0.1:80/", "http://127.0.0.1/"),
        ("https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
        // The address of the name is checked by the connection.
        ("http://hooks.example.com/", "http://hooks.example.com/"),
    ] {
        let target = Target::parse(text, &settings).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(target.as_str(), normalised);
    }
}

#[test]
fn other_addresses_are_refused_with_a_reason() {
    let allowed = settings(
        &[
            "hooks.example.com",
            "*.example.org",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "192.168.1.1",
            "203.0.114.5",
        ],
        &["192.168.1.0/24"],
    );
    let long = format!("https://hooks.example.com/{}", "x".repeat(2048));
    let growing = format!("https://hooks.example.com/{}", "ü".repeat(800));
    for (text, expected) in [
        (long.as_str(), "at most 2048 are allowed"),
        (growing.as_str(), "at most 2048 are allowed"),
        ("", "use https://host/path"),
        ("hooks.example.com", "use https://host/path"),
        ("https://", "use https://host/path"),
        (" https://hooks.example.com", "spaces"),
        ("https://hooks.example.com/\n", "spaces"),
        ("https://hooks.exa\tmple.com/", "spaces"),
        ("ftp://hooks.example.com/", "\"ftp\""),
        ("file:///etc/passwd", "\"file\""),
        ("data:text/plain,x", "\"data\""),
        ("gopher://hooks.example.com/", "\"gopher\""),
        ("https://user@hooks.example.com/", "user name"),
        ("https://:word@hooks.example.com/", "user name"),
        ("https://hooks.example.com#x", "fragment"),
        ("https://hooks.example.com/#", "fragment"),
        ("https://hooks.example.com:0/", "port 0"),
        ("https://hooks.example.com:65536/", "port"),
        ("https://hooks.example.com./", "ends with a dot"),
        ("https://example.com/", "`webhooks.hosts`"),
        ("https://example.org/", "`webhooks.hosts`"),
        ("https://aexample.org/", "`webhooks.hosts`"),
        ("https://.example.org/", "`webhooks.hosts`"),
        ("https://hooks.example.com.evil.net/", "`webhooks.hosts`"),
        ("https://evil.net\\@hooks.example.com/", "`webhooks.hosts`"),
        ("https://localhost/", "`webhooks.hosts`"),
        ("https://8.8.8.8/", "`webhooks.hosts`"),
        ("https://[::1]/", "`webhooks.hosts`"),
        // Listed as hosts, but their addresses are not allowed.
        ("https://127.0.0.1/", "127.0.0.1 is not public"),
        ("https://2130706433/", "127.0.0.1 is not public"),
        ("https://127.1/", "127.0.0.1 is not public"),
        ("https://[::ffff:7f00:1]/", "is not public"),
        ("http://203.0.114.5/", "use https"),
        ("http://127.0.0.1/", "use https"),
    ] {
        let error = Target::parse(text, &allowed).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
        assert!(!error.contains("word") || expected == "user name", "{error}");
    }
    let public_only = settings(&["hooks.example.com"], &[]);
    let error = Target::parse("http://hooks.example.com/", &public_only);
    assert_eq!(error, Err(TargetError::PlainHttp));
}

#[test]
fn without_hosts_there_are_no_targets() {
    let off = WebhookSettings::default();
    assert_eq!(
        Target::parse("https://hooks.example.com/", &off),
        Err(TargetError::Off)
    );
}

#[test]
fn logs_show_no_path_and_no_query() {
    let settings = settings(&["hooks.example.com"], &[]);
    let target =
        Target::parse("https://hooks.example.com:8443/token/abc?key=def", &settings).expect("a target");
    assert_eq!(target.to_string(), "https://hooks.example.com:8443");
    assert_eq!(target.host(), "hooks.example.com");
    let debug = format!("{target:?}");
    assert!(!debug.contains("token") && !debug.contains("key"), "{debug}");
}

#[test]
fn patterns_of_hosts_are_read_and_shown() {
    for (text, shown) in [
        ("hooks.example.com", "hooks.example.com"),
        ("*.Example.COM", "*.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("[::1]", "::1"),
        ("2001:db8::0:1", "2001:db8::1"),
    ] {
        let pattern: HostPattern = text.parse().expect(text);
        assert_eq!(pattern.to_string(), shown);
    }
    for (text, reason) in [
        ("", "not valid"),
        ("*", "wildcard for all hosts"),
        ("*.", "wildcard for all hosts"),
        ("a*.example.com", "whole labels"),
        ("*.*.example.com", "whole labels"),
        ("hooks.*.com", "whole labels"),
        ("https://hooks.example.com", "scheme"),
        ("hooks.example.com:443", "port"),
        ("hooks.example.com/path", "path"),
        ("user@hooks.example.com", "user"),
        (".example.com", "empty label"),
        ("example.com.", "empty label"),
        ("*..example.com", "empty label"),
        ("*.10.0.0.1", "not valid"),
        ("a b", "not valid"),
        ("10.0.0.0/8", "path"),
    ] {
        let error = text.parse::<HostPattern>().expect_err(text).to_string();
        assert!(
            error.contains(reason) && error.contains("*.example.com"),
            "{text:?}: {error}"
        );
    }
    assert!("10.0.0.0/33".parse::<Network>().is_err());
}
