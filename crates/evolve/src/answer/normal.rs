//! A kernel's text without what does not matter: comments and white space. Two texts that are equal then are one proposal.

/// The text without comments, with the white space that the compiler needs. Front matter stays: it is the launch plan.
pub fn normalised(source: &str) -> String {
    let front: String = super::front_matter(source).lines().flat_map(|l| [plain_plan(l), "\n".into()]).collect();
    let body: String = source.lines().skip_while(|l| l.starts_with("//!")).flat_map(|l| [l, "\n"]).collect();
    let mut out = front;
    for line in without_comments(&body).lines() {
        let line = line.trim();
        if line.starts_with('#') {
            // A directive is its line; inside it white space can matter (`#define F (x)`).
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if !out.ends_with('\n') && !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&words);
            out.push('\n');
            continue;
        }
        for word in line.split_whitespace() {
            let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if joins(out.chars().next_back()) && joins(word.chars().next()) {
                out.push(' ');
            }
            // Inside a word nothing is between its characters; white space beside punctuation is dropped.
            out.push_str(word);
        }
    }
    out
}

/// A line of front matter without its comment and outer white space.
fn plain_plan(line: &str) -> String {
    let mut quoted = false;
    let kept: String = line
        .chars()
        .take_while(|c| {
            quoted ^= *c == '"';
            *c != '#' || quoted
        })
        .collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Comments become one space; strings and characters stay as they are.
pub fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('/', Some('/')) => {
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            ('/', Some('*')) => {
                rest.next();
                let mut before = ' ';
                for c in rest.by_ref() {
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
                out.push(' ');
            }
            ('"' | '\'', _) => {
                // A quote inside a number (1'000) is followed by digits only; reading it as a character ends at the line's end.
                out.push(c);
                while let Some(inner) = rest.next_if(|n| *n != '\n') {
                    out.push(inner);
                    if inner == '\\' {
                        out.extend(rest.next());
                    } else if inner == c {
                        break;
                    }
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// Whether each opening brace has its closing one.
pub fn balanced(text: &str) -> bool {
    let text = without_comments(text);
    let count = |c: char| text.chars().filter(|t| *t == c).count();
    text.contains('{') && count('{') == count('}') && count('(') == count(')')
}

/// The comment by which a text says that it leaves code out.
pub fn left_out(text: &str) -> Option<String> {
    let marks = ["rest of the", "remaining code", "existing code", "same as before", "unchanged", "as before"];
    let says = |line: &&str| {
        let line = line.trim();
        let comment = line.starts_with("//") && !line.starts_with("//!") || line.starts_with("/*");
        let lower = line.to_ascii_lowercase();
        comment && (lower.contains("...") || lower.contains('…')) && marks.iter().any(|m| lower.contains(m))
    };
    text.lines().find(says).map(|l| super::shortened(l, 60))
}
