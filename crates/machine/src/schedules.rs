//! Several legal orders of events from one starting point: what a kernel leaves in memory has to be the same after each.
//!
//! The first schedule is the caller's own and leaves its memory. Each further one starts CTAs, orders warps and lets asynchronous
//! copies land in another way, drawn from its number alone, so that any run replays. What it finds is added to the first one's
//! findings. A difference is a finding of its own; where atomics add floating-point numbers it is a note, for their order is
//! chance on any GPU. Limits: a few schedules of very many; one that reaches the limit of instructions says nothing.

use crate::api::{AsyncCopies, End, Finding, FindingKind, Launch, Options, Outcome, Place, Severity, Site};
use crate::launch::launch;
use crate::memory::Memory;
use crate::program::Program;

/// One launch of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    pub program: &'a Program,
    pub launch: &'a Launch,
}

/// What all schedules of a sequence leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Explored {
    /// By launch, until one did not complete: those of the first schedule, with what others found besides. A difference is
    /// with the last launch.
    pub outcomes: Vec<Outcome>,
    /// Schedules that ran to their end or to a fault.
    pub schedules: u32,
}

/// Runs launches in order, once as the options say and `options.schedules` times otherwise.
pub fn explore(memory: &mut Memory, steps: &[Step<'_>], options: &Options) -> Explored {
    let start = (options.schedules > 0).then(|| memory.clone());
    let mut outcomes = sequence(memory, steps, options);
    let mut schedules = 1;
    let Some(start) = start else { return Explored { outcomes, schedules } };
    for n in 1..=options.schedules {
        if !outcomes.iter().all(|o| o.end == End::Completed) {
            break;
        }
        let mut other = start.clone();
        let found = sequence(&mut other, steps, &nth(options, n));
        if found.iter().any(|o| matches!(o.end, End::LimitReached { .. })) {
            continue;
        }
        schedules += 1;
        let completed = found.iter().all(|o| o.end == End::Completed);
        for (mine, theirs) in outcomes.iter_mut().zip(found) {
            merge(mine, theirs);
        }
        if completed && let Some(last) = outcomes.last_mut() {
            let explained = last.counters.float_atomics > 0;
            if let Some((step, place)) = steps.last().zip(difference(memory, &other)) {
                add(last, differs(step, place, explained, n));
            }
        }
    }
    Explored { outcomes, schedules }
}

/// The options of the n-th further schedule.
fn nth(options: &Options, n: u32) -> Options {
    let opposite = match options.async_copies {
        AsyncCopies::Early => AsyncCopies::Late,
        AsyncCopies::Late => AsyncCopies::Early,
    };
    Options {
        // Odd ones start CTAs backwards, even ones in steps; see `worker`.
        schedule_seed: options.schedule_seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xFFFF_FFFF | (u64::from(n) + 2),
        async_copies: if n % 2 == 1 { opposite } else { options.async_copies },
        ..options.clone()
    }
}

fn sequence(memory: &mut Memory, steps: &[Step<'_>], options: &Options) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut left = options.max_instructions;
    for step in steps {
        let outcome = launch(step.program, memory, step.launch, &Options { max_instructions: left, ..options.clone() });
        left = left.saturating_sub(outcome.counters.warp_instructions);
        let go_on = outcome.end == End::Completed;
        outcomes.push(outcome);
        if !go_on {
            break;
        }
    }
    outcomes
}

/// Adds what another schedule found.
fn merge(mine: &mut Outcome, theirs: Outcome) {
    for f in theirs.findings {
        add(mine, f);
    }
    if mine.end == End::Completed && theirs.end != End::Completed {
        mine.end = theirs.end;
    }
}

fn add(outcome: &mut Outcome, f: Finding) {
    let sides = |f: &Finding| {
        let mut sides = [Some(f.site.clone()), f.other.clone()];
        sides.sort();
        (f.kind, f.severity, sides)
    };
    // Either access of a race may be the second one.
    if !outcome.findings.iter().any(|known| sides(known) == sides(&f)) {
        outcome.findings.push(f);
    }
}

/// The first byte that differs.
fn difference(a: &Memory, b: &Memory) -> Option<Place> {
    a.buffers.iter().zip(&b.buffers).find_map(|(a, b)| {
        let at = a.data.first_difference(&b.data)?;
        let object = Some(a.name.clone());
        Some(Place { space: a.space, object, offset: at as i64, bytes: 1, object_bytes: a.bytes })
    })
}

fn differs(step: &Step, place: Place, explained: bool, n: u32) -> Finding {
    let object = place.object.clone().unwrap_or_default();
    let at = place.offset;
    let why = if explained {
        "the order of floating-point atomics may explain it"
    } else {
        "a synchronisation is missing, or the result depends on who comes first"
    };
    let opcode = String::new();
    let line = step.program.entry_line(&step.launch.entry);
    Finding {
        kind: FindingKind::ScheduleDependent,
        severity: if explained { Severity::Note } else { Severity::Error },
        message: format!(
            "{object} differs from byte {at} on after another legal order of CTAs, warps and asynchronous copies (schedule {n}): {why}"
        ),
        site: Site { file: None, line: None, ptx_line: line, opcode },
        other: None,
        entry: step.launch.entry.clone(),
        cta: [0; 3],
        warp: 0,
        lane: None,
        place: Some(place),
        count: 1,
    }
}
