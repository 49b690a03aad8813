//! Instances: one kernel file with its defines, and the list of those that a build embeds.

use crate::heuristic::{self, Shape};
use crate::problem::Mask;
use std::collections::BTreeSet;

/// A kernel file and what is compiled into it. Its name is the key of its machine code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance {
    /// `kernels/attention/hopper/FILE.cu`; its entry is `attention_FILE`.
    pub file: &'static str,
    pub defines: Vec<(&'static str, u32)>,
}

impl Instance {
    /// As `_heuristic.py` names it: the file, then each define without its prefix.
    pub fn name(&self) -> String {
        let mut name = self.file.to_string();
        for (define, value) in &self.defines {
            name += &format!("_{}{value}", define.trim_start_matches("WS_").to_lowercase());
        }
        name
    }

    /// What a define is set to; 0 where it is not.
    pub(crate) fn define(&self, name: &str) -> u32 {
        self.defines.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
    }

    /// The kernel's name in its module.
    pub fn entry(&self) -> String {
        format!("attention_{}", self.file)
    }
}

/// Every instance for Hopper that the heuristic may give, for each output format, and what they want launched before them, also where only the device knows lengths; and what quantises and packs: sorted, each once.
pub fn instances() -> Vec<Instance> {
    let dense = dense_instances();
    let lengths = heuristic::lengths_instances(&dense);
    let quantising = quantising_instances();
    dense.into_iter().chain(lengths).chain(quantising).collect::<BTreeSet<_>>().into_iter().collect()
}

fn quantising_instances() -> Vec<Instance> {
    let mut found = vec![Instance { file: "quantise", defines: Vec::new() }];
    for head_dim in [64, 128, 256] {
        let pack = |kind| Instance { file: "pack", defines: vec![("WS_D", head_dim), ("WS_KIND", kind)] };
        found.extend((0..3).map(pack));
    }
    found
}

/// Those of sequences that are alike.
fn dense_instances() -> Vec<Instance> {
    let (mut found, mut wide, mut before) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let lengths_q = [1, 4, 16, 17, 64, 100, 300, 512, 1000, 2048, 5000];
    let lengths_k = [1, 64, 100, 129, 257, 500, 512, 1000, 1025, 2048, 4096, 5000, 20_000];
    for head_dim in [64, 128, 256] {
        for batch in [1, 2, 8, 64, 512] {
            for (heads_kv, group) in [(1, 1), (2, 1), (8, 1), (16, 1), (1, 4), (8, 4), (2, 8), (1, 5)] {
                for seqlen_q in lengths_q {
                    for seqlen_k in lengths_k {
                        for mask in [Mask::Full, Mask::Causal] {
                            let shape = Shape {
                                batch,
                                heads_kv,
                                group,
                                seqlen_q,
                                seqlen_k,
                                head_dim,
                                mask,
                                plain: true,
                                packed: false,
                                lse: false,
                                wide: false,
                                fast: false,
                                shared: 1,
                            };
                            let all = |shape: &Shape| heuristic::candidates(shape, heuristic::SMS);
                            for fast in [false, true] {
                                let queries = Shape { packed: true, wide: true, fast, ..shape };
                                wide.extend(all(&queries).into_iter().map(|choice| choice.instance));
                            }
                            let blocks = Shape { plain: false, ..shape };
                            for shape in [shape, blocks, Shape { packed: true, ..shape }] {
                                for (lse, fast) in [(false, false), (false, true), (true, false)] {
                                    let shape = Shape { lse, fast, ..shape };
                                    for choice in all(&shape) {
                                        if choice.transposes {
                                            before.insert(
                                                heuristic::transposition(&shape, &choice, heuristic::SMS).instance,
                                            );
                                        }
                                        found.insert(choice.instance);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    // Queries of 16 bits are of the output's kind.
    let wide = wide.iter().flat_map(|i| (0..2).map(|kind| i.with_output(kind)));
    found
        .iter()
        .flat_map(|i| (0..3).map(|kind| i.with_output(kind)))
        .chain(wide)
        .chain(before)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// What those instances are embedded for: machine code for Ampere, Ada, and Blackwell of 10.x and of 12.x, and PTX for whatever else there is.
pub const PORTABLE_TARGETS: [&str; 5] = ["sm_80", "sm_89", "sm_100", "sm_120", "compute_80"];

/// Those of the kernel for all other cards, and of what quantises, which a build embeds for each of [`PORTABLE_TARGETS`].
pub fn portable_instances() -> Vec<Instance> {
    let mut found = quantising_instances();
    for head_dim in [64, 128, 256] {
        for causal in [0, 1] {
            let dense = vec![("WS_D", head_dim), ("WS_CAUSAL", causal)];
            let lengths = [dense.clone(), vec![("WS_LENS", 1)]].concat();
            for defines in [dense, lengths] {
                let instance = Instance { file: "portable", defines };
                found.extend((0..3).map(|kind| instance.with_output(kind)));
            }
        }
    }
    found
}

impl Instance {
    /// The same with its output's format compiled in; `tiny.cu` with log-sum-exps asks for it at run time, as there would be many of it.
    pub fn with_output(&self, kind: u32) -> Instance {
        let mut defines = self.defines.clone();
        if self.define("WS_LSE") == 0 {
            defines.push(("WS_OUT", kind));
        }
        Instance { file: self.file, defines }
    }
}
