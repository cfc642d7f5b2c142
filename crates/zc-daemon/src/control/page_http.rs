//! The live page over HTTP: a document, its style, its script, and its data.
//!
//! The page has an address of its own (`metrics.page`), apart from `metrics.listen`. A Prometheus server may be on
//! another machine and use any name for this one. A browser runs untrusted scripts, and one of them could map its own
//! name to this machine's address (DNS rebinding). Therefore the Host header must be an IP address or `localhost`,
//! which no attacker can own.
//!
//! Invariants: GET alone; nothing is changed. The page sends no requests to other servers, and its policy forbids
//! them.
//! It does not accept connections (`http`), select data (`live`), or implement TLS and passwords.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use tokio::net::TcpListener;

use crate::control::Shared;
use crate::http::{self, Answer, plain, response, wrong_method};

const DOCUMENT: &str = include_str!("../../page/page.html");
const STYLE: &str = include_str!("../../page/page.css");
const SCRIPT: &str = include_str!("../../page/page.js");

/// Data URLs are for the empty icon alone, which prevents browsers from requesting another.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let answer = move |request| {
        let shared = Arc::clone(&shared);
        async move {
            let mut answer = answer(&shared, &request).await;
            for (name, value) in HEADERS {
                answer.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            answer
        }
    };
    http::serve(listener, "metrics.page", answer).await;
}

async fn answer(shared: &Shared, request: &Parts) -> Answer {
    if !is_for_us(request) {
        let text = "zcached: name the page by its IP address or as localhost\n";
        return plain(StatusCode::MISDIRECTED_REQUEST, text);
    }
    let (content_type, text) = match request.uri.path() {
        "/" => ("text/html; charset=utf-8", DOCUMENT),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/live.json" => ("application/json", ""),
        _ => return plain(StatusCode::NOT_FOUND, "zcached: the live page is at /\n"),
    };
    if request.method != Method::GET {
        return wrong_method("GET");
    }
    if !text.is_empty() {
        return response(StatusCode::OK, content_type, text);
    }
    let live = shared.live().await.and_then(|live| serde_json::to_vec(&live).map_err(|e| e.to_string()));
    match live {
        Ok(text) => response(StatusCode::OK, content_type, text),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("zcached: {error}\n")),
    }
}

/// Returns `true` if the request names its server by names that are this machine's alone.
fn is_for_us(request: &Parts) -> bool {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let in_target = request.uri.host();
    host.to_str().is_ok_and(|host| is_local(without_port(host))) && in_target.is_none_or(is_local)
}

fn without_port(host: &str) -> &str {
    // The colons of an IPv6 address stand within brackets.
    let end = host.rfind(']').map_or(0, |at| at + 1);
    host[end..].find(':').map_or(host, |at| &host[..end + at])
}

fn is_local(host: &str) -> bool {
    let is_v6 = |inner: &str| inner.parse::<Ipv6Addr>().is_ok();
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => is_v6(inner),
        None => host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn asks(target: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        is_for_us(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn only_names_that_no_stranger_can_own_are_served() {
        for host in
            ["127.0.0.1:10811", "127.0.0.1", "localhost:8080", "LocalHost", "[::1]:9", "[::1]", "192.0.2.7:1"]
        {
            assert!(asks("/", &[host]), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[evil]:1", "[::1"]
        {
            assert!(!asks("/", &[host]), "{host}");
        }
        assert!(!asks("/", &[]));
        assert!(!asks("/", &["localhost", "localhost"]), "which of them counts?");
        assert!(!asks("http://evil.example/", &["localhost"]));
        assert!(asks("http://[::1]:7/", &["localhost"]));
    }

    #[test]
    fn the_page_names_no_other_server() {
        for text in [DOCUMENT, STYLE, SCRIPT] {
            let addresses = text.replace("http://www.w3.org/2000/svg", "a name, not an address");
            assert!(text.is_ascii() && !addresses.contains("://"), "{text}");
        }
    }
}
