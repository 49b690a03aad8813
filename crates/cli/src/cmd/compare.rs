//! `warpsmith compare OLD NEW`: two runs, a run and a stored baseline, or two kernels. Exit code 1 where something that passed is lost, or
//! a rule of `--fail-if` is missed; 2 where conditions differ and nobody said that they may.

use crate::args::{Common, CompareArgs};
use crate::error::CliError;
use crate::output::{err, out};
use std::path::{Path, PathBuf};
use warpsmith_report::{Comparison, Rule, Side, comparison_text};
use warpsmith_spec::record::{ResultRecord, RunRecord};
use warpsmith_store::{LoadedRun, read_summary};

pub fn compare(common: &Common, args: &CompareArgs) -> Result<i32, CliError> {
    let rules = args.fail_if.iter().map(|r| Rule::parse(r)).collect::<Result<Vec<_>, _>>();
    let rules = rules.map_err(|why| CliError::usage("wrong-usage", why))?;
    let old = Named::parse(&args.old, None);
    let new = Named::parse(&args.new, Some(&old.path));
    let (mut old_record, mut new_record) = (load(&old.path)?, load(&new.path)?);
    if let Some(run) = &args.profiles {
        let profiles = load(run)?;
        let found = with_profiles(&mut old_record, &profiles) + with_profiles(&mut new_record, &profiles);
        if found == 0 {
            return Err(CliError::usage(
                "nothing-in-common",
                format!("{} has a profile of none of these kernels", run.display()),
            )
            .hint("`warpsmith profile KERNEL --shapes ...` at the same shapes and for the same target makes one"));
        }
    }
    let (a, b) = (old.side(&args.old, &old_record)?, new.side(&args.new, &new_record)?);
    let comparison = Comparison::of(&a, &b, &rules);
    if comparison.pairs.is_empty() {
        return Err(CliError::usage("nothing-in-common", format!("{} and {} have no result in common", args.old, args.new)).hint(format!(
            "only in old: {}; only in new: {}. Two kernels of different names are compared as RUN:KERNEL RUN:KERNEL, at the same shapes",
            first(&comparison.only_old),
            first(&comparison.only_new)
        )));
    }
    if !comparison.unequal.is_empty() && !args.allow_unequal {
        let differing: Vec<_> =
            comparison.unequal.iter().map(|d| format!("{} ({} and {})", d.what, d.old, d.new)).collect();
        return Err(CliError::usage("unequal-conditions", format!("the conditions differ: {}", differing.join("; ")))
            .hint("measure both under the same ones, or say --allow-unequal"));
    }
    if common.json {
        let text = serde_json::to_string_pretty(&comparison)
            .map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
        out(&(text + "\n"));
    } else {
        out(&comparison_text(&comparison));
    }
    Ok(i32::from(!comparison.holds()))
}

/// Gives results the profiles that another run took of the same kernel on the same work; how many.
fn with_profiles(record: &mut RunRecord, profiles: &RunRecord) -> usize {
    let stem = |r: &ResultRecord| warpsmith_builtin::canonical_name(&r.candidate).trim_end_matches(".cu").to_string();
    let mut found = 0;
    for r in record.results.iter_mut().filter(|r| r.profile.is_none()) {
        let same = profiles.results.iter().find(|p| {
            p.profile.is_some()
                && (stem(p), &p.symbols, p.causal, &p.target, &p.levers)
                    == (stem(r), &r.symbols, r.causal, &r.target, &r.levers)
        });
        if let Some(p) = same {
            (r.profile, found) = (p.profile.clone(), found + 1);
            r.execution = p.execution.clone().or(r.execution.take());
        }
    }
    found
}

/// A run, and perhaps one kernel of it.
struct Named {
    path: PathBuf,
    /// Name, then levers as typed.
    kernel: Option<(String, Vec<String>)>,
}

impl Named {
    /// `PATH`, `PATH:KERNEL` or, beside a run that was named, `KERNEL` alone.
    fn parse(text: &str, beside: Option<&Path>) -> Named {
        let whole = Path::new(text);
        if whole.exists() {
            return Named { path: whole.into(), kernel: None };
        }
        let split = |words: &str| {
            let mut parts = words.split(',').map(str::to_string);
            (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>())
        };
        // A path of Windows has a colon of its own: the last one that leaves an existing path counts.
        let colons = text.rmatch_indices(':').map(|(at, _)| at);
        if let Some(at) = colons.into_iter().find(|at| Path::new(&text[..*at]).exists()) {
            return Named { path: Path::new(&text[..at]).into(), kernel: Some(split(&text[at + 1..])) };
        }
        match beside {
            Some(run) if !text.contains(['/', '\\']) => Named { path: run.into(), kernel: Some(split(text)) },
            _ => Named { path: whole.into(), kernel: None },
        }
    }

    fn side<'a>(&self, name: &str, record: &'a RunRecord) -> Result<Side<'a>, CliError> {
        let results: Vec<&ResultRecord> = record.results.iter().filter(|r| self.takes(r)).collect();
        if results.is_empty() && self.kernel.is_some() {
            let known: std::collections::BTreeSet<&str> = record.results.iter().map(|r| r.candidate.as_str()).collect();
            let known: Vec<_> = known.into_iter().take(12).collect();
            return Err(CliError::usage("unknown-name", format!("{name}: that run has no result of such a kernel"))
                .hint(format!("it has {}", known.join(", "))));
        }
        Ok(Side { name: name.into(), environment: &record.environment, results, chosen: self.kernel.is_some() })
    }

    fn takes(&self, r: &ResultRecord) -> bool {
        let Some((name, levers)) = &self.kernel else { return true };
        let stem = r.candidate.rsplit(['/', '\\']).next().unwrap_or(&r.candidate);
        let stem = stem.strip_suffix(".cu").unwrap_or(stem);
        let named = stem == name || r.candidate == *name;
        named
            && levers.iter().all(|l| match l.split_once('=') {
                Some((k, v)) => r.levers.get(k).is_some_and(|x| x.to_string() == v),
                None => r.config.as_deref() == Some(l),
            })
    }
}

fn load(path: &Path) -> Result<RunRecord, CliError> {
    if path.is_file() {
        return read_summary(path).map_err(|why| {
            CliError::usage("run-unreadable", format!("{}: {why}", path.display()))
                .hint("name a run's folder, or a summary.json that one wrote")
        });
    }
    let run = LoadedRun::open(path)?;
    run.notes.iter().for_each(|note| err(&format!("note: {}: {note}\n", path.display())));
    Ok(run.record)
}

fn first(list: &[String]) -> String {
    match list {
        [] => "nothing".into(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
    }
}
