//! Rules of this tree that a machine can check: licences, crate boundaries, size and finish of source files.
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// A longer file holds more than one idea.
const LINES_MAX: usize = 900;

/// Every Rust file of the workspace with its path from the root.
fn sources() -> Vec<(String, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_name().to_string_lossy().as_ref() {
                "target" | ".git" => {}
                _ if path.is_dir() => walk(&path, found),
                name if name.ends_with(".rs") => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for member in ["engine", "shard", "net", "gpu", "cli", "tests", "benches"] {
        walk(&Path::new(ROOT).join(member), &mut found);
    }
    found.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(ROOT).unwrap_or(path).display().to_string();
        (name, std::fs::read_to_string(path).expect("sources are readable text"))
    };
    found.iter().map(read).collect()
}

fn check(rule: &str, broken: impl Fn(&str, &str) -> bool) {
    let offenders: Vec<String> =
        sources().into_iter().filter(|(name, text)| broken(name, text)).map(|(name, _)| name).collect();
    assert!(offenders.is_empty(), "{rule}: {offenders:#?}");
}

#[test]
fn files_are_finished() {
    // The words are put together here so that this file keeps the rule.
    let markers = [["to", "do!("].concat(), ["unimple", "mented!("].concat(), ["FIX", "ME"].concat()];
    check("no markers of unfinished work", |_, text| markers.iter().any(|marker| text.contains(marker)));
}

#[test]
fn files_hold_one_idea() {
    check(&format!("at most {LINES_MAX} lines"), |_, text| text.lines().count() > LINES_MAX);
    check("every file says what it is in its first line", |name, text| {
        !text.starts_with("//!") && !text.starts_with("#!") && !name.ends_with("/tests.rs")
    });
}

#[test]
fn files_of_tests_are_built() {
    // Cargo looks for no programs there, so that a file which nobody names would be left out in silence.
    const PLACES: [&str; 2] = ["tests", "net"];
    let manifest = |place| std::fs::read_to_string(Path::new(ROOT).join(place).join("Cargo.toml")).unwrap();
    let sources = sources();
    for place in PLACES {
        let folder = format!("{place}/tests/");
        let manifest = manifest(place);
        let files: Vec<_> = sources.iter().filter(|(name, _)| name.starts_with(&folder)).collect();
        let is_built = |name: &str| {
            let path = Path::new(name);
            let stem = path.file_stem().unwrap_or_default();
            let is_front = stem == "mod" || stem == "main";
            let name =
                if is_front { path.parent().and_then(Path::file_name).unwrap_or_default() } else { stem };
            let name = name.to_string_lossy();
            let (inner, outer) = (format!("mod {name};"), format!("pub mod {name};"));
            manifest.contains(&format!("name = \"{name}\""))
                || files.iter().any(|(_, text)| text.lines().any(|line| line == inner || line == outer))
        };
        let left_out: Vec<_> = files.iter().map(|(name, _)| name).filter(|name| !is_built(name)).collect();
        assert!(files.len() > 5 && left_out.is_empty(), "no program of tests names {left_out:#?}");
    }
    check("programs that are built without tests have none", |name, text| {
        (name == "cli/src/main.rs" || name.starts_with("benches/src/bin/")) && text.contains("#[test]")
    });
}

/// The packages outside this workspace with their features, as cargo builds them for `what`.
fn features(what: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}: {f}", "--manifest-path"])
        .arg(Path::new(ROOT).join("Cargo.toml"))
        .args(what)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    // One that is shown again is marked, and the packages of this workspace are named with their paths.
    let packages = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    packages.filter(|line| !line.contains(" (/")).map(ToOwned::to_owned).collect()
}

/// The tests start a server that cargo builds without what is for tests alone. A feature that crates for tests ask of a dependency of the
/// server has the whole server compiled a second time; asking for it in `Cargo.toml` has not.
#[test]
fn the_server_is_compiled_once() {
    let everything = features(&["--workspace", "--edges", "normal,build,dev"]);
    let server = features(&["-p", "nigh", "--edges", "normal,build"]);
    let others: Vec<&String> = server.difference(&everything).collect();
    assert!(server.len() > 50 && others.is_empty(), "built with other features for tests: {others:#?}");
    // What only a build with Parquet asks for is its own packages.
    let parquet = features(&["-p", "nigh", "--features", "parquet", "--edges", "normal,build"]);
    let others: Vec<&String> = server.difference(&parquet).collect();
    assert!(
        parquet.len() > server.len() && others.is_empty(),
        "built with other features for Parquet: {others:#?}"
    );
}

/// Examples in documentation would be programs of their own, each with the whole crate in it, so there are none, and cargo does not look for them.
#[test]
fn documentation_has_no_examples_that_nobody_runs() {
    check("what documentation shows is text, and code is in tests", |_, text| {
        let documentation = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
        });
        let fences = documentation.filter_map(|line| line.strip_prefix("```"));
        fences.step_by(2).any(|kind| kind != "text")
    });
}

#[test]
fn only_the_runtime_knows_the_executor() {
    let path = ["glommio", "::"].concat();
    check("glommio is imported in shard/src/runtime only", |name, text| {
        !name.starts_with("shard/src/runtime")
            && text.lines().any(|line| line.contains(&path) && !line.trim_start().starts_with("//"))
    });
}

#[test]
fn the_engine_touches_nothing() {
    let worlds = ["std::fs", "std::net", "std::time::Instant", "std::time::SystemTime", "std::process"];
    check("engine/src has no file, socket, clock or process outside tests", |name, text| {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = || product.lines().filter(|line| !line.trim_start().starts_with("//"));
        name.starts_with("engine/src")
            && !name.contains("test")
            && code().any(|line| worlds.iter().any(|world| line.contains(world)))
    });
}

#[test]
fn crates_point_one_way() {
    // cli -> net -> shard -> engine, gpu -> engine.
    let allowed =
        [("engine", &[][..]), ("shard", &["engine"]), ("net", &["engine", "shard"]), ("gpu", &["engine"])];
    for (member, below) in allowed {
        let manifest = std::fs::read_to_string(Path::new(ROOT).join(member).join("Cargo.toml")).unwrap();
        let product = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for other in ["engine", "shard", "net", "gpu"] {
            let depends = product.contains(&format!("nigh-{other}.workspace"));
            assert!(!depends || below.contains(&other), "{member} must not depend on {other}");
        }
    }
}

/// A slot is freed when every space has let go of it, so that points are the ground on which any number of spaces stand.
#[test]
fn points_know_nothing_of_spaces() {
    const ABOVE: [&str; 4] = ["Space", "SpaceWriter", "Dense", "DenseWriter"];
    check(
        "engine/src/collection/points is used by spaces and collections, and uses neither",
        |name, text| {
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let names_one = |line: &str| {
                let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                line.contains("space::")
                    || line.contains("dense::")
                    || words.any(|word| ABOVE.contains(&word))
            };
            name.starts_with("engine/src/collection/points/") && code().any(names_one)
        },
    );
}

#[test]
fn owners_reach_the_log_through_the_journal() {
    // Besides the log and the journal: the context of a core, which is the journal; what starts, stops and trims the log itself; what reads
    // the logs of the run before; what sends the log to its archive, and brings it back; and options of a node.
    const ALLOWED: [&str; 11] = [
        "shard/src/archive/",
        "shard/src/log/",
        "shard/src/journal.rs",
        "shard/src/ctx/",
        "shard/src/core/life.rs",
        "shard/src/core/checkpoints.rs",
        "shard/src/recovery.rs",
        "shard/src/opening.rs",
        "shard/src/kv/recovery.rs",
        "shard/src/node.rs",
        "shard/src/sim/node.rs",
    ];
    check("changes of collections and keys know the log by the journal", |name, text| {
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let mut code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
        name.starts_with("shard/src/")
            && !ALLOWED.iter().any(|allowed| name.starts_with(allowed))
            && code.any(|line| line.contains("crate::log::") || line.contains(".log()"))
    });
}

/// These words would fit almost any type, and once named eleven different ones: what a name says has to be clear where it is read.
#[test]
fn words_that_fit_everything_name_one_type() {
    const WORDS: [&str; 4] = ["Entry", "Place", "Slot", "State"];
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, text) in sources() {
        for line in text.lines() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let declares = words.any(|word| ["struct", "enum", "trait", "type"].contains(&word));
            let declared = words.next().filter(|_| declares && !line.trim_start().starts_with("//"));
            if let Some(word) = WORDS.iter().find(|word| declared == Some(**word)) {
                found.entry(word).or_default().push(name.clone());
            }
        }
    }
    let many: Vec<_> = found.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(many.is_empty(), "{many:#?}");
    assert!(found.contains_key("Slot"), "the rule finds what there is");
}

#[test]
fn only_the_door_reaches_the_core() {
    // Besides the door and the operations that it carries out: what starts a front end on a core, the pages of figures that operations
    // make, and the simulation of whole nodes.
    const ALLOWED: [&str; 8] = [
        "net/src/door.rs",
        "net/src/op/",
        "net/src/rest/mod.rs",
        "net/src/metrics.rs",
        "net/src/kv_metrics.rs",
        "net/src/grpc/server.rs",
        "net/src/tcp/server.rs",
        "net/src/sim_tests/",
    ];
    check("codecs reach the core through the door", |name, text| {
        let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let names_core = |line: &str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "Core");
        name.starts_with("net/src/")
            && !ALLOWED.iter().any(|allowed| name.starts_with(allowed))
            && code().any(names_core)
    });
}

/// Files that have unsafe code: kernels, memory that is read while it is written, files that are mapped, rings and devices. Each has its
/// reasons beside it and a model or a property test. A new one needs a reason in its commit; one that no longer needs it goes from here.
const WITH_UNSAFE: &[&str] = &[
    "engine/src/collection/points/meta.rs",
    "engine/src/collection/points/reclaim.rs",
    "engine/src/collection/points/row_block.rs",
    "engine/src/collection/space/writer.rs",
    "engine/src/distance/avx2.rs",
    "engine/src/distance/avx512.rs",
    "engine/src/distance/dispatch.rs",
    "engine/src/distance/neon.rs",
    "engine/src/distance/rows.rs",
    "engine/src/index/hnsw/codes.rs",
    "engine/src/index/hnsw/generation.rs",
    "engine/src/index/hnsw/graph.rs",
    "engine/src/index/hnsw/quantized.rs",
    "engine/src/index/hnsw/training.rs",
    "engine/src/index/ivf/coded.rs",
    "engine/src/memory/arena.rs",
    "engine/src/memory/attic.rs",
    "engine/src/memory/id_map.rs",
    "engine/src/memory/owned.rs",
    "engine/src/memory/pages.rs",
    "engine/src/memory/published.rs",
    "engine/src/memory/table.rs",
    "engine/src/payload/index/columns.rs",
    "engine/src/payload/index/mod.rs",
    "engine/src/payload/index/postings.rs",
    "engine/src/payload/index/selection.rs",
    "engine/src/payload/index/tree.rs",
    "gpu/src/cuda/driver.rs",
    "gpu/src/cuda/mod.rs",
    "shard/src/checkpoint/manifest.rs",
    "shard/src/completions/buffers.rs",
    "shard/src/completions/mod.rs",
    "shard/src/mesh/ring.rs",
    "shard/src/reactor.rs",
    "shard/src/ring.rs",
    "shard/src/runtime/disk.rs",
    "shard/src/runtime/disk/synced.rs",
    "shard/src/runtime/task.rs",
    "shard/src/system.rs",
];

#[test]
fn unsafe_code_is_where_it_is_listed() {
    let is_unsafe =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
    let found: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(name, text)| {
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            name.contains("/src/")
                && !name.contains("tests")
                && !name.contains("loom")
                && code().any(is_unsafe)
        })
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("benches/"))
        .collect();
    assert_eq!(found, WITH_UNSAFE.iter().map(|name| (*name).to_owned()).collect());
    for front in ["net/src/lib.rs", "cli/src/lib.rs", "cli/src/main.rs"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join(front)).expect("the source");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{front}");
    }
}

#[test]
fn licences_are_allowed() {
    let file = std::fs::read_to_string(Path::new(ROOT).join("deny.toml")).unwrap();
    let list = file.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    let quoted = |text| str::split(text, '"').skip(1).step_by(2).collect::<Vec<&str>>();
    let allowed = quoted(list);
    // { name = "x", allow = ["y"] }
    let exceptions: Vec<Vec<&str>> =
        file.lines().filter(|line| line.trim_start().starts_with("{ name =")).map(quoted).collect();
    let is_allowed = |package: &Value| {
        let Some(licence) = package["license"].as_str() else { return false };
        let exception = exceptions.iter().find(|names| package["name"] == names[0]);
        permits(licence, &allowed) || exception.is_some_and(|names| permits(licence, &names[1..]))
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--all-features", "--locked", "--manifest-path"])
        .arg(Path::new(ROOT).join("Cargo.toml"))
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().expect("packages");
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(package))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(packages.len() > 7 && refused.is_empty(), "{refused:#?}");
}

/// Whether a licence expression can be met with `allowed` ones: `OR` takes one side, `AND` both, `/` is an old `OR`.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (value, rest) = either(&words, allowed);
    value && rest.is_empty()
}

fn either<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    let (mut value, mut rest) = both(words, allowed);
    while let Some((&"OR", after)) = rest.split_first() {
        let (right, after) = both(after, allowed);
        (value, rest) = (value | right, after);
    }
    (value, rest)
}

fn both<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    let (mut value, mut rest) = one(words, allowed);
    while let Some((&"AND", after)) = rest.split_first() {
        let (right, after) = one(after, allowed);
        (value, rest) = (value & right, after);
    }
    (value, rest)
}

fn one<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    match words {
        ["(", rest @ ..] => {
            let (value, rest) = either(rest, allowed);
            // Without its closing parenthesis the rest stays, and the expression is refused.
            (value, rest.strip_prefix(&[")"]).unwrap_or(words))
        }
        [name, "WITH", exception, rest @ ..] => {
            (allowed.contains(&format!("{name} WITH {exception}").as_str()) || allowed.contains(name), rest)
        }
        // "or later" is met by the version itself.
        [name, rest @ ..] => (allowed.contains(&name.trim_end_matches('+')), rest),
        [] => (false, words),
    }
}

#[test]
fn licence_expressions() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR X",
        "MIT+",
    ] {
        assert!(permits(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT", "", "MIT)"] {
        assert!(!permits(bad, &allowed), "{bad}");
    }
}

/// Groups of files of one crate that import each other, and why they may. No others.
const CIRCLES: [(&str, &str); 1] =
    [("shard/src/runtime/", "the executor: a task wakes its core, and a core runs its tasks")];

/// What the `use` declarations of a text name, each path in full.
fn used_paths(text: &str) -> Vec<String> {
    fn expand(path: &str, into: &mut Vec<String>) {
        let Some((before, rest)) = path.split_once('{') else {
            return into.push(path.split(" as ").next().unwrap_or(path).trim().to_owned());
        };
        let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let part = inner[start..at].trim();
                    if !part.is_empty() {
                        expand(&format!("{}{part}", before.trim()), into);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
    }
    let mut paths = Vec::new();
    // Tests may look at what they like.
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    for declaration in text.split("\nuse ").skip(1).chain(text.split("\npub use ").skip(1)) {
        let path = declaration.split(';').next().unwrap_or_default();
        expand(&path.split_whitespace().collect::<Vec<_>>().join(" "), &mut paths);
    }
    paths
}

/// The file of the module that a path of file `from` leads into; none where it leads into another crate, or to what a folder's own file
/// hands on from others.
fn imported_file(from: &str, path: &str, files: &BTreeSet<String>) -> Option<String> {
    let (krate, inside) = from.split_once("/src/")?;
    let mut module: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    match *parts.first()? {
        "crate" => module.clear(),
        "super" => {
            while parts.first() == Some(&"super") {
                module.pop();
                parts.remove(0);
            }
            parts.insert(0, "super");
        }
        _ => return None,
    }
    module.extend(&parts[1..]);
    (1..=module.len())
        .rev()
        .map(|len| format!("{krate}/src/{}.rs", module[..len].join("/")))
        .find(|file| files.contains(file))
}

#[test]
fn files_import_in_one_direction() {
    let sources = sources();
    let is_built =
        |name: &String| name.contains("/src/") && !name.contains("test") && !name.starts_with("benches/");
    let files: BTreeSet<String> = sources.iter().map(|(name, _)| name.clone()).filter(is_built).collect();
    let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in sources.iter().filter(|(name, _)| files.contains(name)) {
        let found = used_paths(text).into_iter().filter_map(|path| imported_file(name, &path, &files));
        imports.insert(name, found.filter(|file| file != name).collect());
    }
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 500, "imports are found: {imports:#?}");
    let reached = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = next.pop() {
            let further = imports.get(file.as_str()).into_iter().flatten();
            next.extend(further.filter(|file| seen.insert((*file).clone())).cloned());
        }
        seen
    };
    let in_circles: Vec<&str> =
        files.iter().map(String::as_str).filter(|file| reached(file).contains(*file)).collect();
    let unknown: Vec<&&str> =
        in_circles.iter().filter(|file| !CIRCLES.iter().any(|(known, _)| file.starts_with(known))).collect();
    assert!(unknown.is_empty(), "files import each other in a circle: {unknown:#?}");
    for (known, why) in CIRCLES {
        assert!(
            in_circles.iter().any(|file| file.starts_with(known)),
            "{known} is no circle any more: {why}"
        );
    }
}
