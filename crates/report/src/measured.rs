//! A result's measurement as the reports read it: by the words of the record, whatever else a measurement holds.
//!
//! It makes no figure of its own. A replayed measurement (`backend: fake`) is never called a time.

use serde_json::Value;
use warpsmith_spec::record::{ResultRecord, is_peer};

/// Methods in the order in which reports prefer them; a ratio is only ever within one.
pub(crate) const METHODS: [&str; 4] = ["graph_cold", "graph_warm", "event", "eager"];

/// One method's samples in short.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timing {
    pub method: String,
    pub median_us: f64,
    pub p10_us: f64,
    pub p90_us: f64,
    pub n: u64,
    /// Empty where the record names a file instead.
    pub samples: Vec<f64>,
}

/// What a baseline was, beside ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Against {
    pub name: String,
    /// Baseline's time / ours, with its interval.
    pub ratio: Option<(f64, f64, f64)>,
    pub class: String,
    pub timings: Vec<Timing>,
    pub missing: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub device: Option<String>,
    /// The method that ratios are of.
    pub method: Option<String>,
    /// Clocks, throttling, power: name and value.
    pub conditions: Vec<(String, String)>,
    pub timings: Vec<Timing>,
    pub baselines: Vec<Against>,
    /// Launches, and whether all gave the same bits.
    pub stability: Option<(u64, Option<bool>)>,
    pub replayed: bool,
}

impl Measured {
    pub fn timing(&self, method: &str) -> Option<&Timing> {
        self.timings.iter().find(|t| t.method == method)
    }

    /// The fastest of other people's kernels beside it; where none was timed, the fastest baseline of any kind.
    pub fn rival(&self) -> Option<(&Against, (f64, f64, f64))> {
        let usable = |peer: bool| {
            let of = self.baselines.iter().filter(move |b| !peer || is_peer(&b.name));
            of.filter_map(|b| Some((b, b.ratio?))).min_by(|a, b| a.1.0.total_cmp(&b.1.0))
        };
        usable(true).or_else(|| usable(false))
    }

    /// The method that the ratios are of, else the first of [`METHODS`] that was measured.
    pub fn preferred(&self) -> Option<&Timing> {
        let named = self.method.as_deref().and_then(|m| self.timing(m));
        named.or_else(|| METHODS.iter().find_map(|m| self.timing(m))).or(self.timings.first())
    }
}

pub(crate) fn measured(result: &ResultRecord) -> Option<Measured> {
    let value = serde_json::to_value(result.measurement.as_ref()?).ok()?;
    let conditions = value.get("conditions").and_then(Value::as_object);
    let stability = value.get("stability");
    let found = Measured {
        device: text(&value, "device").filter(|d| !d.is_empty()),
        method: text(&value, "method").filter(|m| !m.is_empty()),
        conditions: conditions
            .map(|c| c.iter().filter_map(|(k, v)| Some((k.clone(), plain(v)?))).collect())
            .unwrap_or_default(),
        timings: timings(&value),
        baselines: value
            .get("baselines")
            .and_then(Value::as_object)
            .map(|all| all.iter().map(|(name, b)| against(name, b)).collect())
            .unwrap_or_default(),
        stability: stability
            .and_then(|s| Some((s.get("launches")?.as_u64()?, s.get("identical").and_then(Value::as_bool)))),
        replayed: result.backend == "fake",
    };
    (!found.timings.is_empty() || !found.baselines.is_empty()).then_some(found)
}

fn against(name: &str, value: &Value) -> Against {
    let number = |key: &str| value.get(key).and_then(Value::as_f64).filter(|x| x.is_finite() && *x > 0.0);
    let ratio = number("ratio");
    Against {
        name: name.to_string(),
        ratio: ratio.map(|r| (r, number("ratio_low").unwrap_or(r), number("ratio_high").unwrap_or(r))),
        class: text(value, "class").unwrap_or_default(),
        timings: timings(value),
        missing: text(value, "missing"),
    }
}

fn timings(value: &Value) -> Vec<Timing> {
    let Some(methods) = value.get("methods").and_then(Value::as_object) else { return Vec::new() };
    let mut found: Vec<Timing> = methods
        .iter()
        .filter_map(|(method, m)| {
            let number = |key: &str| m.get(key).and_then(Value::as_f64).filter(|x| x.is_finite() && *x > 0.0);
            let median_us = number("median_us")?;
            let samples: Vec<f64> = m
                .get("samples")
                .and_then(Value::as_array)
                .map(|s| s.iter().filter_map(Value::as_f64).filter(|x| x.is_finite() && *x > 0.0).collect())
                .unwrap_or_default();
            Some(Timing {
                method: method.clone(),
                median_us,
                p10_us: number("p10_us").unwrap_or(median_us),
                p90_us: number("p90_us").unwrap_or(median_us),
                n: m.get("n").and_then(Value::as_u64).unwrap_or(samples.len() as u64),
                samples,
            })
        })
        .collect();
    found.sort_by_key(|t| METHODS.iter().position(|m| *m == t.method).unwrap_or(METHODS.len()));
    found
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(plain)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => {
            Some(n.as_f64().map_or_else(|| n.to_string(), |x| format!("{}", (x * 10.0).round() / 10.0)))
        }
        Value::Bool(b) => Some(if *b { "yes".into() } else { "no".into() }),
        _ => None,
    }
}

/// Conditions in the order in which people look at them; others follow by name.
pub(crate) const CONDITIONS: [&str; 5] = ["sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttled"];

/// A condition for people, its value in words.
pub(crate) fn condition(key: &str, value: &str) -> String {
    match (key, value) {
        ("sm_mhz", v) => format!("SM {v} MHz"),
        ("memory_mhz", v) => format!("memory {v} MHz"),
        ("power_w", v) => format!("{v} W"),
        ("temperature_c", v) => format!("{v} \u{b0}C"),
        ("throttled", "no") => "clocks not held down".into(),
        ("throttled", v) => format!("clocks held down: {v}"),
        (other, v) => format!("{} {v}", other.replace('_', " ")),
    }
}
