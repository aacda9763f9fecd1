//! Links lead somewhere: to files that are there, to headings that are there, and, where they name a test, to that test.
use crate::page::Page;
use crate::{ROOT, assert_none, pages};
use std::path::{Component, Path, PathBuf};

/// The path of a link's target from the root, `..` resolved.
fn resolved(page: &Page, target: &str) -> Option<String> {
    let mut path = PathBuf::new();
    for part in Path::new(page.directory()).join(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            _ => return None,
        }
    }
    path.to_str().map(ToOwned::to_owned)
}

/// What is wrong with one link, if anything is.
fn fault(page: &Page, pages: &[Page], label: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let name = if file.is_empty() { page.name.clone() } else { resolved(page, file)? };
    if !Path::new(ROOT).join(&name).exists() {
        return Some(format!("there is no {name}"));
    }
    if !anchor.is_empty() {
        let Some(there) = pages.iter().find(|page| page.name == name) else {
            return Some(format!("{name} is not among the pages whose headings are read"));
        };
        if !there.anchors().iter().any(|known| known == anchor) {
            return Some(format!("{name} has no heading #{anchor}"));
        }
    }
    // A label in backticks that leads to Rust source names something that is defined there.
    let named = label.strip_prefix('`').and_then(|label| label.strip_suffix('`'));
    if let Some(named) = named.filter(|_| name.ends_with(".rs"))
        && named.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&name)).expect("sources are text");
        if !text.contains(&format!("fn {named}(")) && !text.contains(&format!("fn {named}<")) {
            return Some(format!("{name} has no function {named}"));
        }
    }
    None
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut faults = Vec::new();
    let mut links = 0;
    for page in &pages {
        for (line, label, target) in page.links() {
            links += 1;
            let found = fault(page, &pages, &label, &target);
            faults.extend(found.map(|fault| format!("{}:{line}: [{label}]({target}): {fault}", page.name)));
        }
    }
    assert_none(&faults);
    assert!(links > 100, "only {links} links were found");
}

#[test]
fn every_page_is_linked() {
    let pages = pages();
    let targets: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            let links = page.links().into_iter();
            links.filter_map(|(_, _, target)| resolved(page, target.split('#').next().unwrap_or_default()))
        })
        .collect();
    let is_alone = |page: &&Page| page.name.starts_with("docs/") && !targets.contains(&page.name);
    let alone: Vec<String> = pages.iter().filter(is_alone).map(|page| page.name.clone()).collect();
    assert_none(&alone);
}

#[test]
fn faults_of_links_are_found() {
    let page = |name: &str, text: &str| Page { name: name.to_owned(), text: text.to_owned() };
    let pages = [page("docs/guarantees.md", "# One\n"), page("README.md", "# Two words\n")];
    let is_wrong = |label: &str, target: &str| fault(&pages[0], &pages, label, target).is_some();
    for (label, target) in [
        ("x", "#one"),
        ("x", "../README.md#two-words"),
        ("x", "https://example.org"),
        ("`faults_of_links_are_found`", "../tests/tests/pages/links.rs"),
    ] {
        assert!(!is_wrong(label, target), "{target}");
    }
    for (label, target) in [
        ("x", "#two"),
        ("x", "no.md"),
        ("x", "../README.md#one"),
        ("`not_a_test`", "../tests/tests/pages/links.rs"),
    ] {
        assert!(is_wrong(label, target), "{target}");
    }
}
