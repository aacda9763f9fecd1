//! A Markdown page as far as the tests read it: fenced blocks, headings, links and code spans.
use std::path::Path;

/// One page.
pub struct Page {
    /// Path from the root of the tree.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of its opening line.
    pub opened: usize,
    /// Index of its closing line.
    pub closed: usize,
    /// What stands behind the opening fence, word by word.
    pub info: Vec<String>,
    /// What stands between the fences.
    pub text: String,
}

impl Block {
    /// Whether the words behind the fence are exactly these.
    pub fn is(&self, info: &str) -> bool {
        self.info.join(" ") == info
    }
}

impl Page {
    /// Reads a page.
    ///
    /// # Panics
    /// When it is not there.
    pub fn read(root: &Path, name: String) -> Page {
        let text =
            std::fs::read_to_string(root.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Page { name, text }
    }

    /// The directory of the page, from the root: empty or ending with a slash.
    pub fn directory(&self) -> &str {
        &self.name[..self.name.rfind('/').map_or(0, |slash| slash + 1)]
    }

    /// Every fenced block, in order.
    ///
    /// # Panics
    /// When one is not closed.
    pub fn blocks(&self) -> Vec<Block> {
        let mut found = Vec::new();
        let mut open: Option<Block> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    let info = info.split_whitespace().map(ToOwned::to_owned).collect();
                    open = Some(Block { opened: index, closed: index, info, text: String::new() });
                }
                (Some(block), Some("")) => {
                    block.closed = index;
                    found.extend(open.take());
                }
                (Some(block), _) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert_eq!(open, None, "{}: a block is not closed", self.name);
        found
    }

    /// The lines outside fenced blocks, with their numbers from 1.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let blocks = self.blocks();
        let is_inside =
            |index: usize| blocks.iter().any(|block| (block.opened..=block.closed).contains(&index));
        let lines = self.text.lines().enumerate().filter(|(index, _)| !is_inside(*index));
        lines.map(|(index, line)| (index + 1, line)).collect()
    }

    /// What stands between single backticks outside blocks, with line numbers.
    pub fn spans(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let parts: Vec<&str> = line.split('`').collect();
            for at in (1..parts.len()).step_by(2) {
                // The label of a link is looked after by its target.
                let is_label = parts[at - 1].ends_with('[')
                    && parts.get(at + 1).is_some_and(|next| next.starts_with("]("));
                if !is_label {
                    found.push((number, parts[at]));
                }
            }
        }
        found
    }

    /// The anchors of its headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else {
                continue;
            };
            let Some(title) = title.strip_prefix(' ') else { continue };
            let kept = title.trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let same = anchors.iter().filter(|known| **known == slug).count();
            anchors.push(if same == 0 { slug } else { format!("{slug}-{same}") });
        }
        anchors
    }

    /// Every link outside blocks: line number, label and target.
    pub fn links(&self) -> Vec<(usize, String, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let mut rest = line;
            while let Some((before, after)) = rest.split_once("](") {
                let label = before.rfind('[').map_or("", |open| &before[open + 1..]);
                let Some((target, tail)) = after.split_once(')') else { break };
                found.push((number, label.to_owned(), target.to_owned()));
                rest = tail;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { name: "docs/a.md".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn parts_of_a_page() {
        let page = page(
            "# A b, `c`!\n\nsee [`x`](y.md#z) and `-data d`\n\n```sh server\nnigh [a](b)\n```\n## A b c\n",
        );
        assert_eq!(page.anchors(), ["a-b-c", "a-b-c-1"]);
        assert_eq!(page.links(), [(3, "`x`".to_owned(), "y.md#z".to_owned())]);
        assert_eq!(page.spans(), [(1, "c"), (3, "-data d")]);
        let blocks = page.blocks();
        assert!(blocks.len() == 1 && blocks[0].is("sh server") && blocks[0].text == "nigh [a](b)\n");
        assert_eq!(page.directory(), "docs/");
    }
}
