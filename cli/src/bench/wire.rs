//! Request bodies of the interface: binary and JSON ingest, binary and JSON queries, and the answers' ids.
use super::dataset::Matrix;
use serde::Deserialize;

/// Media type of the binary bodies.
pub const BINARY: &str = "application/octet-stream";
/// Media type of the JSON bodies.
pub const JSON: &str = "application/json";

/// Vectors and, when given, one tagged payload per row; the id of a point is its row number.
#[derive(Clone, Copy)]
pub struct Corpus<'a> {
    /// Vectors.
    pub docs: &'a Matrix<f32>,
    /// Encoded payloads; fewer than rows means that the rest have none.
    pub payloads: &'a [Vec<u8>],
}

/// An `RVB1` body for the points `ids`, into a buffer that is cleared first.
pub fn binary_ingest(body: &mut Vec<u8>, corpus: Corpus<'_>, ids: &[usize], upsert: bool) {
    body.clear();
    body.extend_from_slice(b"RVB1");
    let with_payloads = !corpus.payloads.is_empty();
    for word in [u32::from(with_payloads) | u32::from(upsert) << 1, ids.len() as u32, corpus.docs.dim as u32]
    {
        body.extend_from_slice(&word.to_be_bytes());
    }
    for &id in ids {
        body.extend_from_slice(&(id as u64).to_be_bytes());
        body.extend(corpus.docs.row(id).iter().flat_map(|value| value.to_be_bytes()));
    }
    if with_payloads {
        for &id in ids {
            let payload = corpus.payloads.get(id).map_or(&[][..], Vec::as_slice);
            body.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            body.extend_from_slice(payload);
        }
    }
}

/// The JSON batch body for the points `ids`, into a buffer that is cleared first.
pub fn json_ingest(body: &mut Vec<u8>, corpus: Corpus<'_>, ids: &[usize], upsert: bool) {
    body.clear();
    body.extend_from_slice(if upsert { b"{\"upsert\":true,\"points\":[" } else { b"{\"points\":[" });
    for (position, &id) in ids.iter().enumerate() {
        if position > 0 {
            body.push(b',');
        }
        body.extend_from_slice(format!("{{\"id\":{id},\"vector\":").as_bytes());
        json_floats(body, corpus.docs.row(id));
        if let Some(payload) = corpus.payloads.get(id) {
            body.extend_from_slice(b",\"metadata\":");
            body.extend_from_slice(payload);
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
}

/// An `RVQ1` body.
pub fn binary_query(query: &[f32], k: usize) -> Vec<u8> {
    let mut body = b"RVQ1".to_vec();
    for word in [0, k as u32, query.len() as u32] {
        body.extend_from_slice(&word.to_be_bytes());
    }
    // Read consistency, partition option, two reserved bytes, staleness: all zero.
    body.extend_from_slice(&[0; 12]);
    body.extend(query.iter().flat_map(|value| value.to_be_bytes()));
    body
}

/// The JSON query body.
pub fn json_query(query: &[f32], k: usize) -> Vec<u8> {
    let mut body = format!("{{\"k\":{k},\"query\":").into_bytes();
    json_floats(&mut body, query);
    body.push(b'}');
    body
}

fn json_floats(body: &mut Vec<u8>, values: &[f32]) {
    // Writing floats to a Vec cannot fail; a NaN becomes null and is refused by the server.
    let _ = serde_json::to_writer(body, values);
}

/// Ids of a search answer, nearest first.
///
/// # Errors
/// When the body is not a search answer, or is not ordered by distance.
pub fn found_ids(body: &[u8]) -> Result<Vec<u64>, String> {
    #[derive(Deserialize)]
    struct Hit {
        id: u64,
        distance: f32,
    }
    #[derive(Deserialize)]
    struct Answer {
        results: Vec<Hit>,
    }
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| format!("not a search answer: {error}"))?;
    if !answer.results.is_sorted_by(|a, b| a.distance <= b.distance) {
        return Err("results are not ordered by distance".into());
    }
    Ok(answer.results.into_iter().map(|hit| hit.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_laid_out_as_the_interface_says() {
        let docs = Matrix { dim: 2, values: vec![1.0, 2.0, 3.0, 4.0, 0.5, -1.0] };
        let payloads = vec![b"{}".to_vec(); 3];
        let mut body = Vec::new();
        binary_ingest(&mut body, Corpus { docs: &docs, payloads: &payloads }, &[1, 2], true);
        assert_eq!(&body[..16], b"RVB1\0\0\0\x03\0\0\0\x02\0\0\0\x02");
        assert_eq!(&body[16..24], 1u64.to_be_bytes());
        assert_eq!(&body[24..28], 3f32.to_be_bytes());
        assert_eq!(body.len(), 16 + 2 * 16 + 2 * 6);
        json_ingest(&mut body, Corpus { docs: &docs, payloads: &payloads }, &[2], false);
        assert_eq!(body, b"{\"points\":[{\"id\":2,\"vector\":[0.5,-1.0],\"metadata\":{}}]}");
        let query = binary_query(&[1.0], 10);
        assert_eq!(query.len(), 28 + 4);
        assert_eq!(&query[8..16], b"\0\0\0\x0a\0\0\0\x01");
        assert_eq!(json_query(&[1.0], 10), b"{\"k\":10,\"query\":[1.0]}");
    }

    #[test]
    fn answers() {
        let ids = found_ids(br#"{"results":[{"id":7,"distance":0.5,"score":0},{"id":3,"distance":0.5,"score":0}],"degraded":false,"missing":[]}"#);
        assert_eq!(ids, Ok(vec![7, 3]));
        assert!(found_ids(br#"{"results":[{"id":7,"distance":0.5},{"id":3,"distance":0.25}]}"#).is_err());
        assert!(found_ids(br#"{"error":"x"}"#).is_err());
    }
}
