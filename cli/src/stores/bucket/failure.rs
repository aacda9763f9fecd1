//! What a failed request means for its object.
//!
//! The client of object stores says in one text what went wrong with a call, after all its tries. The requests below it are ours (`requests`), so
//! each failed one is noted here, for the call that it belongs to, and the note of the last one becomes the error. The note never holds what a
//! request sent, and of an answer only its code and message: other parts repeat the access key and the signature.

use http::StatusCode;
use nigh_shard::backup::StoreError;
use std::cell::RefCell;
use std::error::Error;
use std::future::Future;

/// An error shows at most so many characters of a store's message.
const MESSAGE_MAX_CHARS: usize = 300;

tokio::task_local! {
    static LAST: RefCell<Option<Failure>>;
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The status of the store's answer, or `None` if no answer came.
    pub status: Option<StatusCode>,
    /// The store's name of the error, such as `NoSuchBucket`.
    pub code: Option<String>,
    /// What failed, without a full stop.
    pub why: String,
    /// Whether the same request may succeed later.
    pub is_temporary: bool,
}

impl Failure {
    /// A request without an answer.
    pub fn unanswered(why: String, is_temporary: bool) -> Failure {
        Failure { status: None, code: None, why, is_temporary }
    }

    /// An answer that is an error. `body` is its document in XML, if it has one; one with status 200 is an error where its document says so.
    pub fn answered(status: StatusCode, body: &[u8]) -> Failure {
        let body = String::from_utf8_lossy(body);
        let code = element(&body, "Code");
        let message = element(&body, "Message");
        let mut why = format!("the answer was {status}");
        match (&code, message) {
            (Some(code), Some(message)) => why = format!("{why} ({code}: {message})"),
            (Some(code), None) => why = format!("{why} ({code})"),
            (None, _) => {}
        }
        if status.is_redirection() {
            why.push_str("; the region or the endpoint may be another");
        }
        let is_known_as_temporary =
            matches!(code.as_deref(), Some("RequestTimeout" | "SlowDown" | "InternalError"));
        let is_temporary = is_known_as_temporary
            || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        Failure { status: Some(status), code, why, is_temporary }
    }

    /// What the failure says about the object `key`.
    fn of(self, key: &str) -> StoreError {
        let Failure { status, code, why, is_temporary } = self;
        let key = key.to_owned();
        match (status, code.as_deref()) {
            (Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _)
            | (_, Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired")) => {
                StoreError::Refused { key, why }
            }
            (Some(StatusCode::NOT_FOUND), None | Some("NoSuchKey")) => StoreError::NotFound { key },
            (Some(StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED), _) => {
                StoreError::Exists { key }
            }
            _ => StoreError::Io { key, why, is_temporary },
        }
    }
}

/// The text of the first element of a name in an error document, cut to a line that can be shown.
fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let shown: String = text.chars().filter(|letter| !letter.is_control()).take(MESSAGE_MAX_CHARS).collect();
    let shown = shown.trim().trim_end_matches('.');
    (!shown.is_empty()).then(|| shown.to_owned())
}

/// Notes how a request of the running call ended; `None`: well.
pub(super) fn note(failure: Option<Failure>) {
    // Outside a call nobody reads it.
    let _outside = LAST.try_with(|last| *last.borrow_mut() = failure);
}

/// Whether the last request of a call was refused because its range begins at or after the end of the object.
const BEYOND_THE_END: StatusCode = StatusCode::RANGE_NOT_SATISFIABLE;

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The object has no bytes in the range.
    BeyondTheEnd,
    /// Anything else.
    Store(StoreError),
}

/// Makes a call that is about the object `key`, and says how its last request failed if it did.
pub(super) async fn call<T>(
    key: &str,
    call: impl Future<Output = object_store::Result<T>>,
) -> Result<T, CallError> {
    let ended = async {
        let ended = call.await;
        (ended, LAST.with(RefCell::take))
    };
    match LAST.scope(RefCell::default(), ended).await {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(last)) if last.status == Some(BEYOND_THE_END) => Err(CallError::BeyondTheEnd),
        (Err(_), Some(last)) => Err(CallError::Store(last.of(key))),
        // Each request was answered, and the client makes no sense of the last answer.
        (Err(error), None) => {
            let why = format!("the answer is not what was asked for ({})", innermost(&error));
            Err(CallError::Store(StoreError::Io { key: key.to_owned(), why, is_temporary: false }))
        }
    }
}

/// [`call`] of anything but a range.
pub(super) async fn store_call<T>(
    key: &str,
    future: impl Future<Output = object_store::Result<T>>,
) -> Result<T, StoreError> {
    call(key, future).await.map_err(|error| match error {
        CallError::Store(error) => error,
        CallError::BeyondTheEnd => {
            let why = format!("the answer was {BEYOND_THE_END}");
            StoreError::Io { key: key.to_owned(), why, is_temporary: false }
        }
    })
}

/// The cause at the end of a chain: those before it repeat it with more words.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text: String = last.to_string().chars().take(MESSAGE_MAX_CHARS).collect();
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_errors_that_hold_no_credential() {
        let document = "<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature is wrong.</Message>\
                        <AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
        let failure = Failure::answered(StatusCode::FORBIDDEN, document.as_bytes());
        assert_eq!(
            failure.clone().of("t/a"),
            StoreError::Refused {
                key: "t/a".into(),
                why: "the answer was 403 Forbidden (SignatureDoesNotMatch: The request signature is wrong)"
                    .into()
            }
        );
        assert!(!format!("{failure:?}").contains("AKIA"));
        for (status, body, expected) in [
            (404, "", StoreError::NotFound { key: "k".into() }),
            (404, "<Code>NoSuchKey</Code>", StoreError::NotFound { key: "k".into() }),
            (412, "<Code>PreconditionFailed</Code>", StoreError::Exists { key: "k".into() }),
            (409, "<Code>ConditionalRequestConflict</Code>", StoreError::Exists { key: "k".into() }),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Failure::answered(status, body.as_bytes()).of("k"), expected);
        }
        for (status, body, temporary) in [
            (404, "<Code>NoSuchBucket</Code>", false),
            (500, "", true),
            (501, "", false),
            (503, "<Code>SlowDown</Code>", true),
            (400, "<Code>RequestTimeout</Code>", true),
            (400, "<Code>InvalidPart</Code>", false),
            (301, "<Code>PermanentRedirect</Code>", false),
            (200, "<Error><Code>InternalError</Code></Error>", true),
            (400, "\0<Code>", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = Failure::answered(status, body.as_bytes()).of("k");
            assert!(matches!(error, StoreError::Io { .. }) && error.is_temporary() == temporary, "{error}");
        }
        let expired = Failure::answered(StatusCode::BAD_REQUEST, b"<Code>ExpiredToken</Code>").of("k");
        assert!(matches!(expired, StoreError::Refused { .. }), "{expired}");
    }
}
