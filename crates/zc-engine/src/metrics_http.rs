//! The numbers over HTTP, for Prometheus: `GET /metrics`.
//!
//! Invariants: nothing is changed, and nothing else is served. Connections are bounded in number and in time, and serve
//! one request each. It runs on the control thread; the data plane answers one message for a scrape, as for `stats`.
//!
//! What it does not do: TLS, passwords. The address in the configuration is who may read (`metrics.listen`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::control::Shared;
use crate::exposition::Format;
use crate::limits::{SCRAPE_HEAD_MS_MAX, SCRAPE_MS_MAX, SCRAPE_REQUEST_BYTES_MAX, SCRAPES_MAX};

/// The only thing there is.
const PATH: &str = "/metrics";

/// Serves for ever.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(SCRAPES_MAX));
    loop {
        // Further ones wait in the kernel, each no longer than those before it may take.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let bound = Duration::from_millis(SCRAPE_MS_MAX);
                    if tokio::time::timeout(bound, one(&shared, stream)).await.is_err() {
                        tracing::debug!("a scrape took too long");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept at metrics.listen: {error}");
                // Out of descriptors, most likely: not to be asked again at once.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One request of a connection.
async fn one(shared: &Shared, stream: TcpStream) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(shared, &request).await) });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(SCRAPE_HEAD_MS_MAX));
    http.keep_alive(false).max_buf_size(SCRAPE_REQUEST_BYTES_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("scrape: {error}");
    }
}

async fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "zcached: the numbers are at /metrics\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "zcached: GET only\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let format = wanted(request.headers());
    match shared.metrics(format).await {
        Ok(text) => told(StatusCode::OK, format.content_type(), text),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("zcached: {error}\n")),
    }
}

/// OpenMetrics for those that know it, as Prometheus says of itself.
fn wanted(headers: &HeaderMap) -> Format {
    let knows = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if knows.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        Format::OpenMetrics
    } else {
        Format::Classic
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    told(status, "text/plain; charset=utf-8", text)
}

fn told(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
