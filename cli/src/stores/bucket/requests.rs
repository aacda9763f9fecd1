//! Requests to an object store over HTTP/1.1: their time limits, and the header that makes completing a multipart upload conditional.
//!
//! An answer is read as a whole before the client sees it, so that a time limit holds for all of it, and half a body is an error of the request,
//! which can be repeated.

use super::failure::{Failure, innermost, note};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use nigh_shard::backup::READ_MAX_BYTES;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The longest answer, bytes: a page of a listing has some hundred kilobytes, and a read is for at most [`READ_MAX_BYTES`].
const ANSWER_MAX_BYTES: usize = READ_MAX_BYTES + (1 << 20);
/// How long a connection may wait for the next request.
const IDLE: Duration = Duration::from_secs(30);

/// How long requests may take, and how often they are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The time within which a connection must be made.
    pub connect: Duration,
    /// The time for a request and its whole answer, in addition to the time that its bytes may take.
    pub request: Duration,
    /// The lowest rate at which bytes may be sent and received, at least 1.
    pub bytes_per_second_min: u64,
    /// The time for completing a multipart upload, during which the store may put the parts together.
    pub complete: Duration,
    /// How often a request that may be repeated is repeated.
    pub retries: usize,
    /// The wait before the first repetition; it doubles each time, up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest wait before a repetition.
    pub backoff_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(30),
            bytes_per_second_min: 128 << 10,
            complete: Duration::from_secs(300),
            retries: 4,
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// Makes requests. Clones share connections.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    limits: Limits,
}

impl Requests {
    /// Requests over TLS trust the authorities in `roots`.
    ///
    /// # Errors
    /// A sentence. With the crypto provider that is built in, there are no errors.
    pub fn new(roots: RootCertStore, limits: Limits) -> Result<Requests, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(limits.connect));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Requests { client, limits })
    }

    fn time_limit(&self, request: &HttpRequest) -> Duration {
        if completes(request) {
            return self.limits.complete;
        }
        let sent = request.body().content_length() as u64;
        let received = if request.method() == Method::GET { READ_MAX_BYTES as u64 } else { 0 };
        self.limits.request + Duration::from_secs((sent + received) / self.limits.bytes_per_second_min.max(1))
    }

    /// Sends a request and receives the whole answer.
    async fn exchange(&self, request: HttpRequest) -> Result<Response<Bytes>, Broken> {
        let answer = self.client.request(request).await.map_err(Broken::sending)?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX_BYTES).collect().await.map_err(Broken::receiving)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// Whether a request completes a multipart upload.
fn completes(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::POST && query.split('&').any(|pair| pair.starts_with("uploadId="))
}

/// A request without a whole answer.
struct Broken {
    kind: HttpErrorKind,
    why: String,
}

impl Broken {
    fn sending(error: ClientError) -> Broken {
        let cause = innermost(&error);
        // No later try changes what the other side shows.
        if has::<rustls::Error>(&error) {
            return Broken { kind: HttpErrorKind::Unknown, why: format!("TLS failed: {cause}") };
        }
        match error.is_connect() {
            true => {
                Broken { kind: HttpErrorKind::Connect, why: format!("no connection could be made: {cause}") }
            }
            false => Broken {
                kind: HttpErrorKind::Interrupted,
                why: format!("the connection broke before the answer: {cause}"),
            },
        }
    }

    fn receiving(error: Box<dyn Error + Send + Sync>) -> Broken {
        match error.is::<LengthLimitError>() {
            true => Broken {
                kind: HttpErrorKind::Decode,
                why: format!("the answer has more than {ANSWER_MAX_BYTES} bytes"),
            },
            false => Broken {
                kind: HttpErrorKind::Interrupted,
                why: format!("the connection broke in the middle of the answer: {}", innermost(&*error)),
            },
        }
    }
}

/// Whether an error of this type is in the chain, also inside errors of I/O, which do not count what they hold as their source.
fn has<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<E>()
        || held.is_some_and(|held| has::<E>(held))
        || error.source().is_some_and(|source| has::<E>(source))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Why(String);

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_completing = completes(&request);
        if is_completing {
            // The client overwrites an object that has the key. The signature need not cover this header.
            request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let limit = self.time_limit(&request);
        let ended = match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(ended) => ended,
            Err(_) => Err(Broken {
                kind: HttpErrorKind::Timeout,
                why: format!("no whole answer came within {limit:?}"),
            }),
        };
        match ended {
            Ok(answer) => {
                // The store has begun its answer before it knew how completing would end.
                let is_late_error = is_completing && answer.body().windows(7).any(|part| part == b"<Error>");
                let is_well = answer.status().is_success() && !is_late_error;
                note((!is_well).then(|| Failure::answered(answer.status(), answer.body())));
                let (mut parts, body) = answer.into_parts();
                if is_late_error && parts.status == StatusCode::OK {
                    parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                }
                Ok(Response::from_parts(parts, HttpResponseBody::from(body)))
            }
            Err(Broken { kind, why }) => {
                let is_temporary = !matches!(kind, HttpErrorKind::Decode | HttpErrorKind::Unknown);
                note(Some(Failure::unanswered(why.clone(), is_temporary)));
                Err(HttpError::new(kind, Why(why)))
            }
        }
    }
}

impl HttpConnector for Requests {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// A request without a body.
pub(super) fn bare(method: Method, url: &str) -> Result<HttpRequest, http::Error> {
    Request::builder().method(method).uri(url).body(HttpRequestBody::empty())
}
