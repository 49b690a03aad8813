//! What failed: each different cause once, at its source line, with where the output is wrong and what that pattern means.

use super::markup::{esc, prose};
use super::svg::{heat, heat_key};
use crate::material::Material;
use crate::summary::{place, short, word};
use std::collections::BTreeMap;
use warpsmith_spec::record::{CheckRecord, ErrorMap, FindingRecord, ResultRecord, Severity, VerdictWord};

/// Causes that are shown in full; a sweep of hundreds repeats the same few.
const MAX_CAUSES: usize = 40;
/// Lines of source on each side.
const AROUND: usize = 4;

/// A finding, the first result that it stands in, and how many more there are.
struct Cause<'a> {
    result: &'a ResultRecord,
    finding: Option<&'a FindingRecord>,
    count: usize,
    /// Of all results with this cause the one whose picture of errors shows most.
    pictured: &'a ResultRecord,
}

pub(super) fn section(material: &Material) -> String {
    let failing = causes(material.record.results.iter().filter(|r| r.verdict != VerdictWord::Passed));
    let mut text = String::new();
    for (n, cause) in failing.iter().take(MAX_CAUSES).enumerate() {
        text.push_str(&card(material, cause, &format!("c{n}")));
    }
    if failing.len() > MAX_CAUSES {
        text.push_str(&format!(
            "<p>\u{2026} and {} more different causes: see All results, and summary.json.</p>\n",
            failing.len() - MAX_CAUSES
        ));
    }
    if text.contains("class=\"l") {
        text.push_str(&format!("<figure>{}<figcaption>Heat maps: a cell is the relative error of its worst row as a part of the limit on rows.</figcaption></figure>\n", heat_key("key")));
    }
    text
}

/// The kernels that a run shows failing, each with its first cause.
pub(super) fn examples(material: &Material) -> String {
    if material.record.examples.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("<p>A kernel that is no part of what is judged: it shows that a wrong one is noticed.</p>\n");
    let mut shown = std::collections::BTreeSet::new();
    for (n, cause) in causes(material.record.examples.iter()).iter().enumerate() {
        if shown.insert(&cause.result.candidate) && shown.len() <= MAX_CAUSES {
            text.push_str(&card(material, cause, &format!("e{n}")));
        }
    }
    text
}

fn causes<'a>(results: impl Iterator<Item = &'a ResultRecord>) -> Vec<Cause<'a>> {
    let mut found: Vec<Cause> = Vec::new();
    let mut at: BTreeMap<(String, &str, Option<u32>, Option<&str>), usize> = BTreeMap::new();
    for result in results {
        let errors: Vec<_> = result.findings.iter().filter(|f| f.severity == Severity::Error).map(Some).collect();
        for finding in if errors.is_empty() { vec![None] } else { errors } {
            let key = (
                short(result),
                finding.map_or(word(result.verdict), |f| f.code.as_str()),
                finding.and_then(|f| f.line),
                finding.and_then(|f| f.file.as_deref()),
            );
            match at.get(&key) {
                Some(&i) => {
                    found[i].count += 1;
                    if cells(result) > cells(found[i].pictured) {
                        found[i].pictured = result;
                    }
                }
                None => {
                    at.insert(key, found.len());
                    found.push(Cause { result, finding, count: 1, pictured: result });
                }
            }
        }
    }
    found
}

fn cells(result: &ResultRecord) -> usize {
    let maps = result.check.iter().flat_map(|c| c.values()).filter_map(|c| c.error_map.as_ref());
    maps.map(|m| m.tiles.iter().map(String::len).sum()).max().unwrap_or(0)
}

fn card(material: &Material, cause: &Cause, id: &str) -> String {
    let result = cause.result;
    let kind = cause.finding.map_or_else(|| word(result.verdict).to_string(), |f| f.kind.clone());
    let more = if cause.count > 1 { format!(", first of {} such findings", cause.count) } else { String::new() };
    let mut text = format!(
        "<article class=\"card\" style=\"margin-bottom:12px\">\n<h3>{}: {}</h3>\n<p class=\"muted\">{} on {} {}{more}</p>\n",
        esc(&short(result)),
        super::markup::word(&kind),
        esc(word(result.verdict)),
        esc(&result.shape),
        if result.causal { "with the causal mask" } else { "without a mask" },
    );
    if let Some(finding) = cause.finding {
        if let Some(title) = material.titles.get(&finding.code) {
            text.push_str(&format!("<p><b>{}.</b></p>\n", esc(title)));
        }
        text.push_str(&format!("<p>{}{}</p>\n", esc(&finding.message), esc(&where_it_ran(finding))));
        text.push_str(&excerpts(material, result, finding));
    }
    let pictured = cause.pictured;
    if !std::ptr::eq(pictured, result) {
        let mask = if pictured.causal { " with the causal mask" } else { "" };
        text.push_str(&format!("<p class=\"muted\">Where it errs on {}{mask}:</p>\n", esc(&pictured.shape)));
    }
    for (name, check) in pictured.check.iter().flatten().filter(|(_, c)| beyond(c)) {
        if let Some(map) = &check.error_map {
            text.push_str(&maps(map, name, check, &format!("{id}-{}", safe(name))));
        }
    }
    if let Some(finding) = cause.finding {
        text.push_str(&format!(
            "<p>{}</p>\n",
            prose(&format!(
                "`warpsmith explain {}` shows a wrong kernel, the right one, and how to mend it.",
                finding.code
            ))
        ));
    }
    text.push_str("</article>\n");
    text
}

fn safe(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).take(24).collect()
}

fn beyond(check: &CheckRecord) -> bool {
    let over = |e: &warpsmith_spec::record::LimitedErrors| {
        e.rel_frobenius > e.limit_rel_frobenius || e.worst_row > e.limit_worst_row
    };
    check.nan + check.inf > 0 || over(&check.kernel) || over(&check.end_to_end)
}

fn where_it_ran(finding: &FindingRecord) -> String {
    let mut parts = Vec::new();
    parts.extend(finding.entry.as_ref().map(|e| format!("entry {e}")));
    parts.extend(finding.cta.map(|[x, y, z]| format!("CTA ({x}, {y}, {z})")));
    parts.extend(finding.warp.map(|w| format!("warp {w}")));
    parts.extend(finding.lane.map(|l| format!("lane {l}")));
    parts.extend(finding.count.filter(|n| *n > 1).map(|n| format!("{n} times")));
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn excerpts(material: &Material, result: &ResultRecord, finding: &FindingRecord) -> String {
    let Some(file) = finding.file.as_deref() else { return String::new() };
    let Some(line) = finding.line else { return String::new() };
    let Some((path, source)) = material.source(result, file) else {
        return format!(
            "<p class=\"muted\">The line is{}; this run keeps no copy of that file.</p>\n",
            esc(&place(Some(file), Some(line)))
        );
    };
    let mut text = excerpt(path, source, line, "here");
    if let Some(other) = finding.other_line.filter(|o| o.abs_diff(line) > AROUND as u32) {
        text.push_str(&excerpt(path, source, other, "the other side"));
    }
    text
}

fn excerpt(path: &str, source: &str, line: u32, what: &str) -> String {
    let at = line as usize;
    if at == 0 || at > source.lines().count() {
        return String::new();
    }
    let first = at.saturating_sub(AROUND).max(1);
    let mut text = format!(
        "<figure><figcaption><code>{}</code>, line {line}: {what}</figcaption><pre tabindex=\"0\" role=\"group\" aria-label=\"source around line {line}\">",
        esc(path)
    );
    for (n, code) in source.lines().enumerate().map(|(i, l)| (i + 1, l)).skip(first - 1).take(at + AROUND + 1 - first) {
        let code: String = code.chars().take(200).collect();
        if n == at {
            text.push_str(&format!(
                "<mark class=\"hit\" style=\"color:inherit\">\u{25b6}{n:>5}  {}</mark>",
                esc(&code)
            ));
        } else {
            text.push_str(&format!(" {n:>5}  {}\n", esc(&code)));
        }
    }
    text.push_str("</pre></figure>\n");
    text
}

/// Both pictures of one output, and their pattern in words.
pub(super) fn maps(map: &ErrorMap, name: &str, check: &CheckRecord, id: &str) -> String {
    let per = if map.leading_per_line > 1 {
        format!("{} heads to a line", map.leading_per_line)
    } else {
        "a line for each head".into()
    };
    let told = pattern(map);
    let rows = format!("{} rows to a cell, {per}. {told}", map.rows_per_tile);
    let mut text = String::from("<div class=\"cards\">");
    text.push_str(&format!(
        "<figure>{}<figcaption>Error of <code>{}</code> by head and tile of rows: {}</figcaption></figure>",
        heat(
            &map.tiles,
            &format!("{id}-a"),
            &format!("Error of {name} by head and tile of rows"),
            &rows,
            "tiles of rows",
            "heads"
        ),
        esc(name),
        esc(&rows)
    ));
    let rest = format!(
        "all tiles laid upon each other: 16 rows, {} columns to a cell. {}",
        map.columns_per_cell,
        pattern_within(map)
    );
    text.push_str(&format!(
        "<figure>{}<figcaption>Within a tile: {}</figcaption></figure></div>\n",
        heat(
            &map.within,
            &format!("{id}-b"),
            &format!("Error of {name} within a tile of 16 rows"),
            &rest,
            "columns",
            "rows"
        ),
        esc(&rest)
    ));
    if let (Some(got), Some(want)) = (check.worst.got, check.worst.want) {
        text.push_str(&format!("<p>The worst element is <code>{}{:?}</code>: {got:.5} where {want:.5} is right. {:.1}% of the elements are off by more than a tenth of the output's size.</p>\n", esc(name), check.worst.index, check.pct_bad));
    }
    text
}

fn is_bad(c: char) -> bool {
    matches!(c, '4'..='9' | 'n')
}

/// What the picture by tiles says, in a sentence.
pub(super) fn pattern(map: &ErrorMap) -> String {
    let lines: Vec<Vec<char>> = map.tiles.iter().map(|l| l.chars().collect()).collect();
    let judged = lines.iter().flatten().filter(|c| **c != '.').count();
    let bad = lines.iter().flatten().filter(|c| is_bad(**c)).count();
    if bad == 0 {
        return "Every tile is within the limit on rows.".into();
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let bad_columns: Vec<usize> =
        (0..columns).filter(|x| lines.iter().any(|l| l.get(*x).copied().is_some_and(is_bad))).collect();
    let bad_lines: Vec<usize> =
        lines.iter().enumerate().filter(|(_, l)| l.iter().copied().any(is_bad)).map(|(y, _)| y).collect();
    let row = |tile: usize| tile as u64 * map.rows_per_tile;
    let (first, last) = (bad_columns[0], bad_columns[bad_columns.len() - 1]);
    if bad == judged {
        return "Every tile is wrong: look at what all rows share (which keys are seen, scales, the layout of fragments, the softmax) before any edge.".into();
    }
    if bad_lines.len() < lines.len()
        && lines.iter().enumerate().all(|(y, l)| !bad_lines.contains(&y) || l.iter().all(|c| is_bad(*c) || *c == '.'))
    {
        return format!(
            "Only {} of {} lines are wrong, and those wholly: look at how heads and batches are addressed.",
            bad_lines.len(),
            lines.len()
        );
    }
    if columns > 1 && first == last && last == columns - 1 {
        return format!(
            "Only the last tile of rows is wrong (from row {}): look at the edge of the grid and its bounds.",
            row(first)
        );
    }
    if columns > 1 && first == last {
        return format!("Only the tile from row {} is wrong.", row(first));
    }
    if last == columns - 1 && bad_columns.len() == last - first + 1 && first > 0 {
        return format!(
            "Everything from row {} on is wrong, what is before it is right: look at a bound, or an index that overflows.",
            row(first)
        );
    }
    if columns > 1 && bad_columns.len() == last - first + 1 && bad == bad_columns.len() * bad_lines.len() {
        return format!("Only the rows from row {} to {} are wrong.", row(first), row(last + 1) - 1);
    }
    if bad * 5 <= judged {
        return format!(
            "{bad} of {judged} tiles are wrong, scattered: single rows lose what they need, as where a key or a block of keys is left out."
        );
    }
    format!("{bad} of {judged} tiles are wrong.")
}

/// What the picture within a tile says.
fn pattern_within(map: &ErrorMap) -> String {
    let lines: Vec<Vec<char>> = map.within.iter().map(|l| l.chars().collect()).collect();
    let judged = lines.iter().filter(|l| l.iter().any(|c| *c != '.')).count();
    let rows: Vec<usize> =
        lines.iter().enumerate().filter(|(_, l)| l.iter().copied().any(is_bad)).map(|(y, _)| y).collect();
    let width = lines.iter().map(Vec::len).max().unwrap_or(0);
    let columns: Vec<usize> =
        (0..width).filter(|x| lines.iter().any(|l| l.get(*x).copied().is_some_and(is_bad))).collect();
    if rows.is_empty() {
        return "No place within the tile stands out.".into();
    }
    if rows.iter().all(|y| *y >= 8) && rows.len() > 1 {
        return "Only the lower half (rows 8 to 15) is wrong: the second half of a fragment, registers 1 and 3 of an m16 accumulator.".into();
    }
    if rows.iter().all(|y| *y < 8) && rows.len() > 1 && judged > 8 {
        return "Only the upper half (rows 0 to 7) is wrong: the first half of a fragment.".into();
    }
    if columns.len() < width {
        let first = columns[0] as u64 * map.columns_per_cell;
        let last = (columns[columns.len() - 1] as u64 + 1) * map.columns_per_cell - 1;
        return format!(
            "The wrong columns lie between {first} and {last}: look at the loop over the head's dimension."
        );
    }
    if rows.len() == judged {
        return "All places within the tile are alike.".into();
    }
    if rows.len() * 2 > judged {
        let right: Vec<usize> = (0..lines.len()).filter(|y| !rows.contains(y)).collect();
        return format!("All rows of the tile but {right:?} are wrong.");
    }
    format!("Rows {rows:?} of the tile are wrong.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(tiles: &[&str], within: &[&str]) -> ErrorMap {
        let own = |l: &[&str]| l.iter().map(ToString::to_string).collect();
        ErrorMap { tiles: own(tiles), within: own(within), leading_per_line: 1, rows_per_tile: 16, columns_per_cell: 4 }
    }

    #[test]
    fn patterns_are_told_in_words() {
        let rows: [(&[&str], &str); 7] = [
            (&["0012", "3210"], "within the limit"),
            (&["9999", "8888"], "Every tile"),
            (&["0000", "9999"], "heads and batches"),
            (&["0009", "0008"], "last tile"),
            (&["0099", "0098"], "from row 32"),
            (&["0000000000", "0400000005"], "scattered"),
            (&["0400", "0000"], "from row 16"),
        ];
        for (tiles, words) in rows {
            let told = pattern(&map(tiles, &[]));
            assert!(told.contains(words), "{tiles:?}: {told}");
        }
        let halves: Vec<&str> = [vec!["0000"; 8], vec!["4444"; 8]].concat();
        assert!(pattern_within(&map(&[], &halves)).contains("lower half"));
        assert!(pattern_within(&map(&[], &vec!["0044"; 16])).contains("between 8 and 15"));
    }
}
