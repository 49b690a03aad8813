//! Whole loops on a made-up evaluator: they end, keep what is good, and are the same however often they are killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use warpsmith_evolve::driver::{Driver, Ended, Evaluator, Journal};
use warpsmith_evolve::outcome::{BaselineTimes, Baselined, Beside};
use warpsmith_evolve::rehearse::Table;
use warpsmith_evolve::request::{Against, LoopRequest, ProposerKind, ReplayLine, Rules};
use warpsmith_evolve::score::{Estimate, Gain, Score, ShapeTime, Timed};
use warpsmith_evolve::solution::{Levers, Operator};
use warpsmith_evolve::{Event, Judged, Solution, Space, State, Variant};
use warpsmith_spec::LeverValue;
use warpsmith_spec::record::{AcceptRecord, VerdictWord};

/// Three levers of three values and two of two, as the ladder's level 07 has; the cost couples two of them.
const LEVERS: [(&str, &[i64]); 5] =
    [("M", &[64, 32, 128]), ("N", &[64, 32, 128]), ("STAGES", &[2, 3, 4]), ("SWIZZLE", &[1, 0]), ("Q", &[1, 0])];

fn space() -> Space {
    let mut settings: Vec<Levers> = vec![Levers::new()];
    for (name, values) in LEVERS {
        settings = settings
            .iter()
            .flat_map(|s| {
                values.iter().map(|v| {
                    let mut s = s.clone();
                    s.insert(name.to_string(), LeverValue::Int(*v));
                    s
                })
            })
            .collect();
    }
    Space { settings }
}

fn cost(levers: &Levers) -> f64 {
    let of = |name: &str| levers[name].as_int().unwrap() as f64;
    let coupled = if of("M") == 128.0 && of("STAGES") == 4.0 { 1.4 } else { 1.0 };
    let m = match of("M") as i64 {
        32 => 1.6,
        64 => 1.2,
        _ => 1.0,
    };
    let n = match of("N") as i64 {
        32 => 1.5,
        64 => 1.0,
        _ => 1.1,
    };
    let stages = 1.3 - 0.1 * of("STAGES");
    let swizzle = if of("SWIZZLE") == 1.0 { 1.0 } else { 1.25 };
    let q = if of("Q") == 1.0 { 1.0 } else { 1.05 };
    1000.0 * m * n * stages * swizzle * q * coupled
}

/// Judges by [`cost`]; which levers are wrong is given. Counts what it is asked.
#[derive(Default)]
struct Made {
    wrong: BTreeMap<String, VerdictWord>,
    asked: AtomicU64,
    workers: usize,
}

impl Evaluator for Made {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let key = solution.levers.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",");
        let verdict =
            self.wrong.iter().find(|(k, _)| key.contains(k.as_str())).map_or(VerdictWord::Passed, |(_, v)| *v);
        let score = (verdict == VerdictWord::Passed).then(|| {
            Score::Estimate(
                Estimate::new("made", "made/1", [("one".to_string(), cost(&solution.levers))].into()).unwrap(),
            )
        });
        Ok(Judged {
            score,
            // Q is said to change nothing in the code, so that there are twins.
            code_sha256: Some(key.replace("Q=0,", "").replace("Q=1,", "")).filter(|_| self.workers == 9),
            seconds: 1.0,
            ..Judged::of(verdict)
        })
    }

    fn workers(&self) -> usize {
        self.workers.max(1)
    }
}

/// A journal in memory that fails after a number of events, as a kill does.
struct Dies {
    events: Vec<Event>,
    after: usize,
}

impl Journal for Dies {
    fn push(&mut self, event: &Event) -> Result<(), String> {
        if self.events.len() >= self.after {
            return Err("killed".into());
        }
        self.events.push(event.clone());
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<String, String> {
        Ok(text.len().to_string())
    }
}

fn request(seed: u64, evaluations: u64, variant: Variant) -> LoopRequest {
    LoopRequest {
        task: "made".into(),
        task_text: None,
        ceilings: None,
        shapes: vec![],
        target: "sm_89".into(),
        backend: "ptx_machine".into(),
        device: "made".into(),
        variant,
        population: variant.population(),
        proposer: ProposerKind::Levers,
        rules: Rules::default(),
        budget: evaluations.to_string().parse().unwrap(),
        fixes: 0,
        seed,
        batch: 2,
        space: space(),
        lessons: None,
        prompts: Default::default(),
        until_accepted: false,
        compared: Vec::new(),
        times_sha256: None,
    }
}

fn start(levers: Levers) -> Solution {
    Solution {
        id: 0,
        candidate: "made".into(),
        source_sha256: "0".into(),
        levers,
        parents: vec![],
        operator: Operator::Start,
        change: "start".into(),
        rationale: None,
    }
}

fn drive(events: Vec<Event>, made: &Made, after: usize) -> (Vec<Event>, Option<State>) {
    let state = State::fold(&events).unwrap();
    let mut journal = Dies { events, after };
    let mut driver = Driver { state, journal: &mut journal, evaluator: made, asker: None, observe: &mut |_, _| {} };
    let ended = driver.run(&|| false);
    let state = driver.state.clone();
    (journal.events, (ended.ok() == Some(Ended::Finished)).then_some(state))
}

fn whole(request: LoopRequest, from: Levers, made: &Made) -> (Vec<Event>, State) {
    let first = Event::Started { request: Box::new(request), start: Box::new(start(from)) };
    let (events, state) = drive(vec![first], made, usize::MAX);
    (events, state.expect("it ends"))
}

fn worst() -> Levers {
    space().settings.into_iter().max_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap()
}

fn optimum() -> f64 {
    space().settings.iter().map(cost).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_quarter_of_the_space_is_enough_from_the_worst_corner() {
    let quarter = space().settings.len() as u64 / 4;
    for variant in Variant::ALL {
        for seed in 0..20 {
            let (_, state) = whole(request(seed, quarter, variant), worst(), &Made::default());
            let best = state.score(state.best.unwrap()).unwrap().value();
            assert!(best <= 1.03 * optimum(), "{variant:?}, seed {seed}: {best} of {}", optimum());
            assert!(state.account.evaluations <= quarter);
        }
    }
}

#[test]
fn every_setting_is_tried_once_when_there_is_budget_for_all() {
    let (_, state) = whole(request(1, 1000, Variant::Free), worst(), &Made::default());
    assert_eq!(state.solutions.len(), space().settings.len());
    assert_eq!(state.finished.as_deref(), Some("every setting of the levers was tried"));
    let tried: std::collections::BTreeSet<_> = state.solutions.iter().map(|s| s.levers.clone()).collect();
    assert_eq!(tried.len(), space().settings.len());
}

#[test]
fn killed_at_every_event_it_arrives_where_an_undisturbed_loop_does() {
    let made = || Made { wrong: [("N=128".to_string(), VerdictWord::Faulted)].into(), ..Made::default() };
    let (events, undisturbed) = whole(request(7, 20, Variant::Full), worst(), &made());
    for kill in 1..events.len() {
        let (first, ended) = drive(events[..1].to_vec(), &made(), kill);
        assert!(ended.is_none() && first.len() == kill);
        let (_, resumed) = drive(first, &made(), usize::MAX);
        let resumed = resumed.unwrap();
        assert!(resumed == undisturbed, "killed at event {kill}");
    }
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let one = whole(request(3, 30, Variant::Full), worst(), &Made { workers: 1, ..Made::default() }).0;
    let eight = whole(request(3, 30, Variant::Full), worst(), &Made { workers: 8, ..Made::default() }).0;
    assert!(one == eight);
}

#[test]
fn only_what_passed_is_kept() {
    let wrong: BTreeMap<String, VerdictWord> = [
        ("N=64".to_string(), VerdictWord::Incorrect),
        ("M=128".to_string(), VerdictWord::Rejected),
        ("STAGES=4".to_string(), VerdictWord::TimedOut),
    ]
    .into();
    let (_, state) = whole(request(5, 60, Variant::Full), worst(), &Made { wrong, ..Made::default() });
    assert!(!state.archive.members().is_empty());
    for member in state.archive.members() {
        assert_eq!(state.judged[&member.id].verdict, VerdictWord::Passed);
    }
    assert!(state.judged[&state.best.unwrap()].passed());
    let counted = warpsmith_evolve::record(&state, run(), environment()).verdicts;
    assert!(counted["incorrect"] > 0 && counted.values().sum::<u64>() == state.account.evaluations, "{counted:?}");
}

#[test]
fn the_same_code_under_other_levers_is_no_evaluation() {
    let (_, state) = whole(request(2, 1000, Variant::Free), worst(), &Made { workers: 9, ..Made::default() });
    assert_eq!(state.solutions.len(), 108);
    assert_eq!(state.account.evaluations, 54);
    assert_eq!(state.judged.values().filter(|j| j.duplicate_of.is_some()).count(), 54);
}

#[test]
fn a_loop_where_nothing_passes_ends_with_an_empty_archive() {
    let wrong = [("M=".to_string(), VerdictWord::CompileFailed)].into();
    let (_, state) = whole(request(4, 10, Variant::Insight), worst(), &Made { wrong, ..Made::default() });
    assert!(state.best.is_none() && state.archive.members().is_empty());
    assert_eq!(state.account.evaluations, 10);
    let record = warpsmith_evolve::record(&state, run(), environment());
    assert!(record.best.is_none() && record.start.is_some_and(|s| s.estimate.is_none()));
}

#[test]
fn a_replay_judges_its_lines_in_order_and_refuses_repeats() {
    let all = space().settings;
    let line = |i: usize| ReplayLine { candidate: "made".into(), source_sha256: "0".into(), levers: all[i].clone() };
    let mut request = request(0, 100, Variant::Free);
    request.proposer = ProposerKind::Replay { lines: vec![line(3), line(4), line(3), line(50)] };
    let (_, state) = whole(request, all[0].clone(), &Made::default());
    assert_eq!(state.solutions.iter().map(|s| &s.levers).collect::<Vec<_>>(), [&all[0], &all[3], &all[4], &all[50]]);
    assert_eq!((state.refusals.len(), state.account.evaluations), (1, 4));
}

#[test]
fn the_record_gives_start_best_and_gain() {
    let (_, state) = whole(request(7, 27, Variant::Free), worst(), &Made::default());
    let record = warpsmith_evolve::record(&state, run(), environment());
    let (start, best) = (record.start.unwrap(), record.best.unwrap());
    assert!(
        (best.gain.unwrap() - start.estimate.as_ref().unwrap().value / best.estimate.as_ref().unwrap().value).abs()
            < 1e-9
    );
    assert_eq!(best.estimate.unwrap().unit, "model_cycles");
    assert_eq!(best.time_us, None);
}

fn run() -> warpsmith_spec::record::RunInfo {
    serde_json::from_value(serde_json::json!({"name": "x", "command": [], "started": "", "warpsmith": "0"})).unwrap()
}

fn environment() -> warpsmith_spec::record::Environment {
    serde_json::from_value(serde_json::json!({"os": "linux", "arch": "x", "cpus": 1})).unwrap()
}

/// Level 07's space as it might be timed: three shapes that disagree a little, half a per cent of noise.
fn times(levers: &Levers) -> Timed {
    let of = |name: &str| levers[name].as_int().unwrap() as f64;
    let shapes = [("tiny", 0.01, 1.3), ("mission", 0.02, 1.0), ("long", 0.1, 0.9)].map(|(name, scale, small)| {
        // Large tiles do not fill the device at the small shape.
        let median_us = cost(levers) * scale * if of("M") == 128.0 { small } else { 1.0 };
        (name.to_string(), ShapeTime { median_us, low_us: median_us * 0.995, high_us: median_us * 1.005 })
    });
    Timed::new("made", "graph_cold", shapes.into()).unwrap()
}

#[test]
fn on_exhaustive_times_a_quarter_of_the_evaluations_comes_within_3_percent() {
    let rows: Vec<_> = space().settings.into_iter().map(|l| (l.clone(), Some(times(&l)))).collect();
    let quarter = rows.len() as u64 / 4;
    let table = Table { rows };
    for variant in Variant::ALL {
        for seed in 0..5 {
            let found = table.rehearse(variant, seed, quarter).unwrap();
            assert!(found.best_by_optimum <= 1.03, "{found:?}");
            assert!(found.evaluations <= quarter && found.within_3_percent_after.is_some(), "{found:?}");
        }
    }
    assert!(Table { rows: vec![(Levers::new(), None)] }.rehearse(Variant::Free, 0, 3).is_err());
}

/// Times, with a code for each setting, and a winner that may fail when it is measured once more.
#[derive(Default)]
struct OnADevice {
    /// Settings whose second measurement finds them wrong, so many of the fastest.
    unmasked: usize,
    /// Baselines are this much faster in common rounds than when the loop began.
    faster_later: Option<f64>,
    evaluated: AtomicU64,
    remeasured: AtomicU64,
}

impl OnADevice {
    /// Q is said to change nothing in the code.
    fn code(levers: &Levers) -> String {
        levers.iter().filter(|(k, _)| *k != "Q").map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
    }
}

impl Evaluator for OnADevice {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        Ok(Judged {
            score: Some(Score::Timed(times(&solution.levers))),
            code_sha256: Some(OnADevice::code(&solution.levers)),
            gpu_seconds: 0.5,
            accept: criterion(times(&solution.levers).time_us),
            ..Judged::of(VerdictWord::Passed)
        })
    }

    fn code(&self, solution: &Solution) -> Option<String> {
        Some(OnADevice::code(&solution.levers))
    }

    fn baseline(&self, beside: &Solution) -> Result<Baselined, String> {
        let times = BaselineTimes { us: [("tiny".to_string(), 100.0)].into(), ..BaselineTimes::default() };
        Ok(Baselined {
            baselines: [("peer:x".to_string(), times)].into(),
            accept: criterion(times_of(beside)),
            seconds: 1.0,
            gpu_seconds: 0.0,
        })
    }

    fn remeasure(&self, solution: &Solution, beside: &[Solution]) -> Result<Judged, String> {
        let before = self.remeasured.fetch_add(1, Ordering::Relaxed) as usize;
        if before < self.unmasked {
            return Ok(Judged::of(VerdictWord::Rejected));
        }
        let (own, gain) = (times(&solution.levers), |ratio| Gain { ratio, low: ratio * 0.99, high: ratio * 1.01 });
        let beside = beside.iter().map(|o| Beside {
            of: o.id,
            gain: gain(times(&o.levers).time_us / own.time_us),
            shapes: BTreeMap::new(),
        });
        Ok(Judged {
            beside: beside.collect(),
            accept: criterion(own.time_us * self.faster_later.unwrap_or(1.0)),
            score: Some(Score::Timed(own)),
            gpu_seconds: 2.0,
            ..Judged::of(VerdictWord::Passed)
        })
    }
}

fn times_of(solution: &Solution) -> f64 {
    times(&solution.levers).time_us
}

/// Of a baseline of 100 us.
fn criterion(us: f64) -> Vec<AcceptRecord> {
    let status = if us < 50.0 { "held" } else { "missed" };
    let (criterion, target) = ("speedup(peer:x) >= 2".into(), ">= 2".into());
    vec![AcceptRecord { criterion, target, actual: Some(100.0 / us), status: status.into() }]
}

fn on_a_device(request: LoopRequest, device: &OnADevice) -> State {
    let first = Event::Started { request: Box::new(request), start: Box::new(start(worst())) };
    let state = State::fold(std::slice::from_ref(&first)).unwrap();
    let mut journal = Dies { events: vec![first], after: usize::MAX };
    let mut driver = Driver { state, journal: &mut journal, evaluator: device, asker: None, observe: &mut |_, _| {} };
    assert_eq!(driver.run(&|| false).unwrap(), Ended::Finished);
    let state = driver.state.clone();
    assert_eq!(warpsmith_evolve::rerun::differences(&journal.events, None), None);
    assert_eq!(State::fold(&journal.events).unwrap(), state);
    state
}

#[test]
fn the_winner_is_measured_again_beside_start_and_parent_and_that_is_its_figure() {
    let device = OnADevice::default();
    let state = on_a_device(request(3, 40, Variant::Free), &device);
    let record = warpsmith_evolve::record(&state, run(), environment());
    let best = record.best.unwrap();
    let of: Vec<u64> = best.beside.iter().map(|b| b.of).collect();
    assert!(of[0] == 0 && of.len() == 2 && of[1] == best.parents[0], "{best:?}");
    assert_eq!(best.gain, Some(best.beside[0].gain.ratio));
    assert_eq!(best.gain_interval, Some([best.gain.unwrap() * 0.99, best.gain.unwrap() * 1.01]));
    assert!(best.estimate.is_none() && best.time_us.is_some());
    // What was measured is paid for, twins within a batch too.
    let measured = device.evaluated.load(Ordering::Relaxed);
    assert!(measured >= state.account.evaluations);
    assert_eq!(state.account.gpu_seconds, 0.5 * measured as f64 + 2.0);
}

#[test]
fn a_winner_that_fails_then_is_none() {
    let device = OnADevice { unmasked: 2, ..OnADevice::default() };
    let state = on_a_device(request(3, 40, Variant::Full), &device);
    assert_eq!(device.remeasured.load(Ordering::Relaxed), 3);
    let failed: Vec<u64> = state.remeasured.iter().filter(|(_, j)| !j.passed()).map(|(id, _)| *id).collect();
    let best = state.best.unwrap();
    assert!(failed.len() == 2 && !failed.contains(&best) && state.remeasured[&best].passed());
    assert!(state.archive.members().iter().all(|m| !failed.contains(&m.id)));
    assert_eq!(warpsmith_evolve::record(&state, run(), environment()).verdicts["rejected"], 2);
}

#[test]
fn code_that_was_judged_before_is_not_judged_again() {
    let device = OnADevice::default();
    let state = on_a_device(request(2, 1000, Variant::Free), &device);
    // Twins of one batch are only seen when both are there.
    let (asked, evaluations) = (device.evaluated.load(Ordering::Relaxed), state.account.evaluations);
    assert_eq!((state.solutions.len(), evaluations), (108, 54));
    assert!((54..70).contains(&asked), "{asked}");
}

#[test]
fn what_the_task_demands_can_end_the_loop() {
    let until = LoopRequest { until_accepted: true, ..request(2, 100, Variant::Free) };
    let state = on_a_device(until, &OnADevice::default());
    let best = state.best.unwrap();
    assert_eq!(state.finished, Some(format!("#{best} holds all criteria of acceptance of the task")));
    assert!(state.account.evaluations < 54 && state.judged[&best].accepted());
    // Without being asked for, it goes on.
    assert_eq!(on_a_device(request(2, 1000, Variant::Free), &OnADevice::default()).account.evaluations, 54);
}

/// What seems to hold while it is divided by times of the beginning does not end the loop; what holds in common rounds does.
#[test]
fn only_a_measurement_in_common_rounds_accepts() {
    let until =
        || LoopRequest { until_accepted: true, compared: vec!["peer:x".into()], ..request(2, 100, Variant::Free) };
    for (later, ends) in [(1.0, true), (1.5, true), (100.0, false)] {
        let device = || OnADevice { faster_later: Some(later), ..OnADevice::default() };
        let first = Event::Started { request: Box::new(until()), start: Box::new(start(worst())) };
        let go_on = |events: Vec<Event>, after: usize| {
            let device = device();
            let state = State::fold(&events).unwrap();
            let mut journal = Dies { events, after };
            let observe = &mut |_: &Event, _: &State| {};
            let mut driver = Driver { state, journal: &mut journal, evaluator: &device, asker: None, observe };
            let ended = driver.run(&|| false).is_ok();
            (driver.state.clone(), ended, journal.events)
        };
        let (state, _, events) = go_on(vec![first.clone()], usize::MAX);
        assert_eq!(warpsmith_evolve::rerun::differences(&events, None), None);
        let best = state.best.unwrap();
        let timed = events.iter().filter(|e| matches!(e, Event::Baselined { .. })).count();
        assert_eq!((timed, state.finished.as_deref().unwrap().contains("holds all criteria")), (1, ends), "{later}");
        assert_eq!(state.remeasured[&best].accepted(), ends, "{later}");
        let record = warpsmith_evolve::record(&state, run(), environment());
        assert!(!record.provisional && record.baselines.contains_key("peer:x"));
        assert_eq!(record.accept[0].status == "held", ends);
        let in_vain = state.remeasured.values().any(|again| !again.accepted());
        assert!(in_vain || ends, "none seemed to hold");
        for kill in (1..events.len()).step_by((events.len() / 8).max(1)) {
            let (_, ended, cut) = go_on(vec![first.clone()], kill);
            assert!(!ended);
            let resumed = go_on(cut, usize::MAX).0;
            // A twin that a kill parted from its batch is not measured again: only what was spent may differ.
            let told = |s: &State| (s.solutions.clone(), s.statuses.clone(), s.best, s.finished.clone());
            assert_eq!(told(&resumed), told(&state), "killed at event {kill}");
            assert_eq!((&resumed.archive, &resumed.baselined), (&state.archive, &state.baselined), "{kill}");
            assert_eq!(resumed.remeasured, state.remeasured, "killed at event {kill}");
        }
    }
}

#[test]
fn an_elite_that_nobody_may_enter_stays_empty_and_the_search_goes_on() {
    let rules = Rules { elite_min_speedup: 100.0, ..Rules::default() };
    let state = on_a_device(LoopRequest { rules, ..request(2, 20, Variant::Full) }, &OnADevice::default());
    assert!(state.archive.members().is_empty() && state.best.is_some_and(|b| b != 0));
    let demanding = Rules { elite_min_speedup: 1.5, ..Rules::default() };
    let state = on_a_device(LoopRequest { rules: demanding, ..request(2, 40, Variant::Full) }, &OnADevice::default());
    let start = state.score(0).unwrap().clone();
    assert!(!state.archive.members().is_empty());
    for member in state.archive.members() {
        assert!(state.score(member.id).unwrap().gain_over(&start).unwrap().ratio >= 1.5);
    }
    // Against its parent a solution has to be better than the better one of two.
    let rules = Rules { elite_min_speedup: 1.1, elite_against: Against::Parent, ..Rules::default() };
    let state = on_a_device(LoopRequest { rules, ..request(2, 40, Variant::Full) }, &OnADevice::default());
    assert!(!state.archive.members().is_empty());
    for member in state.archive.members() {
        for parent in &state.solutions[member.id as usize].parents {
            let gain = state.score(member.id).unwrap().gain_over(state.score(*parent).unwrap()).unwrap();
            assert!(gain.ratio >= 1.1, "{gain:?}");
        }
    }
}
