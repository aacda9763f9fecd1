//! Versions in the answers of writes over the binary protocol: they are those that every transport reads.
use super::families::{Family, asked, created, families, write_point};
use super::{Args, Clients};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Value, json};

/// A bit of the flags of a write of a dense point: it asks for the version.
const WITH_VERSION: u8 = 1 << 7;
/// A bit of the flags of a write of a dense point: it expects a version.
const EXPECTED_VERSION: u8 = 1 << 4;

/// A write that asks for the version, and may expect one.
fn asking(family: &Family, id: u64, x: u64, expected: Option<u64>) -> (&'static str, Args) {
    let (operation, mut args) = family.args(id, x, &json!({"x": x}));
    let condition = |args: Args| match expected {
        Some(version) => args.u8(1).u64(version),
        None => args.u8(0),
    };
    let args = match family.method {
        "" => {
            args.0[0] |= WITH_VERSION;
            match expected {
                Some(version) => {
                    args.0[0] |= EXPECTED_VERSION;
                    args.u64(version)
                }
                None => args,
            }
        }
        "Named" => condition(args.u8(0)).u8(0x56),
        _ => condition(args.u8(0)).u8(0).u8(0x56),
    };
    (operation, args)
}

/// A write whose vector has a dimension that the collection does not have.
fn refused(family: &Family, id: u64) -> (&'static str, Args) {
    let vector = [1.0, 2.0, 3.0];
    match family.method {
        "" => ("vector_upsert", Args::default().u8(WITH_VERSION).s8("c").u64(id).floats(&vector)),
        "Named" => {
            let args = Args::on("c").u64(id).u32(1).s16("image").floats(&vector).u64(0).s32(b"");
            ("vector_named_insert", args.u8(0).u8(0).u8(0x56))
        }
        _ => {
            let args = Args::on("c").u64(id).u32(1).floats(&vector).s32(b"");
            ("vector_mv_add", args.u8(0).u8(0).u8(0).u8(0x56))
        }
    }
}

/// The version of a point as REST, gRPC and the binary protocol read it, which is the same.
fn stored(clients: &mut Clients, family: &Family, id: u64) -> u64 {
    let (status, point) = asked(clients, "GET", &format!("{}/{id}", family.points), &Value::Null);
    assert_eq!(status, 200, "{point}");
    let version = point["version"].as_u64().unwrap();
    let message = clients.grpc.call(&format!("{}Get", family.method), json!({"collection": "c", "id": id}));
    assert_eq!(message.unwrap()["version"].as_u64(), Some(version));
    let args = Args::on("c").u64(id).u8(0);
    let bytes = clients.binary.ask(&format!("{}get", family.operation), &args).unwrap();
    assert_eq!(bytes[bytes.len() - 8..], version.to_be_bytes());
    version
}

fn version_of(result: &[u8]) -> u64 {
    let mut args = ArgsReader::new(result);
    let version = args.u64("version").unwrap();
    assert!(args.is_empty(), "{result:?}");
    version
}

/// Writes that arrive together become batches, in which each keeps its own answer: with its version where it asked for it, and without one where
/// it did not, also behind points that are refused.
#[test]
fn writes_together_have_their_own_versions() {
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        // Points begin with versions of their own, so that no two answers look alike by chance.
        for id in 0..8 {
            for x in 0..id {
                write_point(&mut clients, &family, x, (&json!(id), id, x), &json!({})).unwrap();
            }
        }
        let mut expected: Vec<u64> = (0..8).collect();
        for id in 1..8 {
            assert_eq!(stored(&mut clients, &family, id), id, "{}", family.operation);
        }
        let (mut requests, mut wanted) = (Vec::new(), Vec::new());
        for step in 0..150_u64 {
            // Some ids come twice in one batch.
            let id = step * 3 % 8;
            let (request, answer) = match step % 10 {
                4 | 9 => (refused(&family, id), None),
                2 | 5 => (family.args(id, step, &json!({"x": step})), Some((id, false))),
                _ => (asking(&family, id, step, None), Some((id, true))),
            };
            requests.push(request);
            wanted.push(answer.map(|(id, asks)| {
                expected[id as usize] += 1;
                asks.then_some(expected[id as usize])
            }));
        }
        let sent: Vec<_> = requests.iter().map(|(operation, args)| (*operation, args)).collect();
        for (step, (outcome, wanted)) in clients.binary.send(&sent).into_iter().zip(wanted).enumerate() {
            match wanted {
                None => {
                    let error = outcome.unwrap_err();
                    assert!(error.contains("expected 2") && error.contains("found 3"), "{step}: {error}");
                }
                Some(None) => assert_eq!(outcome, Ok(vec![]), "{step}"),
                Some(Some(version)) => assert_eq!(version_of(&outcome.unwrap()), version, "{step}"),
            }
        }
        for id in 0..8 {
            assert_eq!(stored(&mut clients, &family, id), expected[id as usize], "{}", family.operation);
        }
    }
}

/// Points of a space that there is not are refused by the server before they reach the collection; those before them keep their versions.
#[test]
fn versions_stand_before_a_space_that_is_unknown() {
    let [_, family, _] = families(&json!({}));
    let (_server, mut clients) = created(&family);
    let unknown = Args::on("c").u64(9).u32(1).s16("nope").floats(&[1.0]).u64(0).s32(b"");
    let unknown = ("vector_named_insert", unknown.u8(0).u8(0).u8(0x56));
    let one = |id| asking(&family, id, 1, None);
    let requests = [one(1), one(1), one(2), unknown, one(1), one(2)];
    let sent: Vec<_> = requests.iter().map(|(operation, args)| (*operation, args)).collect();
    let versions: Vec<_> = clients.binary.send(&sent).into_iter().map(|outcome| outcome.ok()).collect();
    let versions: Vec<_> = versions.iter().map(|result| result.as_deref().map(version_of)).collect();
    assert_eq!(versions, [Some(1), Some(2), Some(1), None, Some(3), Some(2)]);
}

/// Writes with conditions, writes if absent, and what comes back after a delete.
#[test]
fn conditions_and_versions() {
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        let ask = |clients: &mut Clients, id, expected| {
            let (operation, args) = asking(&family, id, 1, expected);
            clients.binary.ask(operation, &args).map(|result| version_of(&result))
        };
        assert_eq!(ask(&mut clients, 1, Some(0)), Ok(1));
        assert_eq!(ask(&mut clients, 1, Some(1)), Ok(2));
        assert!(ask(&mut clients, 1, Some(1)).unwrap_err().contains("version conflict"));
        assert_eq!((ask(&mut clients, 1, None), stored(&mut clients, &family, 1)), (Ok(3), 3));
        let delete = format!("{}delete", family.operation);
        assert_eq!(clients.binary.ask(&delete, &Args::on("c").u64(1)), Ok(vec![1]));
        let again = ask(&mut clients, 1, None).unwrap();
        assert!(again > 3 && stored(&mut clients, &family, 1) == again, "{again}");
        let (operation, plain, with_version) = match family.method {
            "" => {
                let args = |flags| Args::default().u8(flags).s8("c").u64(5).floats(&[1.0, 2.0]);
                ("vector_insert_if_absent", args(0), args(WITH_VERSION))
            }
            "MV" => {
                let args = Args::on("c").u64(5).u32(1).floats(&[1.0, 2.0]).s32(b"");
                ("vector_mv_add_if_absent", args.clone(), args.u8(0).u8(0x56))
            }
            _ => continue,
        };
        let first = [&[1][..], &1_u64.to_be_bytes()].concat();
        assert_eq!(clients.binary.ask(operation, &with_version), Ok(first));
        assert_eq!(clients.binary.ask(operation, &with_version), Ok(vec![0]));
        assert_eq!(clients.binary.ask(operation, &plain), Ok(vec![0]));
        assert_eq!(stored(&mut clients, &family, 5), 1);
        assert_eq!(clients.binary.ask(&delete, &Args::on("c").u64(5)), Ok(vec![1]));
        assert_eq!(clients.binary.ask(operation, &plain), Ok(vec![1]));
    }
    // An insert asks as an upsert does, and those that come together are written together.
    let [family, ..] = families(&json!({}));
    let (_server, mut clients) = created(&family);
    let args: Vec<Args> =
        [1, 2, 1, 3].map(|id| Args::default().u8(WITH_VERSION).s8("c").u64(id).floats(&[1.0, 2.0])).to_vec();
    let sent: Vec<_> = args.iter().map(|args| ("vector_insert", args)).collect();
    let outcomes = clients.binary.send(&sent);
    assert!(outcomes[2].as_ref().unwrap_err().contains("already present"), "{:?}", outcomes[2]);
    for place in [0, 1, 3] {
        assert_eq!(outcomes[place].as_ref().map(|result| version_of(result)), Ok(1));
    }
}
