//! Times: speed-up by shape and baseline with its interval, the samples themselves, stability. Nothing where no time was taken.

use super::markup::{Column, esc, figure, para, table, word};
use super::svg::{Axis, picture};
use crate::material::Material;
use crate::measured::{Measured, Timing, measured};
use std::collections::BTreeMap;
use warpsmith_spec::record::ResultRecord;

/// Results that are plotted; the table has all of them.
const MAX_PLOTTED: usize = 24;
/// Samples that a strip draws.
const MAX_SAMPLES: usize = 400;

pub(super) fn section(material: &Material) -> String {
    let results = &material.record.results;
    let names = super::results::names(results);
    let timed: Vec<(String, &ResultRecord, Measured)> =
        results.iter().enumerate().filter_map(|(i, r)| Some((label(&names[i], r), r, measured(r)?))).collect();
    if timed.is_empty() {
        return "<p>No time was taken: gate 3 runs on a GPU only, and nothing here stands for one. <code>warpsmith bench</code> on a machine with a GPU, or <code>--on</code> a launcher that reaches one, measures.</p>\n".into();
    }
    let mut text = String::new();
    if timed.iter().any(|(_, _, m)| m.replayed) {
        text.push_str("<p class=\"warn\">\u{25d0} These figures were replayed from a file for a test. None of them is a time.</p>\n");
    }
    text.push_str(&ratios(&timed));
    text.push_str(&distributions(&timed));
    text.push_str(&methods(&timed));
    text
}

fn label(name: &str, r: &ResultRecord) -> String {
    format!("{name}, {}{}", r.shape, if r.causal { ", causal" } else { "" })
}

/// Speed-ups: the plot, and the same in a table.
fn ratios(timed: &[(String, &ResultRecord, Measured)]) -> String {
    let rows: Vec<_> = timed.iter().flat_map(|(label, _, m)| m.baselines.iter().map(move |b| (label, m, b))).collect();
    if rows.is_empty() {
        return para("No baseline was timed beside it, so nothing is said of a speed-up.");
    }
    let plotted: Vec<_> =
        rows.iter().filter_map(|(l, _, b)| Some((format!("{l} / {}", b.name), b.ratio?))).take(MAX_PLOTTED).collect();
    let mut text = String::new();
    if !plotted.is_empty() {
        let low = plotted.iter().map(|(_, r)| r.1).fold(0.8, f64::min) * 0.95;
        let high = plotted.iter().map(|(_, r)| r.2).fold(1.25, f64::max) * 1.05;
        let axis = Axis { low, high, from: 14.0, to: 340.0, log: true };
        const FINE: [f64; 12] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0];
        let ticks: Vec<f64> = if high / low < 2.5 { FINE.to_vec() } else { (-6..12).map(|e| 2f64.powi(e)).collect() };
        let ticks = ticks.into_iter().filter(|t| *t >= low && *t <= high);
        let height = plotted.len() as f64 * 30.0 + 30.0;
        let mut body = String::new();
        for t in ticks {
            let x = axis.at(t);
            body.push_str(&format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{:.1}\"/><text class=\"soft\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}x</text>", height - 22.0, height - 8.0, round(t)));
        }
        let one = axis.at(1.0);
        body.push_str(&format!(
            "<line class=\"roof\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"0\" y2=\"{:.1}\"/>",
            height - 22.0
        ));
        let mut told = String::new();
        for (i, (name, (ratio, a, b))) in plotted.iter().enumerate() {
            let y = i as f64 * 30.0;
            let class = if *b < 1.0 { "theirs" } else { "ours" };
            body.push_str(&format!(
                "<text x=\"8\" y=\"{:.1}\">{}: {}x</text><rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"3\"/><circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>",
                y + 11.0, esc(name), figure(*ratio), axis.at(*a), y + 18.5, (axis.at(*b) - axis.at(*a)).max(1.0), axis.at(*ratio), y + 20.0
            ));
            told.push_str(&format!("{name} {}; ", figure(*ratio)));
        }
        text.push_str(&format!("<figure>{}<figcaption>Speed-up = baseline's time / ours, both from this run by one method, with the 95% interval; right of the line is faster.</figcaption></figure>\n", picture("ratios", "Speed-up by shape and baseline", &told, 360.0, height, &body)));
    }
    let cells = rows.iter().map(|(label, m, b)| {
        let theirs = m
            .preferred()
            .and_then(|t| b.timings.iter().find(|x| x.method == t.method))
            .map_or("-".into(), |t| figure(t.median_us));
        let ours = m.preferred().map_or("-".into(), |t| figure(t.median_us));
        match (&b.missing, b.ratio) {
            (Some(why), _) => vec![
                esc(label),
                esc(&b.name),
                "<span class=\"muted\">not measured</span>".into(),
                esc(why),
                "-".into(),
                ours,
            ],
            (None, Some((r, low, high))) => vec![
                esc(label),
                esc(&b.name),
                word(&b.class),
                format!("{}x ({} to {})", figure(r), figure(low), figure(high)),
                theirs,
                ours,
            ],
            (None, None) => {
                vec![esc(label), esc(&b.name), "<span class=\"muted\">no ratio</span>".into(), "-".into(), theirs, ours]
            }
        }
    });
    let head = [
        ("kernel and shape", Column::Text),
        ("baseline", Column::Text),
        ("class", Column::Text),
        ("speed-up (95% interval)", Column::Text),
        ("baseline, us", Column::Number),
        ("ours, us", Column::Number),
    ];
    text.push_str(&table("Speed-up by shape and baseline", &head, cells));
    text
}

/// The samples of each result by its preferred method, one strip each on a common axis.
fn distributions(timed: &[(String, &ResultRecord, Measured)]) -> String {
    let strips: Vec<(&String, &Timing)> = timed
        .iter()
        .filter_map(|(l, _, m)| Some((l, m.preferred()?)))
        .filter(|(_, t)| t.samples.len() > 1)
        .take(MAX_PLOTTED)
        .collect();
    let (Some(low), Some(high)) = (
        strips.iter().flat_map(|(_, t)| t.samples.iter().copied()).reduce(f64::min),
        strips.iter().flat_map(|(_, t)| t.samples.iter().copied()).reduce(f64::max),
    ) else {
        return String::new();
    };
    let axis = Axis { low: low * 0.97, high: high * 1.03, from: 20.0, to: 336.0, log: high / low > 8.0 };
    let height = strips.len() as f64 * 40.0 + 26.0;
    let mut body = String::new();
    for t in axis.ticks() {
        let x = axis.at(t);
        body.push_str(&format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{:.1}\"/><text class=\"soft\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{} us</text>", height - 20.0, height - 6.0, round(t)));
    }
    let mut told = String::new();
    for (i, (label, t)) in strips.iter().enumerate() {
        let y = i as f64 * 40.0;
        body.push_str(&format!(
            "<text x=\"8\" y=\"{:.1}\">{}: {} us</text>",
            y + 11.0,
            esc(label),
            figure(t.median_us)
        ));
        let step = t.samples.len().div_ceil(MAX_SAMPLES).max(1);
        let mut path = String::new();
        for sample in t.samples.iter().step_by(step) {
            path.push_str(&format!("M{:.1} {:.1}v14", axis.at(*sample), y + 16.0));
        }
        body.push_str(&format!("<path class=\"ours\" style=\"fill:none;opacity:.45\" d=\"{path}\"/><line class=\"roof\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>", axis.at(t.median_us), y + 14.0, y + 32.0));
        told.push_str(&format!(
            "{label}: median {}, 10% {}, 90% {}; ",
            figure(t.median_us),
            figure(t.p10_us),
            figure(t.p90_us)
        ));
    }
    format!(
        "<figure>{}<figcaption>Every sample is a stroke, the median the long one. {}</figcaption></figure>\n",
        picture("samples", "Latency distributions", &told, 360.0, height, &body),
        if axis.log { "The axis is logarithmic." } else { "" }
    )
}

/// All methods, conditions and stability in a table.
fn methods(timed: &[(String, &ResultRecord, Measured)]) -> String {
    let rows = timed.iter().map(|(label, _, m)| {
        let by: BTreeMap<_, _> = m.timings.iter().map(|t| (t.method.clone(), t)).collect();
        let times: Vec<_> = by
            .iter()
            .map(|(name, t)| {
                format!(
                    "{} {} ({} to {}, n {})",
                    esc(&name.replace('_', " ")),
                    figure(t.median_us),
                    figure(t.p10_us),
                    figure(t.p90_us),
                    t.n
                )
            })
            .collect();
        let conditions: Vec<_> =
            m.conditions.iter().map(|(k, v)| format!("{} {}", esc(&crate::measured::condition(k)), esc(v))).collect();
        let stable = match m.stability {
            Some((n, Some(true))) => format!("{} {n} launches, the same bits", word("passed")),
            Some((n, _)) => format!("{n} launches, not all the same bits"),
            None => "<span class=\"muted\">not tried</span>".into(),
        };
        vec![
            esc(label),
            times.join("<br>"),
            stable,
            m.device.as_deref().map_or("-".into(), esc),
            conditions.join("<br>"),
        ]
    });
    let head =
        ["kernel and shape", "median us (10% to 90%)", "stability", "device", "conditions"].map(|h| (h, Column::Text));
    table("Times by method, microseconds for one call, under the conditions that the device reported", &head, rows)
}

/// A tick's value without the crumbs of its arithmetic.
fn round(t: f64) -> f64 {
    (t * 1e6).round() / 1e6
}
