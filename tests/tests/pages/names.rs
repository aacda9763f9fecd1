//! Pages name nothing that does not exist: flags, environment variables, routes, keys, metrics, files.
use crate::page::Page;
use crate::reference::{metric_families, server_flags};
use crate::{ROOT, assert_none, pages};
use nigh_net::op::table::TABLE;
use nigh_tests::run_to_end;
use std::collections::HashSet;
use std::path::Path;

/// Names of other programs, and words that stand for names.
const OF_OTHERS: [&str; 5] = ["-name", "--features", "--default-non-nullable", "must_not", "on_disk"];

/// Everything that pages may name.
struct Known {
    /// Names of the flags of the server, without the dash.
    server_flags: HashSet<String>,
    /// Names of the flags of the server, the load generators and the client, without the dash.
    flags: HashSet<String>,
    /// Templates of the REST interface.
    routes: Vec<String>,
    /// Words of the interfaces: keys, operations, values.
    words: HashSet<String>,
    metrics: HashSet<String>,
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

impl Known {
    fn new() -> Known {
        let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).expect(name);
        let parts = server_flags();
        let all = parts.iter().flatten().flat_map(|(_, flags)| flags).map(|flag| flag.name.clone());
        let server_flags: HashSet<String> = all.collect();
        let mut flags = server_flags.clone();
        let keys = [&["keys", "add"], &["keys", "revoke"], &["keys", "list"]];
        let bench = [&["bench", "vector"], &["bench", "ingest"], &["bench", "kv"]];
        for command in bench.iter().chain(&keys).map(|command| &command[..]).chain([
            &["backup"][..],
            &["cli"],
            &["export"],
            &["import"],
        ]) {
            let exit = run_to_end(&[command, &["-help"]].concat(), &[]);
            let text = exit.stdout + &exit.stderr;
            let of_command =
                text.split_whitespace().filter_map(|word| word.trim_start_matches('[').strip_prefix('-'));
            let names = of_command
                .map(|name| name.trim_start_matches('-').trim_end_matches([',', ']', '=', '>', ')']));
            flags.extend(names.map(|name| name.split('=').next().unwrap_or_default().to_owned()));
        }
        let openapi = read("net/openapi.json");
        let document: serde_json::Value = serde_json::from_str(&openapi).expect("the document is JSON");
        let routes = document["paths"].as_object().expect("paths").keys().cloned().collect();
        let metrics: HashSet<String> = metric_families().into_iter().map(|(name, ..)| name).collect();
        let mut words: HashSet<String> = HashSet::new();
        let help = run_to_end(&["-help-all"], &[]).stdout;
        for text in [
            &openapi,
            &read("net/PROTOCOL.md"),
            &help,
            &read("deploy/kubernetes.yaml"),
            &read("deploy/seccomp.json"),
        ] {
            words.extend(words_of(text).map(ToOwned::to_owned));
        }
        for file in ["collections", "points", "search", "query", "admin", "inspect", "named", "multi_vector"]
        {
            let messages = read(&format!("net/proto/svc/v1/{file}.proto"));
            words.extend(words_of(&messages).map(ToOwned::to_owned));
        }
        // The fields of lines of the logs.
        for file in ["net/src/access_log.rs", "net/src/tcp/access.rs", "net/src/auth/authorizer.rs"] {
            words.extend(words_of(&read(file)).map(ToOwned::to_owned));
        }
        // The keys of lines of exports.
        let exports = ["header", "point", "key_line"].map(|file| format!("cli/src/transfer/{file}.rs"));
        for file in exports.iter().map(String::as_str).chain(["cli/src/logging/line.rs"]) {
            words.extend(words_of(&read(file)).map(ToOwned::to_owned));
        }
        words.extend(TABLE.iter().map(|row| row.name.to_owned()));
        Known { server_flags, flags, routes, words, metrics }
    }

    fn route(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |template: &String| {
            let known: Vec<&str> = template.split('/').collect();
            let mut pairs = known.iter().zip(&parts);
            known.len() == parts.len() && pairs.all(|(known, part)| known == part || known.starts_with('{'))
        };
        self.routes.iter().any(fits)
    }

    fn metric(&self, name: &str) -> bool {
        let bare =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        self.metrics.contains(name)
            || self.metrics.contains(bare)
            // `svc_tcp_*` stands for a family of names.
            || (name.ends_with('_') && self.metrics.iter().any(|known| known.starts_with(name)))
    }

    /// What a line of a page names that does not exist.
    fn faults_of_line(&self, line: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for (at, _) in line.match_indices("SVC_") {
            let name: String = line[at + 4..].chars().take_while(|c| is_name(*c)).collect();
            let flag = name.to_lowercase().replace('_', "-");
            // The one variable of `nigh keys`.
            if !name.is_empty() && name != "KEY_TOKEN" && !self.server_flags.contains(&flag) {
                faults.push(format!("SVC_{name} is the variable of no flag"));
            }
        }
        for (at, _) in line.match_indices("svc_") {
            let name: String = line[at..].chars().take_while(|c| is_name(*c)).collect();
            if name != "svc_" && !self.metric(&name) {
                faults.push(format!("there is no metric {name}"));
            }
        }
        for (at, _) in line.match_indices("/v1/") {
            let path: String = line[at..]
                .chars()
                .take_while(|c| is_name(*c) || matches!(c, '/' | '-' | '{' | '}' | '.' | '%'))
                .collect();
            let path = path.trim_end_matches(['.', '/']);
            if path != "/v1" && !self.route(path) {
                faults.push(format!("there is no route {path}"));
            }
        }
        faults
    }

    /// What a code span names that does not exist.
    fn fault_of_span(&self, span: &str) -> Option<String> {
        let first = span.split([' ', '=']).next().unwrap_or_default();
        if OF_OTHERS.contains(&first) {
            return None;
        }
        if let Some(flag) = first.strip_prefix('-').map(|flag| flag.trim_start_matches('-'))
            && flag.starts_with(|c: char| c.is_ascii_lowercase())
        {
            let name = flag.split('=').next().unwrap_or_default();
            return (!self.flags.contains(name)).then(|| format!("there is no flag -{name}"));
        }
        if let Some(rest) = span.strip_prefix("points/") {
            let path = format!("/v1/collections/x/points/{rest}");
            return (!self.route(path.split('?').next().unwrap_or_default()))
                .then(|| format!("there is no route {span}"));
        }
        let is_key = |word: &str| word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        // `"key": value`
        if let Some((key, _)) = span.strip_prefix('"').and_then(|rest| rest.split_once("\":")) {
            return (is_key(key) && !self.words.contains(key)).then(|| format!("there is no key {key:?}"));
        }
        if is_key(span) && span.trim_matches('_').contains('_') && !span.starts_with("svc_") {
            return (!self.words.contains(span)).then(|| format!("there is no {span}"));
        }
        let roots =
            ["engine/", "shard/", "net/", "cli/", "gpu/", "tests/", "benches/", "deploy/", "docs/", ".ci/"];
        if roots.iter().any(|root| span.starts_with(root))
            && span.bytes().all(|byte| !b" *{<:".contains(&byte))
        {
            return (!Path::new(ROOT).join(span).exists()).then(|| format!("there is no file {span}"));
        }
        None
    }

    /// Flags behind `nigh` in a block of commands.
    fn faults_of_commands(&self, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for line in text.replace("\\\n", " ").lines() {
            let mut words = line.split_whitespace();
            if !words.by_ref().any(|word| word == "nigh" || word.ends_with("/nigh"))
                || line.contains("cargo ")
            {
                continue;
            }
            for word in words.take_while(|word| !["|", "#", "&&", ";"].contains(word)) {
                let Some(flag) = word.strip_prefix('-').map(|flag| flag.trim_start_matches('-')) else {
                    continue;
                };
                let name = flag.split('=').next().unwrap_or_default();
                if name.starts_with(|c: char| c.is_ascii_lowercase()) && !self.flags.contains(name) {
                    faults.push(format!("there is no flag -{name} in {line:?}"));
                }
            }
        }
        faults
    }
}

/// Whether a page is for those who use or run the server. Pages for contributors name what is in the code, and the list of changes
/// what was there once.
fn is_for_users(page: &Page) -> bool {
    page.name == "README.md"
        || page.name == "deploy/README.md"
        || (page.name.starts_with("docs/") && !page.name.starts_with("docs/internals/"))
}

#[test]
fn pages_name_what_exists() {
    let known = Known::new();
    assert!(known.flags.len() > 100 && known.routes.len() > 40 && known.metrics.len() > 80);
    let mut faults = Vec::new();
    for page in pages().iter().filter(|page| is_for_users(page)) {
        for (index, line) in page.text.lines().enumerate() {
            let found = known.faults_of_line(line).into_iter();
            faults.extend(found.map(|fault| format!("{}:{}: {fault}", page.name, index + 1)));
        }
        for (line, span) in page.spans() {
            faults.extend(known.fault_of_span(span).map(|fault| format!("{}:{line}: {fault}", page.name)));
        }
        for block in page.blocks() {
            let found = known.faults_of_commands(&block.text).into_iter();
            faults.extend(found.map(|fault| format!("{}:{}: {fault}", page.name, block.opened + 1)));
        }
    }
    assert_none(&faults);
}

/// All sources of what runs, with continued strings joined.
fn messages() -> String {
    let mut waiting: Vec<_> =
        ["engine", "shard", "net", "cli"].map(|name| Path::new(ROOT).join(name).join("src")).to_vec();
    let mut text = String::new();
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(path).expect("sources are text"));
            }
        }
    }
    text.split("\\\n").map(str::trim_start).collect()
}

#[test]
fn messages_that_pages_explain_are_the_servers() {
    let page = Page::read(Path::new(ROOT), "docs/operations/troubleshooting.md".to_owned());
    let messages = messages();
    let mut faults = Vec::new();
    let mut found = 0;
    for (line, span) in page.spans() {
        // A message is a sentence; shorter spans are names and commands.
        if span.split(' ').count() < 4 || !span.starts_with(|c: char| c.is_ascii_lowercase()) {
            continue;
        }
        found += 1;
        if !messages.contains(span) {
            faults.push(format!("{}:{line}: the server never says {span:?}", page.name));
        }
    }
    assert_none(&faults);
    assert!(found > 5, "only {found} messages were found");
}

#[test]
fn files_that_pages_name_are_there() {
    let known = Known::new();
    let mut faults = Vec::new();
    let is_page = |page: &&Page| page.name.starts_with("docs/internals/") || page.name == "ARCHITECTURE.md";
    for page in pages().iter().filter(is_page) {
        for (line, span) in page.spans() {
            let fault = known.fault_of_span(span).filter(|fault| fault.starts_with("there is no file"));
            // The code map names modules below the crate that a section is about.
            faults.extend(fault.map(|fault| format!("{}:{line}: {fault}", page.name)));
        }
    }
    assert_none(&faults);
}

#[test]
fn names_that_do_not_exist_are_found() {
    let known = Known::new();
    for good in [
        "-data ./x",
        "points/search/docs",
        "\"quant\": \"sq8\"",
        "ef_search",
        "net/PROTOCOL.md",
        "--docs",
        "kv_query",
    ] {
        assert_eq!(known.fault_of_span(good), None, "{good}");
    }
    for bad in ["-no-such", "points/search/nowhere", "\"kwant\": 1", "ef_serch", "net/none.md", "--doggs"] {
        assert!(known.fault_of_span(bad).is_some(), "{bad}");
    }
    for good in [
        "set SVC_API_KEY",
        "`svc_tcp_*`",
        "svc_http_search_seconds_sum",
        "GET /v1/collections/films/points/3.",
    ] {
        assert_eq!(known.faults_of_line(good), [""; 0], "{good}");
    }
    for bad in ["set SVC_KEY", "`svc_nothing`", "GET /v1/collections/films/dots"] {
        assert_eq!(known.faults_of_line(bad).len(), 1, "{bad}");
    }
    assert_eq!(known.faults_of_commands("nigh -data x \\\n  -nothing\ncurl -s x\n").len(), 1);
}
