//! The roofline: what bandwidth and arithmetic allow at each shape, and where the measured kernels lie under it.
//!
//! Ceilings are those of data sheets (`warpsmith_spec::ceilings`) and say so; a device's own measured ones replace them where the record has
//! them. Knows attention only: of other tasks neither operations nor bytes are known here.

use super::markup::{Column, esc, figure, table};
use super::svg::{Axis, large, picture};
use crate::material::Material;
use crate::measured::measured;
use crate::summary::counted_on;
use std::collections::BTreeMap;
use warpsmith_spec::ceilings::rated;
use warpsmith_spec::record::{CeilingsRecord, ResultRecord};

/// Operations, bytes and exponentials of an attention forward pass.
struct Work {
    flops: f64,
    bytes: f64,
    exps: f64,
    eight_bits: bool,
}

pub(super) fn section(material: &Material) -> String {
    let mut shapes: BTreeMap<String, (Work, Vec<(String, f64)>)> = BTreeMap::new();
    let mut card = None;
    let names = super::results::names(&material.record.results);
    for (i, r) in material.record.results.iter().enumerate() {
        let Some(work) = work(r) else { continue };
        let m = measured(r).filter(|m| !m.replayed);
        let device = m.as_ref().and_then(|m| m.device.clone()).or_else(|| material.record.environment.device.clone());
        // Where nothing was timed, the device whose counters were read.
        let device = device.or_else(|| counted_on(r).map(str::to_string));
        card = card.or_else(|| ceilings(material, device.as_deref().unwrap_or(&r.target)));
        let mask = if r.causal { ", causal" } else { "" };
        let entry = shapes.entry(format!("{}{mask}", r.shape)).or_insert((work, Vec::new()));
        if let Some(t) = m.as_ref().and_then(|m| m.preferred()) {
            let tflops = entry.0.flops / (t.median_us * 1e-6) / 1e12;
            entry.1.push((format!("{}, {}{mask}", names[i], r.shape), tflops));
        }
    }
    let Some(card) = card else {
        return if shapes.is_empty() {
            String::new()
        } else {
            "<p>No data sheet is known for this target, so no ceiling is drawn.</p>\n".into()
        };
    };
    draw(&card, &shapes)
}

/// The device's measured ceilings before its data sheet's.
fn ceilings(material: &Material, name: &str) -> Option<CeilingsRecord> {
    let sheet = rated(name);
    match (&material.record.environment.ceilings, sheet) {
        (Some(own), sheet) => Some(own.over(&sheet.unwrap_or_default())),
        (None, sheet) => sheet,
    }
}

fn work(r: &ResultRecord) -> Option<Work> {
    let get = |names: &[&str]| names.iter().find_map(|n| r.symbols.get(*n)).map(|v| *v as f64).filter(|v| *v > 0.0);
    if !r.task.contains("sdpa") && !r.task.contains("attention") {
        return None;
    }
    let (b, hq, d) = (get(&["B"])?, get(&["Hq", "H"])?, get(&["D"])?);
    let (hkv, sq, sk) = (get(&["Hkv", "H"])?, get(&["Sq", "S"])?, get(&["Sk", "S"])?);
    let eight_bits = r.task.contains("fp8");
    let (input, half) = (if eight_bits { 1.0 } else { 2.0 }, if r.causal { 0.5 } else { 1.0 });
    Some(Work {
        flops: 4.0 * b * hq * sq * sk * d * half,
        bytes: b * d * (hq * sq * input + 2.0 * hkv * sk * input + hq * sq * 2.0),
        exps: b * hq * sq * sk * half,
        eight_bits,
    })
}

fn draw(card: &CeilingsRecord, shapes: &BTreeMap<String, (Work, Vec<(String, f64)>)>) -> String {
    let eight_bits = shapes.values().any(|(w, _)| w.eight_bits);
    let (Some(dram_gb), Some(fp16)) = (card.dram_gb, card.fp16_tflops) else {
        return "<p>No ceiling is known for this device's memory or tensor cores; <code>warpsmith doctor --measure</code> measures them.</p>\n".into();
    };
    let (peak, kind) = match card.fp8_tflops.filter(|_| eight_bits) {
        Some(fp8) => (fp8, "FP8"),
        None => (fp16, "FP16"),
    };
    let intensities: Vec<f64> = shapes.values().map(|(w, _)| w.flops / w.bytes).collect();
    let points: Vec<f64> = shapes.values().flat_map(|(_, p)| p.iter().map(|(_, t)| *t)).collect();
    let low = points.iter().copied().fold(peak / 1000.0, f64::min).max(peak / 1e5);
    let x = Axis {
        low: intensities.iter().copied().fold(8.0, f64::min) / 2.0,
        high: intensities.iter().copied().fold(4096.0, f64::max) * 2.0,
        from: LEFT,
        to: RIGHT,
        log: true,
    };
    let y = Axis { low: low / 2.0, high: peak * 2.0, from: BOTTOM, to: TOP, log: true };
    let mut body = String::new();
    for t in x.ticks() {
        body.push_str(&format!("<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/><text class=\"soft\" text-anchor=\"middle\" x=\"{0:.1}\" y=\"{2}\">{1}</text>", x.at(t), t, BOTTOM + 16.0));
    }
    for t in y.ticks() {
        body.push_str(&format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><text class=\"soft\" text-anchor=\"end\" x=\"{3}\" y=\"{1:.1}\">{2}</text>", y.at(t), y.at(t) + 4.0, t, LEFT - 5.0));
    }
    let memory = |i: f64| dram_gb * 1e9 * i / 1e12;
    let knee = peak / (dram_gb / 1e3);
    body.push_str(&format!(
        "<path class=\"roof\" d=\"M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}\"/>",
        x.at(x.low),
        y.at(memory(x.low)),
        x.at(knee),
        y.at(peak),
        x.at(x.high),
        y.at(peak)
    ));
    // Names of lines are written last, so that no line runs through them; of two lines close to each other the lower one's stands below.
    let mut labels = format!(
        "<text text-anchor=\"end\" x=\"{RIGHT}\" y=\"{:.1}\">{kind} tensor cores {} TFLOP/s</text>",
        y.at(peak) - 5.0,
        figure(peak)
    );
    labels.push_str(&format!(
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">DRAM {} GB/s</text>",
        LEFT + 6.0,
        TOP + 16.0,
        figure(dram_gb)
    ));
    for (value, name) in [(fp16, "FP16 tensor cores"), (card.fp32_tflops.unwrap_or(peak), "FP32 without tensor cores")]
        .iter()
        .filter(|(v, _)| *v < peak)
    {
        let at = y.at(*value);
        body.push_str(&format!(
            "<path class=\"roof dash\" d=\"M{:.1} {at:.1}L{RIGHT} {at:.1}\"/>",
            x.at(value / (dram_gb / 1e3))
        ));
        labels.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"end\" x=\"{RIGHT}\" y=\"{:.1}\">{name} {}</text>",
            at + 14.0,
            figure(*value)
        ));
    }
    let mut rows = Vec::new();
    for (shape, (work, points)) in shapes {
        let intensity = work.flops / work.bytes;
        let allowed = memory(intensity).min(peak);
        let exp = card.exp_tera.unwrap_or(f64::INFINITY) * work.flops / work.exps.max(1.0);
        let at = x.at(intensity);
        body.push_str(&format!(
            "<line class=\"axis dash\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{BOTTOM}\"/>",
            y.at(allowed)
        ));
        for (name, tflops) in points {
            body.push_str(&format!(
                "<circle class=\"ours\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: {} TFLOP/s</title></circle>",
                y.at(*tflops),
                esc(name),
                figure(*tflops)
            ));
        }
        let least = work.flops / (allowed.min(exp) * 1e12) * 1e6;
        let bound = if exp < allowed {
            "exponentials"
        } else if memory(intensity) < peak {
            "DRAM"
        } else {
            "tensor cores"
        };
        let reached = points
            .iter()
            .map(|(_, t)| *t)
            .reduce(f64::max)
            .map_or("<span class=\"muted\">not timed</span>".into(), |t| {
                format!("{} TFLOP/s, {:.0}%", figure(t), 100.0 * t / allowed)
            });
        rows.push(vec![
            esc(shape),
            figure(intensity),
            figure(allowed),
            figure(exp),
            bound.into(),
            format!("{} us", figure(least)),
            reached,
        ]);
    }
    body.push_str(&labels);
    body.push_str(&format!(
        "<text class=\"soft\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">operations for each byte of DRAM</text>",
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 34.0
    ));
    let by = if card.is_measured() { "as measured on it" } else { "by its data sheet" };
    let told = format!(
        "{} {by}: {} GB/s, {kind} {} and FP16 {} TFLOP/s; shapes at {}",
        card.device,
        figure(dram_gb),
        figure(peak),
        figure(fp16),
        intensities.iter().map(|i| figure(*i)).collect::<Vec<_>>().join(", ")
    );
    let source = match (card.is_measured(), &card.at) {
        (true, at) => format!(
            "The ceilings were measured on {}{}",
            esc(&card.device),
            at.as_ref().map_or(String::new(), |at| format!(" on {}", esc(at.split('T').next().unwrap_or(at))))
        ),
        (false, _) => {
            format!("The ceilings are from the data sheet of {}</b> (dense rates), not measured<b>", esc(&card.device))
        }
    };
    let mut text = format!(
        "<figure>{}<figcaption>TFLOP/s against operations for each byte of inputs and outputs; a dashed line is a shape, a dot a measured kernel. <b>{source}</b>{}.</figcaption></figure>\n",
        large(&picture("roof", "Roofline", &told, WIDTH, BOTTOM + 42.0, &body)),
        if points.is_empty() { "; nothing was timed, so there is no dot" } else { "" }
    );
    let head = [
        ("shape", Column::Text),
        ("operations a byte", Column::Number),
        ("roof", Column::Number),
        ("exponentials' roof", Column::Number),
        ("bound", Column::Text),
        ("at least", Column::Number),
        ("reached, of the roof", Column::Text),
    ];
    text.push_str(&table("What these ceilings allow at each shape with all multiprocessors busy, in TFLOP/s; a launch itself takes about a microsecond more", &head, rows));
    text.push_str(&known(card));
    text
}

/// The plot's frame.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 472.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 276.0;

/// All ceilings that are known of the device.
fn known(card: &CeilingsRecord) -> String {
    let known = card.rows().into_iter().filter_map(|(name, value, unit)| Some((name, value?, unit)));
    let rows: Vec<Vec<String>> =
        known.map(|(name, value, unit)| vec![name.to_string(), figure(value), unit.to_string()]).collect();
    let caption = if card.is_measured() {
        "What the device can do at most, measured by `warpsmith doctor --measure`; what was not measured is its data sheet's"
    } else {
        "What the device can do at most, by its data sheet (shared memory and exponentials follow from its clock)"
    };
    let caption = match &card.at {
        Some(at) if card.is_measured() => format!("{caption} ({}, {at})", card.device),
        _ => format!("{caption} ({})", card.device),
    };
    table(&caption, &[("ceiling", Column::Text), ("at most", Column::Number), ("unit", Column::Text)], rows)
}
