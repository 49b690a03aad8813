//! The baselines' names: which there are, what they take, and what has to be installed.

use warpsmith_spec::error::{SpecCode, SpecError};
use warpsmith_spec::suggest::{did_you_mean, listed};
use warpsmith_spec::words::DType;

/// How a baseline takes its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The unquantised values, rounded to this type.
    Rounded(DType),
    /// The workload's own codes and scales.
    Codes,
    /// e4m3 codes with one scale for each tensor: the workload's own where it has such scales, else quantised for it.
    CodesPerTensor,
}

/// One row: a name, what it takes, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    pub kind: Kind,
    /// The task's name that it is for; None: attention.
    pub task: Option<&'static str>,
    /// Besides PyTorch.
    pub package: Option<&'static str>,
    pub about: &'static str,
}

const F16: Kind = Kind::Rounded(DType::F16);
const BF16: Kind = Kind::Rounded(DType::Bf16);

const fn attention(name: &'static str, kind: Kind, package: Option<&'static str>, about: &'static str) -> Known {
    Known { name, kind, task: None, package, about }
}

/// Every baseline.
pub const KNOWN: &[Known] = &[
    attention("sdpa:auto", F16, None, "PyTorch's scaled_dot_product_attention, the backend that it chooses"),
    attention("sdpa:flash", F16, None, "its FlashAttention-2 backend"),
    attention("sdpa:mem_efficient", F16, None, "its CUTLASS backend"),
    attention("sdpa:math", F16, None, "its plain matrix products and softmax"),
    attention("sdpa:cudnn", F16, None, "its cuDNN backend"),
    attention("sdpa:bf16:auto", BF16, None, "the same in bf16"),
    attention("sdpa:bf16:flash", BF16, None, "its FlashAttention-2 backend in bf16"),
    attention("sdpa:bf16:mem_efficient", BF16, None, "its CUTLASS backend in bf16"),
    attention("sdpa:bf16:math", BF16, None, "its plain matrix products and softmax in bf16"),
    attention("sdpa:bf16:cudnn", BF16, None, "its cuDNN backend in bf16"),
    attention("fa3:fp8", Kind::Codes, Some("fa3-fwd"), "FlashAttention-3 on e4m3, a scale for each head, bf16 out"),
    attention("fa3:bf16", BF16, Some("fa3-fwd"), "FlashAttention-3 in bf16"),
    attention("fa3:f16", F16, Some("fa3-fwd"), "FlashAttention-3 in f16, where it is built with it"),
    attention(
        "cudnn:fp8",
        Kind::CodesPerTensor,
        Some("nvidia-cudnn-frontend"),
        "cuDNN on e4m3, a scale for each tensor, e4m3 out",
    ),
    attention("cudnn:f16", F16, Some("nvidia-cudnn-frontend"), "cuDNN's graph interface in f16"),
    attention("cudnn:bf16", BF16, Some("nvidia-cudnn-frontend"), "cuDNN's graph interface in bf16"),
    attention("flash_attn", F16, Some("flash-attn"), "the package flash-attn (FlashAttention-2)"),
    attention("sage", F16, Some("sageattention"), "SageAttention, which quantises inside"),
    Known {
        name: "torch:rms_norm",
        kind: Kind::Rounded(DType::F32),
        task: Some("rms_norm"),
        package: None,
        about: "PyTorch's rms_norm",
    },
];

/// A baseline that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(&'static Known);

impl Name {
    /// An unknown one is wrong usage, with the nearest that there is.
    pub fn parse(text: &str) -> Result<Name, SpecError> {
        if let Some(known) = KNOWN.iter().find(|k| k.name == text) {
            return Ok(Name(known));
        }
        let shown: String = text.escape_debug().take(64).collect();
        let names = || KNOWN.iter().map(|k| k.name);
        Err(SpecError::new(SpecCode::UnknownName, format!("unknown baseline `{shown}`{}", did_you_mean(text, names())))
            .hint(format!("known: {}; or the name of a built-in kernel", listed(names()))))
    }

    pub fn as_str(self) -> &'static str {
        self.0.name
    }

    pub fn known(self) -> &'static Known {
        self.0
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_spec::record::is_peer;

    #[test]
    fn names_are_found_or_suggested() {
        for known in KNOWN {
            assert_eq!(Name::parse(known.name).expect("it is known").as_str(), known.name);
            assert!(is_peer(known.name) && !known.about.is_empty());
        }
        for (typed, want) in [("sdpa:flsh", "sdpa:flash"), ("fa3:FP8", "fa3:fp8"), ("cudn:fp8", "cudnn:fp8")] {
            let e = Name::parse(typed).expect_err("no such baseline");
            assert!(e.to_string().contains(&format!("did you mean `{want}`")), "{e}");
        }
        assert!(!is_peer("level_02"));
    }
}
