//! bf16, f16 or f32 to e4m3 codes and scales, for up to three tensors in a launch; and keys and values packed for [`crate::Problem::packed_values`], whose V^T is Hopper's alone.
//!
//! ```no_run
//! # use warpsmith_attention::*;
//! # fn main() -> Result<(), Error> {
//! # let (at, stream) = ([Quantised::default(); 2], RawStream(std::ptr::null_mut()));
//! let (batch, heads_kv, tokens, head_dim) = (1, 8, 4096, 128);
//! let parts = [
//!     Quantisation::keys(batch, heads_kv, tokens, head_dim, Wide::Bf16),      // codes, a scale for each 128 tokens, a constant of each channel taken out
//!     Quantisation::values(batch, heads_kv, tokens, head_dim, Wide::Bf16),    // V^T, scales, what was taken out
//! ];
//! let plan = QuantisePlan::new(&parts, &Device::current()?)?;
//! plan.load()?.launch(&at, DevicePtr::default(), stream)?;                    // one launch, one reading
//! # Ok(()) }
//! ```

use crate::driver::{Device, Function, RawStream};
use crate::error::{Error, ProblemError};
use crate::instance::Instance;
use crate::params::{Pack, Quantise};
use crate::plan::{self, DevicePtr, HOPPER};
use crate::problem::{BLOCK, Strides};
use crate::way;
use std::ffi::c_void;

/// Tensors of a launch, at most.
pub const MOST_PARTS: usize = 3;

/// Sixteenths of room that a head's scale may have: 256 times, beyond which blocks have their own anyway.
const MOST_ROOM: u32 = 4096;

/// What is quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wide {
    Bf16,
    F16,
    F32,
}

impl Wide {
    fn bytes(self) -> i64 {
        if self == Wide::F32 { 4 } else { 2 }
    }
}

/// How many scales a tensor gets, contiguous f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scales {
    /// One.
    Tensor,
    /// (batch, heads).
    Head,
    /// (batch, heads, blocks of 128 tokens).
    Block,
}

/// What becomes of one tensor x (batch, heads, tokens, head_dim), which is finite: about code times scale. A scale is the largest magnitude / 448, and 1 where that is at most 1e-6; codes are
/// rounded to nearest even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantisation {
    pub batch: u32,
    pub heads: u32,
    pub tokens: u32,
    /// A multiple of 8, at most 256; 64, 128 or 256 where a mean is taken out, or V^T made.
    pub head_dim: u32,
    pub from: Wide,
    /// Of x, in elements: whole 16 bytes.
    pub strides: Strides,
    /// Of its codes, multiples of 8 (attention wants 16); `None`: no row-major ones are wanted, but V^T.
    pub codes: Option<Strides>,
    pub scales: Scales,
    /// With scales of blocks: each channel's mean over up to 64 evenly spaced tokens is taken out first, where these show one (three of its standard errors), else 0. What it is goes to
    /// [`Quantised::mean`]. Of keys no output changes by it (log-sum-exps are less by softmax_scale q mean), and to values attention adds it back.
    pub centred: bool,
    /// With scales of blocks: [`Quantised::transposed`] is written.
    pub transposed: bool,
    /// With scales of blocks: a block's scale is one for all of its head, made from 16 of those tokens with so many sixteenths of room, unless the block's values are larger than that or 256 times
    /// smaller; 0: each block has its own. Attention over packed values is faster where scales of a head are equal.
    pub even: u32,
}

impl Quantisation {
    /// Contiguous in and out.
    pub fn dense(batch: u32, heads: u32, tokens: u32, head_dim: u32, from: Wide, scales: Scales) -> Quantisation {
        let head = i64::from(tokens) * i64::from(head_dim);
        let strides = Strides { batch: i64::from(heads) * head, head, token: head_dim.into() };
        let (codes, centred, transposed, even) = (Some(strides), false, false, 0);
        Quantisation { batch, heads, tokens, head_dim, from, strides, codes, scales, centred, transposed, even }
    }

    /// Keys for attention over packed values: centred, with even scales where kernels gain by it.
    pub fn keys(batch: u32, heads: u32, tokens: u32, head_dim: u32, from: Wide) -> Quantisation {
        let even = match head_dim {
            128 => 32,
            256 => 28,
            _ => 0,
        };
        let dense = Quantisation::dense(batch, heads, tokens, head_dim, from, Scales::Block);
        Quantisation { centred: true, even, ..dense }
    }

    /// Values as attention takes them packed: V^T alone, centred, with even scales where kernels gain by it. Without a mask `centred` is best taken away where log-sum-exps are wanted.
    pub fn values(batch: u32, heads: u32, tokens: u32, head_dim: u32, from: Wide) -> Quantisation {
        let even = if head_dim == 64 { 0 } else { 128 };
        let dense = Quantisation::dense(batch, heads, tokens, head_dim, from, Scales::Block);
        Quantisation { centred: true, transposed: true, codes: None, even, ..dense }
    }

    /// Blocks of 128 tokens.
    fn blocks(&self) -> u32 {
        self.tokens.div_ceil(BLOCK)
    }

    /// Whether pack.cu alone does what is wanted.
    fn special(&self) -> bool {
        self.centred || self.transposed || self.even > 0 || self.codes.is_none()
    }

    fn check(&self) -> Result<(), ProblemError> {
        let all = u64::from(self.batch) * u64::from(self.heads);
        for (what, value, limit) in [
            ("batch * heads", all, 65_535),
            ("tokens", self.tokens.into(), 1 << 26),
            ("head_dim", self.head_dim.into(), 256),
        ] {
            if value == 0 {
                return Err(ProblemError::Empty(what));
            }
            if value > limit {
                return Err(ProblemError::TooLarge { what, value, limit });
            }
        }
        if self.even > MOST_ROOM {
            return Err(ProblemError::TooLarge { what: "even", value: self.even.into(), limit: MOST_ROOM.into() });
        }
        if !self.head_dim.is_multiple_of(8) {
            return Err(ProblemError::QuantisedDim(self.head_dim));
        }
        let whole = |tensor, s: Strides, step: i64| {
            let steps = [(s.batch, self.batch), (s.head, self.heads), (s.token, self.tokens)];
            match steps.into_iter().find(|(stride, n)| *n > 1 && (*stride <= 0 || stride % step != 0)) {
                Some((stride, _)) => Err(ProblemError::QuantisedStride { tensor, stride, step }),
                None if s.token > i64::from(i32::MAX) / 4 => Err(ProblemError::TooLarge {
                    what: "a token's stride",
                    value: s.token as u64,
                    limit: (i32::MAX / 4) as u64,
                }),
                None => Ok(()),
            }
        };
        whole("x", self.strides, 16 / self.from.bytes())?;
        if let Some(codes) = self.codes {
            whole("codes", codes, 8)?;
        }
        let attention = matches!(self.head_dim, 64 | 128 | 256);
        match self.special() {
            true if self.scales != Scales::Block => Err(ProblemError::PackedScales),
            true if !attention => Err(ProblemError::HeadDim(self.head_dim)),
            true if self.codes.is_none() && !self.transposed => Err(ProblemError::NoCodes),
            _ => Ok(()),
        }
    }
}

/// Where one tensor and what becomes of it lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantised {
    /// On 16 bytes, as codes and V^T.
    pub x: DevicePtr,
    pub codes: DevicePtr,
    /// f32: as many as [`Quantisation::scales`] says.
    pub scale: DevicePtr,
    /// Of what is `centred`: f32 (batch, heads, head_dim), written, on 16 bytes.
    pub mean: DevicePtr,
    /// Of what is `transposed`: (batch, heads, head_dim, 128 times blocks of tokens), as [`crate::Problem::packed_values`] wants V.
    pub transposed: DevicePtr,
}

/// A checked launch, or two: pure data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantisePlan {
    parts: Vec<Quantisation>,
    target: &'static str,
    instance: Instance,
    entries: Vec<&'static str>,
    grid: [u32; 3],
    block: u32,
    /// Where each tensor's counters begin, and that of CTAs' places, if there is one.
    counters_at: Vec<u32>,
    ticket: Option<u32>,
    counters: u32,
}

impl QuantisePlan {
    /// Of up to [`MOST_PARTS`] tensors with one kind of scales; what is packed, of one type and head dimension. Errors: [`Error::Problem`].
    pub fn new(parts: &[Quantisation], device: &Device) -> Result<QuantisePlan, Error> {
        let Some(first) = parts.first().filter(|_| parts.len() <= MOST_PARTS) else {
            return Err(ProblemError::Parts(parts.len()).into());
        };
        for part in parts {
            part.check()?;
        }
        if parts.iter().any(|part| part.scales != first.scales) {
            return Err(ProblemError::PartsDiffer("scales").into());
        }
        let target = plan::target(device)?;
        if target != HOPPER && parts.iter().any(|part| part.transposed) {
            return Err(ProblemError::Packed { major: device.major, minor: device.minor }.into());
        }
        let most = |of: fn(&Quantisation) -> u32| parts.iter().map(of).max().unwrap_or(1);
        let grid = [most(Quantisation::blocks), most(|part| part.batch * part.heads), parts.len() as u32];
        let same = parts.iter().all(|part| (part.from, part.head_dim) == (first.from, first.head_dim));
        let attention = matches!(first.head_dim, 64 | 128 | 256);
        if first.scales == Scales::Block && same && attention {
            let defines = vec![("WS_D", first.head_dim), ("WS_KIND", first.from as u32)];
            return Ok(QuantisePlan {
                parts: parts.to_vec(),
                target,
                instance: Instance { file: "pack", defines },
                entries: vec!["attention_pack"],
                grid,
                block: 2 * first.head_dim,
                counters_at: vec![0; parts.len()],
                ticket: None,
                counters: 0,
            });
        }
        if parts.iter().any(Quantisation::special) {
            return Err(ProblemError::PartsDiffer("type and head dimension").into());
        }
        let of_one = |part: &Quantisation| match first.scales {
            Scales::Tensor => 2,
            Scales::Head => 2 * part.batch * part.heads,
            Scales::Block => 0,
        };
        let mut counters = 0;
        let mut begin = |part: &Quantisation| {
            counters += of_one(part);
            counters - of_one(part)
        };
        let counters_at = parts.iter().map(&mut begin).collect();
        // A head's CTAs wait for each other: only where so many launches at once as nobody makes would leave them without places (two to three CTAs fit an SM).
        let halves = parts.iter().all(|part| part.from != Wide::F32);
        let fits = target == HOPPER && grid[0] <= device.sms / 4;
        let ticket = (first.scales == Scales::Head && halves && fits).then_some(counters);
        let entries = match (ticket, first.scales) {
            (Some(_), _) => vec![match most(|part| part.head_dim) {
                0..=64 => "attention_quantise_head_4",
                65..=128 => "attention_quantise_head_8",
                _ => "attention_quantise_head_16",
            }],
            (None, Scales::Block) => vec!["attention_quantise"],
            (None, _) => vec!["attention_amax", "attention_quantise"],
        };
        let counters = counters + u32::from(ticket.is_some());
        let instance = Instance { file: "quantise", defines: Vec::new() };
        Ok(QuantisePlan {
            parts: parts.to_vec(),
            target,
            instance,
            entries,
            grid,
            block: 256,
            counters_at,
            ticket,
            counters,
        })
    }

    /// 32-bit words that launches want, zero before the first one; every launch leaves them zero. Launches that may overlap must not share them.
    pub fn counters(&self) -> u32 {
        self.counters
    }

    /// What it was made for.
    pub fn parts(&self) -> &[Quantisation] {
        &self.parts
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Loads the kernels from what this build embeds, into the current context. Errors: [`Error::NoKernel`], and what the driver refuses.
    pub fn load(&self) -> Result<LoadedQuantisePlan, Error> {
        let load = |entry: &&str| way::embedded(self.target, &self.instance, entry, 0);
        Ok(LoadedQuantisePlan { plan: self.clone(), kernels: self.entries.iter().map(load).collect::<Result<_, _>>()? })
    }
}

/// A plan whose kernels are in a context, which is current at each launch.
#[derive(Debug, Clone)]
pub struct LoadedQuantisePlan {
    plan: QuantisePlan,
    kernels: Vec<Function>,
}

impl LoadedQuantisePlan {
    pub fn plan(&self) -> &QuantisePlan {
        &self.plan
    }

    /// One launch on the stream, or two where scales are of tensors, of heads of f32, or of heads with many tokens: no allocation, no waiting. `at`: of each part, in their order. Errors:
    /// [`Error::Problem`] and [`Error::Pointer`] before anything is launched; what the driver refuses.
    pub fn launch(&self, at: &[Quantised], counters: DevicePtr, stream: RawStream) -> Result<(), Error> {
        let plan = &self.plan;
        if at.len() != plan.parts.len() {
            return Err(ProblemError::Places { given: at.len(), parts: plan.parts.len() }.into());
        }
        let of_counters = (plan.counters > 0).then_some(("counters", counters, 4));
        let wanted = plan.parts.iter().zip(at).flat_map(|(part, at)| {
            let codes = part.codes.map(|_| ("codes", at.codes, 16));
            let mean = part.centred.then_some(("mean", at.mean, 16));
            let transposed = part.transposed.then_some(("transposed", at.transposed, 16));
            let always = [Some(("x", at.x, 16)), Some(("scale", at.scale, 4))];
            always.into_iter().chain([codes, mean, transposed]).flatten()
        });
        for (name, pointer, align) in wanted.chain(of_counters) {
            pointer.check(name, align)?;
        }
        let mut ticket = plan.ticket.map_or(0, |word| counters.0 + 4 * u64::from(word));
        let mut packs = [Pack::default(); MOST_PARTS];
        let mut quantises = [Quantise::default(); MOST_PARTS];
        for (i, (part, at)) in plan.parts.iter().zip(at).enumerate() {
            let heads = part.batch * part.heads;
            let (x, c) = (part.strides, part.codes.unwrap_or(part.strides));
            let given = |wanted: bool, pointer: DevicePtr| if wanted { pointer.0 } else { 0 };
            packs[i] = Pack {
                x: at.x.0,
                codes: given(part.codes.is_some(), at.codes),
                transposed: given(part.transposed, at.transposed),
                scale: at.scale.0,
                mean: given(part.centred, at.mean),
                strides: [x.batch, x.head, c.batch, c.head],
                // Steps of tokens fit: they were looked at.
                sizes: [
                    x.token as i32,
                    c.token as i32,
                    part.heads as i32,
                    heads as i32,
                    part.tokens as i32,
                    part.even as i32,
                ],
            };
            quantises[i] = Quantise {
                addresses: [at.x.0, 0, at.codes.0, at.scale.0, counters.0 + 4 * u64::from(plan.counters_at[i])],
                strides: [x.batch, x.head, x.token, c.batch, c.head, c.token],
                sizes: [part.heads, heads, part.tokens, part.head_dim, part.from as u32, part.scales as u32]
                    .map(|n| n as i32),
            };
        }
        let of_parts: *mut c_void =
            if plan.instance.file == "pack" { (&raw mut packs).cast() } else { (&raw mut quantises).cast() };
        let arguments = [of_parts, (&raw mut ticket).cast()];
        for kernel in &self.kernels {
            let count = 1 + usize::from(plan.ticket.is_some());
            kernel.launch(plan.grid, plan.block, 0, stream, plan.target == HOPPER, &arguments[..count])?;
        }
        Ok(())
    }
}
