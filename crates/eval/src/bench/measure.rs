//! Rounds: within each every contender is timed once by every method, in random order, so that what changes on the device changes for all.
//!
//! The length is fixed (so many samples), or goes on until the interval of every ratio is narrower than 1% or the time is up. How many calls
//! make a replay, and how many replays a round, follows from a first look at each contender. Order, inputs and sampled outputs are drawn from
//! the run's secret. Source of the method: NVBench's stopping criteria, and the interleaving that A/B tests use.

use super::lots::Lots;
use super::stats::{self, Rounds};
use super::timed::{Ask, Method, Reading, Stop};
use crate::error::EvalError;
use std::collections::BTreeMap;

/// How long subjects are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// Exactly so many samples of each subject by each method.
    Samples(u32),
    /// About so many seconds for each subject, fewer where the intervals are narrow before.
    Seconds(f64),
}

/// How a measurement is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The first is the one that ratios are of.
    pub methods: Vec<Method>,
    pub length: Length,
    /// Replays before the first sample of each subject and method.
    pub warmup: u32,
    pub secret: u64,
    /// For one request to the device.
    pub seconds: u64,
}

/// Rounds that are made at least, unless a fixed length says fewer.
const FEWEST: usize = 5;
/// Rounds at which a measurement whose intervals are narrow ends.
const ENOUGH: usize = 10;
const MOST: usize = 1000;
/// The width of an interval, relative, that is narrow.
const NARROW: f64 = 0.01;
/// Microseconds that the calls of a replay take at least, together: below, the replay's own cost shows.
const REPLAY_US: f64 = 200.0;
/// Calls of one replay at most; so many copies are wanted.
pub const MOST_CALLS: u32 = 20;
/// What refreshing the buffers and flushing the cache take for each replay, roughly.
const BETWEEN_US: f64 = 1000.0;
/// Bytes of outputs that are looked at for each contender.
const SAMPLED_BYTES: u64 = 64 << 20;

/// Somebody who is timed: a candidate, or a baseline.
pub trait Contender {
    /// Times it once, and looks at the outputs that were asked for.
    fn turn(&mut self, ask: &Ask) -> Result<Turn, EvalError>;

    /// Of one call.
    fn output_bytes(&self) -> u64;
}

/// What came of one turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    pub samples: Vec<f64>,
    pub readings: Vec<Reading>,
    /// It is out: it stopped, or did what a subject may not.
    pub out: Option<Out>,
}

/// Why a contender is not timed any more.
#[derive(Debug, Clone, PartialEq)]
pub enum Out {
    Stopped(Stop),
    /// It was found to break a rule; it has kept the findings itself.
    Violated,
}

/// All turns of one contender.
#[derive(Debug, Clone, Default)]
pub struct Series {
    pub rounds: BTreeMap<Method, Rounds>,
    pub readings: Vec<Reading>,
    pub out: Option<(Method, Out)>,
    pace: Pace,
}

impl Series {
    /// The rounds of a method; none if there are none.
    pub fn of(&self, method: Method) -> Rounds {
        self.rounds.get(&method).cloned().unwrap_or_default()
    }
}

/// How a contender's turns are made.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    calls: u32,
    replays: u32,
}

/// Measures contenders against each other. `baselines` are those that the others are divided by; without one, each one's own interval
/// counts. `place` tells this measurement from the run's others; `clock` gives seconds.
pub fn measure(
    contenders: &mut [&mut dyn Contender],
    baselines: &[usize],
    plan: &Plan,
    place: u64,
    clock: &dyn Fn() -> f64,
) -> Result<Vec<Series>, EvalError> {
    let n = contenders.len();
    let mut all = vec![Series::default(); n];
    let mut lots = Lots::of(plan.secret, "rounds", place);
    let begun = clock();
    for (series, contender) in all.iter_mut().zip(contenders.iter_mut()) {
        first_look(series, *contender, plan, &mut lots)?;
    }
    for round in 0..MOST {
        if done(&all, baselines, plan, round, clock() - begun) {
            break;
        }
        for &method in &plan.methods {
            for i in lots.order(n) {
                if all[i].out.is_none() {
                    one_turn(&mut all[i], &mut *contenders[i], method, plan, round, &mut lots)?;
                }
            }
        }
    }
    Ok(all)
}

/// One launch by itself: how long it takes decides how it is timed.
fn first_look(
    series: &mut Series,
    contender: &mut dyn Contender,
    plan: &Plan,
    lots: &mut Lots,
) -> Result<(), EvalError> {
    let method = Method::Event;
    let ask =
        Ask { method, replays: 3, warmup: 1, calls: 1, seed: lots.draw(), seconds: plan.seconds, ..Ask::default() };
    let turn = contender.turn(&ask)?;
    series.out = turn.out.map(|out| (method, out));
    let us = stats::median(&turn.samples).max(0.1);
    let calls = (REPLAY_US / us).ceil().clamp(2.0, f64::from(MOST_CALLS)) as u32;
    let replays = match plan.length {
        // The largest divisor that leaves ten rounds or more, so that exactly so many samples are taken.
        Length::Samples(n) => (1..=n / 10).rev().find(|k| n % k == 0).unwrap_or(1),
        Length::Seconds(seconds) => {
            let turn_us = seconds * 1e6 / (plan.methods.len().max(1) * ENOUGH) as f64;
            (turn_us / (us * f64::from(calls) + BETWEEN_US)).clamp(1.0, 10.0) as u32
        }
    };
    // What takes long is not called often in one replay: a call of it hides the replay's cost by itself.
    let calls = if us > REPLAY_US { 1 } else { calls };
    series.pace = Pace { calls, replays };
    Ok(())
}

fn one_turn(
    series: &mut Series,
    contender: &mut dyn Contender,
    method: Method,
    plan: &Plan,
    round: usize,
    lots: &mut Lots,
) -> Result<(), EvalError> {
    let Pace { calls, replays } = series.pace;
    let calls = if method == Method::Event { 1 } else { calls };
    let asks = (plan.methods.len() * ENOUGH) as u64;
    let affordable = SAMPLED_BYTES / contender.output_bytes().max(1);
    // The first round of each method is always looked at, the others as often as the bytes allow, in secret.
    let looked_at = round == 0 || lots.below(asks) < affordable;
    let place = [lots.below(u64::from(replays)) as u32, lots.below(u64::from(calls)) as u32];
    let ask = Ask {
        method,
        replays,
        warmup: if round == 0 { plan.warmup } else { plan.warmup.min(1) },
        calls,
        seed: lots.draw(),
        sample: if looked_at { vec![place] } else { Vec::new() },
        marked: false,
        seconds: plan.seconds,
    };
    let turn = contender.turn(&ask)?;
    series.readings.extend(turn.readings);
    match turn.out {
        Some(out) => series.out = Some((method, out)),
        None => series.rounds.entry(method).or_default().push(turn.samples),
    }
    Ok(())
}

fn done(all: &[Series], baselines: &[usize], plan: &Plan, round: usize, seconds: f64) -> bool {
    if all.iter().all(|s| s.out.is_some()) {
        return true;
    }
    match plan.length {
        Length::Samples(n) => {
            let replays = (1..=n / 10).rev().find(|k| n % k == 0).unwrap_or(1);
            round as u64 * u64::from(replays) >= u64::from(n)
        }
        Length::Seconds(limit) => {
            let up = seconds >= limit * all.len() as f64;
            (up && round >= FEWEST) || (round >= ENOUGH && narrow(all, baselines, plan))
        }
    }
}

fn narrow(all: &[Series], baselines: &[usize], plan: &Plan) -> bool {
    let Some(&method) = plan.methods.first() else { return true };
    let is_narrow = |e: Option<stats::Estimate>| e.and_then(|e| e.width()).is_some_and(|w| w < NARROW);
    let going = |i: &usize| all[*i].out.is_none();
    let judged = (0..all.len()).filter(|i| going(i) && !baselines.contains(i));
    let against: Vec<usize> = baselines.iter().copied().filter(going).collect();
    judged.into_iter().all(|i| {
        let ours = all[i].of(method);
        match against.is_empty() {
            true => is_narrow(stats::typical(&ours)),
            false => against.iter().all(|b| is_narrow(stats::ratio(&all[*b].of(method), &ours))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    struct Steady<'a> {
        name: usize,
        us: f64,
        noise: f64,
        out_at: Option<usize>,
        turns: usize,
        time: &'a Cell<f64>,
        order: Rc<RefCell<Vec<(usize, Method)>>>,
    }

    impl Contender for Steady<'_> {
        fn turn(&mut self, ask: &Ask) -> Result<Turn, EvalError> {
            self.turns += 1;
            self.order.borrow_mut().push((self.name, ask.method));
            let out = (self.out_at == Some(self.turns)).then_some(Out::Violated);
            let mut lots = Lots::new(ask.seed);
            let samples: Vec<f64> = (0..ask.replays).map(|_| self.us * (1.0 + self.noise * lots.normal())).collect();
            self.time.set(self.time.get() + samples.iter().sum::<f64>() * 1e-6 * f64::from(ask.calls) + 1e-3);
            Ok(Turn { samples, readings: Vec::new(), out })
        }

        fn output_bytes(&self) -> u64 {
            1024
        }
    }

    fn plan(length: Length) -> Plan {
        Plan { methods: vec![Method::GraphCold, Method::Event], length, warmup: 2, secret: 9, seconds: 10 }
    }

    /// Rounds and samples of the first contender, the order of all turns, the seconds that it took.
    fn run(length: Length, noise: f64, out_at: Option<usize>) -> (usize, usize, Vec<(usize, Method)>, f64) {
        let (time, order) = (Cell::new(0.0), Rc::new(RefCell::new(Vec::new())));
        let steady = |name, us, out_at| Steady { name, us, noise, out_at, turns: 0, time: &time, order: order.clone() };
        let (mut a, mut b, mut c) = (steady(0, 10.0, None), steady(1, 20.0, None), steady(2, 15.0, out_at));
        let series = measure(&mut [&mut a, &mut b, &mut c], &[1], &plan(length), 0, &|| time.get()).expect("no errors");
        let first = series[0].of(Method::GraphCold);
        assert_eq!(series[0].rounds.len(), 2);
        assert_eq!(series[2].out.is_some(), out_at.is_some());
        let seen = order.borrow().clone();
        (first.len(), first.concat().len(), seen, time.get())
    }

    #[test]
    fn a_fixed_length_takes_exactly_so_many_samples() {
        for (n, rounds) in [(1, 1), (7, 7), (20, 10), (25, 25), (100, 10), (120, 10)] {
            let (r, samples, ..) = run(Length::Samples(n), 0.01, None);
            assert_eq!((r, samples), (rounds, n as usize));
        }
    }

    #[test]
    fn an_adaptive_length_ends_when_narrow_or_when_the_time_is_up() {
        let (quiet, ..) = run(Length::Seconds(5.0), 0.0001, None);
        assert_eq!(quiet, ENOUGH);
        let (noisy, _, _, seconds) = run(Length::Seconds(0.5), 0.5, None);
        assert!(noisy > ENOUGH && (1.4..3.0).contains(&seconds), "{noisy} rounds, {seconds} s");
        let (hasty, ..) = run(Length::Seconds(0.0), 0.5, None);
        assert_eq!(hasty, FEWEST);
    }

    #[test]
    fn each_is_timed_once_a_round_in_changing_order_that_replays() {
        let (rounds, _, order, _) = run(Length::Samples(10), 0.01, None);
        let turns: Vec<usize> = order.iter().filter(|(_, m)| *m == Method::GraphCold).map(|(n, _)| *n).collect();
        let orders: Vec<&[usize]> = turns.chunks(3).collect();
        assert_eq!(orders.len(), rounds);
        for order in &orders {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
        assert!(orders.iter().any(|o| *o != orders[0]), "the order never changes");
        assert_eq!(run(Length::Samples(10), 0.01, None).2, order);
    }

    #[test]
    fn who_is_out_holds_nobody_up() {
        let (rounds, _, order, _) = run(Length::Samples(10), 0.01, Some(4));
        assert_eq!((rounds, order.iter().filter(|(n, _)| *n == 2).count()), (10, 4));
    }
}
