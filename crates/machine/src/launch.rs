//! A launch from its checks to its outcome: lays out memory, runs CTAs on all cores, puts findings in order.
//!
//! CTAs are handed out in order, or in another that the schedule's seed gives, each runs on one host thread (`worker`). A CTA with a fault stops those after it, and only findings of
//! CTAs up to the first faulty one are kept: so the outcome does not depend on the number of threads, save for the rounding of
//! floating-point atomics on global memory and for kernels whose CTAs talk to each other.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use warpsmith_ptx::ast::Space;

use crate::api::{Arg, Counters, Detectors, End, Finding, InstructionClass, Launch, Options, Outcome, Traffic};
use crate::code::{AtomOp, AtomTy, Class, Code, Op, RowId, RowInit};
use crate::cta::{Fault, MAX_PRINTED};
use crate::decode::{InitTarget, param_layout_of};
use crate::exec::{FUNCTION_HANDLES, Guesses, MAX_ROWS, guesses_possible, traffic};
use crate::findings::{Findings, MAX_FINDINGS};
use crate::global::GlobalShadow;
use crate::local::MAX_LOCAL;
use crate::machine::{Fill, Machine, SharedRange};
use crate::memory::{Buffer, Memory, address_of};
use crate::program::{EntryInfo, Program, RESERVED_BYTES, SharedLayout};
use crate::worker;

/// Threads of a block, as on all GPUs so far.
const MAX_THREADS: u64 = 1024;
/// CTAs of a grid that the machine will count.
const MAX_CTAS: u64 = 1 << 40;

/// Runs a grid. Whatever the kernel does is in the outcome.
pub fn launch(program: &Program, memory: &mut Memory, launch: &Launch, options: &Options) -> Outcome {
    match prepare(program, memory, launch, options) {
        Ok(prepared) => {
            let buffers = prepared.buffers;
            let outcome = run(program, memory, launch, options, prepared);
            // The parameters' buffer and the grid's, which were pushed last.
            memory.buffers.truncate(buffers);
            outcome
        }
        Err(end) => Outcome { end, findings: Vec::new(), counters: Counters::default(), printed: String::new() },
    }
}

struct Prepared {
    entry: usize,
    fills: Vec<Vec<(RowId, Fill)>>,
    layout: SharedLayout,
    shared_bytes: u32,
    /// Of what is pushed for this launch alone: the count before.
    buffers: usize,
    grid_workspace: u64,
}

fn invalid(what: String) -> End {
    End::InvalidLaunch { what }
}

fn prepare(program: &Program, memory: &mut Memory, launch: &Launch, options: &Options) -> Result<Prepared, End> {
    let Some(info) = program.entry(&launch.entry) else {
        let names: Vec<String> = program.entries().into_iter().map(|e| e.name).take(8).collect();
        return Err(invalid(format!("there is no entry {}; the module has {}", launch.entry, names.join(", "))));
    };
    let Some(entry) = program.function_index(&launch.entry) else {
        return Err(invalid(format!("there is no entry {}", launch.entry)));
    };
    let layout = program.shared_layout(entry);
    let shared_bytes = check_dimensions(launch, info, &layout, options)?;
    // What only a call through a pointer may reach ends the run when it is executed.
    for f in program.named(entry) {
        let f = &program.code().functions[f];
        if let Some((pc, what)) = &f.unsupported {
            return Err(End::Unsupported { what: what.clone(), site: program.code().sites.get(*pc as usize).cloned() });
        }
    }
    let local = program.code().functions[entry].local_bytes;
    if local > MAX_LOCAL {
        return Err(invalid(format!("{local} bytes of local memory for each thread: at most {MAX_LOCAL}")));
    }
    if program.code().functions[entry].rows as usize > MAX_ROWS {
        return Err(End::Unsupported {
            what: format!("{} rows of registers", program.code().functions[entry].rows),
            site: None,
        });
    }
    let params = parameters(launch, info, memory)?;
    module_variables(program, memory)?;
    let addresses = variable_addresses(program, memory, &layout);
    let buffers = memory.buffers.len();
    // As cooperative groups expect it: its size, and the barrier of the grid.
    let workspace =
        options.cooperative.then(|| memory.push_fixed("grid workspace", "global", &[8, 0, 0, 0, 0, 0, 0, 0]));
    let param = memory.push_fixed("parameters", "param", &params);
    let param_address = address_of(param.0);
    let mut fills: Vec<Vec<(RowId, Fill)>> = Vec::new();
    for f in &program.code().functions {
        fills.push(f.inits.iter().map(|(row, init)| (*row, fill(init, &addresses, &params, param_address))).collect());
    }
    let grid_workspace = workspace.map_or(0, |id| address_of(id.0));
    Ok(Prepared { entry, fills, layout, shared_bytes, buffers, grid_workspace })
}

fn check_dimensions(launch: &Launch, info: &EntryInfo, layout: &SharedLayout, options: &Options) -> Result<u32, End> {
    let product = |d: [u32; 3]| d.iter().map(|n| u64::from(*n)).try_fold(1u64, u64::checked_mul).unwrap_or(u64::MAX);
    let shape = |d: [u32; 3]| format!("{} x {} x {}", d[0], d[1], d[2]);
    if product(launch.grid) == 0 || product(launch.block) == 0 {
        return Err(invalid(format!("a grid of {} blocks of {} threads", shape(launch.grid), shape(launch.block))));
    }
    if product(launch.grid) > MAX_CTAS
        || launch.grid[0] > i32::MAX as u32
        || launch.grid[1] > 65535
        || launch.grid[2] > 65535
    {
        return Err(invalid(format!("a grid of {} blocks: at most 2147483647 x 65535 x 65535", shape(launch.grid))));
    }
    let threads = product(launch.block);
    if threads > MAX_THREADS || launch.block[2] > 64 {
        return Err(invalid(format!(
            "a block of {} = {threads} threads: at most 1024, and 64 in z",
            shape(launch.block)
        )));
    }
    if let Some(most) = info.max_threads
        && threads > u64::from(most)
    {
        return Err(invalid(format!(
            "a block of {threads} threads, but {} is compiled for at most {most} (__launch_bounds__)",
            info.name
        )));
    }
    if product(launch.cluster) > 1 {
        return Err(End::Unsupported { what: format!("clusters of {} CTAs", product(launch.cluster)), site: None });
    }
    let shared = u64::from(layout.plain_bytes) + u64::from(launch.shared_bytes);
    if shared > u64::from(options.max_shared_bytes) {
        return Err(invalid(format!(
            "{} of shared memory ({} static, {} dynamic), but a CTA has at most {} bytes",
            shared, layout.plain_bytes, launch.shared_bytes, options.max_shared_bytes
        )));
    }
    // What is asked for at the launch, but named by no variable, is nobody's: what gets there went beyond something else.
    Ok(layout.bytes.saturating_add(if layout.dynamic { launch.shared_bytes } else { 0 }))
}

fn parameters(launch: &Launch, info: &EntryInfo, memory: &Memory) -> Result<Vec<u8>, End> {
    if launch.args.len() != info.params.len() {
        return Err(invalid(format!(
            "{} arguments are given, {} has {} parameters",
            launch.args.len(),
            info.name,
            info.params.len()
        )));
    }
    let layout = param_layout_of(info.params.iter().map(|p| (p.bytes, p.align)));
    let end = layout.last().zip(info.params.last()).map_or(0, |(at, p)| at + p.bytes);
    let mut bytes = vec![0; end as usize];
    for (n, ((arg, p), at)) in launch.args.iter().zip(&info.params).zip(&layout).enumerate() {
        let value: Vec<u8> = match arg {
            Arg::Buffer(id) if memory.buffers.get(id.0 as usize).is_some() => {
                if p.bytes != 8 {
                    return Err(invalid(format!(
                        "argument {n} is a buffer, but parameter {} has {} bytes",
                        p.name, p.bytes
                    )));
                }
                address_of(id.0).to_le_bytes().to_vec()
            }
            Arg::Buffer(id) => return Err(invalid(format!("argument {n} is buffer {}, which does not exist", id.0))),
            Arg::Bytes(b) if b.len() as u64 != u64::from(p.bytes) => {
                return Err(invalid(format!(
                    "argument {n} has {} bytes, parameter {} has {}",
                    b.len(),
                    p.name,
                    p.bytes
                )));
            }
            Arg::Bytes(b) => b.clone(),
        };
        bytes[*at as usize..*at as usize + value.len()].copy_from_slice(&value);
    }
    Ok(bytes)
}

/// Allocates the module's own variables on its first launch with this memory.
fn module_variables(program: &Program, memory: &mut Memory) -> Result<(), End> {
    if memory.modules.contains_key(&program.id) {
        return Ok(());
    }
    let first = memory.buffers.len() as u32;
    let mut ids: Vec<Option<u32>> = Vec::new();
    let mut next = first;
    for v in program.variables() {
        let global = matches!(v.space, Space::Global | Space::Const);
        ids.push(global.then_some(next));
        next += u32::from(global);
    }
    for v in program.variables().iter().filter(|v| matches!(v.space, Space::Global | Space::Const)) {
        if v.bytes > 1 << 30 {
            return Err(invalid(format!("variable {} has {} bytes", v.name, v.bytes)));
        }
        let mut bytes = v.init.clone();
        bytes.resize(v.bytes as usize, 0);
        for (at, target, addend) in &v.init_symbols {
            let address = match target {
                InitTarget::Variable(n) => ids[*n].map_or(0, address_of),
                InitTarget::Function(n) => FUNCTION_HANDLES + *n as u64,
            };
            let value = address.wrapping_add(*addend as u64).to_le_bytes();
            let at = *at as usize;
            let room = bytes.len().saturating_sub(at).min(8);
            bytes[at..at + room].copy_from_slice(&value[..room]);
        }
        let space = if v.space == Space::Const { "const" } else { "global" };
        memory.push_fixed(&v.name, space, &bytes);
    }
    memory.modules.insert(program.id, ids);
    Ok(())
}

fn variable_addresses(program: &Program, memory: &Memory, layout: &SharedLayout) -> Vec<u64> {
    let ids = &memory.modules[&program.id];
    let shared = |n: usize| layout.offsets.iter().find(|o| o.0 == n).map_or(0, |o| u64::from(o.1));
    ids.iter().enumerate().map(|(n, id)| id.map_or_else(|| shared(n), address_of)).collect()
}

fn fill(init: &RowInit, addresses: &[u64], params: &[u8], param_address: u64) -> Fill {
    let sized = |v: u64, wide: bool| if wide { Fill::Wide(v) } else { Fill::Word(v as u32) };
    match *init {
        RowInit::Word(v) => Fill::Word(v),
        RowInit::Wide(v) => Fill::Wide(v),
        RowInit::Special(s) => Fill::Special(s),
        RowInit::Variable { variable, offset, wide } => sized(addresses[variable].wrapping_add(offset as u64), wide),
        RowInit::Function { function } => Fill::Wide(FUNCTION_HANDLES + function as u64),
        RowInit::Local { offset, wide } => Fill::Local { offset, wide },
        RowInit::ParamAddress { offset } => Fill::Wide(param_address.wrapping_add(offset as u64)),
        RowInit::Param { offset, bytes, signed, wide } => {
            let part = params.get(offset as usize..(offset + bytes) as usize).unwrap_or(&[]);
            let mut v = [0u8; 8];
            v[..part.len().min(8)].copy_from_slice(&part[..part.len().min(8)]);
            let shift = 64 - 8 * bytes.clamp(1, 8);
            let v = u64::from_le_bytes(v);
            sized(if signed { ((v << shift) as i64 >> shift) as u64 } else { v }, wide)
        }
    }
}

/// What a worker hands over.
#[derive(Default)]
pub(crate) struct Collected {
    /// By the order in which CTAs were started: findings, fault, printed text.
    pub ctas: Vec<(u64, Findings, Option<Fault>, String)>,
    pub counts: Vec<u64>,
    /// Of the CTA that executed most.
    pub busiest_cta: u64,
    pub lane_instructions: u64,
    pub divergent_instructions: u64,
    pub divergent_branches: u64,
    pub traffic: Vec<Traffic>,
    pub guesses: Guesses,
}

fn run(program: &Program, memory: &Memory, launch: &Launch, options: &Options, p: Prepared) -> Outcome {
    let threads = launch.block.iter().product::<u32>();
    let ctas = launch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    let mut shared: Vec<SharedRange> = p
        .layout
        .offsets
        .iter()
        .map(|(n, offset)| {
            let v = &program.variables()[*n];
            let bytes = if v.is_extern || v.bytes == 0 { launch.shared_bytes } else { v.bytes as u32 };
            SharedRange { name: display_name(&v.name), offset: *offset, bytes }
        })
        .collect();
    let reserved = p.layout.reserved;
    shared.extend(reserved.map(|offset| SharedRange {
        name: "scratch of cooperative groups".into(),
        offset,
        bytes: RESERVED_BYTES,
    }));
    shared.sort_by_key(|s| s.offset);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let workers = if options.threads == 0 { cores } else { options.threads }.min(ctas as usize).max(1);
    let buffers: &[Buffer] = &memory.buffers;
    let machine = Machine {
        code: program.code(),
        buffers,
        launch,
        options,
        entry: p.entry,
        fills: p.fills,
        shared,
        shared_bytes: p.shared_bytes,
        shared_said: p.layout.plain_bytes + launch.shared_bytes,
        guards: p.layout.guards,
        warps: threads.div_ceil(32) as usize,
        ctas,
        threads,
        budget: AtomicU64::new(options.max_instructions),
        stop_at: AtomicU64::new(u64::MAX),
        grid_id: 1,
        grid_workspace: p.grid_workspace,
        reserved_shared: reserved.unwrap_or(0),
        progress: AtomicU64::new(0),
        vain_at: (0..workers).map(|_| AtomicU64::new(worker::BUSY)).collect(),
        global: GlobalShadow::new(buffers),
        guesses: options.detectors == Detectors::On && guesses_possible(program.code()),
    };
    let next = AtomicU64::new(0);
    let all = Mutex::new(Collected { counts: vec![0; machine.code.instrs.len()], ..Collected::default() });
    if workers == 1 {
        worker::work(&machine, 0, ctas, &next, &all);
    } else {
        std::thread::scope(|s| {
            for thread in 0..workers {
                let (machine, next, all) = (&machine, &next, &all);
                s.spawn(move || worker::work(machine, thread, ctas, next, all));
            }
        });
    }
    let all = all.into_inner().unwrap_or_else(|e| e.into_inner());
    finish(program, &machine, all)
}

fn finish(program: &Program, machine: &Machine, mut all: Collected) -> Outcome {
    all.ctas.sort_by_key(|c| c.0);
    let code = machine.code;
    let mut end = End::Completed;
    let mut findings = Findings::default();
    let mut printed = String::new();
    for (_, found, fault, text) in std::mem::take(&mut all.ctas) {
        findings.append(found);
        let room = MAX_PRINTED - printed.len();
        printed.extend(text.chars().scan(0, |used, c| {
            *used += c.len_utf8();
            (*used <= room).then_some(c)
        }));
        match fault {
            None | Some(Fault::Superseded) => continue,
            Some(Fault::Finding) => end = End::Faulted,
            Some(Fault::Limit) => {
                end = End::LimitReached { what: "instructions", limit: machine.options.max_instructions }
            }
            Some(Fault::Unsupported { what, pc }) => {
                end = End::Unsupported { what, site: code.sites.get(pc as usize).cloned() }
            }
        }
        break;
    }
    all.guesses.apply(code, &mut findings);
    let mut counters = count(program, machine, &all.counts, all.lane_instructions);
    let reachable = program.reachable(machine.entry);
    let range = reachable.into_iter().flat_map(|f| {
        let f = &code.functions[f];
        f.start as usize..f.end as usize - 1
    });
    counters.lines = traffic::by_line(code, range.clone(), &all.counts, &all.traffic);
    counters.places = traffic::by_place(code, range, &all.counts, &all.traffic);
    for t in &all.traffic {
        counters.traffic.add(t);
    }
    counters.busiest_cta = all.busiest_cta;
    counters.divergent_instructions = all.divergent_instructions;
    counters.divergent_branches = all.divergent_branches;
    counters.fidelity.unsupported =
        code.functions.iter().filter_map(|f| f.unsupported.as_ref().map(|u| u.1.clone())).collect();
    let list = findings.list.into_iter().take(MAX_FINDINGS).map(|f| Finding {
        kind: f.kind,
        severity: f.severity,
        message: f.message,
        site: code.sites[f.pc as usize].clone(),
        other: f.other.and_then(|pc| code.sites.get(pc as usize).cloned()),
        entry: machine.launch.entry.clone(),
        cta: f.cta,
        warp: f.warp,
        lane: f.lane,
        place: f.place,
        count: f.count,
    });
    Outcome { end, findings: list.collect(), counters, printed }
}

fn class(op: Op) -> InstructionClass {
    match op {
        Op::Mma | Op::LoadMatrix | Op::StoreMatrix | Op::WmmaLoad | Op::WmmaStore | Op::MovMatrix => {
            InstructionClass::Tensor
        }
        _ => match op.class() {
            Class::Ints | Class::Wides => InstructionClass::Integer,
            // What is rare is mostly arithmetic of the other floating-point formats.
            Class::Floats | Class::Rare => InstructionClass::Float,
            Class::Converts => InstructionClass::Conversion,
            Class::Memory => InstructionClass::Memory,
            Class::Control => InstructionClass::Control,
            Class::Warp => InstructionClass::Synchronisation,
        },
    }
}

fn count(program: &Program, machine: &Machine, counts: &[u64], lane_instructions: u64) -> Counters {
    let code: &Code = machine.code;
    let mut c = Counters { lane_instructions, ..Counters::default() };
    for f in program.reachable(machine.entry) {
        let f = &code.functions[f];
        // The implicit return at the end is not an instruction of the text.
        let (start, end) = (f.start as usize, f.end as usize - 1);
        for (pc, n) in counts.iter().copied().enumerate().take(end).skip(start) {
            c.static_instructions += 1;
            if n == 0 {
                continue;
            }
            c.covered_instructions += 1;
            c.warp_instructions += n;
            let i = &code.instrs[pc];
            let mnemonic = &code.mnemonics[usize::from(code.mnemonic_of[pc])];
            *c.by_mnemonic.entry(mnemonic.clone()).or_default() += n;
            *c.by_opcode.entry(code.sites[pc].opcode.clone()).or_default() += n;
            if i.op == Op::Atom {
                let op = &code.sides.atoms[i.side as usize];
                let float = matches!(
                    op.ty,
                    AtomTy::F16 | AtomTy::Bf16 | AtomTy::F16x2 | AtomTy::Bf16x2 | AtomTy::F32 | AtomTy::F64
                );
                c.float_atomics += if float && op.op == AtomOp::Add { n } else { 0 };
            }
            if i.op == Op::Mma {
                c.tensor_ops += n;
            }
            let approximate = match i.op {
                Op::Ex2F32 | Op::RsqrtF32 => true,
                Op::DivF32 | Op::RcpF32 | Op::SqrtF32 => i.sub & 1 == 1,
                Op::Lane => code.sides.lanes[i.side as usize].approximate,
                _ => false,
            };
            *c.by_class.entry(class(i.op)).or_default() += n;
            match i.op {
                Op::Mma => c.fidelity.modelled += n,
                _ if approximate => c.fidelity.approximate += n,
                _ => c.fidelity.exact += n,
            }
            if approximate {
                *c.approximate.entry(code.sites[pc].opcode.clone()).or_default() += n;
            }
        }
    }
    c
}

/// The last part of a mangled local name (`_ZZ4sdpaE2sk` is `sk`); any other name as it is.
fn display_name(name: &str) -> String {
    let Some(tail) = name.strip_prefix("_ZZ").and_then(|n| n.rsplit_once('E')).map(|t| t.1) else {
        return name.to_string();
    };
    let digits = tail.chars().take_while(char::is_ascii_digit).count();
    match tail[..digits].parse::<usize>() {
        Ok(len) if tail.len() >= digits + len && len > 0 => tail[digits..digits + len].to_string(),
        _ => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::display_name;

    #[test]
    fn names_of_local_variables_are_shown_without_mangling() {
        for (name, shown) in
            [("_ZZ9sdpa_wmmaE2sq", "sq"), ("tile", "tile"), ("_ZZ4kernPfE4tile_0", "tile"), ("_ZZweird", "_ZZweird")]
        {
            assert_eq!(display_name(name), shown);
        }
    }
}
