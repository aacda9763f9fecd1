//! Commands against a server in process that reads with the real decoders and keeps keys and points in maps.
use super::*;
use crate::tcp_client::tests::serve;
use nigh_engine::kv::Op as Change;
use nigh_net::op::{KvOp, KvQueryOp, Op};
use nigh_net::tcp::frame;
use nigh_net::tcp::kv::{self, KvRequest};
use nigh_net::tcp::kv_query::{self, KvQueryRequest};
use nigh_net::tcp::ops;
use nigh_shard::kv::batch::KeyOp;
use nigh_shard::kv::indexes::IndexDefinition;
use nigh_shard::kv::query::{KeyPage, KeyRow};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

type Keys = Mutex<HashMap<Vec<u8>, (Vec<u8>, u64)>>;

/// Keys only, without time: what a command sends is what is looked at.
fn answer_keys(keys: &Keys, op: KvOp, args: &[u8], out: &mut Vec<u8>) {
    let mut keys = keys.lock().unwrap();
    let yes = |out: &mut Vec<u8>, done: bool| frame::put_ok(out, |out| kv::put_done(out, done));
    let found = |out: &mut Vec<u8>, value: Option<&[u8]>| frame::put_ok(out, |out| kv::put_found(out, value));
    match kv::decode(op, args).unwrap() {
        KvRequest::One(KeyOp::Get { key }) => match keys.get(key) {
            Some((value, _)) => frame::put_ok(out, |out| out.extend_from_slice(value)),
            None => frame::put_not_found(out),
        },
        KvRequest::One(KeyOp::Exists { key }) => yes(out, keys.contains_key(key)),
        KvRequest::One(KeyOp::Ttl { key }) => {
            let left = keys.get(key).map_or(-2, |(_, ttl)| if *ttl == 0 { -1 } else { *ttl as i64 });
            frame::put_ok(out, |out| kv::put_number(out, left));
        }
        KvRequest::Mget { keys: asked } => frame::put_ok(out, |out| {
            kv::put_mget_head(out, &asked);
            asked.iter().for_each(|key| kv::put_found(out, keys.get(*key).map(|(value, _)| &value[..])));
        }),
        KvRequest::One(KeyOp::Change(Change::Put { key, value, ttl_ms })) => {
            keys.insert(key.to_vec(), (value.to_vec(), ttl_ms));
            frame::put_ok(out, |_| {});
        }
        KvRequest::One(KeyOp::Change(Change::SetNx { key, value, ttl_ms })) => {
            let absent = !keys.contains_key(key);
            keys.entry(key.to_vec()).or_insert((value.to_vec(), ttl_ms));
            yes(out, absent);
        }
        KvRequest::One(KeyOp::Change(Change::GetSet { key, value, ttl_ms })) => {
            let before = keys.insert(key.to_vec(), (value.to_vec(), ttl_ms));
            found(out, before.as_ref().map(|(value, _)| &value[..]));
        }
        KvRequest::One(KeyOp::Change(Change::Del { key })) => yes(out, keys.remove(key).is_some()),
        KvRequest::One(KeyOp::Change(Change::GetDel { key })) => {
            found(out, keys.remove(key).as_ref().map(|(value, _)| &value[..]));
        }
        KvRequest::One(KeyOp::Change(Change::Cas { key, value, expected, ttl_ms })) => {
            let is = keys.get(key).map(|(value, _)| &value[..]) == expected;
            if is {
                keys.insert(key.to_vec(), (value.to_vec(), ttl_ms));
            }
            yes(out, is);
        }
        KvRequest::One(KeyOp::Change(Change::Cad { key, expected })) => {
            let is = keys.get(key).is_some_and(|(value, _)| value == expected);
            if is {
                keys.remove(key);
            }
            yes(out, is);
        }
        KvRequest::One(KeyOp::Change(Change::Caex { key, expected, ttl_ms })) => {
            let is = keys.get(key).is_some_and(|(value, _)| value == expected);
            if is {
                keys.get_mut(key).unwrap().1 = ttl_ms;
            }
            yes(out, is);
        }
        KvRequest::One(KeyOp::Change(Change::Expire { key, ttl_ms })) => match keys.get_mut(key) {
            Some((_, ttl)) => {
                *ttl = ttl_ms;
                frame::put_ok(out, |_| {});
            }
            None => frame::put_not_found(out),
        },
        KvRequest::One(KeyOp::Change(Change::Persist { key })) => {
            let had = keys.get_mut(key).is_some_and(|(_, ttl)| std::mem::take(ttl) > 0);
            yes(out, had);
        }
        KvRequest::One(KeyOp::Change(Change::Incr { key, delta } | Change::IncrEx { key, delta, .. })) => {
            let value = keys.get(key).map_or(Ok([0; 8]), |(value, _)| value[..].try_into());
            let Ok(value) = value else { return frame::put_error(out, "incr value is not 8 bytes") };
            let sum = i64::from_be_bytes(value) + delta;
            keys.insert(key.to_vec(), (sum.to_be_bytes().to_vec(), 0));
            frame::put_ok(out, |out| kv::put_number(out, sum));
        }
        KvRequest::Flush => {
            keys.clear();
            frame::put_ok(out, |_| {});
        }
        other => panic!("{other:?}"),
    }
}

/// All keys with a record that matches, page by page; indexes are kept and not used.
fn answer_queries(
    keys: &Keys,
    indexes: &Mutex<Vec<IndexDefinition>>,
    op: KvQueryOp,
    args: &[u8],
    out: &mut Vec<u8>,
) {
    match kv_query::decode(op, args).unwrap() {
        KvQueryRequest::Query(query) => {
            assert!(query.scans);
            let keys = keys.lock().unwrap();
            let is_row = |key: &[u8], value: &[u8]| {
                query.after.as_deref().is_none_or(|after| key > after)
                    && query.filter.as_ref().is_none_or(|filter| filter.matches(value))
            };
            let found =
                keys.iter().filter(|(key, (value, _))| is_row(key, value)).map(|(key, _)| key.clone());
            let mut found: Vec<Vec<u8>> = found.collect();
            found.sort();
            // Pages shorter than what was asked for.
            let few = found.len().min(query.limit).min(2);
            let mut page = KeyPage::default();
            page.reached = (few < found.len()).then(|| found[few - 1].clone());
            page.rows = found.into_iter().take(few).map(|key| KeyRow { key, value: None }).collect();
            frame::put_ok(out, |out| kv_query::put_page(out, &page));
        }
        KvQueryRequest::SetIndex { definition, enabled } => {
            let mut indexes = indexes.lock().unwrap();
            indexes.retain(|index| index.name != definition.name);
            if enabled {
                definition.check().unwrap();
                indexes.push(definition);
            }
            frame::put_ok(out, |_| {});
        }
        KvQueryRequest::ListIndexes => {
            let indexes: Vec<_> =
                indexes.lock().unwrap().iter().map(|index| (index.clone(), index.is_count)).collect();
            frame::put_ok(out, |out| kv_query::put_indexes(out, &indexes));
        }
        KvQueryRequest::Finished => panic!("asked for what is behind the end"),
    }
}

/// Layouts of results, written here by hand.
fn answer_vectors(operation: &str, args: &[u8], out: &mut Vec<u8>) {
    let floats = |out: &mut Vec<u8>, values: &[f32]| {
        out.extend((values.len() as u32).to_be_bytes());
        out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    };
    if let Some(op @ Op::Vector(_)) = ops::find(operation.as_bytes()).map(|known| known.op)
        && let Err(error) =
            nigh_net::tcp::vector::decode(op, args, &nigh_net::tcp::vector::Decoding::tagged(0))
    {
        panic!("{operation}: {error:?}");
    }
    match operation {
        "__collections__" => frame::put_ok(out, |out| out.extend(b"\0\0\0\x02\0\x05films\0\x05books")),
        "__ping__" | "vector_create_collection" | "vector_drop_collection" | "vector_upsert" => {
            frame::put_ok(out, |_| {});
        }
        "vector_get_config" => frame::put_ok(out, |out| out.extend(b"{\"Dim\":2}")),
        "vector_delete" => frame::put_ok(out, |out| out.push(1)),
        "vector_get" if args.ends_with(&[0, 9, 3]) || args.ends_with(&[0, 9, 1]) => {
            frame::put_ok(out, |out| out.push(0));
        }
        "vector_get" => frame::put_ok(out, |out| {
            out.push(1);
            floats(out, &[0.5, -1.0]);
            out.extend(0u64.to_be_bytes());
            out.push(1);
            out.extend(b"\0\0\0\x02{}");
            out.extend([1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0]);
            out.push(1);
            out.extend(12u64.to_be_bytes());
        }),
        "vector_search" => {
            assert!(args.ends_with(&(-1f32).to_be_bytes()), "the vector that was read, or typed");
            frame::put_ok(out, |out| {
                out.extend(1u32.to_be_bytes());
                out.extend(7u64.to_be_bytes());
                out.extend(0.25f32.to_be_bytes());
            });
        }
        "vector_search_docs" => frame::put_ok(out, |out| {
            out.extend(1u32.to_be_bytes());
            out.extend(7u64.to_be_bytes());
            out.extend([0.25f32, 0.0].iter().flat_map(|value| value.to_be_bytes()));
            out.extend(b"\0\0\0\x02hi\0\0\0\x02{}");
        }),
        _ => frame::put_error(out, "op not registered"),
    }
}

fn server() -> String {
    let (keys, indexes) = (Keys::default(), Mutex::default());
    let answer = move |operation: &str, args: &[u8], out: &mut Vec<u8>| match ops::find(operation.as_bytes())
        .map(|known| known.op)
    {
        Some(Op::Kv(op)) => answer_keys(&keys, op, args, out),
        Some(Op::KvQuery(op)) => answer_queries(&keys, &indexes, op, args, out),
        _ => answer_vectors(operation, args, out),
    };
    serve(b"s3cret", Arc::new(answer))
}

/// What `script` shows, and how it ends.
fn run(address: &str, quotes: bool, script: &str) -> (String, Result<(), String>) {
    let mut session = Session::new(address.to_owned(), "s3cret".into(), None, quotes);
    let mut out = Vec::new();
    let ended = session.script(script.as_bytes(), &mut out);
    (String::from_utf8(out).unwrap(), ended)
}

#[track_caller]
fn check(script: &str, shown: &str) {
    let (out, ended) = run(&server(), false, script);
    assert_eq!((out.as_str(), ended), (shown, Ok(())), "{script}");
}

#[test]
fn keys() {
    check("get k\nput k 'a b'\nget k\nexists k\ndel k x\n", "(none)\nok\na b\nyes\nyes\nno\n");
    check("put a 1\nput b ''\nmget a x b", "ok\nok\n1\n(none)\n\n");
    check("put k v 1500\nttl k\npersist k\nttl k\nttl x", "ok\n1500\nyes\n-1\n-2\n");
    check("put k v\nexpire k 9\nttl k\nexpire x 9", "ok\nyes\n9\nno\n");
    check("incr n\nincr n -3\nincrex n 10 5", "1\n-2\n8\n");
    check(
        "setnx k a\nsetnx k b\ngetset k c\ngetset x d\ngetdel k\ngetdel k",
        "yes\nno\na\n(none)\nc\n(none)\n",
    );
    check(
        "put k a\ncas k b c\ncas k a c 7\nttl k\ncaex k c 8\nttl k\ncad k a\ncad k c",
        "ok\nno\nyes\n7\nyes\n8\nno\nyes\n",
    );
    check("put k v\nflush all\nexists k", "ok\nok\nno\n");
    check("# a comment\n\n  ping  \nPING\nquit\nnonsense", "ok\nok\n");
}

#[test]
fn queries() {
    // Records with an unsigned byte `n`, or bytes `s`.
    let puts = r#"put a "\x02\x01\x01n\x00\x07"
put b "\x02\x01\x01n\x00\x08"
put c "\x02\x01\x01s\x0c\x02hi"
put d plain
put e "\x02\x01\x01n\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"
"#;
    let after_puts = |script: &str, shown: &str| {
        check(&format!("{puts}{script}"), &format!("ok\nok\nok\nok\nok\n{shown}"))
    };
    after_puts("keys *", "a\nb\nc\nd\ne\n");
    after_puts("keys * 3", "a\nb\nc\n");
    after_puts("keys by.n 0", "");
    after_puts("keys by.n 9 n=7", "a\n");
    after_puts("keys by.n 9 n>1 n<=7", "a\ne\n");
    after_puts("keys * 9 n=1.5", "e\n");
    after_puts("keys * 9 n!=7", "b\ne\n");
    after_puts("keys * 9 s=hi", "c\n");
    after_puts("keys * n=7", "a\n");
    after_puts("keys * 'n = 7'", "a\n");
    after_puts("keys * '2' s<'\"i\"'", "c\n");
    after_puts("keys * 's=\"7\"'", "");
    check(
        "index by.n n user:\nindex rows t#count\nindexes\nunindex by.n\nindexes",
        "ok\nok\nby.n\tn\t\"user:\"\tnot ready\nrows\tt#count\t\"\"\tready\nok\nrows\tt#count\t\"\"\tready\n",
    );
}

#[test]
fn values_are_quoted_for_people() {
    let (out, _) = run(&server(), true, r#"put k "a\n\xff""#);
    assert_eq!(out, "ok\n");
    let address = server();
    assert!(run(&address, true, r#"put k "a\n\xff""#).1.is_ok());
    assert_eq!(run(&address, true, "get k").0, "\"a\\n\\xff\"\n");
    let mut session = Session::new(address, "s3cret".into(), None, false);
    session.carry_out(&[b"get".to_vec(), b"k".to_vec()]).unwrap();
    assert_eq!(session.out, b"a\n\xff\n");
}

#[test]
fn vectors() {
    check("collections", "films\nbooks\n");
    check(
        "create c 2 l2\nupsert c 1 1,2\nupsert c 2 '[1, 2]' '{\"a\":\"b\",\"id\":3}'\ndrop c",
        "ok\nok\nok\nok\n",
    );
    check("info c\ndelete c 1", "{\"Dim\":2}\nyes\n");
    check("point c 1\npoint c 9", "vector  [0.5,-1]\npayload {}\nversion 12\n(none)\n");
    check("search c 3 0.5,-1\nsearch c 3 id:1", "7\t0.25\n7\t0.25\n");
    check("docs c 3 0.5,-1", "7\t0.25\t\"hi\"\t{}\n");
}

#[test]
fn the_first_failure_ends_a_script() {
    for (script, shown, part) in [
        ("ping\nnonsense\nping", "ok\n", "line 2: there is no command \"nonsense\""),
        ("get", "", "usage: get KEY"),
        ("put k", "", "usage: put KEY VALUE [TTL_MS]"),
        ("put k v x", "", "time to live"),
        ("put k v\nincr k\nping", "ok\n", "incr value is not 8 bytes"),
        ("flush everything", "", "flush all"),
        ("get \"k", "", "quote"),
        ("create c 2 hamming", "", "not cosine"),
        ("upsert c 1 1,x", "", "numbers separated by commas"),
        ("upsert c 1 1,2 [1]", "", "payload"),
        ("search c 3 id:9", "", "no point 9"),
        ("metrics", "", "op not registered"),
        ("keys * many", "", "not FIELD=VALUE"),
        ("keys * 5 n", "", "not FIELD=VALUE"),
        ("keys * 5 =7", "", "not FIELD=VALUE"),
        ("keys * n==7", "", "not FIELD=VALUE"),
        ("keys * 'n <> 7'", "", "not FIELD=VALUE"),
        ("keys * 5 n!7", "", "not FIELD=VALUE"),
    ] {
        let (out, ended) = run(&server(), false, script);
        let error = ended.unwrap_err();
        assert!(out == shown && error.contains(part), "{script}: {out}{error}");
    }
}

#[test]
fn a_lost_connection_is_opened_anew() {
    let address = server();
    let mut session = Session::new(address, "s3cret".into(), None, false);
    session.carry_out(&[b"ping".to_vec()]).unwrap();
    session.token = "wrong".into();
    // Still the old connection.
    session.carry_out(&[b"ping".to_vec()]).unwrap();
    session.client = None;
    let error = session.carry_out(&[b"ping".to_vec()]).unwrap_err();
    assert!(error.to_string().contains("NIGH_API_KEY"), "{error}");
    session.address = "127.0.0.1:1".into();
    session.client = None;
    let error = session.carry_out(&[b"ping".to_vec()]).unwrap_err();
    assert!(error.to_string().contains("-address"), "{error}");
}

#[test]
fn the_tab_key_offers_commands_and_collections() {
    let completion = Completion::new(Rc::new(RefCell::new(vec!["films".into(), "books".into()])));
    let check = |line: &str, start: usize, offered: &[&str]| {
        assert_eq!(
            completion.candidates(line),
            (start, offered.iter().map(|&name| name.to_owned()).collect()),
            "{line:?}"
        );
    };
    check("ge", 0, &["get", "getdel", "getset"]);
    check("search ", 7, &["books", "films"]);
    check("search f", 7, &["films"]);
    check("search films ", 13, &[]);
    check("get f", 4, &[]);
    check("zz", 0, &[]);
    assert_eq!(completion.candidates("").1.len(), commands::COMMANDS.len() + 2);
}

#[test]
fn every_command_is_in_the_help() {
    let help = commands::help();
    for command in commands::COMMANDS {
        assert!(help.contains(&format!("  {} {}", command.name, command.syntax)), "{}", command.name);
        let fewest =
            command.syntax.split(' ').filter(|word| !word.is_empty() && !word.starts_with('[')).count();
        assert_eq!(command.words.0, fewest, "{}", command.name);
    }
}
