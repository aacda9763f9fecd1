//! The text in which Prometheus reads metrics.

use nigh_shard::latency::Counted;
use std::fmt::{Display, Write};

/// Prometheus text under construction. Names are given without the prefix.
pub struct Page<'p> {
    prefix: &'p str,
    out: String,
}

impl<'p> Page<'p> {
    /// An empty one, with room for some bytes.
    pub fn new(prefix: &'p str, capacity: usize) -> Page<'p> {
        Page { prefix, out: String::with_capacity(capacity) }
    }

    /// Starts a family; each is started once, with all its samples right behind it.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        let _ = writeln!(self.out, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}");
    }

    /// One sample of the family that was started last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "{}_{name}", self.prefix);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.out.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.out, "{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    other => self.out.push(other),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    /// The samples of a histogram; `bounds` are those of `counted` in seconds.
    pub fn histogram<const N: usize>(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: [&str; N],
        counted: &Counted<N>,
    ) {
        let bucket = format!("{name}_bucket");
        let bounds = bounds.into_iter().chain(["+Inf"]);
        for (bound, below) in bounds.zip(counted.below.into_iter().chain([counted.all])) {
            self.sample(&bucket, &[labels, &[("le", bound)]].concat(), below);
        }
        self.sample(&format!("{name}_sum"), labels, counted.sum_us as f64 / 1e6);
        self.sample(&format!("{name}_count"), labels, counted.all);
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.out
    }
}
