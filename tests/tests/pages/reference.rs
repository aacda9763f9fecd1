//! The pages of `docs/reference` that are made from the code: flags, configuration keys, metrics, errors, limits and operations.
use crate::{ROOT, assert_none, configuration, grpc, limits, operations};
use nigh_net::metrics::{BackupFigures, METRICS_PREFIX, NodeGauges, Telemetry, render};
use nigh_net::op::ErrorKind;
use nigh_shard::core::CollectionMetrics;
use nigh_shard::kv::KeysStats;
use nigh_shard::refusals::RefusalReason;
use nigh_shard::runtime::CoreHealth;
use nigh_tests::run_to_end;
use std::fmt::Write;
use std::path::Path;

/// The variable that makes the test write the files.
const REWRITE: &str = "NIGH_REWRITE_REFERENCE";

/// The page of a name with what the code says.
type Made = (&'static str, fn() -> String);

const MADE: [Made; 7] = [
    ("flags", flags),
    ("configuration", configuration::page),
    ("metrics", metrics),
    ("errors", errors),
    ("limits", limits::page),
    ("operations", operations::page),
    ("grpc", grpc::page),
];

#[test]
fn the_reference_is_what_the_code_says() {
    let mut faults = Vec::new();
    for (name, make) in MADE {
        let path = Path::new(ROOT).join(format!("docs/reference/{name}.md"));
        let made = make();
        if std::env::var_os(REWRITE).is_some() {
            std::fs::write(path, made).expect("the page is written");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != made {
            faults.push(format!(
                "docs/reference/{name}.md is not what the code says; rewrite it with\n    \
                 {REWRITE}=1 cargo test -p nigh-tests --test pages reference"
            ));
        }
    }
    assert_none(&faults);
}

/// The end of every generated page's introduction.
pub const GENERATED: &str = "This page is generated from the code by `tests/tests/pages/reference.rs`.";

/// A cell of a table: bars would end it.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// One flag as `nigh -help-all` describes it.
pub struct Flag {
    /// Name without the dash.
    pub name: String,
    value: String,
    about: String,
    variable: String,
}

/// The flags of the server: those that work, those without effect, and those that are refused; each by group.
pub fn server_flags() -> [Vec<(String, Vec<Flag>)>; 3] {
    let text = run_to_end(&["-help-all"], &[]).stdout;
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let mut part = 0;
    for line in text.lines().skip_while(|line| !line.starts_with("Transports:")) {
        let trimmed = line.trim();
        if line.starts_with("ACCEPTED") || line.starts_with("REFUSED") {
            part += 1;
        } else if let Some(group) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            parts[part].push((group.to_owned(), Vec::new()));
        } else if let Some(flag) = line.strip_prefix("  -") {
            let (left, about) = flag.split_once("  ").or_else(|| flag.split_once(' ')).unwrap_or((flag, ""));
            let (name, value) = left.split_once(' ').unwrap_or((left, ""));
            // A long name with a long value leaves one blank before the description.
            let flags: &mut Vec<Flag> = &mut parts[part].last_mut().expect("a group comes first").1;
            flags.push(Flag {
                name: name.to_owned(),
                value: value.trim().to_owned(),
                about: about.trim().trim_end_matches('.').to_owned() + ".",
                variable: String::new(),
            });
        } else if let Some(flag) = parts[part].last_mut().and_then(|(_, flags)| flags.last_mut()) {
            match trimmed.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                Some(variable) => variable.clone_into(&mut flag.variable),
                None if trimmed.is_empty() => {}
                None => {
                    flag.about.push(' ');
                    flag.about.push_str(trimmed);
                }
            }
        }
    }
    parts
}

fn flags() -> String {
    let mut out = String::from(
        "# Flags of the server\n\n\
         `nigh -h` lists the flags, `nigh -help-all` describes them. A flag is written `-name value`, `-name=value` or with two dashes;\n\
         a boolean flag is written `-name` or `-name=false`. Each flag can also be set by an environment variable, which counts if the flag is\n\
         not given. Secrets are the exception: `SVC_API_KEY` wins over `-api-key`, because command lines show in the list of processes.\n\n",
    );
    let _ = writeln!(out, "{GENERATED}");
    let [work, idle, refused] = server_flags();
    for (group, flags) in &work {
        let _ = writeln!(out, "\n## {group}\n\n| Flag | Variable | Meaning |\n|---|---|---|");
        for flag in flags {
            let value = if flag.value.is_empty() { String::new() } else { format!(" {}", flag.value) };
            let variable =
                if flag.variable.is_empty() { "–".to_owned() } else { format!("`{}`", flag.variable) };
            let _ = writeln!(out, "| `-{}{value}` | {variable} | {} |", flag.name, cell(&flag.about));
        }
    }
    let named = |parts: &[(String, Vec<Flag>)]| {
        let names = parts.iter().flat_map(|(_, flags)| flags).map(|flag| format!("`-{}`", flag.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(
        out,
        "\n## Flags without effect\n\nThe server accepts these and logs a warning: {}.",
        named(&idle)
    );
    let _ = writeln!(
        out,
        "\n## Flags that are refused\n\nThis build lacks the features behind these flags. A start with one of them, changed from its \
         default, ends with\nan error that names the feature: {}.",
        named(&refused)
    );
    out
}

/// Tables whose figures are those of a result that is kept: page, what the first cell of its rows begins with, result.
const FIGURES: [(&str, &[&str], &str); 3] = [
    ("README.md", &["Nigh", "hnswlib", "faiss", "usearch", "Qdrant"], "wordnet-384.md"),
    ("docs/guide/keys-and-records.md", &["GET per", "SET per"], "kv.md"),
    ("docs/guide/quantization.md", &["`sq`", "`pq`", "`prq`", "`bq1`"], "quantizers.md"),
];

#[test]
fn figures_are_those_of_the_results() {
    let mut faults = Vec::new();
    for (page, names, result) in FIGURES {
        let text = std::fs::read_to_string(Path::new(ROOT).join(page)).expect("the page");
        let kept = std::fs::read_to_string(Path::new(ROOT).join("benches/results").join(result))
            .expect("the result");
        let mut found = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("| ")) {
            if !names.iter().any(|name| line.starts_with(name)) {
                continue;
            }
            let cells = line.split('|').skip(1).map(str::trim);
            for figure in cells.filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit())) {
                found += 1;
                if !kept.split([' ', '|', '\n']).any(|word| word == figure) {
                    faults.push(format!("{page}: {figure} is not in {result}"));
                }
            }
        }
        if found < 8 {
            faults.push(format!("{page}: only {found} figures were found"));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_picture_is_what_the_results_say() {
    let script = Path::new(ROOT).join("benches/picture.py");
    match std::process::Command::new("python3").arg(script).arg("--check").output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("python3 does not start ({error}); the picture was not looked at"),
    }
}

/// A stranger reads the README to its end.
const README_LINES_MAX: usize = 150;

#[test]
fn the_readme_is_short() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README");
    assert!(text.lines().count() <= README_LINES_MAX, "the README has more than {README_LINES_MAX} lines");
}

/// The metrics page of a node with one core and one collection.
pub fn metrics_text() -> String {
    let node = NodeGauges {
        log_bytes: vec![Some(0)],
        log_frames: vec![Some(0)],
        logs_failed: vec![false],
        backups: BackupFigures::default(),
        refusals: RefusalReason::ALL.map(|reason| (reason, 0)).to_vec(),
        health: vec![CoreHealth::default()],
        ..NodeGauges::default()
    };
    let collection = CollectionMetrics { name: "default/docs".into(), ..CollectionMetrics::default() };
    render(&Telemetry::new(1), &node, &KeysStats::default(), &[collection])
}

/// Names, kinds and descriptions of all metrics, and the labels of their samples besides `le`.
pub fn metric_families() -> Vec<(String, String, String, String)> {
    let text = metrics_text();
    let mut families: Vec<(String, String, String, String)> = Vec::new();
    let mut help = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            rest.split_once(' ').expect("a description").1.clone_into(&mut help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            families.push((name.to_owned(), kind.to_owned(), help.clone(), String::new()));
        } else if let Some((_, labels)) = line.split_once('{') {
            let family = families.last_mut().expect("samples follow their family");
            let names: Vec<&str> =
                labels.split("=\"").filter_map(|part| part.rsplit([',', '"', '{']).next()).collect();
            let label = names.first().filter(|name| **name != "le").copied().unwrap_or_default();
            label.clone_into(&mut family.3);
        }
    }
    families
}

/// The unit of a metric, which its name says.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name {
        _ if name.ends_with("_seconds") => "seconds",
        _ if name.ends_with("duration_ms") => "milliseconds",
        _ if name.contains("bytes") => "bytes",
        _ => "count",
    }
}

fn metrics() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         `GET /metrics` (also `/v1/metrics`) answers Prometheus text. `-metrics-prefix` changes the `svc` in front of all names.\n\
         `GET /kv-metrics` has only the metrics of keys and values. A histogram has the usual `_bucket`, `_sum` and `_count`. Counters start at\n\
         0 when the process starts. [Metrics](../operations/metrics.md) and [Alerts](../operations/alerts.md) say which of these to watch.\n\n",
    );
    let _ = writeln!(out, "{GENERATED}");
    let families = metric_families();
    type Belongs = fn(&str) -> bool;
    let parts: [(&str, Belongs); 6] = [
        ("Process and cores", |name| {
            !["kv_", "tcp_", "grpc_", "http_", "vector_"].iter().any(|part| name.starts_with(part))
        }),
        ("HTTP", |name| name.starts_with("http_")),
        ("Binary protocol", |name| name.starts_with("tcp_")),
        ("gRPC", |name| name.starts_with("grpc_")),
        ("Collections", |name| name.starts_with("vector_")),
        ("Keys and values", |name| name.starts_with("kv_")),
    ];
    for (title, belongs) in parts {
        let _ = writeln!(
            out,
            "\n## {title}\n\n| Metric | Kind | Unit | Label | Meaning |\n|---|---|---|---|---|"
        );
        for (name, kind, help, label) in &families {
            let bare = name
                .strip_prefix(METRICS_PREFIX)
                .and_then(|name| name.strip_prefix('_'))
                .expect("the prefix");
            if belongs(bare) {
                let label = if label.is_empty() { String::new() } else { format!("`{label}`") };
                let _ = writeln!(out, "| `{name}` | {kind} | {} | {label} | {} |", unit(bare), cell(help));
            }
        }
    }
    out
}

const KINDS: [ErrorKind; 14] = [
    ErrorKind::Invalid,
    ErrorKind::Unauthorized,
    ErrorKind::NotFound,
    ErrorKind::Exists,
    ErrorKind::Conflict,
    ErrorKind::Unmet,
    ErrorKind::TooLarge,
    ErrorKind::Unsupported,
    ErrorKind::Exhausted,
    ErrorKind::Internal,
    ErrorKind::Damaged,
    ErrorKind::Backup,
    ErrorKind::Unavailable,
    ErrorKind::Storage,
];

/// What an error of a kind means, and what the client should do.
fn meaning(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Invalid => (
            "The request is wrong: malformed JSON, an unknown field or parameter, a value out of range, or a vector with the wrong number of \
             components.",
            "Correct the request. The message names the field and what is allowed.",
        ),
        ErrorKind::Unauthorized => (
            "The server has API keys, and the request has none, an unknown one, or one that may not do this.",
            "Send `Authorization: Bearer <token>` with the token of an API key that has [the right](operations.md).",
        ),
        ErrorKind::NotFound => {
            ("The collection, alias, point or route does not exist.", "Check the name or the id.")
        }
        ErrorKind::Exists => (
            "A collection with this name, or a point with this id, exists already.",
            "Choose another name or id, or replace the point with `upsert`.",
        ),
        ErrorKind::Conflict => (
            "The present state does not allow the request: for example, `expected_version` is not the version of the point, spaces are changed \
             during a bulk build, or the collection of a bulk load has points.",
            "Read the present state and decide again.",
        ),
        ErrorKind::Unmet => (
            "The request needs a feature or a setting that this server does not have.",
            "Do not repeat the request; the message names what is missing.",
        ),
        ErrorKind::TooLarge => {
            ("The body, or one payload, is over its limit.", "Send less at a time; see [limits](limits.md).")
        }
        ErrorKind::Unsupported => (
            "The server does not support the content encoding of the body.",
            "Send the body uncompressed or with `Content-Encoding: gzip`.",
        ),
        ErrorKind::Exhausted => (
            "A quota of the collection is used up, writes come faster than `max_inserts_per_second`, or the API key has reached one of its \
             [limits](../guide/access.md#limits).",
            "If a rate is the reason, wait and repeat the request; if a quota is, delete points or raise it.",
        ),
        ErrorKind::Internal => (
            "The server could not carry out the request. The answer says `internal error`; the cause is in the server's log.",
            "Read the log; see [troubleshooting](../operations/troubleshooting.md).",
        ),
        ErrorKind::Damaged => (
            "The collection or the keys that the request addresses are damaged on the disk, or had writes under way when the log failed. \
             Everything else is served.",
            "See [damaged files](../operations/full-disks-and-damage.md#damaged-files).",
        ),
        ErrorKind::Backup => (
            "The directory or bucket of backups failed, or an object there is damaged. Nothing was replaced.",
            "Read the message, which names the object; see [backups](../operations/backups.md).",
        ),
        ErrorKind::Unavailable => (
            "The server cannot serve the request at this moment: it is still opening the collection or the keys after a start, it is stopping, \
             or too many requests are under way.",
            "Repeat the request, over REST after the seconds in `Retry-After`; the other protocols name no time, so wait a second.",
        ),
        ErrorKind::Storage => (
            "The memory or the disk of the server is full. Reads still work.",
            "Free space, then repeat the request.",
        ),
        other => panic!("{other:?} needs a row in this table"),
    }
}

fn errors() -> String {
    let mut out = String::from(
        "# Errors\n\n\
         A failed request over REST has a status of 400 or more and a body `{\"error\": \"...\"}`. If a batch stopped in the middle, the field\n\
         `committed` says how many of its points were written before. Over the binary protocol a failure has status 3 (ERROR) with the same\n\
         message, status 1 (NOT_FOUND) or status 4 (UNAUTHORIZED); [the protocol](../../net/PROTOCOL.md#frames) lists the messages that are stable.\n\
         Over gRPC a failure has a code and the same message.\n\n",
    );
    let _ = writeln!(out, "{GENERATED}");
    out.push_str("\n| Status | gRPC | Meaning | What to do |\n|--:|---|---|---|\n");
    let mut kinds = KINDS;
    kinds.sort_by_key(|kind| nigh_net::rest::status(*kind));
    for kind in kinds {
        let (means, does) = meaning(kind);
        let (status, code) = (nigh_net::rest::status(kind).as_u16(), nigh_net::grpc::code(kind).name());
        let _ = writeln!(out, "| {status} | {code} | {means} | {does} |");
    }
    out.push_str(
        "\nOver HTTP the server also answers 405 if a route does not have the method, 431 if the headers are above their limit, and 501 for a\n\
         transfer coding other than `chunked`. Over gRPC it also answers DEADLINE_EXCEEDED if a deadline has passed or a message did not arrive\n\
         in time, and UNIMPLEMENTED for an unknown method.\n",
    );
    out
}

#[test]
fn every_kind_of_error_has_a_row() {
    let source = std::fs::read_to_string(Path::new(ROOT).join("net/src/op/error.rs")).expect("the source");
    let (_, kinds) = source.split_once("pub enum ErrorKind {").expect("the kinds");
    let (kinds, _) = kinds.split_once("\n}").expect("their end");
    let mut named: Vec<&str> = kinds
        .lines()
        .map(str::trim)
        .filter_map(|line| line.strip_suffix(','))
        .filter(|line| !line.starts_with('/'))
        .collect();
    let mut told = KINDS.map(|kind| format!("{kind:?}")).to_vec();
    named.sort_unstable();
    told.sort_unstable();
    assert_eq!(named, told);
}
