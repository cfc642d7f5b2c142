//! Metrics over HTTP, for Prometheus: `GET /metrics`.
//!
//! Invariants: nothing is changed, and nothing else is served. A scrape costs the data plane one message, like
//! `stats`.
//!
//! It does not accept connections (`http`), or authenticate readers. The configured address restricts access
//! (`metrics.listen`).

use std::sync::Arc;

use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;

use crate::control::Shared;
use crate::http::{self, Answer, plain, response, wrong_method};
use crate::observe::exposition::Format;

const PATH: &str = "/metrics";

pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let answer = move |request| {
        let shared = Arc::clone(&shared);
        async move { answer(&shared, &request).await }
    };
    http::serve(listener, "metrics.listen", answer).await;
}

async fn answer(shared: &Shared, request: &Parts) -> Answer {
    if request.uri.path() != PATH {
        return plain(StatusCode::NOT_FOUND, "zcached: the metrics are at /metrics\n");
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return wrong_method("GET, HEAD");
    }
    let format = wanted(&request.headers);
    match shared.metrics(format).await {
        Ok(text) => response(StatusCode::OK, format.content_type(), text),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("zcached: {error}\n")),
    }
}

/// Returns OpenMetrics if the client supports it, as Prometheus does.
fn wanted(headers: &HeaderMap) -> Format {
    let knows = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if knows.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        Format::OpenMetrics
    } else {
        Format::Classic
    }
}
