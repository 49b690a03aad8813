//! One way to run a problem: a kernel with its grid, parameters and tensor maps, and what makes V^T before it.

use crate::bundle::Bundle;
use crate::driver::{self, Function, RawStream};
use crate::error::Error;
use crate::heuristic::{self, Choice, Shape};
use crate::instance::Instance;
use crate::maps::Maps;
use crate::params::{FewParams, Making, Params, Ragged, TensorMap};
use crate::plan::{DevicePtr, Pointers};
use crate::problem::{Lengths, Output, Problem};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

/// A kernel, its grid and parameters; and what makes V^T before it, where it takes that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Way {
    pub choice: Choice,
    params: Params,
    /// Of sequences whose lengths only the device knows.
    ragged: Option<Ragged>,
    lengths: Lengths,
    maps: Option<Maps>,
    transposition: Option<(Choice, Making)>,
    /// Bytes of out that nobody writes where no sequence is, and log-sum-exps: they are cleared before.
    clears: Option<(u64, u64)>,
}

impl Way {
    /// On Hopper.
    pub fn hopper(problem: &Problem, shape: &Shape, sms: u32) -> Way {
        let choice = match problem.lengths {
            Lengths::Equal => heuristic::choose(shape, sms),
            Lengths::Used => heuristic::choose_lengths(shape, sms, None),
            Lengths::Paged { page_size, .. } => heuristic::choose_lengths(shape, sms, Some(page_size)),
            Lengths::Varlen { tokens_q, tokens_k } => {
                heuristic::choose_varlen(shape, (tokens_q.into(), tokens_k.into()), sms)
            }
        };
        Way::new(problem, shape, choice, sms)
    }

    pub fn new(problem: &Problem, shape: &Shape, mut choice: Choice, sms: u32) -> Way {
        choice.instance = choice.instance.with_output(problem.output.kind() as u32);
        let params = Params::new(problem, &choice);
        let transposition = choice.transposes.then(|| {
            let before = match choice.instance.define("WS_LENS") {
                0 => heuristic::transposition(shape, &choice, sms),
                places => heuristic::lengths_transposition(problem.head_dim, places, 4 * choice.partial_floats, sms),
            };
            (before, Making::new(problem, &choice))
        });
        let clears = match problem.lengths {
            Lengths::Varlen { tokens_q, .. } if choice.instance.define("WS_LENS") != 2 => {
                let rows = u64::from(tokens_q) * u64::from(problem.heads_q);
                let width = if matches!(problem.output, Output::E4m3 { .. }) { 1 } else { 2 };
                Some((rows * u64::from(problem.head_dim) * width, rows))
            }
            _ => None,
        };
        let (ragged, maps) = (Ragged::new(problem, &choice), Maps::new(problem, &choice));
        Way { choice, params, lengths: problem.lengths, ragged, maps, transposition, clears }
    }

    /// With the kernel itself from the caller, or else from what this build embeds.
    pub fn load(&self, target: &'static str, image: Option<&[u8]>) -> Result<Loaded, Error> {
        let embedded = |c: &Choice| embedded(target, &c.instance, &c.instance.entry(), c.shared_bytes);
        let kernel = match image {
            Some(image) => Function::load(image, &self.choice.instance.entry(), self.choice.shared_bytes)?,
            None => embedded(&self.choice)?,
        };
        let transposition = self.transposition.as_ref().map(|(choice, _)| embedded(choice)).transpose()?;
        Ok(Loaded { kernel, transposition })
    }

    /// Its launches, with pointers that were looked at. `dependent`: the kernel waits for earlier ones itself.
    pub fn launch(&self, loaded: Loaded, at: &Pointers, stream: RawStream, dependent: bool) -> Result<(), Error> {
        let address = |p: Option<DevicePtr>| p.unwrap_or_default().0;
        // Kernels see by these what sequences they have, so only what the problem has is told.
        let places = match self.lengths {
            Lengths::Equal => [None; 4],
            Lengths::Used => [None, None, at.used, None],
            Lengths::Paged { .. } => [None, None, at.used, at.pages],
            Lengths::Varlen { .. } => [at.cu_seqlens_q, at.cu_seqlens_k, None, None],
        };
        let [cu_q, cu_k, used, pages] = places.map(address);
        if let Some((bytes, rows)) = self.clears {
            const MINUS_INFINITY: u32 = 0xFF80_0000;
            driver::clear(at.out.0, bytes, stream)?;
            if address(at.lse) != 0 {
                driver::fill_words(address(at.lse), MINUS_INFINITY, rows, stream)?;
            }
        }
        let mut v = at.v.0;
        if let (Some((choice, making)), Some(function), Some(maps)) =
            (&self.transposition, loaded.transposition, &self.maps)
        {
            let mut making = *making;
            let values: *mut c_void = match &mut making {
                Making::Equal(values) => {
                    // V^T is waited for tile by tile where it is made beside attention.
                    values.made = if self.choice.tiles_per_worker > 0 { at.counters.0 } else { 0 };
                    (&raw mut *values).cast()
                }
                Making::Tokens(values) => {
                    values.cu = cu_k;
                    (&raw mut *values).cast()
                }
                Making::Caches(values) => {
                    (values.used, values.pages) = (used, pages);
                    (&raw mut *values).cast()
                }
            };
            let mut rows = maps.rows.encode(v)?;
            v = at.scratch.0;
            let mut v_t = maps.v.encode(v)?;
            let arguments = [values, (&raw mut rows).cast(), (&raw mut v_t).cast()];
            function.launch(choice.grid, choice.block, choice.shared_bytes, stream, true, &arguments)?;
        }
        let mut both = FewParams { params: self.params, ragged: self.ragged.unwrap_or_default() };
        let [q, k, out, scratch, counters] = [at.q, at.k, at.out, at.scratch, at.counters].map(|p| p.0);
        let [q_scale, k_scale, v_scale] = [at.q_scale, at.k_scale, at.v_scale].map(|p| p.0);
        both.params.addresses = [q, k, v, q_scale, k_scale, v_scale, out, address(at.lse), scratch, counters];
        both.params.v_mean = address(at.v_mean);
        both.ragged.addresses = [cu_q, cu_k, used, pages];
        let mut maps = [TensorMap([0; 16]); 3];
        if let Some(of) = &self.maps {
            maps[1] = of.k.encode(at.k.0)?;
            maps[2] = of.v.encode(v)?;
            // Queries that are not loaded by boxes have the map of keys, which nobody looks at.
            maps[0] = of.q.map_or(Ok(maps[1]), |q| q.encode(at.q.0))?;
        }
        // few.cuh takes both structs as one, the others each for itself, and those for sequences that are alike the first alone.
        let joined = self.ragged.is_some() && self.choice.instance.define("WS_FEW") == 1;
        let own = (&raw mut both.ragged).cast::<c_void>();
        let first = if joined { (&raw mut both).cast() } else { (&raw mut both.params).cast() };
        let [q, k, v] = maps.each_mut().map(|map| (&raw mut *map).cast());
        let (with_maps, without) = ([first, q, k, v, own], [first, own]);
        let all: &[*mut c_void] = if self.maps.is_some() { &with_maps } else { &without };
        let arguments = if self.ragged.is_some() && !joined { all } else { &all[..all.len() - 1] };
        let c = &self.choice;
        loaded.kernel.launch(c.grid, c.block, c.shared_bytes, stream, dependent, arguments)
    }
}

/// The kernels of a way, in a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    kernel: Function,
    transposition: Option<Function>,
}

/// A kernel of what this build embeds. Those that were loaded are known by context, instance and entry, and stay: graphs may hold them.
pub(crate) fn embedded(target: &str, instance: &Instance, entry: &str, shared_bytes: u32) -> Result<Function, Error> {
    static LOADED: OnceLock<Mutex<HashMap<(usize, String), (Function, u32)>>> = OnceLock::new();
    let name = instance.name();
    let key = (driver::context()?, format!("{target}/{name}/{entry}"));
    let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    match loaded.get(&key) {
        Some((function, allowed)) if *allowed >= shared_bytes => Ok(*function),
        _ => {
            let image = Bundle::embedded()?.find(target, &name);
            let image = image.ok_or_else(|| Error::NoKernel { instance: name, target: target.into() })?;
            let function = Function::load(&image?, entry, shared_bytes)?;
            loaded.insert(key, (function, shared_bytes));
            Ok(function)
        }
    }
}
