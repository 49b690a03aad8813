//! The PTX machine as a backend: buffers with red zones, poisoned outputs, launches in order, findings with source lines.
//!
//! Source: `warpsmith_machine`'s interface. It has no clock. Limits: no tensor maps yet, which end as unsupported.

use super::{Backend, Job, NumericsChoice, RunEnd, RunOutcome, Written};
use crate::error::EvalError;
use crate::finding::{Code, blank};
use crate::profile::phases::Place;
use crate::values::coordinates;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use warpsmith_machine::{
    Arg, AsyncCopies, BufferId, Contents, Counters, End, EntryInfo, Finding, Launch, Memory, Options, Program, Traffic,
    address_of, launch,
};
use warpsmith_num::tensor_core::{Generation, Numerics};
use warpsmith_spec::plan::{Parameter, ResolvedArg, ResolvedLaunch};
use warpsmith_spec::record::{ExecutionRecord, FindingRecord, LaunchExecution, LineRecord, Severity, TrafficRecord};
use warpsmith_spec::words::DType;

/// Source lines that a record names.
const MAX_LINES: usize = 100;
/// Programs that are kept loaded.
const KEPT: usize = 64;

/// The machine, with the programs that it has loaded.
#[derive(Default)]
pub struct PtxMachine {
    programs: Mutex<HashMap<String, Arc<Program>>>,
    /// Host threads; 0: one for each core.
    threads: usize,
    /// What findings without a line of a source name instead: this file, and the line of the PTX.
    ptx_file: Option<String>,
    /// Bank conflicts and sectors are counted, by line.
    counting: bool,
}

impl PtxMachine {
    pub fn new(threads: usize) -> PtxMachine {
        PtxMachine { programs: Mutex::default(), threads, ptx_file: None, counting: false }
    }

    /// For PTX that a person wrote, or has: findings without a line of a source point into this file.
    pub fn of_ptx_file(threads: usize, file: &str) -> PtxMachine {
        PtxMachine { ptx_file: Some(file.to_string()), ..PtxMachine::new(threads) }
    }

    /// Counts bank conflicts and sectors too, which takes longer.
    pub fn counting(self) -> PtxMachine {
        PtxMachine { counting: true, ..self }
    }

    fn program(&self, sha256: &str, ptx: &str) -> Result<Arc<Program>, warpsmith_machine::LoadError> {
        let lock = || self.programs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(program) = lock().get(sha256) {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::load(ptx)?);
        let mut programs = lock();
        if programs.len() >= KEPT {
            programs.clear();
        }
        programs.insert(sha256.to_string(), program.clone());
        Ok(program)
    }
}

impl Backend for PtxMachine {
    fn word(&self) -> &'static str {
        "ptx_machine"
    }

    fn version(&self) -> String {
        // A pass that was earned without counting has no counts to be remembered with.
        let counting = if self.counting { " counting" } else { "" };
        format!("ptx_machine {} {}{counting}", env!("CARGO_PKG_VERSION"), build())
    }

    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
        let program = match self.program(&job.artifact.ptx_sha256, &job.artifact.ptx) {
            Ok(program) => program,
            // The compiler wrote this PTX, so what cannot be read is a construct that the machine lacks.
            Err(e) => {
                return Ok(RunOutcome::ended(RunEnd::Unsupported {
                    what: format!("this PTX: {e}"),
                    file: None,
                    line: None,
                }));
            }
        };
        let entries: BTreeMap<String, EntryInfo> = program.entries().into_iter().map(|e| (e.name.clone(), e)).collect();
        let mut session = Session::new(job);
        let mut left = job.max_instructions;
        for step in &job.plan.launches {
            let prepared = match session.prepare(step, &entries) {
                Ok(prepared) => prepared,
                Err(end) => return Ok(session.finish(end)),
            };
            let options = Options {
                numerics: numerics(job),
                max_instructions: left,
                schedule_seed: job.schedule.seed,
                async_copies: if job.schedule.early_copies { AsyncCopies::Early } else { AsyncCopies::Late },
                max_shared_bytes: job.target.shared_bytes_per_block,
                threads: self.threads,
                count_traffic: self.counting,
                cooperative: step.cooperative,
                ..Options::default()
            };
            let outcome = launch(&program, &mut session.memory, &prepared, &options);
            left = left.saturating_sub(outcome.counters.warp_instructions);
            session.add(&step.entry, &outcome.counters, &outcome.printed);
            if self.counting {
                session.count(&outcome.counters);
            }
            session.findings.extend(outcome.findings.iter().map(|f| finding(f, step, job, self.ptx_file.as_deref())));
            let end = match outcome.end {
                End::Completed => continue,
                End::Faulted => RunEnd::Faulted,
                End::LimitReached { what, .. } => {
                    RunEnd::LimitReached { what: what.to_string(), limit: job.max_instructions }
                }
                End::Unsupported { what, site } => {
                    let (file, line) = site.map_or((None, None), |s| match (s.line, &self.ptx_file) {
                        (None, Some(file)) => (Some(file.clone()), Some(s.ptx_line)),
                        (line, _) => (s.file, line),
                    });
                    RunEnd::Unsupported { what, file, line }
                }
                End::InvalidLaunch { what } => {
                    RunEnd::Rejected(Box::new(at_line(Code::InvalidLaunch.error("correctness", what), step, step.line)))
                }
            };
            return Ok(session.finish(end));
        }
        Ok(session.finish(RunEnd::Completed))
    }
}

/// Which build of the machine this is: the executable's size and time, so that a pass of an older machine, which may have
/// seen less, is earned again. Empty where the system does not say; passes then depend on the version alone.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let data = std::env::current_exe().and_then(std::fs::metadata);
        let time = |m: &std::fs::Metadata| m.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok();
        data.map_or_else(|_| String::new(), |m| format!("{} {}", m.len(), time(&m).map_or(0, |t| t.as_nanos())))
    })
}

/// One memory over all launches of a plan.
struct Session<'a> {
    job: &'a Job<'a>,
    memory: Memory,
    buffers: HashMap<String, BufferId>,
    findings: Vec<FindingRecord>,
    execution: ExecutionRecord,
    atomics: bool,
    printed: String,
    places: Vec<Place>,
}

impl<'a> Session<'a> {
    fn new(job: &'a Job<'a>) -> Session<'a> {
        let mut memory = Memory::new();
        let mut buffers = HashMap::new();
        for tensor in job.inputs {
            buffers.insert(tensor.name.clone(), memory.alloc(&tensor.name, Contents::Bytes(&tensor.bytes)));
        }
        for output in job.outputs {
            buffers.insert(output.name.clone(), memory.alloc(&output.name, Contents::Poison(output.bytes())));
        }
        for workspace in &job.plan.workspaces {
            let bytes = workspace.bytes as usize;
            let id = if workspace.zeroed {
                memory.alloc(&workspace.name, Contents::Bytes(&vec![0; bytes]))
            } else {
                memory.alloc(&workspace.name, Contents::Poison(bytes))
            };
            buffers.insert(workspace.name.clone(), id);
        }
        Session {
            job,
            memory,
            buffers,
            findings: Vec::new(),
            execution: ExecutionRecord::default(),
            atomics: false,
            printed: String::new(),
            places: Vec::new(),
        }
    }

    fn prepare(&self, step: &ResolvedLaunch, entries: &BTreeMap<String, EntryInfo>) -> Result<Launch, RunEnd> {
        let reject = |f: FindingRecord, line: u32| Err(RunEnd::Rejected(Box::new(at_line(f, step, line))));
        let lowered = self.job.artifact.entry(&step.entry).map_or(step.entry.as_str(), |e| e.lowered.as_str());
        let Some(entry) = entries.get(lowered) else {
            let found: Vec<&str> = self.job.artifact.entries.iter().map(|e| e.expression.as_str()).collect();
            return reject(
                Code::MissingEntry.error("correctness", step.missing_entry("", &found).message),
                step.entry_line,
            );
        };
        let parameters: Vec<Parameter> =
            entry.params.iter().map(|p| Parameter { bytes: p.bytes as usize, align: p.align as usize }).collect();
        if let Err(e) = step.fits_parameters("", &parameters) {
            return reject(Code::ArgumentMismatch.error("correctness", e.message), step.args_line);
        }
        let limit = self.job.target.shared_bytes_per_block as u64;
        if let Err(problem) = step.fits(self.job.target, entry.static_shared_bytes as u64) {
            let over = step.shared_bytes.saturating_add(entry.static_shared_bytes as u64) > limit;
            let code = if over { Code::SharedMemoryExceeded } else { Code::InvalidLaunch };
            let mut f = code.error("correctness", problem.message);
            f.limit = problem.limit;
            return reject(f, problem.line.unwrap_or(step.line));
        }
        let mut args = Vec::with_capacity(step.args.len());
        for (arg, parameter) in step.args.iter().zip(&parameters) {
            args.push(match arg {
                ResolvedArg::Tensor(name) | ResolvedArg::Workspace(name) => match self.buffers.get(name) {
                    Some(id) => Arg::Buffer(*id),
                    None => {
                        return reject(
                            Code::ArgumentMismatch.error("correctness", format!("there is no tensor `{name}`")),
                            step.args_line,
                        );
                    }
                },
                ResolvedArg::Scalar { value, .. } => match value.encode(parameter.bytes) {
                    Ok(bytes) => Arg::Bytes(bytes),
                    Err(why) => return reject(Code::ArgumentMismatch.error("correctness", why), step.args_line),
                },
                ResolvedArg::Bytes { bytes, .. } => Arg::Bytes(bytes.clone()),
                ResolvedArg::Struct { bytes, addresses, .. } => {
                    let mut bytes = bytes.clone();
                    for address in addresses {
                        let at = address.offset as usize;
                        match (self.buffers.get(&address.of), bytes.get_mut(at..at + 8)) {
                            (Some(id), Some(to)) => to.copy_from_slice(&address_of(id.0).to_le_bytes()),
                            _ => {
                                let message = format!("there is no tensor `{}`", address.of);
                                return reject(Code::ArgumentMismatch.error("correctness", message), step.args_line);
                            }
                        }
                    }
                    Arg::Bytes(bytes)
                }
                ResolvedArg::TensorMap(name) => {
                    return Err(RunEnd::Unsupported {
                        what: format!("the tensor map {name}"),
                        file: None,
                        line: Some(step.args_line),
                    });
                }
            });
        }
        Ok(Launch {
            entry: lowered.to_string(),
            grid: step.grid,
            block: step.block,
            cluster: step.cluster,
            shared_bytes: step.shared_bytes as u32,
            args,
        })
    }

    fn add(&mut self, entry: &str, c: &Counters, printed: &str) {
        let e = &mut self.execution;
        e.launches.push(LaunchExecution {
            entry: entry.to_string(),
            opcodes: c.by_opcode.clone(),
            busiest_cta: c.busiest_cta,
        });
        e.warp_instructions += c.warp_instructions;
        e.lane_instructions += c.lane_instructions;
        e.tensor_ops += c.tensor_ops;
        e.static_instructions += c.static_instructions;
        e.covered_instructions += c.covered_instructions;
        e.modelled += c.fidelity.modelled;
        e.divergent_instructions += c.divergent_instructions;
        e.divergent_branches += c.divergent_branches;
        for (opcode, n) in &c.approximate {
            *e.approximate.entry(opcode.clone()).or_default() += n;
        }
        self.atomics |= c.by_mnemonic.keys().any(|m| matches!(m.split('.').next(), Some("atom" | "red")));
        self.printed.push_str(printed);
    }

    /// Sums up what the memory system had to do.
    fn count(&mut self, c: &Counters) {
        let e = &mut self.execution;
        add_traffic(e.traffic.get_or_insert_default(), &c.traffic);
        for line in &c.lines {
            let at = match e.lines.iter().position(|r| r.file == line.file && r.line == line.line) {
                Some(at) => at,
                None if e.lines.len() < MAX_LINES => {
                    e.lines.push(LineRecord { file: line.file.clone(), line: line.line, ..LineRecord::default() });
                    e.lines.len() - 1
                }
                None => continue,
            };
            let record = &mut e.lines[at];
            record.warp_instructions += line.warp_instructions;
            record.tensor_ops += line.tensor_ops;
            add_traffic(&mut record.traffic, &line.traffic);
        }
        e.lines.sort_by_key(|l| std::cmp::Reverse(l.warp_instructions));
        self.places.extend(c.places.iter().map(|p| Place {
            chain: p.chain.clone(),
            warp_instructions: p.warp_instructions,
            tensor_ops: p.tensor_ops,
            global_sectors: p.traffic.global_sectors,
            shared_wavefronts: p.traffic.shared_wavefronts,
            bank_conflicts: p.traffic.bank_conflicts(),
        }));
    }

    fn finish(self, end: RunEnd) -> RunOutcome {
        let read = |name: &String| {
            let id = self.buffers[name];
            Written { bytes: self.memory.read(id), defined: self.memory.initialized(id) }
        };
        let completed = end == RunEnd::Completed;
        let outputs = if completed { self.job.outputs.iter().map(|o| read(&o.name)).collect() } else { Vec::new() };
        let inputs = if completed { self.job.inputs.iter().map(|i| read(&i.name)).collect() } else { Vec::new() };
        RunOutcome {
            end,
            outputs,
            inputs,
            findings: self.findings,
            execution: self.execution,
            atomics: self.atomics,
            printed: self.printed,
            places: self.places,
        }
    }
}

fn at_line(mut f: FindingRecord, step: &ResolvedLaunch, line: u32) -> FindingRecord {
    f.line = Some(line);
    f.entry = Some(step.entry.clone());
    f
}

fn add_traffic(sum: &mut TrafficRecord, t: &Traffic) {
    sum.shared_requests += t.shared_requests;
    sum.shared_wavefronts += t.shared_wavefronts;
    sum.shared_ideal += t.shared_ideal;
    sum.global_requests += t.global_requests;
    sum.global_sectors += t.global_sectors;
    sum.global_ideal += t.global_ideal;
}

/// A machine's finding in the record's words.
fn finding(f: &Finding, step: &ResolvedLaunch, job: &Job, ptx_file: Option<&str>) -> FindingRecord {
    let word = f.kind.word();
    let mut message = f.message.clone();
    if f.site.line.is_none() && ptx_file.is_none() {
        message.push_str(&format!(" (PTX line {}, {})", f.site.ptx_line, f.site.opcode));
    }
    let severity = match f.severity {
        warpsmith_machine::Severity::Error => Severity::Error,
        warpsmith_machine::Severity::Note => Severity::Note,
    };
    let mut record = blank(severity, &word.replace('_', "-"), "correctness", message);
    record.file = f.site.file.clone();
    record.line = f.site.line;
    record.other_line = f.other.as_ref().and_then(|o| o.line);
    if let (None, Some(file)) = (f.site.line, ptx_file) {
        record.file = Some(file.to_string());
        record.line = Some(f.site.ptx_line);
        record.other_line = f.other.as_ref().map(|o| o.ptx_line);
    }
    record.entry = Some(step.entry.clone());
    record.cta = Some(f.cta);
    record.warp = Some(f.warp);
    record.lane = f.lane;
    record.count = Some(f.count);
    if let Some(place) = &f.place {
        record.tensor = place.object.clone();
        record.index = place.object.as_ref().and_then(|name| sizes(name, job)).map(|(dtype, shape)| {
            let at = place.offset.div_euclid(dtype.bytes() as i64);
            let elements = shape.iter().product::<u64>();
            // Beyond the tensor coordinates would mislead: the flat position says how far.
            if at < 0 || at as u64 >= elements {
                vec![at]
            } else {
                coordinates(&shape, at as u64).iter().map(|i| *i as i64).collect()
            }
        });
    }
    record
}

/// Element type and sizes of a tensor or workspace.
fn sizes(name: &str, job: &Job) -> Option<(DType, Vec<u64>)> {
    let input = job.inputs.iter().find(|t| t.name == name).map(|t| (t.dtype, t.shape.clone()));
    let output = || job.outputs.iter().find(|t| t.name == name).map(|t| (t.dtype, t.shape.clone()));
    let workspace = || job.plan.workspaces.iter().find(|w| w.name == name).map(|w| (w.dtype, w.shape.clone()));
    input.or_else(output).or_else(workspace)
}

fn numerics(job: &Job) -> Numerics {
    match job.numerics {
        NumericsChoice::Fast => Numerics::Fast,
        NumericsChoice::Faithful => Numerics::Faithful(match job.target.name {
            "sm_75" | "sm_80" | "sm_86" | "sm_87" => Generation::Ampere,
            "sm_89" => Generation::Ada,
            // Newer generations add as Hopper does, as far as is known.
            _ => Generation::Hopper,
        }),
    }
}
