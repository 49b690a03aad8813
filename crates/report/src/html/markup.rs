//! Text into HTML: escaping, tables, sections, figures. Whatever a candidate names or says stays text.

/// Escaped for text and for attributes, in HTML and in XML 1.0. Control characters, which XML forbids, are dropped.
pub(crate) fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

/// A number for people: as many digits as help, thousands apart.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

/// Three significant digits.
pub(crate) fn figure(x: f64) -> String {
    if !x.is_finite() {
        return "no number".into();
    }
    match x.abs() {
        0.0 => "0".into(),
        a if !(1e-3..1e6).contains(&a) => format!("{x:.1e}"),
        a if a < 1.0 => format!("{x:.4}"),
        a if a < 10.0 => format!("{x:.3}"),
        a if a < 100.0 => format!("{x:.2}"),
        _ => format!("{x:.0}"),
    }
}

/// A status in words, with a sign and a colour that say the same.
pub(crate) fn word(text: &str) -> String {
    let (class, sign) = match text {
        "passed" | "held" | "verified" | "excellent" | "good" | "modest" => ("ok", "\u{2713}"),
        "not_run" | "blocked" | "unavailable" | "missing" | "not judged" => ("muted", "\u{2013}"),
        "partial" | "ambiguous" | "parity" | "unsupported" | "timed_out" => ("warn", "\u{25d0}"),
        _ => ("bad", "\u{2717}"),
    };
    format!("<span class=\"word {class}\">{sign} {}</span>", esc(&text.replace('_', " ")))
}

pub(crate) fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{}</h2>\n{body}</section>\n", esc(title))
}

pub(crate) fn para(text: &str) -> String {
    format!("<p>{}</p>\n", esc(text))
}

/// Text with `commands` in backquotes.
pub(crate) fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 1 { format!("<code>{}</code>", esc(part)) } else { esc(part) }).collect()
}

pub(crate) fn details(summary: &str, body: &str) -> String {
    format!("<details><summary>{summary}</summary>\n{body}</details>\n")
}

pub(crate) fn commands(lines: &[String]) -> String {
    format!("<pre tabindex=\"0\" role=\"group\" aria-label=\"commands\">{}</pre>\n", esc(&lines.join("\n")))
}

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Text,
    Number,
    Bar,
    /// A wide picture.
    Track,
}

/// A table in a frame that scrolls by itself on a narrow screen. The cells are HTML; the first of a row is its heading.
pub(crate) fn table(caption: &str, head: &[(&str, Column)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let caption = esc(caption);
    let mut out = format!(
        "<div class=\"scroll\" role=\"group\" aria-label=\"{caption}\" tabindex=\"0\"><table><caption><span>{caption}</span></caption><thead><tr>"
    );
    for (name, column) in head {
        let class = if *column == Column::Number { " class=\"num\"" } else { "" };
        out.push_str(&format!("<th scope=\"col\"{class}>{}</th>", esc(name)));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (i, (cell, (_, column))) in row.iter().zip(head).enumerate() {
            let class = match column {
                Column::Text => "",
                Column::Number => " class=\"num\"",
                Column::Bar => " class=\"bar\"",
                Column::Track => " class=\"strip\"",
            };
            if i == 0 {
                out.push_str(&format!("<th scope=\"row\">{cell}</th>"));
            } else {
                out.push_str(&format!("<td{class}>{cell}</td>"));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_said_becomes_markup() {
        assert_eq!(esc("a<b>&\"'\u{0}\u{1b}"), "a&lt;b&gt;&amp;&quot;&#39;");
        assert!(!prose("`<x>` and <y>").contains("<x>") && !word("<w>").contains("<w>"));
        assert!(table("<c>", &[("<h>", Column::Text)], [vec!["x".into()]]).contains("&lt;h&gt;"));
    }

    #[test]
    fn figures_are_short_and_always_numbers() {
        let rows = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.5, "1.500"),
            (123.4, "123"),
            (2e-5, "2.0e-5"),
            (f64::NAN, "no number"),
        ];
        for (x, text) in rows {
            assert_eq!(figure(x), text);
        }
        assert_eq!(count(1234567), "1\u{202f}234\u{202f}567");
    }
}
