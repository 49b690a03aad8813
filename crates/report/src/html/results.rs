//! Kernels side by side at one shape, and every result in a table.

use super::markup::{Column, count, esc, figure, para, table, word};
use super::svg::bar;
use crate::material::Material;
use crate::measured::measured;
use crate::rows::{cells, worst_check};
use crate::summary::word as verdict;
use std::collections::BTreeMap;
use warpsmith_spec::record::ResultRecord;

/// Beyond so many results the table of all is folded.
const OPEN: usize = 60;
/// Kernels that are set side by side.
const MAX_KERNELS: usize = 60;
/// Rows of the table of all results; the record has the rest.
const MAX_ROWS: usize = 4000;

/// Errors against limits, resources and executed work of all kernels at the shape where there is most to see.
pub(super) fn side_by_side(material: &Material) -> String {
    let results = &material.record.results;
    let Some((shape, chosen)) = busiest(results) else { return String::new() };
    let names = names(results);
    let most = |of: &dyn Fn(&ResultRecord) -> f64| {
        chosen.iter().map(|(_, r)| of(r)).filter(|x| x.is_finite()).fold(0.0, f64::max).max(1e-30)
    };
    let share = |r: &ResultRecord| {
        worst_check(r).map_or(f64::NAN, |c| {
            (c.kernel.rel_frobenius / c.kernel.limit_rel_frobenius.max(1e-30))
                .max(c.kernel.worst_row / c.kernel.limit_worst_row.max(1e-30))
        })
    };
    let work = |r: &ResultRecord| r.execution.as_ref().map_or(f64::NAN, |e| e.warp_instructions as f64);
    let registers = |r: &ResultRecord| entries(r).map(|e| f64::from(e.registers)).fold(f64::NAN, f64::max);
    let most_work = most(&work);
    let rows = chosen.iter().take(MAX_KERNELS).map(|(i, r)| {
        let s = share(r);
        let error = if s.is_finite() {
            format!(
                "{}{}",
                bar(s / 2.0, Some(0.5), s > 1.0),
                if s > 1.0 {
                    format!("{} times the limit \u{2717}", figure(s))
                } else {
                    format!("{:.0}% of the limit", s * 100.0)
                }
            )
        } else {
            "<span class=\"muted\">not judged</span>".into()
        };
        let (regs, shared, spills) = (
            registers(r),
            entries(r).map(|e| u64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0)).max(),
            entries(r).map(|e| e.spill_bytes).max().unwrap_or(0),
        );
        let resources = if regs.is_finite() {
            let spilled =
                if spills > 0 { format!(", <span class=\"warn\">{spills} B spilled</span>") } else { String::new() };
            format!(
                "{}{regs:.0} registers, {} B shared{spilled}",
                bar(regs / 255.0, None, spills > 0),
                count(shared.unwrap_or(0))
            )
        } else {
            "<span class=\"muted\">not compiled</span>".into()
        };
        let w = work(r);
        let executed = if w.is_finite() && w > 0.0 {
            format!(
                "{}{} warp instructions, {} of them tensor",
                bar(w / most_work, None, false),
                count(w as u64),
                count(r.execution.as_ref().map_or(0, |e| e.tensor_ops))
            )
        } else {
            "<span class=\"muted\">not executed here</span>".into()
        };
        vec![esc(&names[*i]), word(verdict(r.verdict)), error, resources, opcodes(r), executed]
    });
    let caption = format!(
        "At {shape}: error against its limit (the line), registers of 255, tensor opcodes in the machine code, work that was executed"
    );
    let mut text = table(
        &caption,
        &[
            ("kernel", Column::Text),
            ("verdict", Column::Text),
            ("error", Column::Bar),
            ("resources", Column::Bar),
            ("tensor opcodes", Column::Text),
            ("executed", Column::Bar),
        ],
        rows,
    );
    text.push_str(&para("Executed work explains a speed, it is no speed: the PTX machine has no clock."));
    if chosen.len() > MAX_KERNELS {
        text.push_str(&para(&format!(
            "The first {MAX_KERNELS} of {} kernels; all are in the table of results.",
            chosen.len()
        )));
    }
    text
}

fn entries(r: &ResultRecord) -> impl Iterator<Item = &warpsmith_spec::record::EntryRecord> {
    r.compile.get(&r.target).into_iter().flat_map(|e| e.values())
}

/// Tensor-core opcodes of all targets.
fn opcodes(r: &ResultRecord) -> String {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (target, entries) in &r.compile {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (op, n) in entries.values().flat_map(|e| &e.tensor_ops) {
            *counts.entry(op).or_default() += n;
        }
        let words: Vec<_> = counts.iter().map(|(op, n)| format!("{} &times; {n}", esc(op))).collect();
        if !words.is_empty() {
            found.entry(words.join(", ")).or_default().push(target);
        }
    }
    if found.is_empty() {
        return "<span class=\"muted\">none</span>".into();
    }
    found.iter().map(|(ops, targets)| format!("{ops} ({})", esc(&targets.join(", ")))).collect::<Vec<_>>().join("<br>")
}

/// The workload that most kernels were judged on, the largest of equals, and its results.
fn busiest(results: &[ResultRecord]) -> Option<(String, Vec<(usize, &ResultRecord)>)> {
    let mut by: BTreeMap<String, Vec<(usize, &ResultRecord)>> = BTreeMap::new();
    for (i, r) in results.iter().enumerate() {
        let mask = if r.causal { "causal" } else { "no mask" };
        by.entry(format!(
            "{} ({}), {mask}, {} {}{}",
            r.shape,
            dims(r),
            r.format,
            r.distribution,
            crate::rows::variant(r)
        ))
        .or_default()
        .push((i, r));
    }
    let work = |list: &[(usize, &ResultRecord)]| {
        list.iter().filter_map(|(_, r)| r.execution.as_ref()).map(|e| e.warp_instructions).max().unwrap_or(0)
    };
    // Where nothing was executed here, the largest problem.
    let size = |list: &[(usize, &ResultRecord)]| {
        list.first().map_or(0u128, |(_, r)| {
            r.symbols.values().fold(1, |n, v| n.saturating_mul(u128::try_from(*v).unwrap_or(1)))
        })
    };
    by.into_iter().max_by_key(|(_, list)| (list.len(), work(list), size(list)))
}

pub(super) fn dims(r: &ResultRecord) -> String {
    const ORDER: [&str; 8] = ["B", "H", "Hq", "Hkv", "S", "Sq", "Sk", "D"];
    let mut symbols: Vec<_> = r.symbols.iter().collect();
    symbols.sort_by_key(|(k, _)| ORDER.iter().position(|o| o == k).unwrap_or(ORDER.len()));
    symbols.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
}

/// Names that tell results of one run apart: configuration, or the levers in which a kernel's results differ.
pub(super) fn names(results: &[ResultRecord]) -> Vec<String> {
    let mut values: BTreeMap<(&str, &str), Vec<&warpsmith_spec::levers::LeverValue>> = BTreeMap::new();
    for r in results {
        for (lever, value) in &r.levers {
            let seen = values.entry((&r.candidate, lever)).or_default();
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
    }
    results
        .iter()
        .map(|r| {
            let mut name = crate::summary::short(r);
            if r.config.is_none() {
                for (lever, value) in &r.levers {
                    if values.get(&(r.candidate.as_str(), lever.as_str())).is_some_and(|v| v.len() > 1) {
                        name.push_str(&format!(" {lever}={value}"));
                    }
                }
            }
            name
        })
        .collect()
}

/// Every result.
pub(super) fn all(material: &Material) -> String {
    let results = &material.record.results;
    let mut text = String::new();
    if !results.is_empty() {
        let names = names(results);
        let any_time = results.iter().any(|r| measured(r).is_some());
        let rows = results.iter().enumerate().take(MAX_ROWS).map(|(i, r)| {
            let c = cells(r, &[]);
            let time = measured(r).and_then(|m| {
                m.preferred()
                    .map(|t| format!("{} us{}", figure(t.median_us), if m.replayed { " (replayed)" } else { "" }))
            });
            let mut row = vec![
                esc(&names[i]),
                word(&c[10]),
                esc(&c[1]),
                format!("<span class=\"nw\">{}</span>", esc(&c[2])),
                esc(&c[3]),
                esc(&c[4]),
                word(&c[5]),
                word(&c[6]),
                esc(&c[7]),
                esc(&c[8]),
                esc(&c[9]),
            ];
            if any_time {
                row.push(time.map_or_else(|| "<span class=\"muted\">not timed</span>".into(), |t| esc(&t)));
            }
            if r.cached {
                row[1].push_str(" *");
            }
            row
        });
        let mut head = vec![
            "kernel",
            "verdict",
            "shape",
            "dims",
            "mask",
            "inputs",
            "compile",
            "correct",
            "relF / limit",
            "worst row / limit",
            "registers, shared, spills",
        ];
        if any_time {
            head.push("time");
        }
        let head: Vec<(&str, Column)> = head.into_iter().map(|h| (h, Column::Text)).collect();
        let mut caption = String::from(
            "One row for each kernel, shape, mask and kind of inputs. relF and worst row are relative errors against f64 on the quantised inputs",
        );
        if results.iter().any(|r| r.cached) {
            caption.push_str(". * remembered: this very code was judged on these inputs before, by the same limits");
        }
        let table = table(&caption, &head, rows);
        text = if results.len() > OPEN {
            super::markup::details(&format!("{} results", results.len()), &table)
        } else {
            table
        };
        if results.len() > MAX_ROWS {
            text.push_str(&para(&format!("The first {MAX_ROWS} of {} results; summary.json has all.", results.len())));
        }
    }
    if !material.record.not_applicable.is_empty() {
        let mut by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for entry in &material.record.not_applicable {
            by.entry(&entry.why).or_default().push(format!("{} {}", entry.candidate, entry.shape));
        }
        let rows = by.into_iter().map(|(why, what)| vec![esc(why), esc(&what.join(", "))]);
        text.push_str(&table(
            "Not applicable: neither passed nor failed",
            &[("why", Column::Text), ("what", Column::Text)],
            rows,
        ));
    }
    text
}
