//! Times: speed-up over the fastest peer, over every baseline, the samples themselves, stability. Nothing where no time was taken.
//!
//! Every picture is a column of a table, so that its figures stand beside it and a narrow screen scrolls it as a whole.

use super::markup::{Column, details, esc, figure, para, table, word};
use super::svg::{Axis, TRACK, track};
use crate::material::Material;
use crate::measured::{Against, METHODS, Measured, measured};
use std::collections::BTreeSet;
use warpsmith_spec::record::{ResultRecord, is_peer};

/// Rows of a table; the record has all.
const MAX_ROWS: usize = 600;
/// Rows beyond which the tables of all baselines and of all methods are folded.
const OPEN: usize = 30;
/// Rows of the plot that are not folded.
const OPEN_PLOT: usize = 60;
/// Samples that a strip draws.
const MAX_SAMPLES: usize = 400;

struct Timed {
    label: String,
    measured: Measured,
}

pub(super) fn section(material: &Material) -> String {
    let results = &material.record.results;
    let names = super::results::names(results);
    let timed: Vec<Timed> = results
        .iter()
        .enumerate()
        .filter_map(|(i, r)| Some(Timed { label: label(&names[i], r), measured: measured(r)? }))
        .take(MAX_ROWS)
        .collect();
    if timed.is_empty() {
        return "<p>No time was taken: gate 3 runs on a GPU only, and nothing here stands for one. <code>warpsmith bench</code> on a machine with a GPU, or <code>--on</code> a launcher that reaches one, measures.</p>\n".into();
    }
    let mut text = String::new();
    if timed.iter().any(|t| t.measured.replayed) {
        text.push_str("<p class=\"warn\">\u{25d0} These figures were replayed from a file for a test. None of them is a time.</p>\n");
    }
    text.push_str(&against_the_fastest(&timed));
    text.push_str(&against_all(&timed));
    text.push_str(&methods(&timed));
    text
}

fn label(name: &str, r: &ResultRecord) -> String {
    format!("{name}, {}{}", r.shape, if r.causal { ", causal" } else { "" })
}

/// The plot: one row for each workload, against the peer that is fastest there.
fn against_the_fastest(timed: &[Timed]) -> String {
    let rows: Vec<_> = timed.iter().filter_map(|t| Some((t, t.measured.rival()?))).collect();
    if rows.is_empty() {
        return para("No baseline was timed beside it, so nothing is said of a speed-up.");
    }
    let low = rows.iter().map(|(_, (_, r))| r.1).fold(0.8, f64::min) * 0.95;
    let high = rows.iter().map(|(_, (_, r))| r.2).fold(1.25, f64::max) * 1.05;
    let axis = Axis { low, high, from: 2.0, to: TRACK - 2.0, log: true };
    let ticks = ratio_ticks(low, high);
    let grid: String = ticks
        .iter()
        .map(|t| {
            let class = if *t == 1.0 { "roof" } else { "grid" };
            format!("<line class=\"{class}\" x1=\"{0:.2}\" x2=\"{0:.2}\" y1=\"0\" y2=\"20\"/>", axis.at(*t))
        })
        .collect();
    let mut cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(t, (rival, (ratio, a, b)))| {
            let class = if *b < 1.0 { "theirs" } else { "ours" };
            let body = format!(
                "{grid}<line class=\"{class} span\" x1=\"{:.2}\" x2=\"{:.2}\" y1=\"10\" y2=\"10\"/><path class=\"{class} dot\" d=\"M{:.2} 10h.01\"/>",
                axis.at(*a),
                axis.at(*b),
                axis.at(*ratio)
            );
            let told = format!(
                "<span class=\"nw\">{}x ({} to {})</span><br>{} <span class=\"muted\">{}</span>",
                figure(*ratio),
                figure(*a),
                figure(*b),
                word(&rival.class),
                esc(&rival.name)
            );
            vec![name(&t.label), track(&body), told]
        })
        .collect();
    let marks: String = ticks
        .iter()
        .map(|t| format!("<span style=\"left:{:.1}%\">{}x</span>", axis.at(*t) / TRACK * 100.0, round(*t)))
        .collect();
    cells.push(vec![
        "<span class=\"muted\">scale</span>".into(),
        format!("<div class=\"ticks\">{marks}</div>"),
        String::new(),
    ]);
    let whom = if rows.iter().any(|(_, (b, _))| is_peer(&b.name)) { "fastest peer" } else { "baseline" };
    let head = [
        ("kernel and shape", Column::Text),
        ("slower | faster", Column::Track),
        ("speed-up (95% interval), class, peer", Column::Text),
    ];
    let caption = format!(
        "Speed-up = the {whom}'s time / ours, both from this run by one method; right of the strong line we are faster"
    );
    if cells.len() <= OPEN_PLOT + 1 {
        return table(&caption, &head, cells);
    }
    let scale = cells.pop().unwrap_or_default();
    let rest = cells.split_off(OPEN_PLOT);
    let more = format!("{} more results", rest.len());
    let first = table(&caption, &head, cells.into_iter().chain([scale.clone()]));
    [first, details(&more, &table(&caption, &head, rest.into_iter().chain([scale])))].concat()
}

/// Marks that leave room for their figures.
fn ratio_ticks(low: f64, high: f64) -> Vec<f64> {
    const FINE: [f64; 9] = [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8];
    const MIDDLE: [f64; 10] = [0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0];
    const COARSE: [f64; 11] = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0];
    let all: &[f64] = match high / low {
        r if r < 2.0 => &FINE,
        r if r < 8.0 => &MIDDLE,
        _ => &COARSE,
    };
    all.iter().copied().filter(|t| *t >= low && *t <= high).collect()
}

/// A row's name on one line, unless it is long.
fn name(label: &str) -> String {
    if label.chars().count() <= 36 { format!("<span class=\"nw\">{}</span>", esc(label)) } else { esc(label) }
}

/// Every baseline in a column of its own.
fn against_all(timed: &[Timed]) -> String {
    let mut names: Vec<&str> = timed
        .iter()
        .flat_map(|t| &t.measured.baselines)
        .filter(|b| b.missing.is_none())
        .map(|b| b.name.as_str())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    // Peers first, PyTorch's own choice before the others.
    names.sort_by_key(|n| (!is_peer(n), *n != "sdpa:auto"));
    let mut text = String::new();
    if !names.is_empty() {
        let rows = timed.iter().map(|t| {
            let ours = t.measured.preferred().map_or("-".into(), |x| format!("{} us", figure(x.median_us)));
            let mut row = vec![name(&t.label), ours];
            row.extend(names.iter().map(|n| {
                let found = t.measured.baselines.iter().find(|b| b.name == *n);
                found.map_or_else(|| "-".into(), |b| cell(&t.measured, b))
            }));
            row
        });
        let mut head = vec![("kernel and shape", Column::Text), ("ours", Column::Number)];
        head.extend(names.iter().map(|n| (*n, Column::Text)));
        let table = table(
            "Against every baseline: speed-up with its 95% interval, class, and the baseline's own time",
            &head,
            rows,
        );
        text = if timed.len() > OPEN {
            details(&format!("Against every baseline: {} results", timed.len()), &table)
        } else {
            table
        };
    }
    let missing: BTreeSet<(&str, &str)> = timed
        .iter()
        .flat_map(|t| &t.measured.baselines)
        .filter_map(|b| Some((b.name.as_str(), b.missing.as_deref()?)))
        .collect();
    if !missing.is_empty() {
        text.push_str("<p>Not timed beside it:</p>\n<ul>\n");
        for (name, why) in missing {
            text.push_str(&format!("<li><b>{}</b>: {}</li>\n", esc(name), esc(why)));
        }
        text.push_str("</ul>\n");
    }
    text
}

fn cell(m: &Measured, b: &Against) -> String {
    if b.missing.is_some() {
        return "<span class=\"muted\">not timed</span>".into();
    }
    let theirs = m.preferred().and_then(|t| b.timings.iter().find(|x| x.method == t.method));
    let theirs = theirs.map_or(String::new(), |t| format!(" <span class=\"muted\">{} us</span>", figure(t.median_us)));
    match b.ratio {
        Some((r, low, high)) => format!(
            "<span class=\"nw\">{}x ({} to {})</span><br>{}{theirs}",
            figure(r),
            figure(low),
            figure(high),
            word(&b.class)
        ),
        None => format!("<span class=\"muted\">no ratio</span>{theirs}"),
    }
}

/// The samples around their median, and all methods.
fn methods(timed: &[Timed]) -> String {
    let used: Vec<String> = {
        let found: BTreeSet<&str> = timed.iter().flat_map(|t| &t.measured.timings).map(|t| t.method.as_str()).collect();
        let mut all: Vec<String> = found.into_iter().map(str::to_string).collect();
        all.sort_by_key(|m| METHODS.iter().position(|x| x == m).unwrap_or(METHODS.len()));
        all
    };
    // One scale for all rows: shares of each row's own median.
    let shares: Vec<f64> = timed
        .iter()
        .filter_map(|t| t.measured.preferred())
        .flat_map(|t| t.samples.iter().map(|s| s / t.median_us))
        .collect();
    let low = shares.iter().copied().fold(0.98, f64::min).max(0.8);
    let high = shares.iter().copied().fold(1.02, f64::max).min(1.25);
    let axis = Axis { low, high, from: 2.0, to: TRACK - 2.0, log: false };
    let drawn = timed.iter().filter_map(|t| t.measured.preferred()).any(|t| t.samples.len() > 1);
    let devices: BTreeSet<&str> = timed.iter().filter_map(|t| t.measured.device.as_deref()).collect();
    let rows = timed.iter().map(|t| {
        let mut row = vec![name(&t.label)];
        if drawn {
            row.push(strip(&t.measured, &axis));
        }
        row.extend(used.iter().map(|m| {
            t.measured.timing(m).map_or_else(
                || "-".into(),
                |x| {
                    format!(
                        "<span class=\"nw\">{}</span><br><span class=\"muted nw\">{} to {}, n {}</span>",
                        figure(x.median_us),
                        figure(x.p10_us),
                        figure(x.p90_us),
                        x.n
                    )
                },
            )
        }));
        row.push(match t.measured.stability {
            Some((n, Some(true))) => {
                format!("<span class=\"nw\">{n} launches</span><br><span class=\"word ok\">\u{2713} same bits</span>")
            }
            Some((n, _)) => {
                format!("<span class=\"nw\">{n} launches</span><br><span class=\"word warn\">\u{25d0} not all the same bits</span>")
            }
            None => "<span class=\"muted\">not tried</span>".into(),
        });
        if devices.len() > 1 {
            row.push(t.measured.device.as_deref().map_or("-".into(), esc));
        }
        row
    });
    let titles: Vec<String> = used.iter().map(|m| format!("{}, us", m.replace('_', " "))).collect();
    let mut head = vec![("kernel and shape", Column::Text)];
    let spread = format!("samples, {:+.0}% to {:+.0}%", (low - 1.0) * 100.0, (high - 1.0) * 100.0);
    if drawn {
        head.push((spread.as_str(), Column::Bar));
    }
    head.extend(titles.iter().map(|t| (t.as_str(), Column::Text)));
    head.push(("stability", Column::Text));
    if devices.len() > 1 {
        head.push(("device", Column::Text));
    }
    let method = timed.iter().find_map(|t| t.measured.preferred()).map_or("", |t| t.method.as_str()).replace('_', " ");
    let caption = format!(
        "Latency distributions and methods: microseconds for one call, the median above its range from 10% to 90%; each stroke is a sample by {method} as a part of its row's median, the long line"
    );
    let table = table(&caption, &head, rows);
    if timed.len() > OPEN {
        details(&format!("Latency distributions and methods: {} results", timed.len()), &table)
    } else {
        table
    }
}

/// The samples of the preferred method around their median.
fn strip(m: &Measured, axis: &Axis) -> String {
    let Some(t) = m.preferred().filter(|t| t.samples.len() > 1) else {
        return "<span class=\"muted\">not kept</span>".into();
    };
    let step = t.samples.len().div_ceil(MAX_SAMPLES).max(1);
    let strokes: String = t
        .samples
        .iter()
        .step_by(step)
        .map(|s| format!("M{:.2} 4v12", axis.at((s / t.median_us).clamp(axis.low, axis.high))))
        .collect();
    let median = axis.at(1.0);
    track(&format!(
        "<path class=\"ours strokes\" d=\"{strokes}\"/><line class=\"roof\" x1=\"{median:.2}\" x2=\"{median:.2}\" y1=\"0\" y2=\"20\"/>"
    ))
}

/// A tick's value without the crumbs of its arithmetic.
fn round(t: f64) -> f64 {
    (t * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::ratio_ticks;

    #[test]
    fn the_scale_always_has_the_line_of_equal_times() {
        for (low, high) in [(0.76, 1.31), (0.4, 3.0), (0.01, 1.3), (0.76, 300.0)] {
            let ticks = ratio_ticks(low, high);
            assert!(ticks.contains(&1.0) && ticks.len() <= 11, "{low} to {high}: {ticks:?}");
        }
    }
}
