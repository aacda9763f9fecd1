//! The binary protocol.
use super::calls;
use super::ids::{filter_json, payload_with_id, sent_number, without_id};
use super::model::{
    Ask, Change, Collection, Doomed, ENCODING_REPETITIONS, Family, Hit, Lane, Matrix, POOL, Put, Question,
    Sparse, Stored, Vectors,
};
use super::transports::{Order, Told, Transport, config, filter_text, payload_in, whole, with_content};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nigh_tests::grpc::{POOL as MESSAGES, encode};
use nigh_tests::twin::{Filter, Payload, tagged};
use nigh_tests::{Args, Wire, frame};
use std::collections::BTreeMap;
use std::io::{self, Write};

pub struct Binary(Wire);

fn vector(args: Args, vector: &[f32]) -> Args {
    args.vector(vector)
}

fn matrix(args: Args, tokens: &Matrix) -> Args {
    tokens.iter().fold(args.u32(tokens.len() as u32), |args, token| vector(args, token))
}

fn sparse(args: Args, of: &Sparse) -> Args {
    let count = args.u32(of.len() as u32);
    of.iter().fold(count, |args, (at, x)| args.u32(*at).bytes(&x.to_be_bytes()))
}

fn key_ttl(args: Args, ttl_ms: &BTreeMap<String, i64>) -> Args {
    match ttl_ms.is_empty() {
        true => args.u8(0),
        false => args.u8(1).s32(serde_json::json!(ttl_ms).to_string()),
    }
}

/// Nothing where there is no condition.
fn condition(args: Args, expected: Option<u64>) -> Args {
    match expected {
        Some(version) => args.u8(1).u64(version),
        None => args,
    }
}

fn on(of: &Collection) -> Args {
    Args::new().s8(of.name)
}

fn dense_by_space(args: Args, vectors: &BTreeMap<&'static str, Matrix>) -> Args {
    let count = args.u32(vectors.len() as u32);
    vectors.iter().fold(count, |args, (name, of)| vector(args.s16(name), &of[0]))
}

fn sparse_by_space(args: Args, vectors: &BTreeMap<&'static str, Sparse>) -> Args {
    let count = args.u32(vectors.len() as u32);
    vectors.iter().fold(count, |args, (name, of)| sparse(args.s16(name), of))
}

fn put_args(of: &Collection, put: &Put) -> (&'static str, Args) {
    let (id, meta) = (sent_number(of, put.id), payload_with_id(of, put.id, &put.payload));
    match of.family {
        Family::Dense => {
            let has_ttl = put.ttl_ms > 0;
            let flags = u8::from(has_ttl)
                | 1 << 1
                | u8::from(!put.sparse[""].is_empty()) << 2
                | u8::from(put.expected.is_some()) << 4
                | u8::from(!put.key_ttl_ms.is_empty()) << 5;
            let mut args = vector(Args::new().u8(flags).s8(of.name).u64(id), &put.dense[""][0]);
            if has_ttl {
                args = args.u64(put.ttl_ms as u64);
            }
            args = args.s32(meta);
            if !put.sparse[""].is_empty() {
                args = sparse(args, &put.sparse[""]);
            }
            if let Some(version) = put.expected {
                args = args.u64(version);
            }
            if !put.key_ttl_ms.is_empty() {
                args = args.s32(serde_json::json!(put.key_ttl_ms).to_string());
            }
            (if put.create_only { "vector_insert" } else { "vector_upsert" }, args)
        }
        Family::Named => {
            let args = dense_by_space(on(of).u64(id), &put.dense);
            let mut args = args.u64(put.ttl_ms as u64).s32(meta);
            if !put.sparse.is_empty() {
                args = sparse_by_space(args.u8(2), &put.sparse);
            }
            ("vector_named_insert", condition(key_ttl(args, &put.key_ttl_ms), put.expected))
        }
        Family::Documents => {
            let args = matrix(on(of).u64(id), &put.dense[""]).s32(meta);
            let args = key_ttl(args, &put.key_ttl_ms);
            let args = match put.expected {
                Some(version) => args.u8(1).u64(version),
                None => args.u8(0),
            };
            let vector = &put.sparse[""];
            let args = if vector.is_empty() { args.u8(0) } else { sparse(args.u8(1), vector) };
            ("vector_mv_add", args)
        }
    }
}

/// Bytes of a result that are read from the front.
struct Results<'a>(&'a [u8]);

impl<'a> Results<'a> {
    #[track_caller]
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u16(&mut self) -> usize {
        u16::from_be_bytes(self.take(2).try_into().expect("two bytes")).into()
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn f32(&mut self) -> f32 {
        // Zero has one sign in the other formats.
        f32::from_bits(self.u32()) + 0.0
    }

    fn text(&mut self, len: usize) -> &'a str {
        std::str::from_utf8(self.take(len)).expect("text")
    }

    fn text32(&mut self) -> &'a str {
        let len = self.u32() as usize;
        self.text(len)
    }

    fn floats(&mut self, count: u32) -> Vec<f32> {
        (0..count).map(|_| f32::from_bits(self.u32())).collect()
    }

    fn vector(&mut self) -> Vec<f32> {
        let dim = self.u32();
        self.floats(dim)
    }

    fn sparse(&mut self) -> Sparse {
        (0..self.u32()).map(|_| (self.u32(), f32::from_bits(self.u32()))).collect()
    }

    /// The point with this id, unless there is none.
    fn point(&mut self, of: &Collection, id: u64) -> Option<Stored> {
        if self.u8() == 0 {
            return None;
        }
        let mut dense = BTreeMap::new();
        match of.family {
            Family::Dense => drop(dense.insert(String::new(), vec![self.vector()])),
            Family::Named => {
                for _ in 0..self.u32() {
                    let len = self.u16();
                    let name = self.text(len).to_owned();
                    dense.insert(name, vec![self.vector()]);
                }
            }
            Family::Documents => {
                let (count, dim) = (self.u32(), self.u32());
                dense.insert(String::new(), (0..count).map(|_| self.floats(dim)).collect());
            }
        }
        let ends = (of.family != Family::Documents).then(|| self.u64() > 0);
        let payload = if self.u8() == 1 { payload_in(self.text32()) } else { Payload::new() };
        let payload = without_id(of, id, payload);
        let sparse = (of.family == Family::Dense).then(|| match self.u8() {
            0 => BTreeMap::new(),
            _ => BTreeMap::from([(String::new(), self.sparse())]),
        });
        assert_eq!(self.u8(), 1, "the version is there");
        Some(Stored { dense, sparse, payload, version: self.u64(), ends })
    }

    /// Hits with what stands beside the id.
    fn hits(&mut self, of: &Collection, format: Format) -> Vec<Hit> {
        let hits = 0..self.u32();
        hits.map(|_| {
            let id = self.u64();
            let distance = if format == Format::Scored { 0.0 } else { self.f32() };
            let score = if format == Format::Distances { 0.0 } else { self.f32() };
            let payload = match format {
                Format::Documents => {
                    let content = self.text32();
                    with_content(without_id(of, id, payload_in(self.text32())), content)
                }
                Format::Scored => without_id(of, id, payload_in(self.text32())),
                _ => Payload::new(),
            };
            Hit { id, distance, score, payload }
        })
        .collect()
    }
}

/// What stands beside the id of a hit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Distances,
    DistancesAndScores,
    Documents,
    /// A score and a payload.
    Scored,
}

/// Reciprocal ranks, and pools as large as the collection.
fn fusion(args: Args) -> Args {
    args.u8(0).u64(0).u32(0).u32(POOL as u32).u32(POOL as u32)
}

/// The name of an operation by family.
fn operation(of: &Collection, name: &str) -> String {
    let family = match of.family {
        Family::Dense => "",
        Family::Named => "named_",
        Family::Documents => "mv_",
    };
    format!("vector_{family}{name}")
}

impl Binary {
    pub fn new(wire: Wire) -> Binary {
        Binary(wire)
    }

    /// Sends all requests before the first response is read.
    fn send(&mut self, requests: &[(&str, Args)]) -> io::Result<Vec<Result<Vec<u8>, String>>> {
        let frames: Vec<u8> =
            requests.iter().flat_map(|(operation, args)| frame(operation, &args.0)).collect();
        self.0.stream.write_all(&frames)?;
        requests.iter().map(|_| self.response()).collect()
    }

    fn response(&mut self) -> io::Result<Result<Vec<u8>, String>> {
        let raw = self.0.raw()?;
        Ok(match raw[4] {
            0 => Ok(raw[9..].to_vec()),
            3 => Err(String::from_utf8(raw[11..].to_vec()).expect("a sentence")),
            other => panic!("status {other}"),
        })
    }

    fn told(&mut self, operation: &str, args: Args) -> Told<Vec<u8>> {
        Ok(self.send(&[(operation, args)])?.pop().expect("a response"))
    }

    #[track_caller]
    fn ok(&mut self, operation: &str, args: Args) -> Vec<u8> {
        let told = self.told(operation, args).expect("an answer");
        told.unwrap_or_else(|refusal| panic!("{operation}: {refusal}"))
    }
}

impl Transport for Binary {
    fn create(&mut self, of: &Collection) {
        let space = &of.dense[0];
        let (operation, args) = match of.family {
            Family::Named => {
                let args = on(of).s32(config(of).to_string()).u32(0).s32(whole(of).to_string());
                ("vector_named_create_collection", args)
            }
            Family::Documents => {
                let mut args = on(of).u32(space.dim as u32).u32(0).u32(0).u32(0).i64(of.seed as i64);
                // Blocks 1 to 10 hold defaults, the next one turns on full text. Block 4 is for cells alone.
                let blocks: [usize; 9] = [6, 4, 9, 1, 4, 1, 17, 4, 4];
                args = args.bytes(&vec![0; blocks.iter().sum()]);
                args = args.u8(1).s8("").bytes(&1.2_f32.to_be_bytes()).bytes(&0.75_f32.to_be_bytes());
                if of.is_encoded || of.has_text_ids {
                    let repetitions = if of.is_encoded { ENCODING_REPETITIONS } else { 0 };
                    args = args.u64(0).u64(0).u8(of.is_encoded.into()).u32(repetitions).u32(0).u32(0);
                }
                if of.has_text_ids {
                    // Blocks 14 and 15 hold defaults, the next one says that ids are strings.
                    args = args.bytes(&[0; 2]).u8(1);
                }
                ("vector_mv_create_collection", args)
            }
            Family::Dense => {
                let metric = ["cosine", "l2", "dot"].iter().position(|name| *name == space.metric);
                let args =
                    on(of).u32(space.dim as u32).u8(metric.expect("a metric") as u8).u32(0).u32(0).u32(0);
                // Blocks 1 to 14 say nothing, the next one turns on full text.
                let blocks: [usize; 14] = [6, 5, 1, 1, 4, 9, 6, 4, 1, 1, 4, 17, 4, 4];
                let args = args.i64(of.seed as i64).bytes(&vec![0; blocks.iter().sum()]);
                let mut args = args.u8(1).s8("").bytes(&1.2_f32.to_be_bytes()).bytes(&0.75_f32.to_be_bytes());
                if of.has_text_ids {
                    // Blocks 16 to 25 say nothing, the next one says that ids are strings.
                    let blocks: [usize; 10] = [4, 4, 4, 4, 4, 4, 1, 4, 4, 1];
                    args = args.bytes(&vec![0; blocks.iter().sum()]).u8(1);
                }
                ("vector_create_collection", args)
            }
        };
        self.ok(operation, args);
    }

    fn add_space(&mut self, of: &Collection, name: &str, config: &serde_json::Value) -> Told<()> {
        let args = on(of).s16(name).s32(config.to_string());
        Ok(self.told("vector_named_add_space", args)?.map(drop))
    }

    fn drop_space(&mut self, of: &Collection, name: &str) -> Told<()> {
        Ok(self.told("vector_named_drop_space", on(of).s16(name))?.map(drop))
    }

    fn put(&mut self, of: &Collection, put: &Put) -> Told<()> {
        let (operation, args) = put_args(of, put);
        Ok(self.told(operation, args)?.map(drop))
    }

    fn put_many(&mut self, of: &Collection, puts: &[Put]) -> Told<()> {
        let requests: Vec<_> = puts.iter().map(|put| put_args(of, put)).collect();
        Ok(self.send(&requests)?.into_iter().collect::<Result<Vec<_>, _>>().map(drop))
    }

    fn delete(&mut self, of: &Collection, id: u64, expected: Option<u64>) -> Told<bool> {
        let args = condition(on(of).u64(id), expected);
        Ok(self.told(&operation(of, "delete"), args)?.map(|result| result == [1]))
    }

    fn delete_many(&mut self, of: &Collection, doomed: &Doomed) -> Option<Told<u64>> {
        let args = match doomed {
            Doomed::Ids(ids) => {
                let args = on(of).s32("").u8(1).u32(ids.len() as u32);
                ids.iter().fold(args, |args, id| args.u64(*id))
            }
            Doomed::Matching(filter) => on(of).s32(filter_json(of, filter).to_string()),
        };
        let told = self.told(&operation(of, "delete_by_filter"), args);
        Some(told.map(|told| told.map(|result| Results(&result).u32().into())))
    }

    fn change(&mut self, of: &Collection, id: u64, change: &Change, expected: Option<u64>) -> Told<bool> {
        let args = on(of).u64(id);
        let (name, args) = match change {
            Change::Merge(payload, ttl_ms) => {
                ("set_payload", key_ttl(args.s32(tagged(payload).to_string()), ttl_ms))
            }
            Change::Overwrite(payload, ttl_ms) => {
                ("overwrite_payload", key_ttl(args.s32(tagged(payload).to_string()), ttl_ms))
            }
            Change::DeleteKeys(keys) => {
                let args = args.u32(keys.len() as u32);
                ("delete_payload_keys", keys.iter().fold(args, |args, key| args.s16(key)))
            }
            Change::Clear => ("clear_payload", args),
            Change::Vectors(Vectors { dense, sparse, delete }) => {
                let args = sparse_by_space(dense_by_space(args, dense), sparse).u32(delete.len() as u32);
                ("update_vectors", delete.iter().fold(args, |args, name| args.s16(name)))
            }
        };
        // A change of vectors tells the version behind it.
        Ok(self.told(&operation(of, name), condition(args, expected))?.map(|result| result[0] == 1))
    }

    fn point(&mut self, of: &Collection, id: u64) -> Option<Stored> {
        let exists = self.ok(&operation(of, "exists"), on(of).u64(id)) == [1];
        let bytes = self.ok(&operation(of, "get"), on(of).u64(id).u8(3));
        let mut results = Results(&bytes);
        let found = results.point(of, id);
        assert!(results.0.is_empty(), "{} bytes more", results.0.len());
        assert_eq!(found.is_some(), exists, "id {id}");
        found
    }

    fn points(&mut self, of: &Collection, ids: &[u64]) -> BTreeMap<u64, Stored> {
        let args = ids.iter().fold(on(of).u8(3).u32(ids.len() as u32), |args, id| args.u64(*id));
        let bytes = self.ok(&operation(of, "get_batch"), args);
        let mut results = Results(&bytes);
        let mut all = BTreeMap::new();
        for _ in 0..results.u32() {
            let id = results.u64();
            all.extend(results.point(of, id).map(|point| (id, point)));
        }
        assert!(results.0.is_empty(), "{} bytes more", results.0.len());
        all
    }

    fn ask(&mut self, of: &Collection, ask: &Ask) -> Vec<Hit> {
        let filter = filter_text(of, ask.filter.as_ref());
        let has_filter = u8::from(ask.filter.is_some());
        let k = ask.k as u32;
        // Where flags say whether there is a filter.
        let flagged = |flags: u8| Args::new().u8(flags | has_filter).s8(of.name);
        let filtered = |args: Args| if has_filter == 1 { args.s32(&filter) } else { args };
        let documents = matches!(ask.question, Question::WithDocuments(_));
        let format = if documents { Format::Documents } else { Format::Distances };
        let both = Format::DistancesAndScores;
        let (name, args, format) = match (of.family, &ask.question) {
            (
                Family::Dense,
                Question::One(Lane::Dense(_, query)) | Question::WithDocuments(Lane::Dense(_, query)),
            ) => {
                let args = filtered(vector(flagged(0).u32(k), &query[0]));
                (if documents { "search_docs" } else { "search" }, args, format)
            }
            (
                Family::Named,
                Question::One(Lane::Dense(name, query)) | Question::WithDocuments(Lane::Dense(name, query)),
            ) => {
                let args = vector(on(of).s16(name).u32(k), &query[0]).s32(&filter);
                (if documents { "search_docs" } else { "search" }, args, format)
            }
            (
                Family::Documents,
                Question::One(Lane::Dense(_, query)) | Question::WithDocuments(Lane::Dense(_, query)),
            ) => {
                let args = matrix(on(of).u32(k).u32(1024), query);
                let args = if has_filter == 1 { args.u8(2).s32(&filter) } else { args };
                ("search", args, Format::Scored)
            }
            (_, Question::One(Lane::Text(text))) => {
                ("search_text", filtered(flagged(0).u32(k).s32(text)), Format::Documents)
            }
            (Family::Dense, Question::One(Lane::Sparse(_, query))) => {
                let args = vector(fusion(flagged(2).u32(k)), &[]);
                ("hybrid_search", filtered(sparse(args, query)), both)
            }
            (Family::Named, Question::One(Lane::Sparse(name, query))) => {
                ("sparse_search", sparse(on(of).s16(name).u32(k), query).s32(&filter), both)
            }
            (Family::Documents, Question::One(Lane::Sparse(_, query))) => {
                let args = matrix(fusion(flagged(2).u32(k)), &Vec::new());
                ("hybrid_search", filtered(sparse(args, query)), both)
            }
            (Family::Dense, Question::Hybrid(Lane::Dense(_, query), Lane::Text(text))) => {
                let args = vector(fusion(flagged(0).u32(k)), &query[0]).s32(text);
                ("hybrid_text", filtered(args), both)
            }
            (_, Question::Hybrid(Lane::Dense(dense, query), Lane::Text(text))) => {
                let args = match of.family {
                    Family::Documents => matrix(fusion(flagged(8).u32(k)), query),
                    _ => vector(fusion(flagged(8).s16(dense).s16("").u32(k)), &query[0]),
                };
                ("hybrid_search", filtered(sparse(args, &Sparse::new()).s32(text)), both)
            }
            (_, Question::Hybrid(Lane::Dense(dense, query), Lane::Sparse(name, other))) => {
                let args = match of.family {
                    Family::Dense => vector(fusion(flagged(2).u32(k)), &query[0]),
                    Family::Named => vector(fusion(flagged(2).s16(dense).s16(name).u32(k)), &query[0]),
                    Family::Documents => matrix(fusion(flagged(2).u32(k)), query),
                };
                ("hybrid_search", filtered(sparse(args, other)), both)
            }
            (_, Question::Query(_) | Question::Rerank(..)) => {
                let message = MESSAGES.get_message_by_name("svc.v1.QuerySpec").expect("a message");
                let args = on(of).s32(encode(&message, &calls::spec(of, ask)));
                ("query", args, both)
            }
            (_, other) => unreachable!("no operation of {other:?}"),
        };
        let bytes = self.ok(&operation(of, name), args);
        let mut results = Results(&bytes);
        if name == "query" {
            assert_eq!(results.u8(), 1, "hits, not groups");
        }
        let hits = results.hits(of, format);
        assert!(results.0.is_empty(), "{} bytes more", results.0.len());
        hits
    }

    fn page(
        &mut self,
        of: &Collection,
        filter: Option<&Filter>,
        limit: usize,
        cursor: &str,
        order: Order,
    ) -> (Vec<Hit>, String) {
        let args = on(of).u32(limit as u32).s32(filter_text(of, filter));
        // The cursor as its parts: where to go on by id, and behind which value.
        let token = BASE64_URL_SAFE_NO_PAD.decode(cursor).expect("base64");
        let (after, value) = match token.first() {
            None => (None, None),
            Some(1) => (Some(&token[1..]), None),
            Some(2) => (Some(&token[12..]), Some(&token[4..12])),
            Some(kind) => panic!("a cursor of kind {kind}"),
        };
        let ordered = |args: Args| match order {
            None => args,
            Some((key, desc)) => {
                let args = args.s32(key).u8(desc.into()).u8(0);
                value.map_or(args.clone().u8(0), |value| args.u8(1).bytes(value))
            }
        };
        let args = match of.family {
            Family::Dense => {
                let args = args.u8(0);
                let args = after.map_or(args.clone().u8(0), |id| args.u8(1).bytes(id));
                ordered(if order.is_some() { args.u8(1) } else { args.u8(0) })
            }
            _ => {
                let marker = u8::from(after.is_some()) | u8::from(order.is_some()) << 2;
                ordered(after.into_iter().fold(args.u8(marker), |args, id| args.bytes(id)))
            }
        };
        let bytes = self.ok(&operation(of, "scroll"), args);
        let mut results = Results(&bytes);
        let documents = results.hits(of, Format::Documents);
        assert_eq!(results.take(3), [0; 3], "one node is never degraded");
        (documents, results.text32().to_owned())
    }
}
