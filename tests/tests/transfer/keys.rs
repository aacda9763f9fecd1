//! Keys of any bytes come back from a file, with their deadlines and indexes.
use super::{Folder, run, server};
use nigh_tests::{Args, Server, Wire};

fn put(wire: &mut Wire, key: &[u8], value: &[u8], ttl_ms: u64) {
    wire.ask("put", Args::new().s16(key).s32(value).u64(ttl_ms)).ok();
}

fn get(wire: &mut Wire, key: &[u8]) -> Vec<u8> {
    wire.ask("get", Args::new().s16(key)).ok()
}

fn ttl(wire: &mut Wire, key: &[u8]) -> i64 {
    i64::from_be_bytes(wire.ask("ttl", Args::new().s16(key)).ok().try_into().expect("eight bytes"))
}

fn transfer(what: &str, server: &Server, flags: &str, code: i32) -> String {
    let exit = run(&format!("{what} -address {} {flags}", server.tcp_authority()), code);
    exit.stdout + &exit.stderr
}

#[test]
fn keys_come_back() {
    let (one, other, folder) = (server(), server(), Folder::new());
    let (mut from, mut to) = (one.tcp(), other.tcp());
    let large = vec![b'x'; 9 << 20];
    let mut expected = vec![
        (b"plain".to_vec(), b"value".to_vec(), 0),
        (b"\xff\x00\n".to_vec(), b"\x80\x81".to_vec(), 0),
        (b"large".to_vec(), large, 0),
        (b"soon".to_vec(), b"gone".to_vec(), 3_600_000),
        (b"".to_vec(), b"".to_vec(), 0),
    ];
    expected.extend((0..2500).map(|n| (format!("user:{n:05}").into_bytes(), n.to_string().into_bytes(), 0)));
    for (key, value, ttl_ms) in &expected {
        put(&mut from, key, value, *ttl_ms);
    }
    let index = Args::new().s8("by.age").s8("user:").s8("age").u8(0).u8(1);
    from.ask("__kv_index_set__", index).ok();

    let file = folder.path("keys.jsonl");
    let said = transfer("export -keys", &one, &format!("-o {file}"), 0);
    assert!(said.starts_with("exported 2,505 keys"), "{said}");
    let said = transfer("import", &other, &file, 0);
    assert!(said.contains("2,505 written"), "{said}");
    for (key, value, ttl_ms) in &expected {
        assert!(get(&mut to, key) == *value, "{key:?}");
        match ttl_ms {
            0 => assert_eq!(ttl(&mut to, key), -1),
            _ => assert!((ttl(&mut from, key) - ttl(&mut to, key)).abs() < 60_000),
        }
    }
    let list = |wire: &mut Wire| wire.ask("__kv_index_list__", Args::new()).ok();
    let [one_list, other_list] = [list(&mut from), list(&mut to)];
    // The last byte says whether the index is built.
    assert_eq!(one_list[..one_list.len() - 1], other_list[..other_list.len() - 1]);

    // What is there already.
    put(&mut to, b"plain", b"newer", 0);
    let said = transfer("import", &other, &file, 1);
    assert!(said.contains("is there already"), "{said}");
    std::fs::remove_file(folder.path("keys.jsonl.import")).expect("a state");
    let said = transfer("import", &other, &format!("{file} -on-conflict skip"), 0);
    assert!(said.contains("2,505 were there already"), "{said}");
    assert_eq!(get(&mut to, b"plain"), b"newer");
    transfer("import", &other, &format!("{file} -on-conflict replace"), 0);
    assert_eq!(get(&mut to, b"plain"), b"value");
}

#[test]
fn a_prefix_and_an_index_choose_keys() {
    let (one, folder) = (server(), Folder::new());
    let mut wire = one.tcp();
    for key in ["a", "user:1", "user:2", "users", "z"] {
        put(&mut wire, key.as_bytes(), b"", 0);
    }
    let names = |name: &str| -> Vec<String> {
        let lines = folder.text(name).lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        lines[1..lines.len() - 1]
            .iter()
            .map(|line| line.split('"').nth(3).expect("a key").to_owned())
            .collect()
    };
    transfer("export -keys", &one, &format!("-prefix user: -o {}", folder.path("prefix")), 0);
    assert_eq!(names("prefix"), ["user:1", "user:2"]);
    wire.ask("__kv_index_set__", Args::new().s8("all").s8("").s8("x").u8(0).u8(1)).ok();
    transfer("export -keys", &one, &format!("-index all -prefix u -o {}", folder.path("index")), 0);
    assert_eq!(names("index"), ["user:1", "user:2", "users"]);
    let said = transfer("export -keys", &one, &format!("-index none -o {}", folder.path("none")), 1);
    assert!(said.contains("none"), "{said}");
}

#[test]
fn a_server_without_queries_says_what_it_needs() {
    let server = Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0"]);
    let folder = Folder::new();
    let said = transfer("export -keys", &server, &format!("-o {}", folder.path("keys")), 1);
    assert!(said.contains("-kv-query"), "{said}");
    assert!(!folder.has("keys") && !folder.has("keys.partial"));
}

#[test]
fn bad_lines_of_keys_are_refused_one_by_one() {
    let (server, folder) = (server(), Folder::new());
    let file = folder.path("keys.jsonl");
    std::fs::write(
        &file,
        "{\"format\":\"nigh-export\",\"version\":1,\"kind\":\"keys\"}\n{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n\
         {\"key\":\"c\",\"value\":\"3\",\"expires_at_ms\":5}\n{\"key\":\"d\",\"val",
    )
    .expect("room");
    let said = transfer("import", &server, &file, 1);
    assert!(said.contains("1 written, 1 had expired, 2 refused"), "{said}");
    assert!(said.contains("line 3: value is missing") && said.contains("line 5: it is not JSON"), "{said}");
    assert!(said.contains("the file is cut short"), "{said}");
    assert_eq!(get(&mut server.tcp(), b"a"), b"1");
}
