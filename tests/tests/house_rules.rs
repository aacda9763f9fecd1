//! Rules of this tree that a machine can check: licences, crate boundaries, size and finish of source files.
use serde_json::Value;
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
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
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
