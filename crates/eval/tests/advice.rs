//! Gate 4 over the ladder without a GPU: what is advised for a level agrees with what the next level gained when it was measured.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_compile::{Compiler, Layer, ToolError};
use warpsmith_eval::profile::gate::{Imported, read_raw};
use warpsmith_eval::profile::ncu::unavailable;
use warpsmith_eval::profile::rules::Rules;
use warpsmith_eval::profile::{Machinery, profile};
use warpsmith_eval::{CompileGate, Context, Layered, NumericsChoice, Oracles, PtxMachine, Subject};
use warpsmith_spec::record::{GateStatus, ResultRecord};
use warpsmith_spec::workload::{WorkloadRequest, expand};
use warpsmith_spec::{TaskSet, target};

/// The lever that each level pulls, which its header and the README's table name.
const LEVERS: [(&str, &str); 8] = [
    ("level_01", "tensor_cores"),
    ("level_02", "async_copy"),
    ("level_03", "tensor_cores"),
    ("level_04", "scores_in_registers"),
    ("level_05", "swizzle"),
    ("level_06", "more_stages"),
    ("level_07", "fp8_mma"),
    ("level_08", "fewer_barriers"),
];
/// How far a measured gain may lie outside of what was expected.
const SLACK: f64 = 1.12;
/// A gain that advice must not have missed.
const LARGE: f64 = 1.25;

fn nothing(_: &[u8]) -> Option<String> {
    None
}

/// Each level at one shape, for the measured device's target, through gates 1, 2 and 4. With `counted`: that one level, with these counters.
fn ladder(tasks: &TaskSet, counted: Option<(&str, &Imported)>) -> BTreeMap<String, ResultRecord> {
    let layer: &'static Layer = Box::leak(Box::new(Layer::from_bytes(warpsmith_builtin::layer()).unwrap()));
    let artifacts = Layered::new(Some(layer), |request| {
        Err::<Arc<Compiler>, _>(ToolError::BadRequest { what: format!("{} is not in the layer", request.name) })
    });
    let compile = CompileGate::new(&artifacts, Arc::new(warpsmith_builtin::headers()));
    let (oracles, backend, rules) = (Oracles::with_fresh_rows(), PtxMachine::new(0), Rules::built_in());
    let context = Context {
        compile: &compile,
        backend: &backend,
        oracles: &oracles,
        numerics: NumericsChoice::Fast,
        passes: None,
        compile_only: false,
        sanitizer: None,
    };
    let machinery = Machinery {
        rules: &rules,
        tools: Err(unavailable("no-device", "there is no device", "")),
        launches: None,
        import: counted.map(|(_, imported)| imported),
        disassemble: &nothing,
        sources: &|s: &Subject| vec![(s.canonical.clone(), s.candidate.source.clone())],
    };
    let sm_90 = target::find("sm_90").unwrap();
    let mut found = BTreeMap::new();
    for candidate in warpsmith_builtin::kernels(tasks).unwrap() {
        if !candidate.stem().starts_with("level_") || counted.is_some_and(|(level, _)| level != candidate.stem()) {
            continue;
        }
        let task = Arc::new(tasks.find(&candidate.task).unwrap().clone());
        let request = WorkloadRequest { shapes: vec!["1x1x128x64".into()], ..WorkloadRequest::default() };
        let workload = expand(&task, &candidate, &request).unwrap().into_iter().find(|w| !w.causal).unwrap();
        let stem = candidate.stem().to_string();
        let setting = candidate.default_setting();
        let canonical = warpsmith_builtin::canonical_name(&candidate.name).to_string();
        let subject = Subject { candidate: Arc::new(candidate), task, canonical, include_root: None };
        let done = profile(&context, &machinery, &subject, &setting, &workload, sm_90).unwrap();
        found.insert(stem, done.record);
    }
    found
}

/// Two runs on an H200, hours apart.
const JOURNALS: [&str; 2] = [
    include_str!("../../../benches/results/2026-11-22-h200-ladder.json"),
    include_str!("../../../benches/results/2026-11-22-h200-second-ladder.json"),
];

/// Gains of each level over the one before, as measured on an H200 at the mission shape without a mask.
fn measured(journal: &str) -> BTreeMap<String, f64> {
    let journal: Value = serde_json::from_str(journal).unwrap();
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for r in journal["results"].as_array().unwrap().iter().filter(|r| r["shape"] == "mission" && r["causal"] == false) {
        let name = r["candidate"].as_str().unwrap().to_string();
        times.insert(name, r["measurement"]["methods"]["graph_cold"]["median_us"].as_f64().unwrap());
    }
    let all: Vec<(&String, &f64)> = times.iter().collect();
    all.windows(2).map(|w| (w[1].0.clone(), w[0].1 / w[1].1)).collect()
}

#[test]
fn advice_for_a_level_agrees_with_what_the_next_one_gained() {
    let tasks = warpsmith_builtin::tasks().unwrap();
    let ladder = ladder(&tasks, None);
    let levels: Vec<&String> = ladder.keys().collect();
    assert_eq!(levels.len(), 9, "{levels:?}");
    let mut wrong = Vec::new();
    for (before, (after, lever)) in levels.iter().zip(LEVERS) {
        let record = &ladder[*before];
        let profile = record.profile.as_ref().unwrap();
        assert_eq!(record.gates.profile, GateStatus::Unavailable, "no counters, no pass");
        assert!(profile.bound.as_ref().is_some_and(|b| b.source == "executed_work"), "{before}: {:?}", profile.bound);
        assert!(profile.entries[0].occupancy.as_ref().is_some_and(|o| o.warps > 0), "{before}");
        let at = profile.advice.iter().position(|a| a.lever == lever);
        // What is not advised is expected to gain nothing.
        let [low, high] = at.map_or([0.85, 1.05], |at| profile.advice[at].gain);
        for gain in JOURNALS.map(|j| measured(j)[after]) {
            let inside = gain > low / SLACK && gain < high * SLACK;
            let seen = gain < LARGE || at.is_some_and(|at| at < 3);
            if !(inside && seen) {
                let named: Vec<&str> = profile.advice.iter().map(|a| a.lever.as_str()).collect();
                let figures = record.profile.as_ref().map(|p| &p.bound);
                wrong.push(format!("{before} -> {after}: {lever} gained {gain:.2}, expected {low} to {high}; advised {named:?}; {figures:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What ncu counted on an H200 (2026-11-22) of the first level and of the last but one.
#[test]
fn counters_of_an_h200_lead_to_the_levers_that_won_there_and_not_to_those_that_lost() {
    let tasks = warpsmith_builtin::tasks().unwrap();
    let rows = [
        // The next level gained 1.64 by tensor cores, the one after it 1.30 by asynchronous copies.
        (
            "level_00",
            include_str!("fixtures/h200_level_00_raw.csv"),
            "tensor_cores",
            &["async_copy"][..],
            &["wgmma"][..],
        ),
        // The next level's roles and named barriers lost a tenth; the product kernel, 3 times as fast there, has more CTAs and warpgroups.
        (
            "level_07",
            include_str!("fixtures/h200_level_07_raw.csv"),
            "split_kv",
            &["wgmma"],
            &["fewer_barriers", "fp8_mma", "more_stages"],
        ),
    ];
    for (level, raw, first, more, not) in rows {
        let (counters, capability) = read_raw(raw).unwrap();
        let imported = Imported { counters, capability, ..Imported::default() };
        let record = &ladder(&tasks, Some((level, &imported)))[level];
        let profile = record.profile.as_ref().unwrap();
        let named: Vec<&str> = profile.advice.iter().map(|a| a.lever.as_str()).collect();
        let bound = profile.bound.as_ref().unwrap();
        assert_eq!((bound.word.as_str(), bound.source.as_str()), ("latency", "counters"), "{level}: {bound:?}");
        assert_eq!(named[0], first, "{level}: {named:?}");
        assert!(more.iter().all(|l| named.contains(l)) && not.iter().all(|l| !named.contains(l)), "{level}: {named:?}");
    }
}
