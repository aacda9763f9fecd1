//! Runs the shell and Python blocks of the README and the guide against real servers, in order, and compares what they show.
//!
//! A page has one server at a time, which keeps nothing on disk until a block says otherwise. Blocks are marked behind their fence:
//! `sh` is run by bash, in one directory per page; `sh server` starts the page's server anew, with the flags shown; `sh elsewhere` is for
//! other machines and tools, and is not run; all blocks of `python` of a page are one program. `python client` needs the client for Python,
//! whose own tests run it. `json` and `text` right behind a block that was run are its output; figures of `text varies` are not compared.
//! `json example` is JSON that nobody answered, `text drawing` a picture.
use crate::page::{Block, Page};
use crate::{ROOT, answers, assert_none, below};
use nigh_tests::{Server, server_binary};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The variable that makes the test write what was answered into the pages.
const REWRITE: &str = "NIGH_REWRITE_PAGES";
/// Between the outputs of a page's Python blocks.
const SEPARATOR: &str = "--- next block ---";

/// One page under way.
struct Walk {
    directory: tempfile::TempDir,
    server: Option<Server>,
}

impl Walk {
    fn new() -> Walk {
        Walk { directory: tempfile::tempdir().expect("a directory"), server: None }
    }

    /// Starts the page's server with the flags of a block; the one before is killed, so that only what is durable is still there.
    fn serve(&mut self, block: &str) {
        if let Some(before) = self.server.take() {
            before.kill();
        }
        let line = block.replace("\\\n", " ");
        let line = line
            .lines()
            .find(|line| line.contains("nigh "))
            .expect("a block that starts a server calls nigh");
        let mut words = line.split_whitespace().peekable();
        words.by_ref().find(|word| *word == "--" || word.ends_with("/nigh") || *word == "nigh");
        // `cargo run -p nigh -- flags`
        if line.contains(" -- ") {
            words = line.split_once(" -- ").expect("just seen").1.split_whitespace().peekable();
        }
        let mut flags = Vec::new();
        while let Some(word) = words.next().filter(|word| *word != "&") {
            match word {
                "-http" => {
                    words.next();
                }
                "-tcp" => {
                    words.next();
                    flags.extend(["-tcp".to_owned(), "127.0.0.1:0".to_owned()]);
                }
                word if word.starts_with("./") => {
                    flags.push(self.directory.path().join(&word[2..]).display().to_string());
                }
                word => flags.push(word.to_owned()),
            }
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.server = Some(Server::start(None, &flags));
    }

    fn server(&mut self) -> &Server {
        self.server.get_or_insert_with(|| Server::start(None, &["-tcp", "127.0.0.1:0"]))
    }

    /// The text with the addresses of the page's server in place of those that pages show.
    fn addressed(&mut self, text: &str) -> String {
        let server = self.server();
        let (http, tcp) = (server.authority(), server.tcp_authority());
        let text = text.replace("localhost:8080", http).replace("127.0.0.1:8080", http);
        if tcp.is_empty() { text } else { text.replace("localhost:7000", tcp).replace("127.0.0.1:7000", tcp) }
    }

    /// A directory with a `nigh` whose client talks to the page's server.
    fn programs(&mut self) -> String {
        let tcp = self.server().tcp_authority().to_owned();
        let directory = self.directory.path().join("programs");
        std::fs::create_dir_all(&directory).expect("a directory");
        let binary = server_binary().display();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = cli ]; then shift; exec {binary} cli -address {tcp} \"$@\"; fi\nexec {binary} \"$@\"\n"
        );
        let path = directory.join("nigh");
        std::fs::write(&path, script).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("a mode");
        format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default())
    }

    /// Runs a program of the machine with `arguments`; what it wrote to stdout.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let path = self.programs();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory.path()).env("PATH", path).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{program} does not start: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))),
        }
    }

    fn shell(&mut self, block: &str) -> Result<String, String> {
        let script = self.addressed(block);
        self.run("bash", &["-euo", "pipefail", "-c", &script])
    }

    /// Runs all Python blocks of a page as one program; the output of each. `None` where there is no Python.
    fn python(&mut self, blocks: &[&Block]) -> Option<Result<Vec<String>, String>> {
        if Command::new("python3").arg("--version").output().is_err() {
            return None;
        }
        let parts: Vec<String> = blocks.iter().map(|block| self.addressed(&block.text)).collect();
        let script = parts.join(&format!("\nprint({SEPARATOR:?})\n"));
        let output = self.run("python3", &["-c", &script]);
        Some(output.map(|text| text.split(&format!("{SEPARATOR}\n")).map(ToOwned::to_owned).collect()))
    }
}

/// What is wrong with a shown answer, if anything is.
fn fault(shown: &Block, output: &str) -> Option<String> {
    if shown.is("json") {
        let (real, there) = match (answers::documents(output), answers::documents(&shown.text)) {
            (Ok(real), Ok(there)) => (real, there),
            (Err(fault), _) => return Some(format!("the answer is not JSON: {fault}")),
            (_, Err(fault)) => return Some(format!("what is shown is not JSON: {fault}")),
        };
        return answers::difference(&Value::Array(there), &Value::Array(real), "");
    }
    let masked = |text: &str| match shown.is("text varies") {
        true => answers::without_figures(text.trim_end()),
        false => text.trim_end().to_owned(),
    };
    (masked(&shown.text) != masked(output)).then(|| format!("shown:\n{}answered:\n{output}", shown.text))
}

/// What the page should show for an output.
fn shown_as(block: &Block, output: &str) -> String {
    match answers::documents(output) {
        Ok(documents) if block.is("json") => {
            documents.iter().map(|document| answers::laid_out(document) + "\n").collect()
        }
        _ => format!("{}\n", output.trim_end()),
    }
}

/// Walks through a page; faults, and the page as it should be.
fn walk(page: &Page) -> (Vec<String>, String) {
    let blocks = page.blocks();
    let mut walk = Walk::new();
    let (mut faults, mut runs) = (Vec::new(), 0);
    // Output that waits for the block that shows it.
    let mut output: Option<String> = None;
    let mut answered: Vec<(&Block, String)> = Vec::new();
    let mut python: Option<std::vec::IntoIter<String>> = None;
    for block in &blocks {
        let place = format!("{}:{}", page.name, block.opened + 1);
        let info = block.info.join(" ");
        match info.as_str() {
            "sh" => {
                runs += 1;
                match walk.shell(&block.text) {
                    Ok(text) => output = Some(text),
                    Err(fault) => faults.push(format!("{place}: {fault}")),
                }
            }
            "sh server" => {
                runs += 1;
                walk.serve(&block.text);
                output = None;
            }
            "python" => {
                runs += 1;
                if python.is_none() {
                    let all: Vec<&Block> = blocks.iter().filter(|block| block.is("python")).collect();
                    match walk.python(&all) {
                        Some(Ok(outputs)) => python = Some(outputs.into_iter()),
                        Some(Err(fault)) => faults.push(format!("{place}: {fault}")),
                        None => {
                            eprintln!("python3 is not installed; the Python of {} was not run", page.name)
                        }
                    }
                    python.get_or_insert_default();
                }
                output = python.as_mut().and_then(Iterator::next);
            }
            "json" | "text" | "text varies" => {
                if let Some(text) = output.take() {
                    faults.extend(fault(block, &text).map(|fault| format!("{place}: {fault}")));
                    answered.push((block, text));
                } else if faults.is_empty() && python.is_none() {
                    faults.push(format!("{place}: nothing was run that this could be the output of"));
                }
            }
            "json example" => {
                let read = answers::documents(&block.text);
                faults.extend(read.err().map(|fault| format!("{place}: {fault}")));
            }
            "sh elsewhere" | "python client" | "text drawing" | "yaml" => output = None,
            other => faults.push(format!("{place}: a block {other:?} is of no kind that is known here")),
        }
    }
    if runs == 0 {
        faults.push(format!("{}: nothing of it was run", page.name));
    }
    (faults, rewritten(page, &answered))
}

/// The page with real outputs in its blocks.
fn rewritten(page: &Page, answered: &[(&Block, String)]) -> String {
    let mut out = String::new();
    let mut skip_to = 0;
    for (index, line) in page.text.lines().enumerate() {
        if index < skip_to {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if let Some((block, output)) = answered.iter().find(|(block, _)| block.opened == index) {
            // An answer that is right stays as it is, so that figures that vary do not change the page.
            match fault(block, output) {
                None => out.push_str(&block.text),
                Some(_) => out.push_str(&shown_as(block, output)),
            }
            skip_to = block.closed;
        }
    }
    out
}

fn check(name: &str) {
    let page = Page::read(Path::new(ROOT), name.to_owned());
    let (faults, text) = walk(&page);
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(Path::new(ROOT).join(name), text).expect("the page is written");
        eprintln!("{}", faults.join("\n"));
        return;
    }
    if !faults.is_empty() {
        eprintln!("where a server answers otherwise now, write its answers into the pages with");
        eprintln!("    {REWRITE}=1 cargo test -p nigh-tests --test pages walk");
    }
    assert_none(&faults);
}

#[test]
fn the_readme_is_walked() {
    check("README.md");
}

#[test]
fn the_guide_is_walked() {
    let pages = below("docs/guide");
    assert!(pages.len() > 10, "{pages:?}");
    let threads: Vec<_> = pages
        .into_iter()
        .filter(|name| !name.ends_with("/README.md"))
        .map(|name| std::thread::spawn(move || check(&name)))
        .collect();
    let ended: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    assert!(ended.iter().all(Result::is_ok), "a page shows what is not so; see above");
}
