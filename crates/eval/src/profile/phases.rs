//! Phases: `// phase: NAME` in a source reaches to the next mark or the end of its function, and takes along what is inlined there.
//!
//! An instruction belongs to the phase of the innermost place of its chain of call sites that lies in one; so a helper without marks counts for
//! who called it, and one with marks for itself. Shares of work come from the PTX machine, which has no time; shares of time from
//! ncu's samples only, and an Amdahl bound from those. Limits: functions are found by their braces, not by a C++ parser; macros that
//! hold braces may end one too early. Samples by line know no call site, so inlined helpers without marks stay unmarked there;
//! those by instruction know them (`cubin_lines`).

use std::collections::BTreeMap;
use warpsmith_spec::record::{PhaseRecord, SampleRecord};

const MARK: &str = "// phase:";
/// Name of what lies in no phase.
pub const UNMARKED: &str = "unmarked";

/// What the instructions of one chain of call sites did: innermost place first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    pub chain: Vec<(String, u32)>,
    pub warp_instructions: u64,
    pub tensor_ops: u64,
    /// Sectors of global memory, 32 bytes each.
    pub global_sectors: u64,
    /// Wavefronts of shared memory, up to 128 bytes each, and those that bank conflicts cost.
    pub shared_wavefronts: u64,
    pub bank_conflicts: u64,
}

/// Where the phases of some sources lie.
#[derive(Debug, Clone, Default)]
pub struct Phases {
    /// File's own name -> (first line, last line, phase), in order.
    spans: BTreeMap<String, Vec<(u32, u32, String)>>,
}

impl Phases {
    /// Reads marks. Files go by their own names, without folders.
    pub fn of<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Phases {
        let spans = sources.into_iter().map(|(name, text)| (base(name).to_string(), spans(text)));
        Phases { spans: spans.filter(|(_, s)| !s.is_empty()).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The phase of a line.
    pub fn at(&self, file: &str, line: u32) -> Option<&str> {
        let spans = self.spans.get(base(file))?;
        spans.iter().find(|(from, to, _)| (*from..=*to).contains(&line)).map(|(_, _, phase)| phase.as_str())
    }

    fn of_chain(&self, chain: &[(String, u32)]) -> Option<&str> {
        chain.iter().find_map(|(file, line)| self.at(file, *line))
    }

    /// In the order in which they stand in the sources, what is unmarked last. Nothing where no source has a mark.
    pub fn shares(&self, places: &[Place], samples: &[SampleRecord]) -> Vec<PhaseRecord> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut names: Vec<&str> = Vec::new();
        for (_, _, name) in self.spans.values().flatten() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.push(UNMARKED);
        let bytes = |p: &Place| 32.0 * p.global_sectors as f64 + 128.0 * p.shared_wavefronts as f64;
        let figures: [&dyn Fn(&Place) -> f64; 4] =
            [&|p| p.warp_instructions as f64, &|p| p.tensor_ops as f64, &bytes, &|p| p.bank_conflicts as f64];
        let of = |figure: &dyn Fn(&Place) -> f64, phase: Option<&str>| -> f64 {
            let inside =
                places.iter().filter(|p| phase.is_none_or(|n| self.of_chain(&p.chain).unwrap_or(UNMARKED) == n));
            inside.map(figure).sum()
        };
        let share = |figure: &dyn Fn(&Place) -> f64, phase: &str| {
            let all = of(figure, None);
            if all > 0.0 { of(figure, Some(phase)) / all } else { 0.0 }
        };
        // Samples of which no line is known say nothing about phases.
        let placed = samples.iter().any(|s| s.line.is_some());
        let all: u64 = if placed { samples.iter().map(|s| s.samples).sum() } else { 0 };
        let sampled = |phase: &str| -> u64 {
            let inside = samples.iter().filter(|s| {
                let own = s.file.as_deref().zip(s.line);
                let chain = own.into_iter().chain(s.via.iter().map(|(f, l)| (f.as_str(), *l)));
                chain.filter_map(|(f, l)| self.at(f, l)).next().unwrap_or(UNMARKED) == phase
            });
            inside.map(|s| s.samples).sum()
        };
        let record = |phase: &str| {
            let time = (all > 0).then(|| sampled(phase) as f64 / all as f64);
            PhaseRecord {
                phase: phase.to_string(),
                issue_slots: share(figures[0], phase),
                tensor_ops: share(figures[1], phase),
                bytes: share(figures[2], phase),
                bank_conflicts: share(figures[3], phase),
                time,
                amdahl: time.filter(|t| *t < 1.0).map(|t| 1.0 / (1.0 - t)),
            }
        };
        let found = names.iter().map(|n| record(n));
        found.filter(|r| r.phase != UNMARKED || r.issue_slots > 0.0 || r.time.is_some_and(|t| t > 0.0)).collect()
    }
}

fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Marks with their reach.
fn spans(text: &str) -> Vec<(u32, u32, String)> {
    let mut found: Vec<(u32, u32, String)> = Vec::new();
    // The mark that is open, and the depth of braces of the function that it stands in.
    let mut open: Option<(u32, String)> = None;
    let (mut kinds, mut head, mut comment) = (Vec::<Brace>::new(), String::new(), false);
    let mut last = 0;
    for (n, line) in (1u32..).zip(text.lines()) {
        last = n;
        let code = code_of(line, &mut comment);
        if let Some(name) = mark(line) {
            if let Some((from, name)) = open.take() {
                found.push((from, n.saturating_sub(1).max(from), name));
            }
            // Outside of a function a mark has nothing to reach over.
            if kinds.contains(&Brace::Function) {
                open = Some((n, name));
            }
        }
        for c in code.chars() {
            match c {
                '{' => {
                    let inside = kinds.contains(&Brace::Function);
                    let words = head.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty());
                    let scope = words.clone().any(|w| matches!(w, "namespace" | "struct" | "class" | "union" | "enum"))
                        || (words.clone().any(|w| w == "extern") && !head.contains('('));
                    let plain = !inside && (scope && !head.contains('(') || !head.contains('('));
                    kinds.push(match (inside, plain) {
                        (true, _) => Brace::Inner,
                        (false, true) => Brace::Scope,
                        (false, false) => Brace::Function,
                    });
                    head.clear();
                }
                '}' => {
                    if kinds.pop() == Some(Brace::Function)
                        && let Some((from, name)) = open.take()
                    {
                        found.push((from, n, name));
                    }
                    head.clear();
                }
                ';' => head.clear(),
                c => head.push(c),
            }
        }
        head.push(' ');
    }
    if let Some((from, name)) = open {
        found.push((from, last.max(from), name));
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brace {
    /// A namespace, a class, an initialiser.
    Scope,
    Function,
    Inner,
}

fn mark(line: &str) -> Option<String> {
    let name = line.trim_start().strip_prefix(MARK)?.trim();
    let name: String = name.chars().take(60).collect();
    (!name.is_empty()).then_some(name)
}

/// A line without comments and without what stands in quotes.
fn code_of(line: &str, comment: &mut bool) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut quote: Option<char> = None;
    // A preprocessor's line has no braces of its own.
    if !*comment && line.trim_start().starts_with('#') {
        return out;
    }
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match (quote, *comment, c, next) {
            (_, true, '*', Some('/')) => {
                *comment = false;
                chars.next();
            }
            (_, true, ..) => {}
            (Some(_), _, '\\', _) => drop(chars.next()),
            (Some(q), _, c, _) if c == q => quote = None,
            (Some(_), ..) => {}
            (None, _, '/', Some('/')) => break,
            (None, _, '/', Some('*')) => {
                *comment = true;
                chars.next();
            }
            // 1'000 is a number, not a character.
            (None, _, '\'', _) if out.ends_with(|c: char| c.is_ascii_digit()) => {}
            (None, _, '"' | '\'', _) => quote = Some(c),
            (None, ..) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "namespace n {\nstatic __device__ float helper(float x)\n{\n    return x;\n}\n} // namespace\n\
        extern \"C\" __global__ void k(int n)\n{\n    // phase: load\n    for (;;) {\n        a(\"}\"); /* } */\n    }\n    // phase: softmax\n    b();\n}\n\
        // phase: nowhere\n__global__ void other()\n{\n    c();\n    // phase: store\n    d();\n}\n";

    #[test]
    fn a_mark_reaches_to_the_next_or_to_the_end_of_its_function() {
        let phases = Phases::of([("folder/k.cu", SOURCE)]);
        let at: Vec<Option<&str>> = (1..=22).map(|n| phases.at("k.cu", n)).collect();
        let want = |n: u32| match n {
            9..=12 => Some("load"),
            13..=15 => Some("softmax"),
            20..=22 => Some("store"),
            _ => None,
        };
        assert_eq!(at, (1..=22).map(want).collect::<Vec<_>>());
        assert!(phases.at("other.cu", 9).is_none() && Phases::of([("k.cu", "int x;\n")]).is_empty());
    }

    #[test]
    fn what_is_inlined_counts_for_who_called_it() {
        let phases = Phases::of([("k.cu", SOURCE)]);
        let place = |chain: &[(&str, u32)], n: u64| Place {
            chain: chain.iter().map(|(f, l)| ((*f).to_string(), *l)).collect(),
            warp_instructions: n,
            ..Place::default()
        };
        let places = [
            place(&[("mma.cuh", 3), ("k.cu", 14)], 60),
            place(&[("k.cu", 4), ("k.cu", 10)], 30),
            place(&[("k.cu", 8)], 10),
        ];
        let samples = [
            SampleRecord { file: Some("k.cu".into()), line: Some(14), samples: 40, ..SampleRecord::default() },
            SampleRecord { file: Some("k.cu".into()), line: Some(10), samples: 60, ..SampleRecord::default() },
        ];
        let shares = phases.shares(&places, &samples);
        let of = |name: &str| shares.iter().find(|p| p.phase == name).unwrap();
        assert_eq!((of("softmax").issue_slots, of("load").issue_slots, of(UNMARKED).issue_slots), (0.6, 0.3, 0.1));
        assert_eq!(of("softmax").time, Some(0.4));
        assert!((of("softmax").amdahl.unwrap() - 1.0 / 0.6).abs() < 1e-12);
        assert!(
            phases.shares(&places, &[]).iter().all(|p| p.time.is_none() && p.amdahl.is_none()),
            "no samples, no time"
        );
        let placeless = [SampleRecord { samples: 100, ..SampleRecord::default() }];
        assert!(
            phases.shares(&places, &placeless).iter().all(|p| p.time.is_none()),
            "samples of unknown lines tell no time"
        );
    }
}
