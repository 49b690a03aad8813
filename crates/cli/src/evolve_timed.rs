//! Gates 1 to 3 as a loop's evaluator: times from GPUs, here or behind `--on`, or from a file that replays them.
//!
//! Each device takes one solution at a time; what needs none (compiling, the smallest workload on the PTX machine, which sees races that a
//! GPU does not show) is done beside it. A connection that is lost costs the attempt that it cut off: it is made again, and its seconds are
//! counted. What the task's criteria compare with is timed once, when the loop begins; the winner is measured once more in common rounds with
//! that, the start and what it came from. Limits: intervals between two
//! evaluations are of two measurements, and are widened by what two times of the same thing differ by.

use crate::args::{BackendArg, Common, EvolveArgs};
use crate::cmd::bench::{self as bench_command, Timer};
use crate::error::CliError;
use crate::evolve::{GateEvaluator, accept, shape_name, take};
use crate::{interrupt, on};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use warpsmith_eval::bench::peers::{FakePeers, NoPeers, Peers};
use warpsmith_eval::bench::{
    self, BenchContext, BenchEvent, BenchRequest, Fake, FakeFile, Length, Method, Plan, TimedInputs, fresh_secret,
    stats,
};
use warpsmith_eval::pipeline::RunRequest;
use warpsmith_eval::worker::GpuBackend;
use warpsmith_eval::{Context, EvalError, NumericsChoice, Subject};
use warpsmith_evolve::driver::Evaluator;
use warpsmith_evolve::outcome::{BaselineTimes, Baselined, Beside, Brief};
use warpsmith_evolve::score::{Gain, Score, ShapeTime, Timed, geometric_mean};
use warpsmith_evolve::{Judged, LoopRequest, Solution};
use warpsmith_spec::accept::Figure;
use warpsmith_spec::record::{BaselineRecord, GateStatus, ResultRecord, VerdictWord, is_peer};
use warpsmith_spec::task::Task;
use warpsmith_spec::workload::Workload;
use warpsmith_spec::{Setting, WorkloadRequest, speedups};

/// By which solutions are compared.
const METHOD: Method = Method::GraphCold;
/// Seconds for each subject and workload: of the search, and of the winner's measurement.
const SECONDS: f64 = 0.12;
const SECONDS_AGAIN: f64 = 0.5;
/// Launches that a solution of the search is tried with; the winner's trial is that of `bench`.
const LAUNCHES: u64 = 500;
/// Seconds that one request to the device may take.
const REQUEST_SECONDS: u64 = 30;
/// Attempts at one evaluation whose connection is lost.
const ATTEMPTS: usize = 3;
const LOST: &str = "connection-lost";

/// The devices of a loop.
pub struct Timing {
    devices: Vec<Timer>,
    /// Those that nobody has.
    free: Mutex<Vec<usize>>,
    back: Condvar,
    secret: u64,
    /// Of the timed inputs, which all solutions share.
    inputs: TimedInputs,
    /// The text of the file that replays times, where one does.
    pub file: Option<String>,
}

impl Timing {
    /// The devices that the command line asks for. None: the loop ranks by the estimate.
    pub fn of(common: &Common, args: &EvolveArgs) -> Result<Option<Timing>, CliError> {
        let seed = args.seed;
        match &args.backend {
            BackendArg::Cpu if common.on.is_some() => Err(on::not_on_the_cpu()),
            BackendArg::Cpu => Ok(None),
            BackendArg::Fake(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|e| CliError::usage("unknown-name", format!("cannot read {}: {e}", file.display())))?;
                let devices = (0..args.workers.unwrap_or(1).clamp(1, 64))
                    .map(|_| bench_command::fake(common, file).map(|fake| Timer::Fake(Box::new(fake))))
                    .collect::<Result<_, _>>()?;
                Ok(Some(Timing::new(devices, Some(text), seed)))
            }
            // Who names the estimate's device wants an estimate.
            BackendArg::Auto if args.estimate_for.is_some() && common.on.is_none() => Ok(None),
            BackendArg::Auto | BackendArg::Gpu => {
                let wanted = args.backend == BackendArg::Gpu || common.on.is_some() || common.fake_device;
                match gpus(common, &args.devices, common.fake_device) {
                    Ok(devices) => Ok(Some(Timing::new(devices, None, seed))),
                    Err(_) if !wanted && args.devices.is_empty() => Ok(None),
                    Err(e) => Err(e.hint("without a GPU a loop ranks by an estimate: --backend cpu")),
                }
            }
        }
    }

    /// Those of a loop that is gone on with: the file's times are the ones that it began with.
    pub fn again(
        common: &Common,
        args: &EvolveArgs,
        request: &LoopRequest,
        text: Option<String>,
    ) -> Result<Option<Timing>, CliError> {
        let timing = match (request.backend.as_str(), text) {
            ("ptx_machine", _) => return Ok(None),
            (_, Some(text)) => {
                // A file of JSON is told from one of TOML by its first sign.
                let name = if text.trim_start().starts_with('{') { "times.json" } else { "times.toml" };
                let fake = || FakeFile::parse(name, &text).map(|file| Timer::Fake(Box::new(Fake::new(file))));
                let devices = (0..args.workers.unwrap_or(1).clamp(1, 64)).map(|_| fake()).collect::<Result<_, _>>()?;
                Timing::new(devices, Some(text.clone()), request.seed)
            }
            (word, None) => Timing::new(gpus(common, &args.devices, word == "fake")?, None, request.seed),
        };
        if timing.device_name() != request.device {
            return Err(CliError::usage(
                "wrong-usage",
                format!("the loop's times are of {}, and this is {}", request.device, timing.device_name()),
            )
            .hint("times of two devices are not compared: go on with it where it began"));
        }
        Ok(Some(timing))
    }

    fn new(devices: Vec<Timer>, file: Option<String>, seed: u64) -> Timing {
        // Replayed times depend on the loop's seed alone; on a device nobody can know which inputs come.
        let secret = if file.is_some() { seed ^ 0x6c6f_6f70 } else { fresh_secret() };
        Timing {
            free: Mutex::new((0..devices.len()).rev().collect()),
            back: Condvar::new(),
            devices,
            secret,
            inputs: TimedInputs::of(secret),
            file,
        }
    }

    /// `gpu` | `fake`
    pub fn word(&self) -> &'static str {
        self.devices.first().map_or("gpu", |d| d.backend().word())
    }

    pub fn device_name(&self) -> String {
        self.devices.first().map(|d| d.timed().device_name()).unwrap_or_default()
    }

    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Targets that the devices run, the most specific first.
    pub fn targets(&self) -> Vec<String> {
        self.devices.first().map(Timer::targets).unwrap_or_default()
    }

    fn take(&self) -> usize {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match free.pop() {
                Some(at) => return at,
                None => free = self.back.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn give_back(&self, at: usize) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        self.back.notify_one();
    }
}

fn gpus(common: &Common, ordinals: &[u32], fake: bool) -> Result<Vec<Timer>, CliError> {
    let own = [common.device];
    let ordinals = if ordinals.is_empty() { &own[..] } else { ordinals };
    let start = |device: &u32| {
        let mut options = on::gpu_options(common, fake)?;
        options.device = *device;
        GpuBackend::start(options).map(|gpu| Timer::Gpu(Box::new(gpu))).map_err(|e| EvalError::from(e).into())
    };
    ordinals.iter().map(start).collect()
}

/// The evaluator.
pub struct TimedEvaluator<'a> {
    /// Compiles, and has the PTX machine.
    pub gates: GateEvaluator<'a>,
    pub timing: &'a Timing,
    /// What the task's criteria compare with, if they can end the loop.
    pub compared: Compared,
    /// As that was timed when the loop began.
    pub known: Mutex<BTreeMap<String, BaselineTimes>>,
}

/// What a task's criteria compare with.
#[derive(Default)]
pub struct Compared {
    /// Kernels of our own, by name.
    pub own: Vec<(String, Subject, Setting)>,
    /// Other people's implementations.
    pub peers: Vec<String>,
    /// That has them.
    pub python: Option<PathBuf>,
}

/// Why something is measured.
#[derive(Clone, Copy)]
enum Round<'a> {
    /// The search wants a solution's time.
    Search,
    /// The criteria's baselines are wanted, beside a solution.
    Baseline,
    /// The winner, once more, with these and the baselines.
    Again(&'a [Solution]),
}

impl<'a> Round<'a> {
    fn others(self) -> &'a [Solution] {
        if let Round::Again(others) = self { others } else { &[] }
    }
}

impl Evaluator for TimedEvaluator<'_> {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        self.gates.gates.kept(self.judge(solution, Round::Search))
    }

    fn code(&self, solution: &Solution) -> Option<String> {
        self.gates.code_of(solution).ok().flatten()
    }

    fn remeasure(&self, solution: &Solution, beside: &[Solution]) -> Result<Judged, String> {
        self.gates.gates.kept(self.judge(solution, Round::Again(beside)))
    }

    fn baseline(&self, beside: &Solution) -> Result<Baselined, String> {
        self.gates.gates.kept(self.baselined(beside))
    }

    fn know(&self, baselines: &BTreeMap<String, BaselineTimes>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone_from(baselines);
    }

    /// Twice as many as devices: one compiles while another is timed.
    fn workers(&self) -> usize {
        2 * self.timing.devices()
    }
}

impl TimedEvaluator<'_> {
    fn judge(&self, solution: &Solution, round: Round) -> Result<Judged, CliError> {
        let began = Instant::now();
        let subject = self.gates.gates.subject(solution)?;
        let setting = Setting { config: None, levers: solution.levers.clone() };
        let code = self.gates.code_of(solution)?;
        let mut judged = Judged::of(VerdictWord::Passed);
        if matches!(round, Round::Search) {
            self.on_the_machine_first(&subject, &setting, &mut judged)?;
        }
        let mut gpu_seconds = 0.0;
        if judged.passed() {
            let results = self.measured(solution, &subject, &setting, round, &mut gpu_seconds)?;
            self.read(&subject, results, round, &mut judged);
        }
        judged.code_sha256 = code;
        (judged.seconds, judged.gpu_seconds) = (began.elapsed().as_secs_f64(), gpu_seconds);
        Ok(judged)
    }

    fn baselined(&self, beside: &Solution) -> Result<Baselined, CliError> {
        let began = Instant::now();
        let subject = self.gates.gates.subject(beside)?;
        let setting = Setting { config: None, levers: beside.levers.clone() };
        let mut gpu_seconds = 0.0;
        let results = self.measured(beside, &subject, &setting, Round::Baseline, &mut gpu_seconds)?;
        let names = self.compared.own.iter().map(|(name, ..)| name).chain(&self.compared.peers);
        let baselines = names.map(|name| (name.clone(), baseline_times(name, &results))).collect();
        let accept = accept(&subject, &results);
        Ok(Baselined { baselines, accept, seconds: began.elapsed().as_secs_f64(), gpu_seconds })
    }

    /// The smallest workload on the PTX machine: what it sees there no device has to be held for. What it cannot execute the device judges alone.
    fn on_the_machine_first(&self, subject: &Subject, setting: &Setting, judged: &mut Judged) -> Result<(), CliError> {
        let gates = self.gates.gates;
        let fits = |w: &&Workload| subject.candidate.applicable(setting, w, gates.target).is_ok();
        let size = |w: &&Workload| w.symbols.values().map(|n| (*n).max(1) as u128).product::<u128>();
        let Some(workload) = gates.workloads.iter().filter(fits).min_by_key(size) else { return Ok(()) };
        let result = self.gates.on_machine(subject, setting, workload)?;
        if let Some(launches) = self.gates.launches(subject, setting, workload, &result)? {
            judged.insights = self.gates.insights(workload, &launches, &result);
            self.gates.advise(&launches, &result, false, judged);
        }
        if !matches!(result.verdict, VerdictWord::Passed | VerdictWord::Unsupported) {
            take(judged, &result, workload, gates.target.name);
        }
        Ok(())
    }

    /// Gates 1 to 3 on a device that is free, again where the connection is lost.
    fn measured(
        &self,
        solution: &Solution,
        subject: &Subject,
        setting: &Setting,
        round: Round,
        gpu_seconds: &mut f64,
    ) -> Result<Vec<ResultRecord>, CliError> {
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            let at = self.timing.take();
            let device = &self.timing.devices[at];
            let from = device.timed().seconds();
            let done = self.on_device(device, solution, subject, setting, round, attempt as u64);
            *gpu_seconds += device.timed().seconds() - from;
            self.timing.give_back(at);
            if interrupt::flag().is_set() {
                return Err(CliError::environment("interrupted", "the loop was ended during an evaluation"));
            }
            let lost = |r: &ResultRecord| r.findings.iter().any(|f| f.code == LOST);
            match done {
                Ok(results) if !results.iter().any(lost) => return Ok(results),
                Ok(results) => last = results.iter().flat_map(|r| &r.findings).find(|f| f.code == LOST).cloned(),
                Err(e) => return Err(e),
            }
        }
        let why = last.map_or_else(String::new, |f| format!(": {}", f.message));
        Err(CliError::environment(LOST, format!("{ATTEMPTS} attempts at one evaluation lost their device{why}"))
            .hint("the loop can be gone on with: `warpsmith evolve --resume RUN`"))
    }

    fn on_device(
        &self,
        device: &Timer,
        solution: &Solution,
        subject: &Subject,
        setting: &Setting,
        round: Round,
        attempt: u64,
    ) -> Result<Vec<ResultRecord>, CliError> {
        let (gates, bench) = (&self.gates, self.gates.bench);
        let context = |backend| Context {
            compile: &gates.compile,
            backend,
            oracles: &bench.oracles,
            numerics: NumericsChoice::Faithful,
            passes: Some(&bench.passes),
            compile_only: false,
            sanitizer: None,
        };
        let (own, on_cpu) = (context(device.backend()), context(&bench.machine));
        let (own_baselines, wanted) = match round {
            Round::Search => (&[][..], &[][..]),
            Round::Baseline | Round::Again(_) => (&self.compared.own[..], &self.compared.peers[..]),
        };
        let peers: Box<dyn Peers + '_> = match device {
            Timer::Fake(fake) => Box::new(FakePeers(fake)),
            Timer::Gpu(gpu) if wanted.is_empty() || gpu.options().fake => {
                Box::new(NoPeers("the device is none: nobody else's implementation runs on it".into()))
            }
            // Only while it times: its context would stand in the way of the search.
            Timer::Gpu(gpu) => Box::new(bench_command::python_peers(gpu, self.compared.python.as_deref())),
        };
        let again = matches!(round, Round::Again(_));
        let lot = match round {
            Round::Search => 0,
            Round::Again(_) => 1,
            Round::Baseline => 2,
        };
        let plan = Plan {
            methods: vec![METHOD],
            length: Length::Seconds(if matches!(round, Round::Search) { SECONDS } else { SECONDS_AGAIN }),
            warmup: 3,
            // Each evaluation draws its own lots.
            secret: self.timing.secret ^ (solution.id << 3) ^ attempt ^ (lot << 60),
            seconds: REQUEST_SECONDS,
        };
        let real = matches!(device, Timer::Gpu(gpu) if !gpu.options().fake);
        let ctx = BenchContext {
            gates: &own,
            timed: device.timed(),
            machine: (again && real).then_some(&on_cpu),
            peers: &*peers,
            sanitizer: None,
            plan: &plan,
            stability: if again && real { None } else { Some(LAUNCHES) },
            inputs: Some(&self.timing.inputs),
        };
        let subjects = [(subject.clone(), vec![setting.clone()])];
        let workloads = WorkloadRequest { shapes: gates.gates.shapes.clone(), ..WorkloadRequest::default() };
        let mut baselines: Vec<(String, Subject, Setting)> = Vec::new();
        for other in round.others() {
            let setting = Setting { config: None, levers: other.levers.clone() };
            baselines.push((number(other.id), (*gates.gates.subject(other)?).clone(), setting));
        }
        baselines.extend(own_baselines.iter().cloned());
        let (peers, done) = ([(subject.task.name.clone(), wanted.to_vec())].into(), BTreeSet::new());
        let request = BenchRequest {
            gates: RunRequest { subjects: &subjects, workloads: &workloads, target: Some(gates.gates.target.name) },
            preferred: Vec::new(),
            own_baselines: &baselines,
            peers: &peers,
            done: &done,
        };
        let cancelled = interrupt::flag();
        let mut results = Vec::new();
        bench::run(&request, &ctx, &|| cancelled.is_set(), &mut |event| {
            if let BenchEvent::Finished { result } = event {
                results.push(result.clone());
            }
        })?;
        Ok(results)
    }

    /// What the results say of the solution.
    fn read(&self, subject: &Subject, mut results: Vec<ResultRecord>, round: Round, judged: &mut Judged) {
        let gates = self.gates.gates;
        let workload = |r: &ResultRecord| gates.workloads.iter().find(|w| w.shape == r.shape && w.causal == r.causal);
        let mut times = BTreeMap::new();
        for result in &results {
            let Some(workload) = workload(result) else { continue };
            take(judged, result, workload, gates.target.name);
            if !judged.passed() {
                return;
            }
            if let Some(time) = time(result) {
                times.insert(shape_name(workload), time);
            } else if result.gates.performance == GateStatus::Unavailable {
                judged.findings.extend(result.findings.iter().take(1).map(|f| Brief {
                    code: f.code.clone(),
                    message: f.message.clone(),
                    line: f.line,
                }));
            }
        }
        // A mean over fewer workloads than were judged would be another figure.
        if times.len() == results.len() {
            judged.score = Timed::new(&self.timing.device_name(), METHOD.word(), times).map(Score::Timed);
        }
        for other in round.others() {
            judged.beside.extend(against(other.id, &results));
        }
        if matches!(round, Round::Search) {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            judged.provisional = !known.is_empty();
            results.iter_mut().for_each(|r| add_known(&known, r));
        }
        judged.accept = accept(subject, &results);
    }
}

/// A solution as a baseline.
fn number(id: u64) -> String {
    format!("#{id}")
}

/// What a task's criteria compare with, by name: `best_peer` is all peers that the task lists.
pub fn named(task: &Task) -> Vec<String> {
    fn of(figure: &Figure, task: &Task, names: &mut Vec<String>) {
        match figure {
            Figure::Speedup(name) if name == speedups::BEST_PEER => {
                names.extend(task.baselines.iter().filter(|n| is_peer(n)).cloned());
            }
            Figure::Speedup(name) => names.push(name.clone()),
            Figure::Shapes(inner) => of(&inner.figure, task, names),
            _ => {}
        }
    }
    let mut names = Vec::new();
    task.accept.iter().for_each(|criterion| of(&criterion.figure, task, &mut names));
    names.sort();
    names.dedup();
    names
}

/// A baseline's times in a run's results, or why it has none.
fn baseline_times(name: &str, results: &[ResultRecord]) -> BaselineTimes {
    let mut times = BaselineTimes::default();
    for result in results {
        let baseline = result.measurement.as_ref().and_then(|m| m.baselines.get(name));
        let median = baseline.and_then(|b| Some(b.methods.get(METHOD.word())?.median_us));
        match median.filter(|us| us.is_finite() && *us > 0.0) {
            Some(us) => drop(times.us.insert(shape_of(result), us)),
            None => {
                let why = baseline.and_then(|b| b.missing.clone());
                let own =
                    || result.finding.as_ref().map(|f| format!("the kernel beside it was not timed: {}", f.message));
                let why = why.or_else(own).unwrap_or_else(|| "it was not timed".into());
                times.missing.insert(shape_of(result), why);
            }
        }
    }
    times
}

/// Ratios to times of the loop's beginning, where criteria look for them.
fn add_known(known: &BTreeMap<String, BaselineTimes>, result: &mut ResultRecord) {
    let shape = shape_of(result);
    let Some(measurement) = &mut result.measurement else { return };
    let Some(own) = measurement.methods.get(METHOD.word()).map(|t| t.median_us) else { return };
    for (name, times) in known {
        if let Some(us) = times.us.get(&shape) {
            let record = BaselineRecord { ratio: Some(us / own), ..BaselineRecord::default() };
            measurement.baselines.insert(name.clone(), record);
        }
    }
}

/// As [`shape_name`] has it.
fn shape_of(result: &ResultRecord) -> String {
    if result.causal { format!("{} causal", result.shape) } else { result.shape.clone() }
}

/// The median with an interval that holds what another measurement of the same kernel would give.
pub fn time(result: &ResultRecord) -> Option<ShapeTime> {
    let times = result.measurement.as_ref()?.methods.get(METHOD.word())?;
    let each = times.samples.len().checked_div(times.rounds).filter(|n| *n > 0)?;
    let rounds: stats::Rounds = times.samples.chunks(each).map(<[f64]>::to_vec).collect();
    let typical = stats::typical(&rounds)?;
    let (low, high) = typical.interval.unwrap_or((typical.value, typical.value));
    let half = stats::noise(&rounds) / 2.0;
    Some(ShapeTime {
        median_us: typical.value,
        low_us: low.min(typical.value * (1.0 - half)),
        high_us: high.max(typical.value * (1.0 + half)),
    })
}

/// The other's time by ours, from common rounds.
fn against(id: u64, results: &[ResultRecord]) -> Option<Beside> {
    let name = number(id);
    let mut shapes = BTreeMap::new();
    for result in results {
        let baseline = result.measurement.as_ref()?.baselines.get(&name)?;
        let ratio = baseline.ratio?;
        let gain = Gain { ratio, low: baseline.ratio_low.unwrap_or(ratio), high: baseline.ratio_high.unwrap_or(ratio) };
        shapes.insert(shape_of(result), gain);
    }
    let mean = |pick: fn(&Gain) -> f64| geometric_mean(shapes.values().map(pick));
    let gain = Gain { ratio: mean(|g| g.ratio)?, low: mean(|g| g.low)?, high: mean(|g| g.high)? };
    Some(Beside { of: id, gain, shapes })
}
