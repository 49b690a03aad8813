//! The roofline: what bandwidth and arithmetic allow at each shape, and where the measured kernels lie under it.
//!
//! Ceilings are a table of data sheets (dense rates) and say so; a device's own measured ceilings replace them where a record has
//! them. Knows attention only: of other tasks neither operations nor bytes are known here.
//! Sources: NVIDIA's data sheets for L4, L40S, A100 80 GB SXM, H100 SXM, H200 SXM; `ex2` at 16 a clock and SM measured on H100, 2025.

use super::markup::{Column, esc, figure, table};
use super::svg::{Axis, picture};
use crate::material::Material;
use crate::measured::measured;
use std::collections::BTreeMap;
use warpsmith_spec::record::ResultRecord;

/// Rated figures of one card: TFLOP/s dense, GB/s, and exponentials a second.
struct Card {
    name: &'static str,
    /// Words of the device's own name, or the target that usually runs on it.
    matches: &'static [&'static str],
    fp8: Option<f64>,
    fp16: f64,
    fp32: f64,
    dram_gb: f64,
    /// 16 for each clock and multiprocessor, 1e12 a second.
    exp_tera: f64,
}

const CARDS: [Card; 5] = [
    Card {
        name: "NVIDIA L40S",
        matches: &["L40S"],
        fp8: Some(733.0),
        fp16: 362.0,
        fp32: 91.6,
        dram_gb: 864.0,
        exp_tera: 5.7,
    },
    Card {
        name: "NVIDIA L4",
        matches: &["L4", "sm_89"],
        fp8: Some(242.5),
        fp16: 121.0,
        fp32: 30.3,
        dram_gb: 300.0,
        exp_tera: 1.9,
    },
    Card {
        name: "NVIDIA A100 80GB SXM",
        matches: &["A100", "sm_80"],
        fp8: None,
        fp16: 312.0,
        fp32: 19.5,
        dram_gb: 2039.0,
        exp_tera: 2.4,
    },
    Card {
        name: "NVIDIA H200 SXM",
        matches: &["H200"],
        fp8: Some(1979.0),
        fp16: 989.0,
        fp32: 67.0,
        dram_gb: 4800.0,
        exp_tera: 4.0,
    },
    Card {
        name: "NVIDIA H100 SXM",
        matches: &["H100", "sm_90a", "sm_90"],
        fp8: Some(1979.0),
        fp16: 989.0,
        fp32: 67.0,
        dram_gb: 3350.0,
        exp_tera: 4.0,
    },
];

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
        card = card.or_else(|| card_for(device.as_deref().unwrap_or(&r.target)));
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
    draw(card, &shapes)
}

fn card_for(name: &str) -> Option<&'static Card> {
    CARDS.iter().find(|c| c.matches.iter().any(|m| name == *m || name.split([' ', '-']).any(|w| w == *m)))
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

fn draw(card: &Card, shapes: &BTreeMap<String, (Work, Vec<(String, f64)>)>) -> String {
    let eight_bits = shapes.values().any(|(w, _)| w.eight_bits);
    let (peak, kind) = match card.fp8.filter(|_| eight_bits) {
        Some(fp8) => (fp8, "FP8"),
        None => (card.fp16, "FP16"),
    };
    let intensities: Vec<f64> = shapes.values().map(|(w, _)| w.flops / w.bytes).collect();
    let points: Vec<f64> = shapes.values().flat_map(|(_, p)| p.iter().map(|(_, t)| *t)).collect();
    let low = points.iter().copied().fold(peak / 1000.0, f64::min).max(peak / 1e5);
    let x = Axis {
        low: intensities.iter().copied().fold(8.0, f64::min) / 2.0,
        high: intensities.iter().copied().fold(4096.0, f64::max) * 2.0,
        from: 44.0,
        to: 352.0,
        log: true,
    };
    let y = Axis { low: low / 2.0, high: peak * 2.0, from: 214.0, to: 8.0, log: true };
    let mut body = String::new();
    for t in x.ticks() {
        body.push_str(&format!("<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"8\" y2=\"214\"/><text class=\"soft\" text-anchor=\"middle\" x=\"{0:.1}\" y=\"227\">{1}</text>", x.at(t), t));
    }
    for t in y.ticks() {
        body.push_str(&format!("<line class=\"grid\" x1=\"44\" x2=\"352\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><text class=\"soft\" text-anchor=\"end\" x=\"41\" y=\"{1:.1}\">{2}</text>", y.at(t), y.at(t) + 4.0, t));
    }
    let memory = |i: f64| card.dram_gb * 1e9 * i / 1e12;
    let knee = peak / (card.dram_gb / 1e3);
    body.push_str(&format!(
        "<path class=\"roof\" d=\"M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}\"/>",
        x.at(x.low),
        y.at(memory(x.low)),
        x.at(knee),
        y.at(peak),
        x.at(x.high),
        y.at(peak)
    ));
    body.push_str(&format!(
        "<text text-anchor=\"end\" x=\"352\" y=\"{:.1}\">{kind} tensor cores {peak} TFLOP/s</text>",
        y.at(peak) - 4.0
    ));
    for (value, name) in
        [(card.fp16, "FP16 tensor cores"), (card.fp32, "FP32 without tensor cores")].iter().filter(|(v, _)| *v < peak)
    {
        body.push_str(&format!("<path class=\"roof dash\" d=\"M{:.1} {1:.1}L352 {1:.1}\"/><text class=\"soft\" text-anchor=\"end\" x=\"352\" y=\"{2:.1}\">{name} {value}</text>", x.at(value / (card.dram_gb / 1e3)), y.at(*value), y.at(*value) - 4.0));
    }
    let mut rows = Vec::new();
    for (shape, (work, points)) in shapes {
        let intensity = work.flops / work.bytes;
        let allowed = memory(intensity).min(peak);
        let exp = card.exp_tera * work.flops / work.exps.max(1.0);
        let at = x.at(intensity);
        body.push_str(&format!(
            "<line class=\"axis dash\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"214\"/>",
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
                format!("{} TFLOP/s, {:.0}% of {}", figure(t), 100.0 * t / allowed, figure(allowed))
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
    body.push_str(
        "<text class=\"soft\" x=\"198\" y=\"242\" text-anchor=\"middle\">operations for each byte of DRAM</text>",
    );
    let told = format!(
        "{} by its data sheet: {} GB/s, {kind} {peak}, FP16 {}, FP32 {} TFLOP/s; shapes at {}",
        card.name,
        card.dram_gb,
        card.fp16,
        card.fp32,
        intensities.iter().map(|i| figure(*i)).collect::<Vec<_>>().join(", ")
    );
    let mut text = format!(
        "<figure>{}<figcaption>TFLOP/s against operations for each byte of inputs and outputs; a dashed line is a shape, a dot a measured kernel. <b>The ceilings are from the data sheet of {}</b> (dense rates), not measured{}.</figcaption></figure>\n",
        picture("roof", "Roofline", &told, 360.0, 248.0, &body),
        esc(card.name),
        if points.is_empty() { "; nothing was timed, so there is no dot" } else { "" }
    );
    let head = [
        ("shape", Column::Text),
        ("operations a byte", Column::Number),
        ("DRAM and tensor cores allow, TFLOP/s", Column::Number),
        ("exponentials allow, TFLOP/s", Column::Number),
        ("bound", Column::Text),
        ("so at least", Column::Number),
        ("reached", Column::Text),
    ];
    text.push_str(&table("What the rated figures allow at each shape, when all multiprocessors are busy; a launch itself takes about a microsecond more", &head, rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_by_device_and_by_target() {
        for (name, card) in [
            ("NVIDIA H200", "NVIDIA H200 SXM"),
            ("NVIDIA L4", "NVIDIA L4"),
            ("sm_89", "NVIDIA L4"),
            ("sm_90a", "NVIDIA H100 SXM"),
            ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ] {
            assert_eq!(card_for(name).map(|c| c.name), Some(card), "{name}");
        }
        assert!(card_for("sm_120").is_none() && card_for("NVIDIA L400").is_none());
    }
}
