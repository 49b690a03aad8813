//! Plots as plain SVG: bars beside their figures, heat maps of characters, strips of samples, and axes. Each says in words what it shows.

use super::markup::esc;
use std::collections::BTreeMap;

/// A picture with a title and a description for those who do not see it. `id` is unique on the page.
pub(crate) fn picture(id: &str, title: &str, description: &str, width: f64, height: f64, body: &str) -> String {
    format!(
        "<svg role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>\n",
        esc(title),
        esc(description)
    )
}

/// Larger letters: on a phone the picture is shown smaller.
pub(crate) fn large(picture: &str) -> String {
    picture.replacen("<svg ", "<svg class=\"large\" ", 1)
}

/// A bar whose figure stands beside it in text, so it says nothing of its own. `limit` draws a line.
pub(crate) fn bar(share: f64, limit: Option<f64>, over: bool) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let class = if over { "theirs" } else { "ours" };
    let line = limit.filter(|l| (0.0..=1.0).contains(l)).map_or(String::new(), |l| {
        format!("<line class=\"roof\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"12\"/>", l * 100.0)
    });
    format!(
        "<svg aria-hidden=\"true\" viewBox=\"0 0 100 12\" width=\"100%\" height=\"12\" preserveAspectRatio=\"none\"><rect class=\"{class}\" x=\"0\" y=\"2\" width=\"{:.2}\" height=\"8\"/>{line}</svg>",
        (share * 100.0).max(0.4)
    )
}

/// Width of a [`track`], in its own units.
pub(crate) const TRACK: f64 = 100.0;

/// A strip as wide as its cell, 20 high, whose marks keep their breadth. What it shows stands in text beside it.
pub(crate) fn track(body: &str) -> String {
    format!(
        "<svg class=\"track\" aria-hidden=\"true\" viewBox=\"0 0 {TRACK} 20\" width=\"100%\" height=\"20\" preserveAspectRatio=\"none\">{body}</svg>"
    )
}

/// Side of a heat map's cell.
const CELL: f64 = 10.0;
const MARGIN: f64 = 34.0;

/// Lines of characters as an [`warpsmith_spec::record::ErrorMap`] has them. Cells beyond the limit carry their character too.
pub(crate) fn heat(lines: &[String], id: &str, title: &str, description: &str, across: &str, down: &str) -> String {
    let columns = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    // A single line of cells would be a hair's breadth: few cells are drawn larger.
    let zoom = (300.0 / (columns as f64 * CELL).max(1.0)).clamp(1.0, 1.25);
    let (width, height) = (MARGIN + columns as f64 * CELL + 2.0, lines.len() as f64 * CELL + 26.0);
    let mut runs: BTreeMap<char, String> = BTreeMap::new();
    let mut ink = String::new();
    for (y, line) in lines.iter().enumerate() {
        let cells: Vec<char> = line.chars().collect();
        let mut x = 0;
        while x < cells.len() {
            let length = cells[x..].iter().take_while(|c| **c == cells[x]).count();
            let path = runs.entry(cells[x]).or_default();
            path.push_str(&format!(
                "M{} {}h{}v{CELL}h-{}z",
                MARGIN + x as f64 * CELL,
                y as f64 * CELL,
                length as f64 * CELL,
                length as f64 * CELL
            ));
            x += length;
        }
        for (class, wanted) in [("darkink", "456"), ("lightink", "789n")] {
            let text: String = cells.iter().map(|c| if wanted.contains(*c) { *c } else { '\u{a0}' }).collect();
            if text.chars().any(|c| c != '\u{a0}') {
                ink.push_str(&format!(
                    "<text class=\"cells {class}\" x=\"{MARGIN}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacing\">{text}</text>",
                    y as f64 * CELL + 8.0,
                    cells.len() as f64 * CELL
                ));
            }
        }
    }
    let mut body: String = runs
        .iter()
        .map(|(c, path)| format!("<path class=\"l{}\" d=\"{path}\"/>", if *c == '.' { '-' } else { *c }))
        .collect();
    body.push_str(&ink);
    body.push_str(&format!("<text class=\"soft\" x=\"0\" y=\"9\">{}</text>", esc(down)));
    body.push_str(&format!(
        "<text class=\"soft\" x=\"{MARGIN}\" y=\"{}\">{} \u{2192}</text>",
        lines.len() as f64 * CELL + 14.0,
        esc(across)
    ));
    let picture = picture(id, title, description, width.max(180.0), height, &body);
    if zoom > 1.0 {
        picture.replacen(
            &format!("width=\"{:.0}\" height=\"{height:.0}\"", width.max(180.0)),
            &format!("width=\"{:.0}\" height=\"{:.0}\"", width.max(180.0) * zoom, height * zoom),
            1,
        )
    } else {
        picture
    }
}

/// What the characters of a heat map mean.
pub(crate) fn heat_key(id: &str) -> String {
    const STEPS: [(char, &str); 11] = [
        ('0', "1/8"),
        ('1', "1/4"),
        ('2', "1/2"),
        ('3', "limit"),
        ('4', "2x"),
        ('5', "4x"),
        ('6', "8x"),
        ('7', "16x"),
        ('8', "64x"),
        ('9', "more"),
        ('n', "no number"),
    ];
    let mut body = String::new();
    for (i, (level, text)) in STEPS.iter().enumerate() {
        let (x, y) = ((i % 6) as f64 * 54.0, (i / 6) as f64 * 18.0);
        body.push_str(&format!("<rect class=\"l{level}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\"/>"));
        if "456789n".contains(*level) {
            let ink = if "456".contains(*level) { "darkink" } else { "lightink" };
            body.push_str(&format!("<text class=\"cells {ink}\" x=\"{}\" y=\"{}\">{level}</text>", x + 3.5, y + 9.0));
        }
        body.push_str(&format!("<text class=\"soft\" x=\"{}\" y=\"{}\">{text}</text>", x + 16.0, y + 10.0));
    }
    picture(
        id,
        "What the cells mean",
        "The error of a cell's worst row as a part of the limit: digits 0 to 3 are within it, 4 to 9 beyond it, n is no number.",
        330.0,
        34.0,
        &body,
    )
}

/// Logarithmic or linear axis from values to points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub low: f64,
    pub high: f64,
    pub from: f64,
    pub to: f64,
    pub log: bool,
}

impl Axis {
    pub fn at(&self, x: f64) -> f64 {
        let place = |v: f64| if self.log { v.max(1e-30).ln() } else { v };
        let span = place(self.high) - place(self.low);
        let share = if span.abs() < 1e-12 { 0.5 } else { (place(x) - place(self.low)) / span };
        self.from + share.clamp(-0.05, 1.05) * (self.to - self.from)
    }

    /// Powers of ten within a logarithmic axis, some five round steps of a linear one.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (a, b) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
            return (a..=b).take(12).map(|e| 10f64.powi(e)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        if !(rough > 0.0 && rough.is_finite()) {
            return vec![self.low];
        }
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil();
        (0..12).map(|i| (first + f64::from(i)) * step).take_while(|t| *t <= self.high + step * 1e-9).collect()
    }
}
