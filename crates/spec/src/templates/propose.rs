//! `new kernel NAME --from FILE.cu`: front matter for a CUDA file that has none, from the signatures of its kernels.
//!
//! Parameters are matched with the attention tasks' arguments by the names people usually give them. What was guessed is marked
//! `# check:`; what could not be is left under its own name, so that `warpsmith check` names it with its line.

use super::signature::{self, Parameter, Signature};
use crate::error::{SpecCode, SpecError};
use std::fmt::Write;

/// Spellings of an attention kernel's parameters, in lower case and without underscores.
const SPELLINGS: [(&str, &[&str]); 14] = [
    ("q", &["q", "query", "queries", "qptr", "gq", "dq8"]),
    ("k", &["k", "key", "keys", "kptr", "gk"]),
    ("v", &["v", "value", "values", "vptr", "gv"]),
    ("out", &["o", "out", "output", "optr", "outptr", "go", "dst"]),
    ("q_scale", &["qscale", "scaleq", "qdescale", "descaleq", "qscales"]),
    ("k_scale", &["kscale", "scalek", "kdescale", "descalek", "kscales"]),
    ("v_scale", &["vscale", "scalev", "vdescale", "descalev", "vscales"]),
    ("softmax_scale", &["softmaxscale", "smscale", "scale", "scaling", "attnscale", "invsqrtd", "sdpascale"]),
    ("S", &["s", "n", "t", "seqlen", "seq", "seqlength", "numkeys", "seqlenq", "seqlenk", "sq", "sk", "len", "length"]),
    ("B", &["b", "batch", "batchsize", "bs", "numbatches"]),
    ("H", &["h", "heads", "numheads", "nheads", "nh", "headsnum"]),
    ("D", &["d", "headdim", "dim", "hd", "dhead", "headsize"]),
    ("causal", &["causal", "iscausal", "usecausal", "causalmask"]),
    ("B * H", &["bh", "batchheads", "numbh"]),
];

/// The file's text with front matter before it. `source_name` is what messages call the file.
pub fn kernel_from(name: &str, source_name: &str, source: &[u8]) -> Result<String, SpecError> {
    super::checked(name, "kernel")?;
    let wrong = |message: &str| SpecError::new(SpecCode::CandidateSyntax, message).in_file(source_name);
    if source.len() > 4 << 20 {
        return Err(wrong("the file has more than 4 MiB"));
    }
    let text = std::str::from_utf8(source).map_err(|_| wrong("the file is not UTF-8 text"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with("//!") {
        return Err(wrong("the file has front matter already: `warpsmith check` takes it as it is"));
    }
    let kernels = signature::kernels(text);
    if kernels.is_empty() {
        return Err(
            wrong("the file has no `__global__` function").hint("a candidate is device code with at least one kernel")
        );
    }
    Ok(format!("{}\n{}", front_matter(name, &kernels), text))
}

fn front_matter(name: &str, kernels: &[Signature]) -> String {
    let all = || kernels.iter().flat_map(|k| &k.parameters);
    let attention = ["q", "k", "v"].iter().all(|want| all().any(|p| argument(p) == Some(want)));
    let half =
        all().any(|p| argument(p) == Some("q") && (p.type_text.contains("half") || p.type_text.contains("bfloat")));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |s: &str| {
        let _ = writeln!(text, "//! {s}");
    };
    if attention {
        line(&format!("task = \"{}\"", if half { "fp16_sdpa" } else { "fp8_sdpa" }));
    } else {
        line(&format!(
            "task = \"{name}\"                   # check: the task it is for; `warpsmith new task {name}` makes one"
        ));
    }
    line("targets = [\"sm_89\", \"sm_90\"]");
    if attention {
        line("constraints = [\"D == 64\"]               # check: the shapes it is for");
        if !all().any(|p| argument(p).is_some_and(|a| a == "causal")) {
            line("# It takes no mask: `causal` is neither among its args nor its defines.");
        }
    }
    let mut buffers: Vec<&Parameter> = Vec::new();
    for p in all().filter(|p| attention && p.is_pointer && argument(p).is_none()) {
        if !buffers.iter().any(|b| b.name == p.name) {
            buffers.push(p);
        }
    }
    for p in buffers {
        line(&format!("[workspace.{}]                  # check: a buffer that no tensor of the task is", p.name));
        line(&format!("dtype = \"{}\"", dtype(&p.type_text)));
        line("shape = [\"B * H\", \"S\", \"D\"]             # check");
    }
    for kernel in kernels {
        line("[[launch]]");
        let instance = if kernel.is_template { format!("{}<64>", kernel.name) } else { kernel.name.clone() };
        let check = if kernel.is_template { "                  # check: the template's arguments" } else { "" };
        line(&format!("entry = \"{instance}\"{check}"));
        let threads = kernel.max_threads.filter(|n| (1..=1024).contains(n));
        if attention {
            line("grid = [\"ceil_div(S, 64)\", \"B * H\"]     # check: blocks in x, y, z");
        } else {
            line(
                "grid = [1]                              # check: blocks in x, y, z; formulas over the task's symbols",
            );
        }
        let source = if threads.is_some() { "# from __launch_bounds__" } else { "# check: threads in x, y, z" };
        line(&format!("block = [{}]                           {source}", threads.unwrap_or(128)));
        let args: Vec<String> = kernel
            .parameters
            .iter()
            .map(|p| format!("\"{}\"", argument(p).filter(|_| attention).unwrap_or(&p.name)))
            .collect();
        line(&format!("args = [{}]", args.join(", ")));
    }
    text
}

/// The attention task's argument that a parameter seems to be.
fn argument(p: &Parameter) -> Option<&'static str> {
    let plain: String = p.name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect();
    let is = |spellings: &&(&str, &[&str])| spellings.1.contains(&plain.as_str());
    let (name, _) = SPELLINGS.iter().find(is)?;
    let tensor = matches!(*name, "q" | "k" | "v" | "out" | "q_scale" | "k_scale" | "v_scale");
    (tensor == p.is_pointer).then_some(name)
}

/// The element type of a pointer; f32 where it cannot be told.
fn dtype(type_text: &str) -> &'static str {
    let has = |word: &str| type_text.contains(word);
    match () {
        _ if has("bfloat16") => "bf16",
        _ if has("half") => "f16",
        _ if has("e4m3") => "e4m3",
        _ if has("e5m2") => "e5m2",
        _ if has("double") => "f64",
        _ if has("uint8") || has("char") => "u8",
        _ if has("int64") || has("long long") => "i64",
        _ if has("unsigned") || has("uint32") => "u32",
        _ if has("int") => "i32",
        _ => "f32",
    }
}
