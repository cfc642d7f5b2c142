//! HTTP/1.1 for read-only clients: metrics for Prometheus, and the live page.
//!
//! Job: accept connections at an address, pass the head of each request to its handler, and send the response.
//! Invariants: connections are bounded in number and in time, and serve one request each; a request's body is not
//! read. Silent clients do not block others ([`Places`]). It runs on the control thread, so the data plane never waits
//! for a client here.
//!
//! Out of scope: TLS, passwords, paths. Hyper, which serves the metrics, suffices for the live page: a framework with
//! a router (axum) would save one `match` over four paths.

mod connection_limit;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use zc_config::MetricsConfig;

use crate::http::connection_limit::{Place, Places};
use crate::limits::{
    HTTP_ANSWERS_MAX, HTTP_CONNECTIONS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_HEAD_MS_MAX, HTTP_IPV6_PREFIX_BITS,
    HTTP_REQUEST_MS_MAX,
};
use zc_engine::error::EngineError;
use zc_engine::front::listen::bind_tcp;
use zc_engine::front::peer::{Peer, Source};

pub(crate) type Answer = Response<Full<Bytes>>;

/// Addresses of the read-only services.
#[derive(Debug)]
pub(crate) struct Web<L> {
    /// The numbers, `metrics.listen`.
    pub(crate) metrics: Option<L>,
    /// The live page, `metrics.page`.
    pub(crate) page: Option<L>,
}

impl Web<StdTcpListener> {
    /// Listens at the addresses of the configuration.
    pub(crate) fn listen(config: &MetricsConfig) -> Result<Self, EngineError> {
        let at = |key: &str, address: Option<SocketAddr>| address.map(|at| listen(key, at)).transpose();
        Ok(Self { metrics: at("metrics.listen", config.listen)?, page: at("metrics.page", config.page)? })
    }

    /// Hands the sockets to the runtime that calls.
    pub(crate) fn into_tokio(self) -> std::io::Result<Web<TcpListener>> {
        let take = |socket: Option<StdTcpListener>| socket.map(TcpListener::from_std).transpose();
        Ok(Web { metrics: take(self.metrics)?, page: take(self.page)? })
    }
}

impl Web<TcpListener> {
    /// Returns the addresses, with their actual ports.
    pub(crate) fn addresses(&self) -> Web<SocketAddr> {
        let address = |socket: &Option<TcpListener>| socket.as_ref()?.local_addr().ok();
        Web { metrics: address(&self.metrics), page: address(&self.page) }
    }
}

fn listen(key: &str, address: SocketAddr) -> Result<StdTcpListener, EngineError> {
    let fail = |source| EngineError::io(format!("{key}: cannot listen on {address}"), source);
    let listener = bind_tcp(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

/// Serves forever; `key` is the configuration key of the address.
pub(crate) async fn serve<F, A>(listener: TcpListener, key: &'static str, answer: F)
where
    F: Fn(Parts) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send,
{
    let places = Places::new(HTTP_CONNECTIONS_MAX, HTTP_ANSWERS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let peer = Peer::Ip(address.ip().to_canonical());
                let place = places.enter(Source::of(peer, HTTP_IPV6_PREFIX_BITS));
                let answer = answer.clone();
                tokio::spawn(async move {
                    let bound = Duration::from_millis(HTTP_REQUEST_MS_MAX);
                    tokio::select! {
                        () = place.displaced() => tracing::debug!("{key}: {address} made way for another client"),
                        served = tokio::time::timeout(bound, one(stream, &place, answer)) => if served.is_err() {
                            tracing::debug!("{key}: a request took too long");
                        },
                    }
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept at {key}: {error}");
                // Probably out of descriptors: pause before the next attempt.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves the single request of a connection.
async fn one<F, A>(stream: TcpStream, place: &Place, answer: F)
where
    F: Fn(Parts) -> A,
    A: Future<Output = Answer>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.into_parts().0);
        async move { Ok::<_, Infallible>(place.answer(answer).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(HTTP_HEAD_MS_MAX));
    http.keep_alive(false).max_buf_size(HTTP_HEAD_BYTES_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("an HTTP connection: {error}");
    }
}

/// A line of text for people.
pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    response(status, "text/plain; charset=utf-8", text)
}

/// The request's method is not one of `allowed`.
pub(crate) fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "zcached: GET only\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(crate) fn response(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
