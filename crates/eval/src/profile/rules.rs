//! What bounds a kernel and what to try next: rules that are data (`data/rules.toml`), applied to figures by name.
//!
//! A rule holds where all of its conditions do; a figure that is not known makes it not hold, so counters that were denied lead to fewer
//! rules and never to guesses. People's own rules stand before the built-in ones. It knows no kernel and no device.

use super::metrics::Figures;
use serde::Deserialize;
use std::collections::BTreeMap;
use warpsmith_spec::record::{AdviceRecord, BoundRecord};

/// Rules of one file at most.
const MAX_RULES: usize = 1000;
/// Levers that are named.
const MAX_ADVICE: usize = 6;

/// A range that a figure has to lie in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    above: Option<f64>,
    below: Option<f64>,
}

type When = BTreeMap<String, Range>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bound {
    word: String,
    source: String,
    when: When,
    why: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lever {
    name: String,
    title: String,
    when: When,
    why: String,
    gain: [f64; 2],
    effort: String,
    /// `STAGES+`: the kernel's lever of that name, and whether more or less of it is advised.
    #[serde(default)]
    moves: Vec<String>,
}

/// A move of a kernel's own lever that the rules advise.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// `STAGES`
    pub lever: String,
    pub more: bool,
    /// Expected: old time / new time.
    pub gain: f64,
    /// The rule that says so.
    pub rule: String,
}

/// A table of rules.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    #[serde(default)]
    bound: Vec<Bound>,
    #[serde(default)]
    lever: Vec<Lever>,
}

impl Rules {
    /// The built-in table.
    pub fn built_in() -> Rules {
        // A test reads the table; a damaged one advises nothing.
        toml::from_str(include_str!("../../data/rules.toml")).unwrap_or_default()
    }

    /// A person's own rules before these. The error says where the text is wrong.
    pub fn with(mut self, text: &str) -> Result<Rules, String> {
        let mut own: Rules = toml::from_str(text).map_err(|e| e.to_string().trim().to_string())?;
        if own.bound.len() + own.lever.len() > MAX_RULES {
            return Err(format!("more than {MAX_RULES} rules"));
        }
        for lever in &own.lever {
            let [low, high] = lever.gain;
            if !(low.is_finite() && high.is_finite() && low > 0.0 && low <= high) {
                return Err(format!("lever {:?}: gain is [low, high], both above 0", lever.name));
            }
            if !matches!(lever.effort.as_str(), "minutes" | "hours" | "days") {
                return Err(format!("lever {:?}: effort is minutes, hours or days", lever.name));
            }
        }
        if let Some(wrong) = own.lever.iter().flat_map(|l| &l.moves).find(|m| parsed(m).is_none()) {
            return Err(format!("the move {wrong:?} is a lever's name with + or - behind it"));
        }
        own.bound.append(&mut self.bound);
        own.lever.append(&mut self.lever);
        Ok(own)
    }

    /// What bounds a kernel with these figures: by counters where they say it, else by the work that was executed.
    pub fn bound(&self, figures: &Figures) -> Option<BoundRecord> {
        let holds = |source: &str| self.bound.iter().find(|b| b.source == source && proof(&b.when, figures).is_some());
        let bound = holds("counters").or_else(|| holds("executed_work"))?;
        Some(BoundRecord {
            word: bound.word.clone(),
            source: bound.source.clone(),
            why: bound.why.clone(),
            proof: proof(&bound.when, figures)?,
        })
    }

    /// Moves of kernels' own levers that rules whose conditions hold advise; of two about one lever the one that promises more.
    pub fn moves(&self, figures: &Figures) -> Vec<Move> {
        let mut found: Vec<Move> = Vec::new();
        for rule in self.lever.iter().filter(|l| proof(&l.when, figures).is_some()) {
            let gain = (rule.gain[0] * rule.gain[1]).sqrt();
            for (lever, more) in rule.moves.iter().filter_map(|m| parsed(m)) {
                let new = Move { lever: lever.into(), more, gain, rule: rule.name.clone() };
                match found.iter_mut().find(|m| m.lever == lever) {
                    Some(known) if known.gain >= gain => {}
                    Some(known) => *known = new,
                    None => found.push(new),
                }
            }
        }
        found
    }

    /// Levers whose conditions hold, each once: the largest expected gain first, then the smaller effort.
    pub fn advice(&self, figures: &Figures) -> Vec<AdviceRecord> {
        let mut found: Vec<AdviceRecord> = Vec::new();
        for lever in &self.lever {
            let Some(proof) = proof(&lever.when, figures) else { continue };
            match found.iter_mut().find(|a| a.lever == lever.name) {
                Some(known) => known.proof.extend(proof),
                None => found.push(AdviceRecord {
                    lever: lever.name.clone(),
                    title: lever.title.clone(),
                    why: lever.why.clone(),
                    gain: lever.gain,
                    effort: lever.effort.clone(),
                    proof,
                }),
            }
        }
        let effort = |a: &AdviceRecord| ["minutes", "hours", "days"].iter().position(|e| *e == a.effort);
        let expected = |a: &AdviceRecord| (a.gain[0] * a.gain[1]).sqrt();
        found.sort_by(|a, b| expected(b).total_cmp(&expected(a)).then(effort(a).cmp(&effort(b))));
        found.truncate(MAX_ADVICE);
        found
    }
}

/// A lever's name, and whether more of it is advised.
fn parsed(text: &str) -> Option<(&str, bool)> {
    let more = text.ends_with('+');
    let name = text.strip_suffix(['+', '-'])?;
    (!name.is_empty()).then_some((name, more))
}

/// The figures that the conditions speak of, if all hold.
fn proof(when: &When, figures: &Figures) -> Option<BTreeMap<String, f64>> {
    let held = when.iter().map(|(name, range)| {
        let value = *figures.get(name)?;
        let inside = range.above.is_none_or(|x| value > x) && range.below.is_none_or(|x| value < x);
        inside.then(|| (name.clone(), value))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rows: &[(&str, f64)]) -> Figures {
        rows.iter().map(|(n, v)| ((*n).to_string(), *v)).collect()
    }

    #[test]
    fn bounds_by_counters() {
        let rules = Rules::built_in();
        for (rows, want) in [
            (&[("tensor_active", 62.0), ("dram", 12.0)][..], "compute"),
            (&[("tensor_active", 62.0), ("dram", 81.0)], "memory"),
            (&[("tensor_active", 30.0), ("dram", 12.0), ("exponentials", 75.0)], "exponentials"),
            (&[("tensor_active", 30.0), ("dram", 12.0), ("shared", 80.0)], "shared_memory"),
            (&[("tensor_active", 10.0), ("dram", 12.0), ("issue", 90.0)], "issue"),
            (&[("tensor_active", 10.0), ("dram", 12.0)], "latency"),
        ] {
            let bound = rules.bound(&figures(rows)).unwrap();
            assert_eq!((bound.word.as_str(), bound.source.as_str()), (want, "counters"), "{rows:?}");
            assert!(!bound.proof.is_empty());
        }
        assert!(
            rules.bound(&Figures::new()).is_none() && rules.advice(&Figures::new()).is_empty(),
            "nothing known, nothing said"
        );
    }

    #[test]
    fn counters_come_before_executed_work() {
        let rules = Rules::built_in();
        let both = figures(&[("load_exponentials", 1.0), ("tensor_active", 62.0), ("dram", 12.0)]);
        assert_eq!(rules.bound(&both).unwrap().source, "counters");
        let work = rules.bound(&figures(&[("load_exponentials", 1.0)])).unwrap();
        assert_eq!((work.word.as_str(), work.source.as_str()), ("exponentials", "executed_work"));
    }

    #[test]
    fn advice_is_ranked_and_each_lever_stands_once() {
        let advice = Rules::built_in().advice(&figures(&[
            ("scalar_macs", 0.9),
            ("async_copies", 0.0),
            ("bank_conflicts", 0.5),
            ("conflict_share", 0.5),
        ]));
        let names: Vec<&str> = advice.iter().map(|a| a.lever.as_str()).collect();
        assert_eq!(names, ["tensor_cores", "swizzle", "async_copy"]);
        assert_eq!(advice[1].proof.len(), 2, "both figures prove it");
    }

    #[test]
    fn moves_of_levers_are_named_once_each_with_the_most_that_is_promised() {
        let rules = Rules::built_in();
        let moves = rules.moves(&figures(&[("bank_conflicts", 0.5), ("filled", 0.3), ("spill_bytes", 64.0)]));
        let told: Vec<(&str, bool, &str)> = moves.iter().map(|m| (m.lever.as_str(), m.more, m.rule.as_str())).collect();
        for want in [("SWIZZLE", true, "swizzle"), ("BLOCK_M", false, "split_kv"), ("BLOCK_N", false, "spills")] {
            assert!(told.contains(&want), "{told:?}");
        }
        assert!(rules.moves(&Figures::new()).is_empty());
        assert!(rules.lever.iter().flat_map(|l| &l.moves).all(|m| parsed(m).is_some()));
    }

    #[test]
    fn people_add_rules() {
        let own = "[[lever]]\nname = \"mine\"\ntitle = \"t\"\nwhen = { waves = { below = 1.0 } }\nwhy = \"w\"\ngain = [2.0, 9.0]\neffort = \"minutes\"\n";
        let rules = Rules::built_in().with(own).unwrap();
        assert_eq!(rules.advice(&figures(&[("waves", 0.5)]))[0].lever, "mine");
        for (text, what) in [
            ("[[lever]]\nname = 1\n", "invalid type"),
            ("[[lever]]\nnmae = \"x\"\n", "unknown field"),
            (&own.replace("[2.0, 9.0]", "[9.0, 2.0]"), "gain is"),
            (&own.replace("minutes", "weeks"), "effort is"),
            (&format!("{own}moves = [\"STAGES\"]\n"), "a lever's name with"),
        ] {
            let error = Rules::default().with(text).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
