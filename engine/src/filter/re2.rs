//! RE2 expressions in the syntax of the `regex` crate.
//!
//! Both engines share their ancestry, so most expressions mean the same in both. This translation removes the rest:
//!
//! | expression | RE2 | `regex` | translated to |
//! |---|---|---|---|
//! | `\d \w \s \b` and negations | ASCII | Unicode | ASCII classes and boundaries |
//! | `\Q...\E` | literal text | error | escaped text |
//! | `\7`, `\123` | error, octal | error | error, code point |
//! | `\<`, `\>` | the characters | word boundaries | the characters |
//! | `{` that starts no repetition | the character | error | escaped |
//! | `[a&&b]`, `[a--b]`, `[a~~b]`, `[a[b]` | plain characters | set operations | escaped |
//! | `\p{^Greek}` | negated class | error | `\P{Greek}` |
//! | `(?x) (?u) (?R)` | errors | flags | errors |
//! | `(name)` groups | captures | captures | groups that are not captured: only the search matters |

use crate::quoted::quoted;
use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

/// RE2 refuses larger repetition counts.
const MAX_REPETITIONS: u32 = 1000;

/// The expression with the same meaning for the `regex` crate, or what is wrong with it. Not every error is found here;
/// what remains is refused when the result is compiled.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        names: HashSet::new(),
    }
    .run()
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    names: HashSet<String>,
}

impl Translator<'_> {
    fn run(mut self) -> Result<String, String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.brace()?,
                c => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// After a backslash outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let c = self.rest.next().ok_or("trailing backslash")?;
        match c {
            'Q' => self.quoted(),
            'b' => self.out.push_str(r"(?-u:\b)"),
            'B' => self.out.push_str(r"(?-u:\B)"),
            'd' | 'w' | 's' => {
                self.out.push('[');
                self.out.push_str(ascii_class(c));
                self.out.push(']');
            }
            'D' | 'W' | 'S' => {
                self.out.push_str("[^");
                self.out.push_str(ascii_class(c.to_ascii_lowercase()));
                self.out.push(']');
            }
            c => self.shared_escape(c)?,
        }
        Ok(())
    }

    /// An escape that means the same inside and outside a class.
    fn shared_escape(&mut self, c: char) -> Result<(), String> {
        match c {
            '<' | '>' => self.out.push(c),
            'p' | 'P' => self.property(c),
            '0'..='7' => {
                let mut code = c.to_digit(8).expect("an octal digit");
                let mut digits = 1;
                while digits < 3
                    && let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8))
                {
                    code = 8 * code + digit;
                    digits += 1;
                    self.rest.next();
                }
                if digits == 1 && c != '0' {
                    return Err(format!("backreference \\{c} is not supported"));
                }
                self.out.push_str(&format!(r"\x{{{code:x}}}"));
            }
            c => {
                self.out.push('\\');
                self.out.push(c);
            }
        }
        Ok(())
    }

    /// `\p{^Name}` negates; everything else passes.
    fn property(&mut self, p: char) {
        self.out.push('\\');
        let mut ahead = self.rest.clone();
        if ahead.next() == Some('{') && ahead.next() == Some('^') {
            self.out.push(if p == 'p' { 'P' } else { 'p' });
            self.out.push('{');
            self.rest = ahead;
        } else {
            self.out.push(p);
        }
        // The name is copied here, or its opening brace would be taken for a literal one.
        if self.rest.peek() == Some(&'{') || self.out.ends_with('{') {
            for c in self.rest.by_ref() {
                self.out.push(c);
                if c == '}' {
                    break;
                }
            }
        }
    }

    /// After `\Q`: literal text up to `\E` or the end.
    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.out.push_str(&regex_syntax::escape(c.encode_utf8(&mut [0; 4])));
        }
    }

    /// After `(`.
    fn group(&mut self) -> Result<(), String> {
        if self.rest.peek() != Some(&'?') {
            self.out.push_str("(?:");
            return Ok(());
        }
        self.rest.next();
        let mut ahead = self.rest.clone();
        let named = match ahead.next() {
            Some('<') => true,
            Some('P') => ahead.next() == Some('<'),
            _ => false,
        };
        if named {
            self.rest = ahead;
            let name: String = self.rest.by_ref().take_while(|&c| c != '>').collect();
            if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
                return Err(format!("bad group name {}", quoted(&name)));
            }
            if !self.names.insert(name.clone()) {
                return Err(format!("duplicate group name {}", quoted(&name)));
            }
            self.out.push_str("(?:");
            return Ok(());
        }
        self.out.push_str("(?");
        loop {
            match self.rest.next() {
                Some(c @ ('i' | 'm' | 's' | 'U' | '-')) => self.out.push(c),
                Some(c @ (':' | ')')) => {
                    self.out.push(c);
                    return Ok(());
                }
                Some(c) => return Err(format!("(?{c} is not supported")),
                None => return Err("missing )".into()),
            }
        }
    }

    /// After `{` outside a class: a repetition count, or a literal brace.
    fn brace(&mut self) -> Result<(), String> {
        let mut ahead = self.rest.clone();
        let body: String = ahead.by_ref().take_while(|&c| c != '}').take(16).collect();
        let closed = self.rest.clone().nth(body.chars().count()) == Some('}');
        let number = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit())
                && !digits.is_empty()
                && (digits == "0" || !digits.starts_with('0'));
            // Numbers too long to parse are too large in any case.
            plain.then(|| digits.parse().unwrap_or(u32::MAX))
        };
        let counts = match body.split_once(',') {
            None => number(&body).map(|n| (n, n)),
            Some((low, "")) => number(low).map(|n| (n, n)),
            Some((low, high)) => number(low).zip(number(high)),
        };
        match counts.filter(|_| closed) {
            None => self.out.push_str(r"\{"),
            Some((low, high)) if low > MAX_REPETITIONS || high > MAX_REPETITIONS || low > high => {
                return Err(format!("bad repetition count {{{body}}}"));
            }
            Some(_) => {
                self.out.push('{');
                self.out.push_str(&body);
                self.out.push('}');
                self.rest = ahead;
            }
        }
        Ok(())
    }

    /// After `[`: to the closing bracket.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or("missing ]")?;
            match c {
                ']' if !first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.posix_class()? => {}
                '\\' if matches!(self.rest.peek(), Some('d' | 'w' | 's')) => {
                    let c = self.rest.next().expect("peeked");
                    self.out.push_str(ascii_class(c));
                }
                '\\' if matches!(self.rest.peek(), Some('D' | 'W' | 'S')) => {
                    let c = self.rest.next().expect("peeked");
                    self.out.push_str("[^");
                    self.out.push_str(ascii_class(c.to_ascii_lowercase()));
                    self.out.push(']');
                }
                '\\' if matches!(self.rest.peek(), Some('p' | 'P')) => {
                    let c = self.rest.next().expect("peeked");
                    self.property(c);
                }
                c => {
                    self.class_char(c)?;
                    let mut ahead = self.rest.clone();
                    if ahead.next() == Some('-') && ahead.peek().is_some_and(|&c| c != ']') {
                        self.rest = ahead;
                        self.out.push('-');
                        let end = self.rest.next().expect("peeked");
                        self.class_char(end)?;
                    }
                }
            }
            first = false;
        }
    }

    /// After `[` inside a class: copies `[:name:]` and says whether it was one.
    fn posix_class(&mut self) -> Result<bool, String> {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some(':') {
            return Ok(false);
        }
        let name: String = ahead.by_ref().take_while(|c| *c == '^' || c.is_ascii_alphabetic()).collect();
        // `take_while` has eaten the colon.
        if self.rest.clone().nth(1 + name.len()) != Some(':') || ahead.next() != Some(']') {
            return Ok(false);
        }
        self.out.push_str(&format!("[:{name}:]"));
        self.rest = ahead;
        Ok(true)
    }

    /// One character of a class, `c` already taken.
    fn class_char(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => {
                let c = self.rest.next().ok_or("trailing backslash")?;
                self.shared_escape(c)
            }
            '[' | ']' | '&' | '-' | '~' | '^' => {
                self.out.push('\\');
                self.out.push(c);
                Ok(())
            }
            c => {
                self.out.push(c);
                Ok(())
            }
        }
    }
}

/// Inside of the ASCII class.
fn ascii_class(c: char) -> &'static str {
    match c {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        _ => r"\t\n\f\r\x20",
    }
}

#[cfg(test)]
mod tests {
    use super::translate;
    use regex::Regex;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let translated = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        let regex = Regex::new(&translated).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for text in yes {
            assert!(regex.is_match(text), "{pattern} as {translated} should be found in {text:?}");
        }
        for text in no {
            assert!(!regex.is_match(text), "{pattern} as {translated} should not be found in {text:?}");
        }
    }

    #[test]
    fn expressions_mean_what_they_mean_in_re2() {
        check("", &["", "x"], &[]);
        check("b+c", &["abbcd"], &["ac"]);
        check("^a.c$", &["abc", "aüc"], &["xabc", "abcx", "a\nc"]);
        check("(?s)^a.c$", &["a\nc"], &[]);
        check("(?i)straße", &["STRAßE"], &["STRASSE"]);
        check("(?m)^b$", &["a\nb\nc"], &["ab"]);
        check("^b$", &["b"], &["a\nb\nc", "b\n"]);
        check(r"^\d+$", &["123"], &["٣", ""]);
        check(r"^\w+$", &["a_1"], &["ä"]);
        check(r"^\W$", &["ä", "-"], &["a"]);
        check(r"^[\w-]+$", &["a-b"], &["ä"]);
        check(r"^[^\w]$", &["ä"], &["a"]);
        check(r"^[\D]$", &["x", "٣"], &["3"]);
        check(r"^\s$", &[" ", "\t"], &["\u{b}", "\u{a0}"]);
        check(r"\bber", &["über", "ber"], &["aber"]);
        check(r"a\Bb", &["ab"], &["a b"]);
        check(r"\Qa.b*\E+", &["a.b**"], &["axb"]);
        check(r"\Qa\b", &[r"a\b"], &["ab"]);
        check(r"\Q[(\E", &["[("], &["["]);
        check(r"\101\x42\x{43}\0", &["ABC\0"], &["ABC"]);
        check(r"\<a\>", &["<a>"], &["a"]);
        check("a{2}", &["aa"], &["a", "a{2}"]);
        check("a{2,}b{1,2}", &["aab"], &["ab"]);
        check("a{,2}", &["a{,2}"], &["aa"]);
        check("{a}{", &["{a}{"], &["a"]);
        check("a{01}", &["a{01}"], &["a"]);
        check("x{2", &["x{2"], &["xx"]);
        check("^[a&&b]$", &["a", "b", "&"], &["c"]);
        check("^[!--b]$", &["b", "-", "#"], &["a"]);
        check("^[[a]+$", &["[a"], &["b"]);
        check("^[]a]+$", &["]a"], &["b"]);
        check("^[^]a]+$", &["b"], &["]", "a"]);
        check("^[a-c~~]+$", &["b~"], &["d"]);
        check("^[-a]$", &["-", "a"], &["b"]);
        check("^[a-]$", &["-", "a"], &["b"]);
        check(r"^[+--]$", &["+", ",", "-"], &["."]);
        check(r"^[\]\\\-^]+$", &[r"]\-^"], &["a"]);
        check(r"^[\x41-\x43]$", &["B"], &["D"]);
        check("^[[:alpha:][:digit:]]+$", &["a1"], &["ä", ":"]);
        check("^[[:^alpha:]]$", &["1"], &["a"]);
        check("^[[:alpha]$", &["[", ":", "a"], &["b"]);
        check(r"^\pL\p{Nd}\PN$", &["ä٣x"], &["1a1"]);
        check(r"^\p{^Greek}$", &["a"], &["α"]);
        check(r"^\P{^Greek}[\p{^Greek}]$", &["αa"], &["aα"]);
        check(r"(?P<year>\d{4})-(?<month>\d\d)(?:x)?(y)?", &["2024-12"], &["2024-1"]);
        check("(?U)^a+$", &["aaa"], &[]);
        check("(?i-s:A.)b", &["axb"], &["axB"]);
    }

    #[test]
    fn bad_expressions_are_refused() {
        for pattern in [
            "(",
            "(?",
            ")",
            "[",
            "[a",
            "[]",
            "*",
            "a|*",
            r"\",
            r"[\",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"\1",
            r"(a)\1",
            "(?x)a",
            "(?u)a",
            "(?-u)a",
            "(?R)a",
            "(?P<>a)",
            "(?P<a b>a)",
            "(?P<n>a)(?P<n>b)",
            "(?P=n)",
            r"\pX",
            r"\p{Nonsense}",
            r"\E",
            r"\C",
            r"\8",
            r"\x4",
            "[b-a]",
            "[a--b]",
            r"[a-\d]",
            "a{1001}",
            "a{2,1}",
            "(?>a)",
            "(?#c)",
            "a{99999999999999}",
        ] {
            let refused = match translate(pattern) {
                Err(_) => true,
                Ok(translated) => Regex::new(&translated).is_err(),
            };
            assert!(refused, "{pattern}");
        }
    }
}
