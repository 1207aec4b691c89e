//! Check of the requested host, against DNS rebinding.
//!
//! A page of another site can resolve its own host name to 127.0.0.1. The browser of a user on this machine
//! then treats this server as the same site and lets the page read its responses. Such a request contains the
//! foreign host name. Therefore only loopback hosts and the hosts in `http.hosts` are allowed. If a token is set and
//! `http.hosts` is empty, every host is allowed.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{Version, header};
use tideline_openapi::ErrorCode;

use crate::auth;
use crate::failure::{Failure, Result};
use crate::settings::HttpSettings;

/// Entry of `http.hosts` that allows every host.
const ANY_HOST: &str = "*";

/// Refuses a request whose `Host` header is missing (in HTTP/1.1 and later), repeated, malformed or not
/// allowed. Health checks may use any host: their responses contain no sensitive data, and probes often use
/// addresses.
pub(crate) fn admit(request: &Request, settings: &HttpSettings) -> Result<()> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(Failure::invalid(
            "the request has more than one Host header; send it once",
        ));
    }
    // An absolute URL in the request line overrides the header (RFC 9112, 3.2.2).
    if let Some(authority) = request.uri().authority() {
        return admit_authority(authority, request, settings);
    }
    let Some(host) = first else {
        return match request.version() {
            Version::HTTP_09 | Version::HTTP_10 => Ok(()),
            _ => Err(Failure::invalid(
                "the header Host is missing; HTTP/1.1 requires it",
            )),
        };
    };
    let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let authority =
        authority.ok_or_else(|| Failure::invalid("the header Host is not a host with an optional port"))?;
    admit_authority(&authority, request, settings)
}

fn admit_authority(authority: &Authority, request: &Request, settings: &HttpSettings) -> Result<()> {
    match auth::is_open(request.uri().path()) {
        true => Ok(()),
        false => admit_host(host_of(authority), settings),
    }
}

/// Returns the host of an authority without port, brackets and a trailing dot.
fn host_of(authority: &Authority) -> &str {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host)
}

/// Checks that a host is allowed; case-insensitive.
fn admit_host(host: &str, settings: &HttpSettings) -> Result<()> {
    let is_listed = || {
        let listed = |entry: &String| entry == ANY_HOST || entry.eq_ignore_ascii_case(host);
        settings.hosts.iter().any(listed)
    };
    let admits_any = settings.requires_token() && settings.hosts.is_empty();
    if admits_any || is_loopback(host) || is_listed() {
        return Ok(());
    }
    let host = host.to_ascii_lowercase();
    Err(Failure::new(
        ErrorCode::Forbidden,
        format!("requests to the host {host:?} are not allowed; add it to the setting http.hosts"),
    ))
}

/// Returns true if a host is always this machine: `localhost`, a subdomain of it, or a loopback address.
fn is_loopback(host: &str) -> bool {
    let last_label = host.rsplit_once('.').map_or(host, |(_, label)| label);
    last_label.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Secret;

    fn settings(has_token: bool, hosts: &[&str]) -> HttpSettings {
        HttpSettings {
            token: has_token.then(|| Secret::new("0123456789abcdef").expect("long enough")),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..HttpSettings::default()
        }
    }

    #[test]
    fn hosts_are_admitted_by_token_list_and_loopback() {
        for (host, has_token, hosts, is_admitted) in [
            ("localhost", false, &[][..], true),
            ("LocalHost", false, &[], true),
            ("metrics.localhost", false, &[], true),
            ("Metrics.LOCALHOST", false, &[], true),
            ("notlocalhost", false, &[], false),
            ("localhost.evil.example", false, &[], false),
            ("127.8.9.1", false, &[], true),
            ("::1", false, &[], true),
            ("::ffff:127.0.0.1", false, &[], true),
            ("evil.example", false, &[], false),
            ("127.0.0.1.evil.example", false, &[], false),
            ("192.0.2.7", false, &[], false),
            ("evil.example", true, &[], true),
            ("evil.example", true, &["db.example"], false),
            ("localhost", true, &["db.example"], true),
            ("db.example", false, &["DB.example"], true),
            ("192.0.2.7", false, &["*"], true),
        ] {
            let admitted = admit_host(host, &settings(has_token, hosts));
            assert_eq!(
                admitted.is_ok(),
                is_admitted,
                "{host}, token {has_token}, hosts {hosts:?}"
            );
        }
    }

    #[test]
    fn hosts_lose_port_brackets_and_dot() {
        for (authority, host) in [
            ("LocalHost:8490", "LocalHost"),
            ("[::1]:8490", "::1"),
            ("db.example.:80", "db.example"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            let authority: Authority = authority.parse().expect("an authority");
            assert_eq!(host_of(&authority), host);
        }
    }
}
