//! What happens when servers, files or the programs themselves fail.
use super::proxy::{Fate, Proxy};
use super::{Folder, count, export, fill, import, run, server};
use nigh_tests::{Server, run_to_end};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const COUNT: u64 = 6000;

/// The points of an export, without the header.
fn points(text: &str) -> Vec<&str> {
    text.lines().skip(1).filter(|line| !line.starts_with("{\"end\":")).collect()
}

/// Interrupts an export in this format, and goes on with it.
pub(super) fn interrupted_export(format: &str) {
    let (server, folder) = (server(), Folder::new());
    fill(&mut server.api(), "films", COUNT as usize);
    let whole = folder.path("whole");
    export(&server, "films", &whole, "");
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = is_broken.clone();
    let proxy = Proxy::before(server.authority(), move |number, _| match broken.load(Ordering::SeqCst) {
        true if number > 15 => Fate::Close,
        _ => Fate::Pass,
    });
    let name = format!("films.{format}");
    let line = format!(
        "export -url http://{} -collection films -retries 0 -format {format} -o {}",
        proxy.authority,
        folder.path(&name)
    );
    let said = run(&line, 1).stderr;
    assert!(said.contains("-resume goes on from there"), "{said}");
    assert!(!folder.has(&name));
    let lines = if format == "fvecs" { format!("{name}.jsonl") } else { name.clone() };
    let some = points(&folder.text(&format!("{lines}.partial"))).len();
    assert!(some > 0 && some < COUNT as usize, "{some}");
    let said = run(&line, 1).stderr;
    assert!(said.contains("-overwrite"), "{said}");
    is_broken.store(false, Ordering::SeqCst);
    run(&format!("{line} -resume"), 0);
    assert!(!folder.has(&format!("{lines}.partial")) && !folder.has(&format!("{lines}.partial.state")));
    if format == "jsonl" {
        assert_eq!(points(&folder.text("films.jsonl")), points(&folder.text("whole")));
    }
    // Its checksums are right all the same.
    import(&server, &folder.path(&name), &format!("-into {format}"), 0);
    assert_eq!(count(&mut server.api(), format), COUNT);
}

#[test]
fn an_export_that_was_interrupted_goes_on() {
    for format in ["jsonl", "fvecs"] {
        interrupted_export(format);
    }
}

#[test]
fn an_import_that_was_interrupted_goes_on_without_double_effect() {
    interrupted_import("jsonl", &["fail", "skip", "replace"]);
}

/// Interrupts an import of a file in this format, and goes on with it.
pub(super) fn interrupted_import(format: &str, on_conflicts: &[&str]) {
    let (one, folder) = (server(), Folder::new());
    fill(&mut one.api(), "films", COUNT as usize);
    let file = folder.path(&format!("films.{format}"));
    export(&one, "films", &file, &format!("-format {format}"));
    for on_conflict in on_conflicts {
        let other = server();
        let is_broken = Arc::new(AtomicBool::new(true));
        let broken = is_broken.clone();
        // The answers after the tenth request are lost, so that points are written of which the client does not know.
        let proxy = Proxy::before(other.authority(), move |number, _| match broken.load(Ordering::SeqCst) {
            true if number > 12 => Fate::Close,
            true if number > 10 => Fate::Lose,
            _ => Fate::Pass,
        });
        let line = format!(
            "import -url http://{} {file} -retries 0 -batch 200 -on-conflict {on_conflict}",
            proxy.authority
        );
        let said = run(&line, 1).stderr;
        assert!(said.contains("-resume goes on behind them"), "{said}");
        let mut api = other.api();
        let before = count(&mut api, "films");
        assert!(before > 0 && before < COUNT, "{before}");
        assert!(run(&line, 1).stderr.contains(&format!("films.{format}.import is there")));
        is_broken.store(false, Ordering::SeqCst);
        run(&format!("{line} -resume"), 0);
        assert_eq!(count(&mut api, "films"), COUNT, "{on_conflict}");
        if *on_conflict != "replace" {
            // Nothing was written twice.
            let ids: Vec<u64> = (0..COUNT).collect();
            let found = api.ok(
                "POST",
                "/v1/collections/films/points/batch-get",
                json!({"ids": ids, "with_vector": false}),
            );
            let found = found["points"].as_array().expect("points");
            assert!(found.iter().all(|point| point["version"] == 1), "{on_conflict}");
        }
        assert!(!folder.has(&format!("films.{format}.import")));
    }
}

#[test]
fn busy_servers_and_lost_answers_are_borne() {
    let (one, other, folder) = (server(), server(), Folder::new());
    fill(&mut one.api(), "films", COUNT as usize);
    let file = folder.path("films.jsonl");
    let source =
        Proxy::before(one.authority(), |number, _| if number % 3 == 1 { Fate::Busy } else { Fate::Pass });
    run(&format!("export -url http://{} -collection films -o {file}", source.authority), 0);
    let target = Proxy::before(other.authority(), |number, path| match number % 5 {
        1 => Fate::Busy,
        3 if path.ends_with("/batch") => Fate::Lose,
        _ => Fate::Pass,
    });
    run(&format!("import -url http://{} {file} -batch 300", target.authority), 0);
    assert!(source.requests.load(Ordering::SeqCst) > 6 && target.requests.load(Ordering::SeqCst) > 20);
    let mut api = other.api();
    assert_eq!(count(&mut api, "films"), COUNT);
    let one = api.ok("GET", "/v1/collections/films/points/4321", Value::Null);
    assert_eq!((&one["version"], &one["payload"]["n"]["int"]), (&json!(1), &json!(4321)));
}

#[test]
fn a_killed_export_goes_on() {
    let (server, folder) = (server(), Folder::new());
    fill(&mut server.api(), "films", COUNT as usize);
    // The last page waits, until the program has been killed.
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = is_slow.clone();
    let proxy = Proxy::before(server.authority(), move |number, _| {
        while number > 12 && slow.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(400));
        Fate::Pass
    });
    let file = folder.path("films.jsonl");
    let url = format!("http://{}", proxy.authority);
    let mut child = std::process::Command::new(nigh_tests::server_binary())
        .args(["export", "-url", &url, "-collection", "films", "-o", &file])
        .spawn()
        .expect("it starts");
    while !folder.has("films.jsonl.partial.state") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    is_slow.store(false, Ordering::SeqCst);
    run(&format!("export -url {url} -collection films -o {file} -resume"), 0);
    assert_eq!(points(&folder.text("films.jsonl")).len() as u64, COUNT);
    import(&server, &file, "-into copy", 0);
    assert_eq!(count(&mut server.api(), "copy"), COUNT);
}

#[test]
fn bad_lines_are_refused_one_by_one() {
    let (server, folder) = (server(), Folder::new());
    let mut api = server.api();
    fill(&mut api, "films", 20);
    let file = folder.path("films.jsonl");
    export(&server, "films", &file, "");
    let mut lines: Vec<String> = folder.text("films.jsonl").lines().map(ToOwned::to_owned).collect();
    lines[3] = "{\"id\":2,\"vector\":[1]}".into();
    lines[5] = "{\"id\":4,\"vector\":[NaN,1]}".into();
    lines[7] = "{\"id\":\"six\",\"vector\":[1,2]}".into();
    // Only the server notices the fault of the next line.
    lines[9] = "{\"id\":8,\"vector\":[1,2],\"payload\":{\"a\":{\"kind\":\"colour\"}}}".into();
    lines[11] = "not JSON".into();
    std::fs::write(&file, lines.join("\n") + "\n").expect("room");
    let rejects = folder.path("rejects");
    let exit = import(&server, &file, &format!("-into copy -batch 7 -rejects {rejects}"), 1);
    let said = exit.stdout + &exit.stderr;
    assert!(said.contains("15 written, 5 refused"), "{said}");
    for part in [
        "line 4 (id 2): vector has 1 components, and the collection 2",
        "line 6: it is not JSON",
        "line 8 (id \"six\"): the id \"six\" is no integer",
        "line 10 (id 8): ",
        "line 12: it is not JSON",
        "the file was changed or damaged",
        "5 points or keys were refused",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert_eq!(count(&mut api, "copy"), 15);
    let rejected = folder.text("rejects");
    let numbers: Vec<u64> = rejected
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["line"].as_u64().expect("a number"))
        .collect();
    assert_eq!(numbers, [4, 6, 8, 10, 12]);

    std::fs::write(&file, lines[..6].join("\n")).expect("room");
    let said = import(&server, &file, "-into cut", 1).stderr;
    assert!(said.contains("the file is cut short: it ends behind line 6"), "{said}");
    std::fs::write(&file, "{\"format\":\"nigh-export\",\"version\":9}\n").expect("room");
    assert!(import(&server, &file, "", 1).stderr.contains("version 9 of the format"));
    std::fs::write(&file, "{\"id\":1}\n").expect("room");
    assert!(import(&server, &file, "", 1).stderr.contains("line 1 is not the header"));
}

#[test]
fn an_api_key_lets_in() {
    let secret = "the-key-of-this-test";
    let server =
        Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", "-kv-query", "-api-key", secret]);
    let (one, folder) = (super::server(), Folder::new());
    fill(&mut one.api(), "films", 10);
    let file = folder.path("films.jsonl");
    export(&one, "films", &file, "");
    let said = import(&server, &file, "", 1).stderr;
    assert!(said.contains("status 401") && said.contains("NIGH_API_KEY"), "{said}");
    let url = format!("http://{}", server.authority());
    let with_key = |words: &[&str]| {
        let exit = run_to_end(words, &[("NIGH_API_KEY", secret)]);
        assert_eq!(exit.status.code(), Some(0), "{words:?}: {}{}", exit.stdout, exit.stderr);
        assert!(!(exit.stdout.clone() + &exit.stderr).contains(secret));
        exit.stdout
    };
    with_key(&["import", "-url", &url, &file]);
    let text = with_key(&["export", "-url", &url, "-collection", "films", "-o", "-"]);
    assert_eq!(points(&text), points(&folder.text("films.jsonl")));
    with_key(&["export", "-address", server.tcp_authority(), "-keys", "-o", &folder.path("keys")]);
    let said =
        run(&format!("export -address {} -keys -o {}", server.tcp_authority(), folder.path("k")), 1).stderr;
    assert!(said.contains("unauthorized"), "{said}");
    let said =
        run(&format!("export -url {url} -api-key {secret} -collection none -o {}", folder.path("n")), 1)
            .stderr;
    assert!(said.contains("has no collection \"none\""), "{said}");
}
