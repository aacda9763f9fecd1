//! Aborts multipart uploads that a killed process left. Their parts are stored, and paid for, until somebody does.

use super::Bucket;
use super::failure::store_call;
use super::requests::bare;
use crate::backup_settings::BucketSettings;
use http::Method;
use jiff::Timestamp;
use nigh_shard::backup::StoreError;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ClientOptions, Error};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::time::Duration;

/// An upload of this age belongs to nobody any more.
pub(super) const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// How long after the start of the process the first sweep begins: a start has more urgent things to do.
const FIRST: Duration = Duration::from_secs(60);
/// The time between two sweeps.
const BETWEEN: Duration = Duration::from_secs(24 * 3600);
/// Pages that one sweep looks at, so that it ends: a page has up to 1000 uploads.
const PAGES_MAX: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Uploads {
    #[serde(rename = "Upload")]
    uploads: Vec<Begun>,
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Begun {
    key: String,
    upload_id: String,
    initiated: String,
}

/// Sweeps once in a while, for as long as the runtime runs.
pub(super) async fn run(bucket: Bucket) {
    tokio::time::sleep(FIRST).await;
    loop {
        match sweep(&bucket, ABANDONED).await {
            Ok(0) => {}
            Ok(aborted) => {
                tracing::info!(aborted, "multipart uploads that killed processes left were aborted")
            }
            // Nothing but space depends on it, and not every store lists its uploads.
            Err(error) => tracing::warn!("unfinished multipart uploads were not swept: {error}"),
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Aborts the uploads below the prefix that were begun at least `age` ago; how many.
pub(super) async fn sweep(bucket: &Bucket, age: Duration) -> Result<usize, StoreError> {
    let prefix = bucket.key_prefix();
    // Others may have uploads everywhere in the bucket, and nothing tells them from ours.
    if prefix.is_empty() {
        return Ok(0);
    }
    let now = Timestamp::now();
    let (mut aborted, mut markers) = (0, None);
    for _ in 0..PAGES_MAX {
        let page = page(bucket, &prefix, markers.as_ref()).await?;
        for Begun { key, upload_id, initiated } in page.uploads {
            let is_old = initiated.parse::<Timestamp>().is_ok_and(|begun| {
                now.duration_since(begun).as_millis() >= i128::try_from(age.as_millis()).unwrap_or(i128::MAX)
            });
            // A store that does not know the parameter lists uploads of others.
            if !key.starts_with(&prefix) || !is_old {
                continue;
            }
            let Ok(path) = Path::parse(&key) else { continue };
            match store_call(&key, bucket.client.abort_multipart(&path, &upload_id)).await {
                // It is gone meanwhile.
                Ok(()) | Err(StoreError::NotFound { .. }) => aborted += 1,
                Err(error) => return Err(error),
            }
        }
        match (page.is_truncated, page.next_key_marker) {
            (true, Some(key)) => markers = Some((key, page.next_upload_id_marker.unwrap_or_default())),
            _ => break,
        }
    }
    Ok(aborted)
}

async fn page(
    bucket: &Bucket,
    prefix: &str,
    markers: Option<&(String, String)>,
) -> Result<Uploads, StoreError> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut url = format!("{}?max-uploads=1000&prefix={}&uploads=", bucket.url, encoded(prefix));
    if let Some((key, upload)) = markers {
        url = format!(
            "{}?key-marker={}&max-uploads=1000&prefix={}&upload-id-marker={}&uploads=",
            bucket.url,
            encoded(key),
            encoded(prefix),
            encoded(upload)
        );
    }
    let ended = async {
        let mut request = bare(Method::GET, &url).map_err(unusable)?;
        let BucketSettings { credentials, region, .. } = &bucket.settings;
        let credential = AwsCredential {
            key_id: credentials.access_key.clone(),
            secret_key: credentials.secret_key.clone(),
            token: credentials.session_token.clone(),
        };
        AwsAuthorizer::new(&credential, "s3", region).try_authorize(&mut request, None)?;
        let client: HttpClient = bucket.requests.connect(&ClientOptions::default())?;
        let answer = client.execute(request).await.map_err(unusable)?;
        if !answer.status().is_success() {
            return Err(unusable(std::io::Error::other(answer.status().to_string())));
        }
        let body = answer.into_body().bytes().await.map_err(unusable)?;
        quick_xml::de::from_reader(body.as_ref()).map_err(unusable)
    };
    store_call(prefix, ended).await
}

/// An error as those of the client of object stores, which names its source.
fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "S3", source: Box::new(error) }
}
