//! From series of samples to the record: times, conditions, ratios with intervals and classes.

use super::batch::{Batch, BenchContext};
use super::floor::floor;
use super::measure::{Out, Series};
use super::peers::Peer;
use super::stats;
use super::timed::{Method, Reading, Stop};
use std::collections::BTreeMap;
use warpsmith_spec::record::{
    AgreementRecord, BaselineRecord, ConditionsRecord, MeasurementRecord, OutputsRecord, ResultRecord, SpreadRecord,
    TimesRecord, VerdictWord,
};
use warpsmith_spec::task::Thresholds;

/// What the same ratio differed by between an H100 and an H200 (132 SMs each, the same clocks and power limit), largest over the cells that
/// arithmetic bounds: -8% to +11%. Two runs of the same cells on H200s, hours apart, were nearer: 64 ratios between -4% and +3%.
const BETWEEN_MACHINES: f64 = 0.11;

/// A peer as it was measured: its record but for the ratio, and its samples.
pub(super) struct MeasuredPeer {
    name: String,
    record: BaselineRecord,
    series: Series,
}

/// What is known of a row.
pub(super) struct Seen<'a> {
    pub series: Option<&'a Series>,
    pub record: Option<&'a ResultRecord>,
    pub outputs: Option<&'a OutputsRecord>,
    pub agreement: Option<&'a AgreementRecord>,
}

/// A peer's part of every record of the batch.
pub(super) fn peer(name: &str, peer: &Result<Box<dyn Peer + '_>, String>, series: Option<Series>) -> MeasuredPeer {
    let record = match (peer, &series) {
        (Err(why), _) => BaselineRecord::missing(why.clone()),
        (Ok(_), Some(Series { out: Some((method, out)), .. })) => BaselineRecord::missing(match out {
            Out::Stopped(Stop::Lost { why }) => format!("while it was timed ({}): {why}", method.word()),
            Out::Stopped(Stop::TimedOut { seconds }) => {
                format!("it did not end within {seconds} s ({})", method.word())
            }
            _ => format!("it stopped when it was timed ({})", method.word()),
        }),
        (Ok(peer), Some(s)) => BaselineRecord {
            methods: methods(s),
            check: peer.check(),
            provider: peer.provider(),
            ..BaselineRecord::default()
        },
        (Ok(_), None) => BaselineRecord::missing("it was not timed"),
    };
    MeasuredPeer { name: name.to_string(), record, series: series.unwrap_or_default() }
}

/// The measurement of row `i`, without stability.
pub(super) fn measurement(
    ctx: &BenchContext,
    batch: &Batch,
    i: usize,
    seen: &[Seen],
    peers: &[MeasuredPeer],
) -> MeasurementRecord {
    let primary = ctx.plan.methods.first().copied().unwrap_or(Method::GraphCold);
    let own = &seen[i];
    let none = Series::default();
    let series = own.series.unwrap_or(&none);
    let task = &batch.rows[i].step.subject.task;
    let mut record = MeasurementRecord {
        device: ctx.timed.device_name(),
        conditions: conditions(&series.readings),
        method: primary.word().into(),
        methods: methods(series),
        outputs: own.outputs.cloned(),
        agreement: own.agreement.cloned(),
        between_machines: Some(SpreadRecord {
            relative: BETWEEN_MACHINES,
            source:
                "the same cells on an H100 and an H200, 2026-11-21: -8% to +11%; in two runs on H200s, 2026-11-22: -4% to +3%"
                    .into(),
        }),
        ..MeasurementRecord::default()
    };
    for p in peers {
        let mut baseline = p.record.clone();
        add_ratio(&mut baseline, &p.series, series, primary, &task.thresholds);
        record.baselines.insert(p.name.clone(), baseline);
    }
    for (j, row) in batch.rows.iter().enumerate() {
        let Some(name) = row.baseline.as_ref().filter(|_| j != i) else { continue };
        record
            .baselines
            .insert(name.clone(), own_baseline(row.missing.as_deref(), &seen[j], series, primary, &task.thresholds));
    }
    record
}

/// One of our own kernels as a baseline.
fn own_baseline(
    missing: Option<&str>,
    theirs: &Seen,
    ours: &Series,
    primary: Method,
    thresholds: &Thresholds,
) -> BaselineRecord {
    if let Some(why) = missing {
        return BaselineRecord::missing(why);
    }
    match (theirs.series.filter(|s| s.out.is_none()), theirs.record) {
        (Some(series), Some(record)) => {
            let mut baseline =
                BaselineRecord { methods: methods(series), check: record.check.clone(), ..BaselineRecord::default() };
            add_ratio(&mut baseline, series, ours, primary, thresholds);
            baseline
        }
        (_, Some(r)) if r.verdict != VerdictWord::Passed => {
            let why = r.finding.as_ref().map_or(String::new(), |f| format!(": {}", f.message));
            BaselineRecord::missing(format!("it did not pass{why}"))
        }
        _ => BaselineRecord::missing("it was not timed to its end"),
    }
}

fn add_ratio(baseline: &mut BaselineRecord, theirs: &Series, ours: &Series, primary: Method, thresholds: &Thresholds) {
    if baseline.missing.is_some() {
        return;
    }
    let (theirs, ours) = (theirs.of(primary), ours.of(primary));
    let Some(ratio) = stats::ratio(&theirs, &ours) else { return };
    let noise = stats::noise(&theirs).max(stats::noise(&ours));
    baseline.ratio = Some(ratio.value);
    baseline.ratio_low = ratio.interval.map(|i| i.0);
    baseline.ratio_high = ratio.interval.map(|i| i.1);
    baseline.noise_floor = Some(noise);
    baseline.class = Some(stats::class(&ratio, noise, thresholds).into());
}

fn methods(series: &Series) -> BTreeMap<String, TimesRecord> {
    series.rounds.iter().map(|(method, rounds)| (method.word().to_string(), stats::times(rounds))).collect()
}

/// The middle of what was read; throttled if it was so at any time.
fn conditions(readings: &[Reading]) -> ConditionsRecord {
    let middle = |get: &dyn Fn(&Reading) -> Option<f64>| {
        let values: Vec<f64> = readings.iter().filter_map(get).collect();
        (!values.is_empty()).then(|| stats::median(&values))
    };
    let whole = |get: &dyn Fn(&Reading) -> Option<u32>| middle(&|r| get(r).map(f64::from)).map(|x| x.round() as u32);
    let mut reasons: Vec<String> = readings.iter().flat_map(|r| r.throttle.iter().cloned()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    ConditionsRecord {
        sm_mhz: whole(&|r| r.sm_mhz),
        memory_mhz: whole(&|r| r.memory_mhz),
        power_w: middle(&|r| r.power_w),
        temperature_c: whole(&|r| r.temperature_c),
        // Where no reading came there is nothing to say.
        throttled: (!readings.is_empty()).then(|| readings.iter().any(Reading::throttled)),
        throttle_reasons: reasons,
    }
}

/// The floor for the first method.
pub(super) fn floor_of(
    ctx: &BenchContext,
    inputs: &crate::inputs::Inputs,
) -> Option<warpsmith_spec::record::FloorRecord> {
    floor(&ctx.timed.rated(), inputs, ctx.plan.methods.first().copied()?)
}
