//! The page of an evolution loop: its best, the gain over evaluations, the lineage with what each step changed and won, failures by kind, cost.
//!
//! It knows nothing of proposers or gates: it shows rows. An estimate is called one by whoever fills in [`Search::measure`].

use super::markup::{Column, count, esc, figure, para, prose, section, table, word};
use super::svg::{Axis, large, picture};
use std::collections::BTreeMap;

/// Rows of the lineage; a longer one ends with what was left out.
const MAX_ROWS: usize = 2000;
/// Steps to the right that a line of descent is shown by.
const MAX_DEPTH: usize = 24;

/// What there is to show of a loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    /// The run's name and the program's version.
    pub run: String,
    pub warpsmith: String,
    /// What came out, in a sentence, and whether something passed.
    pub headline: String,
    pub passed: bool,
    /// What figures are: a time on a device, or an estimate that is none.
    pub measure: String,
    /// What figures are in: `us`, `model cycles`.
    pub unit: String,
    /// What it lets one decide, in a sentence without its stop.
    pub decision: Option<String>,
    /// Why the best is where it is, and what the start was: sentences from the gates, under a title.
    pub reasons: Vec<(String, Vec<String>)>,
    /// The command that follows.
    pub next: Option<String>,
    /// Conditions, name and value.
    pub facts: Vec<(String, String)>,
    pub nodes: Vec<Node>,
    /// Best gain over the start after so many evaluations; the first is the start itself.
    pub gains: Vec<(u64, f64)>,
    /// What failed, by kind.
    pub failures: Vec<(String, u64)>,
    /// What was spent, name and value.
    pub cost: Vec<(String, String)>,
}

/// One solution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    pub id: u64,
    pub parents: Vec<u64>,
    pub operator: String,
    pub change: String,
    pub thought: Option<String>,
    pub verdict: String,
    /// The first finding of one that failed.
    pub finding: Option<String>,
    pub figure: Option<f64>,
    /// Over the start.
    pub gain: Option<f64>,
    /// Over its first parent.
    pub step: Option<f64>,
    pub best: bool,
    pub kept: bool,
}

/// The whole page.
pub fn search_html(search: &Search) -> String {
    let sections = [
        ("gain", "Gain over evaluations", gains(search)),
        ("why", "Why the best is as good as it is", reasons(search)),
        ("lineage", "Lineage: what each step changed and won", lineage(search)),
        ("failures", "Failures by kind", failures(search)),
        ("cost", "Cost", pairs("What was spent", &search.cost)),
    ];
    let body: String =
        sections.iter().filter(|(_, _, b)| !b.is_empty()).map(|(id, title, b)| section(id, title, b)).collect();
    let class = if search.passed { "ok" } else { "bad" };
    let facts: String = search.facts.iter().map(|(k, v)| format!("<dt>{}</dt><dd>{}</dd>", esc(k), esc(v))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"warpsmith {version}\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{run}: {headline}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{style}</style>\n</head>\n<body>\n\
         <header>\n<h1>Warpsmith evolution: {run}</h1>\n<div class=\"verdict {class}\"><strong>{sign} {headline}</strong><p>{measure}</p>{decision}{next}</div>\n<dl>{facts}</dl>\n</header>\n<main>\n{body}</main>\n\
         <footer><p>Written by warpsmith {version} from the loop's journal. This file holds all that it shows; it loads nothing.</p></footer>\n</body>\n</html>\n",
        sign = if search.passed { "\u{2713}" } else { "\u{2717}" },
        next =
            search.next.as_ref().map_or_else(String::new, |n| format!("<p><b>Next:</b> <code>{}</code></p>", esc(n))),
        decision = search.decision.as_ref().map_or_else(String::new, |d| format!("<p><b>Merge?</b> {}.</p>", esc(d))),
        version = esc(&search.warpsmith),
        run = esc(&search.run),
        headline = esc(&search.headline),
        measure = esc(&search.measure),
        style = include_str!("style.css"),
    )
}

fn pairs(caption: &str, rows: &[(String, String)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = [("what", Column::Text), ("how much", Column::Number)];
    table(caption, &head, rows.iter().map(|(k, v)| vec![esc(k), esc(v)]))
}

/// What the gates said, beside each other.
fn reasons(search: &Search) -> String {
    let cards: String = search
        .reasons
        .iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(title, lines)| {
            let lines: String = lines.iter().map(|l| format!("<li>{}</li>", prose(l))).collect();
            format!("<div class=\"card\"><h3>{}</h3><ul>{lines}</ul></div>\n", esc(title))
        })
        .collect();
    if cards.is_empty() { cards } else { format!("<div class=\"cards\">{cards}</div>\n") }
}

/// Changes of levers, none of which breaks at its arrow; other texts as they are.
fn change(text: &str) -> String {
    let parts: Vec<String> = text
        .split(", ")
        .map(|part| {
            let short = part.contains(" -> ") && part.chars().count() <= 40;
            if short { format!("<span class=\"nw\">{}</span>", esc(part)) } else { esc(part) }
        })
        .collect();
    parts.join(", ")
}

fn failures(search: &Search) -> String {
    if search.failures.is_empty() {
        return para("Nothing failed.");
    }
    let head = [("kind", Column::Text), ("how many", Column::Number)];
    table(
        "Solutions and answers that came to nothing",
        &head,
        search.failures.iter().map(|(k, n)| vec![esc(k), count(*n)]),
    )
}

/// A staircase: the best gain until each evaluation.
fn gains(search: &Search) -> String {
    let points: Vec<(u64, f64)> = search.gains.iter().copied().filter(|(_, g)| g.is_finite() && *g > 0.0).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return para("Nothing has a figure.") };
    let most = search.nodes.len().max(last.0 as usize).max(2) as f64;
    let (low, high) = points.iter().fold((1.0f64, 1.0f64), |(l, h), (_, g)| (l.min(*g), h.max(*g)));
    let x = Axis { low: 0.0, high: most, from: 54.0, to: 458.0, log: false };
    let y = Axis { low, high: if high > low { high } else { low + 0.1 }, from: 210.0, to: 14.0, log: false };
    let mut path = format!("M{:.1} {:.1}", x.at(first.0 as f64), y.at(first.1));
    for (n, gain) in &points[1..] {
        path.push_str(&format!("H{:.1}V{:.1}", x.at(*n as f64), y.at(*gain)));
    }
    path.push_str(&format!("H{:.1}", x.at(most)));
    let mut body = String::new();
    for tick in y.ticks() {
        let at = y.at(tick);
        body.push_str(&format!(
            "<line x1=\"54\" x2=\"458\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--line)\"/><text class=\"soft\" x=\"2\" y=\"{:.1}\">{}x</text>",
            at + 4.0,
            figure(tick)
        ));
    }
    for tick in x.ticks() {
        body.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1}\" y=\"228\">{tick:.0}</text>",
            x.at(tick)
        ));
    }
    body.push_str(&format!("<path d=\"{path}\" fill=\"none\" stroke=\"var(--bar)\" stroke-width=\"2\"/>"));
    for (n, gain) in &points {
        body.push_str(&format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"var(--bar)\"/>",
            x.at(*n as f64),
            y.at(*gain)
        ));
    }
    body.push_str("<text class=\"soft\" x=\"225\" y=\"246\">evaluations</text>");
    let words = format!(
        "From {} to {} times the start in {} step{}.",
        figure(first.1),
        figure(last.1),
        points.len() - 1,
        if points.len() == 2 { "" } else { "s" }
    );
    [large(&picture("gains", "Best gain over the start", &words, 480.0, 252.0, &body)), para(&words)].concat()
}

/// Every solution below its first parent.
fn lineage(search: &Search) -> String {
    let mut children: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
    for (i, node) in search.nodes.iter().enumerate() {
        // A parent comes before its children; anything else would be no tree.
        let parent = node.parents.first().copied().filter(|p| *p < node.id);
        children.entry(parent).or_default().push(i);
    }
    let mut rows = Vec::new();
    let roots = children.get(&None).into_iter().flatten().rev();
    let mut stack: Vec<(usize, usize)> = roots.map(|i| (*i, 0)).collect();
    while let Some((i, depth)) = stack.pop() {
        if rows.len() >= MAX_ROWS {
            break;
        }
        let node = &search.nodes[i];
        rows.push(row(node, depth));
        for child in children.get(&Some(node.id)).into_iter().flatten().rev() {
            stack.push((*child, depth + 1));
        }
    }
    let of = if search.unit.is_empty() { "figure" } else { search.unit.as_str() };
    let head = [
        ("solution", Column::Text),
        ("from", Column::Text),
        ("change", Column::Text),
        ("verdict", Column::Text),
        (of, Column::Number),
        ("over its parent", Column::Number),
        ("over the start", Column::Number),
    ];
    let left = search.nodes.len() - rows.len();
    let text = table("Each solution below the one that it came from", &head, rows);
    if left > 0 { [text, para(&format!("{left} more are in the journal."))].concat() } else { text }
}

fn row(node: &Node, depth: usize) -> Vec<String> {
    let indent = "\u{2007}\u{2007}".repeat(depth.min(MAX_DEPTH));
    // Spaces at which no line breaks: the tree stays one.
    let branch = if depth > 0 { "\u{2514}\u{a0}" } else { "" };
    let best = if node.best {
        "\u{a0}<strong>best</strong>"
    } else if node.kept {
        "\u{a0}kept"
    } else {
        ""
    };
    let parents: Vec<String> = node.parents.iter().map(|p| format!("#{p}")).collect();
    let thought = node.thought.as_ref().map(|t| format!("<br><span class=\"muted\">{}</span>", esc(t)));
    let finding = node.finding.as_ref().map(|f| format!("<br><span class=\"muted\">{}</span>", esc(f)));
    let ratio = |g: Option<f64>| g.map_or_else(String::new, |g| format!("{}x", figure(g)));
    vec![
        format!("<span class=\"nw\">{indent}{branch}#{}{best}</span>", node.id),
        format!("<span class=\"nw\">{}</span>", esc(&format!("{} {}", node.operator, parents.join(", ")))),
        [change(&node.change), thought.unwrap_or_default()].concat(),
        [word(&node.verdict), finding.unwrap_or_default()].concat(),
        node.figure.map(figure).unwrap_or_default(),
        ratio(node.step),
        ratio(node.gain),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, parents: &[u64], verdict: &str) -> Node {
        Node { id, parents: parents.to_vec(), verdict: verdict.into(), change: format!("<c{id}>"), ..Node::default() }
    }

    #[test]
    fn every_solution_stands_below_its_parent_and_stays_text() {
        let mut nodes =
            vec![node(0, &[], "passed"), node(1, &[0], "passed"), node(2, &[0], "faulted"), node(3, &[1, 2], "passed")];
        nodes.push(node(4, &[4], "passed"));
        let search = Search {
            headline: "<i>".into(),
            decision: Some("<i>".into()),
            reasons: vec![("<r>".into(), vec!["`w` <r>".into()]), ("none".into(), Vec::new())],
            nodes,
            gains: vec![(1, 1.0), (2, 1.5), (4, f64::NAN)],
            failures: vec![("<k>".into(), 2)],
            cost: vec![("calls".into(), "3".into())],
            ..Search::default()
        };
        let page = search_html(&search);
        let places: Vec<usize> =
            ["#0", "#1", "#3", "#2", "#4"].iter().map(|id| page.find(&format!("{id}</span></th>")).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(!page.contains("<i>") && !page.contains("<c1>") && !page.contains("<k>") && page.contains("<svg"));
        assert!(!page.contains("<r>") && page.contains("<code>w</code>") && page.contains("Merge?"));
        assert!(page.contains("From 1.000 to 1.500 times the start in 1 step."));
    }

    #[test]
    fn nothing_at_all_is_a_page_too() {
        let page = search_html(&Search::default());
        assert!(page.contains("Nothing has a figure") && page.contains("Nothing failed"));
        let deep: Vec<Node> = (0..5000u64).map(|i| node(i, &[i.wrapping_sub(1)], "passed")).collect();
        assert!(search_html(&Search { nodes: deep, ..Search::default() }).contains("3000 more"));
    }
}
