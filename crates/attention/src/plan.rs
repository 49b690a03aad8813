//! From a problem to a launch: plan (pure), load (once for a context), launch (as often as wanted, from any thread).

use crate::bundle::Bundle;
use crate::driver::{self, Device, Function, RawStream};
use crate::error::{Error, ProblemError};
use crate::heuristic::{self, Choice, Shape};
use crate::instance::Instance;
use crate::params::{Params, TensorMap, Values};
use crate::problem::Problem;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

/// The only target whose kernels are its own; they wait for earlier launches themselves.
const HOPPER: &str = "sm_90a";

/// An address in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevicePtr(pub u64);

/// What a launch reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pointers {
    /// On 16 bytes, as k and v.
    pub q: DevicePtr,
    pub k: DevicePtr,
    pub v: DevicePtr,
    /// Of packed values, if something was taken out of them: f32 (batch, heads_kv, head_dim), contiguous, on 16 bytes, added to the output of
    /// rows that see a key.
    pub v_mean: Option<DevicePtr>,
    /// f32, as the two others.
    pub q_scale: DevicePtr,
    pub k_scale: DevicePtr,
    pub v_scale: DevicePtr,
    /// (batch, heads_q, seqlen_q, head_dim), contiguous, on 16 bytes.
    pub out: DevicePtr,
    /// f32 (batch, heads_q, seqlen_q), if wanted: natural logarithm of the sum of exponentials, -inf where no key is seen. Where the fastest kernel
    /// does not know it well enough, another one runs then.
    pub lse: Option<DevicePtr>,
    /// [`Workspace::scratch_bytes`] of anything, on 16 bytes.
    pub scratch: DevicePtr,
    /// [`Workspace::counters`] 32-bit words, zero before the first launch; every launch leaves them zero.
    pub counters: DevicePtr,
}

/// Memory that a launch needs besides its tensors. Launches that may overlap must not share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workspace {
    pub scratch_bytes: u64,
    pub counters: u32,
}

/// A kernel, its grid and parameters; and what makes V^T before it, where it takes that.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    choice: Choice,
    params: Params,
    transposition: Option<Choice>,
}

impl Way {
    fn new(problem: &Problem, mut choice: Choice, sms: u32) -> Way {
        choice.instance = choice.instance.with_output(problem.output.kind() as u32);
        let params = Params::new(problem, &choice);
        let transposition = choice.transposes.then(|| heuristic::transposition(&Shape::from(problem), &choice, sms));
        Way { choice, params, transposition }
    }

    /// With the kernel itself from the caller, or else from what this build embeds.
    fn load(&self, target: &'static str, image: Option<&[u8]>) -> Result<Loaded, Error> {
        let embedded = |choice: &Choice| {
            let instance = &choice.instance;
            loaded(target, instance, choice.shared_bytes, || {
                let missing = || Error::NoKernel { instance: instance.name(), target: target.into() };
                Bundle::embedded()?.find(target, &instance.name()).ok_or_else(missing)?
            })
        };
        let kernel = match image {
            Some(image) => Function::load(image, &self.choice.instance.entry(), self.choice.shared_bytes)?,
            None => embedded(&self.choice)?,
        };
        let transposition = self.transposition.as_ref().map(embedded).transpose()?;
        Ok(Loaded { kernel, transposition })
    }
}

/// The kernels of a way, in a context.
#[derive(Debug, Clone, Copy)]
struct Loaded {
    kernel: Function,
    transposition: Option<Function>,
}

/// A checked problem with its kernel, grid and parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    problem: Problem,
    target: &'static str,
    way: Way,
    /// That of launches that ask for the log-sum-exp, where it is another one.
    lse: Option<Way>,
}

impl Plan {
    /// Checks the problem and chooses; touches no device. Errors: [`Error::Problem`], [`Error::Device`].
    pub fn new(problem: &Problem, device: &Device) -> Result<Plan, Error> {
        problem.check()?;
        let shape = Shape::from(problem);
        let target = match (device.major, device.minor) {
            (9, 0) => HOPPER,
            (8, 9) => "sm_89",
            (8, _) => "sm_80",
            (9.., _) => "compute_80", // PTX, which the driver compiles for the card that is there
            (major, minor) => return Err(Error::Device { major, minor }),
        };
        if problem.packed_values && target != HOPPER {
            return Err(ProblemError::Packed { major: device.major, minor: device.minor }.into());
        }
        let mut choice =
            if target == HOPPER { heuristic::choose(&shape, device.sms) } else { heuristic::choose_portable(&shape) };
        if target == "sm_89" {
            // Products in e4m3: Q's 64 rows and two stages of K and V in bytes (portable_e4m3.cuh).
            let keys = if problem.head_dim == 256 { 32 } else { 64 };
            choice.shared_bytes = (64 + 4 * keys) * problem.head_dim;
        }
        let way = Way::new(problem, choice, device.sms);
        let lse = (target == HOPPER && !problem.wide_queries)
            .then(|| Way::new(problem, heuristic::choose(&Shape { lse: true, ..shape }, device.sms), device.sms))
            .filter(|other| other.choice != way.choice);
        Ok(Plan { problem: *problem, target, way, lse })
    }

    /// The kernel and its launch, of launches without log-sum-exp.
    pub fn choice(&self) -> &Choice {
        &self.way.choice
    }

    /// The same of launches with it: another one where the fastest kernel does not know it well enough.
    pub fn choice_with_lse(&self) -> &Choice {
        &self.lse.as_ref().unwrap_or(&self.way).choice
    }

    /// The plan all of whose launches are made as those with log-sum-exp: for [`Plan::load_image`].
    pub fn with_lse(mut self) -> Plan {
        self.way = self.lse.take().unwrap_or(self.way);
        self
    }

    /// What its machine code is for: `sm_90a`, `sm_89`, `sm_80`, or `compute_80`, which is PTX.
    pub fn target(&self) -> &'static str {
        self.target
    }

    pub fn workspace(&self) -> Workspace {
        let (one, other) = (self.choice(), self.choice_with_lse());
        Workspace {
            scratch_bytes: 4 * one.partial_floats.max(other.partial_floats),
            counters: one.units.max(other.units),
        }
    }

    /// Loads the kernel from what this build embeds, into the current context; a second time finds it there.
    /// Errors: [`Error::NoKernel`], and what the driver refuses.
    pub fn load(&self) -> Result<LoadedPlan, Error> {
        let way = self.way.load(self.target, None)?;
        let lse = self.lse.as_ref().map(|way| way.load(self.target, None)).transpose()?;
        Ok(LoadedPlan { plan: self.clone(), way, lse })
    }

    /// The same with machine code, a cubin or PTX, of [`Plan::choice`]'s instance from the caller. Where [`Plan::choice_with_lse`] is another one,
    /// launches with log-sum-exp are refused: they are those of [`Plan::with_lse`]. What makes V^T before it comes from what this build embeds.
    pub fn load_image(&self, image: &[u8]) -> Result<LoadedPlan, Error> {
        Ok(LoadedPlan { plan: self.clone(), way: self.way.load(self.target, Some(image))?, lse: None })
    }

    /// `v_t`: the last one is V^T, in whole tiles. `packed_rows`: the first one is for row tiles of packed rows.
    fn tensor_map(
        &self,
        which: usize,
        address: u64,
        boxes: (u32, u32),
        v_t: bool,
        packed_rows: bool,
    ) -> Result<TensorMap, Error> {
        let p = &self.problem;
        let s = &p.strides[if p.wide_queries { which.max(1) } else { which }];
        let (rows_q, rows_k) = if p.wide_queries { (boxes.1, boxes.1) } else { boxes };
        if which == 2 && v_t {
            let keys = u64::from(p.seqlen_k).next_multiple_of(128);
            let dims = [keys, p.head_dim.into(), p.heads_kv.into(), p.batch.into()];
            let strides = [keys, keys * dims[1], keys * dims[1] * dims[2]];
            return driver::encode_bytes(address, dims, strides, [128, p.head_dim, 1, 1]);
        }
        let (heads, tokens, rows) = if which == 0 && !p.wide_queries {
            (p.heads_q, p.seqlen_q, rows_q)
        } else {
            (p.heads_kv, p.seqlen_k, rows_k)
        };
        // A dimension of one element may have any stride; the driver wants a whole one.
        let stride =
            |stride: i64, n: u32| if n == 1 { (stride.max(16) as u64).next_multiple_of(16) } else { stride as u64 };
        let [token, head, batch] = [stride(s.token, tokens), stride(s.head, heads), stride(s.batch, p.batch)];
        let group = p.heads_q / p.heads_kv;
        if which == 0 && packed_rows && crate::heuristic::few_boxes(group) {
            let dims = [p.head_dim, heads, tokens, p.batch].map(u64::from);
            return driver::encode_bytes(
                address,
                dims,
                [head, token, batch],
                [p.head_dim.min(128), group, 64 / group, 1],
            );
        }
        let dims = [p.head_dim, tokens, heads, p.batch].map(u64::from);
        driver::encode_bytes(address, dims, [token, head, batch], [p.head_dim.min(128), rows, 1, 1])
    }
}

/// Kernels that were loaded, by context and instance. They stay: graphs may hold them.
fn loaded(
    target: &str,
    instance: &Instance,
    shared_bytes: u32,
    image: impl FnOnce() -> Result<Vec<u8>, Error>,
) -> Result<Function, Error> {
    static LOADED: OnceLock<Mutex<HashMap<(usize, String), (Function, u32)>>> = OnceLock::new();
    let key = (driver::context()?, format!("{target}/{}", instance.name()));
    let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    match loaded.get(&key) {
        Some((function, allowed)) if *allowed >= shared_bytes => Ok(*function),
        _ => {
            let function = Function::load(&image()?, &instance.entry(), shared_bytes)?;
            loaded.insert(key, (function, shared_bytes));
            Ok(function)
        }
    }
}

/// A plan whose kernel is in a context; that context, or one that shares its device's primary one, is current at each launch.
#[derive(Debug, Clone)]
pub struct LoadedPlan {
    plan: Plan,
    way: Loaded,
    lse: Option<Loaded>,
}

impl LoadedPlan {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// One launch on the stream, or two where V^T is made before: no allocation, no waiting. Errors: [`Error::Pointer`] before anything is launched; what the driver refuses.
    pub fn launch(&self, at: &Pointers, stream: RawStream) -> Result<(), Error> {
        let plan = &self.plan;
        let work = plan.workspace();
        let read = [("q", at.q), ("k", at.k), ("v", at.v), ("out", at.out)];
        let scales = [("q_scale", at.q_scale), ("k_scale", at.k_scale), ("v_scale", at.v_scale)];
        let needless = usize::from(plan.problem.wide_queries && at.q_scale.0 == 0);
        let scratch = [("scratch", at.scratch)].into_iter().filter(|_| work.scratch_bytes > 0);
        let counters = [("counters", at.counters)].into_iter().filter(|_| work.counters > 0);
        if at.v_mean.is_some() && !plan.problem.packed_values {
            return Err(ProblemError::Mean.into());
        }
        if at.lse.is_some_and(|p| p.0 != 0) && plan.problem.wide_queries {
            return Err(ProblemError::Wide.into());
        }
        let mean = at.v_mean.map(|p| ("v_mean", p));
        let wanted = read.into_iter().chain(mean).map(|x| (x, 16));
        let words = scales.into_iter().skip(needless).chain(counters).map(|x| (x, 4));
        for ((name, pointer), align) in wanted.chain(scratch.map(|x| (x, 16))).chain(words) {
            if pointer.0 == 0 {
                return Err(Error::Pointer { name, why: "null" });
            }
            if pointer.0 % align != 0 {
                return Err(Error::Pointer {
                    name,
                    why: if align == 16 { "not on 16 bytes" } else { "not on 4 bytes" },
                });
            }
        }
        let lse = at.lse.unwrap_or_default();
        let why = "what another kernel gives than the one whose image was loaded";
        let (way, loaded) = match &plan.lse {
            Some(way) if lse.0 != 0 => (way, self.lse.ok_or(Error::Pointer { name: "lse", why })?),
            _ => (&plan.way, self.way),
        };
        let mut v = at.v;
        if let (Some(choice), Some(function)) = (&way.transposition, loaded.transposition) {
            let mut values = Values::new(&plan.problem, &way.choice);
            if way.choice.tiles_per_worker > 0 {
                values.made = at.counters.0;
            }
            let boxes = way.choice.boxes.unwrap_or((64, 128));
            let mut rows = plan.tensor_map(2, at.v.0, boxes, false, false)?;
            let mut v_t = plan.tensor_map(2, at.scratch.0, boxes, true, false)?;
            let arguments = [(&raw mut values).cast::<c_void>(), (&raw mut rows).cast(), (&raw mut v_t).cast()];
            function.launch(choice.grid, choice.block, choice.shared_bytes, stream, true, &arguments)?;
            v = at.scratch;
        }
        let mut params = way.params;
        let all = [at.q, at.k, v, at.q_scale, at.k_scale, at.v_scale, at.out, lse, at.scratch, at.counters];
        params.addresses = all.map(|p| p.0);
        params.v_mean = at.v_mean.unwrap_or_default().0;
        let mut arguments: [*mut c_void; 4] = [(&raw mut params).cast(); 4];
        let mut maps = [TensorMap([0; 16]); 3];
        let mut count = 1;
        if let Some(boxes) = way.choice.boxes {
            // Queries of 16 bits are not loaded by boxes: the map of keys takes their place.
            let q = if plan.problem.wide_queries { at.k } else { at.q };
            let v_t = plan.problem.packed_values || way.choice.transposes;
            let packed_rows = way.choice.instance.defines.contains(&("WS_FEW", 1));
            for (i, pointer) in [q, at.k, v].into_iter().enumerate() {
                maps[i] = plan.tensor_map(i, pointer.0, boxes, v_t, packed_rows)?;
                arguments[i + 1] = (&raw mut maps[i]).cast();
            }
            count = 4;
        }
        let c = &way.choice;
        loaded.kernel.launch(c.grid, c.block, c.shared_bytes, stream, plan.target == HOPPER, &arguments[..count])
    }
}
