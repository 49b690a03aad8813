//! From a problem to a launch: plan (pure), load (once for a context), launch (as often as wanted, from any thread).

use crate::driver::{Device, RawStream};
use crate::error::{Error, ProblemError};
use crate::heuristic::{self, Choice, Shape};
use crate::problem::{Lengths, Problem};
use crate::way::{Loaded, Way};

/// The only target whose kernels are its own; they wait for earlier launches themselves.
pub(crate) const HOPPER: &str = "sm_90a";

/// Those whose portable kernel multiplies in e4m3; others' multiplies in f16.
const IN_E4M3: [&str; 3] = ["sm_89", "sm_100", "sm_120"];

/// What machine code for a device is for. Errors: [`Error::Device`].
pub(crate) fn target(device: &Device) -> Result<&'static str, Error> {
    match (device.major, device.minor) {
        (9, 0) => Ok(HOPPER),
        (8, 9) => Ok("sm_89"),
        (8, _) => Ok("sm_80"),
        (10, _) => Ok("sm_100"),
        (12, _) => Ok("sm_120"),
        (9.., _) => Ok("compute_80"), // PTX, which the driver compiles for the card that is there
        (major, minor) => Err(Error::Device { major, minor }),
    }
}

/// An address in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// Whether a kernel can take it. Errors: [`Error::Pointer`].
    pub(crate) fn check(self, name: &'static str, align: u64) -> Result<(), Error> {
        match self.0 {
            0 => Err(Error::Pointer { name, why: "null" }),
            at if at % align == 0 => Ok(()),
            _ if align == 16 => Err(Error::Pointer { name, why: "not on 16 bytes" }),
            _ => Err(Error::Pointer { name, why: "not on 4 bytes" }),
        }
    }
}

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
    /// (batch, heads_q, seqlen_q, head_dim), of sequences one behind another (tokens_q, heads_q, head_dim), contiguous, on 16 bytes. Rows of no sequence, and such as see
    /// no key, are zero.
    pub out: DevicePtr,
    /// f32 (batch, heads_q, seqlen_q), of sequences one behind another (heads_q, tokens_q), if wanted: natural logarithm of the sum of exponentials, -inf where no key is seen. Where the fastest kernel
    /// does not know it well enough, another one runs then.
    pub lse: Option<DevicePtr>,
    /// [`Workspace::scratch_bytes`] of anything, on 16 bytes.
    pub scratch: DevicePtr,
    /// [`Workspace::counters`] 32-bit words, zero before the first launch; every launch leaves them zero.
    pub counters: DevicePtr,
    /// [`Lengths::Used`] and [`Lengths::Paged`]: i32 (batch), keys of each sequence, new ones among them.
    pub used: Option<DevicePtr>,
    /// [`Lengths::Paged`]: i32, the pages of each sequence.
    pub pages: Option<DevicePtr>,
    /// [`Lengths::Varlen`]: i32 (batch + 1), where each sequence begins, of q and of k and v.
    pub cu_seqlens_q: Option<DevicePtr>,
    pub cu_seqlens_k: Option<DevicePtr>,
}

/// Memory that a launch needs besides its tensors. Launches that may overlap must not share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workspace {
    pub scratch_bytes: u64,
    pub counters: u32,
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
        let (problem, Device { major, minor, sms }) = (&problem.normal(), *device);
        let shape = Shape::from(problem);
        let target = target(device)?;
        if target == HOPPER {
            let way = Way::hopper(problem, &shape, sms);
            let lse = (!problem.wide_queries)
                .then(|| Way::hopper(problem, &Shape { lse: true, ..shape }, sms))
                .filter(|other| other.choice != way.choice);
            return Ok(Plan { problem: *problem, target, way, lse });
        }
        if problem.packed_values {
            return Err(ProblemError::Packed { major, minor }.into());
        }
        let ada = IN_E4M3.contains(&target);
        let choice = match problem.lengths {
            Lengths::Equal => heuristic::choose_portable(&shape, sms, ada),
            Lengths::Used | Lengths::Paged { .. } => heuristic::choose_portable_lengths(&shape, sms, None, ada),
            Lengths::Varlen { tokens_q, .. } => {
                heuristic::choose_portable_lengths(&shape, sms, Some(tokens_q.into()), ada)
            }
        };
        Ok(Plan { problem: *problem, target, way: Way::new(problem, &shape, choice, sms), lse: None })
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

    /// What its machine code is for: `sm_90a`, or one of [`PORTABLE_TARGETS`](crate::PORTABLE_TARGETS).
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
        let own: &[_] = match plan.problem.lengths {
            Lengths::Equal => &[],
            Lengths::Used => &[("used", at.used)],
            Lengths::Paged { .. } => &[("used", at.used), ("pages", at.pages)],
            Lengths::Varlen { .. } => &[("cu_seqlens_q", at.cu_seqlens_q), ("cu_seqlens_k", at.cu_seqlens_k)],
        };
        let own = own.iter().map(|(name, p)| (*name, p.unwrap_or_default()));
        let wanted = read.into_iter().chain(mean).map(|x| (x, 16));
        let words = scales.into_iter().skip(needless).chain(counters).chain(own).map(|x| (x, 4));
        for ((name, pointer), align) in wanted.chain(scratch.map(|x| (x, 16))).chain(words) {
            pointer.check(name, align)?;
        }
        let lse = at.lse.unwrap_or_default();
        let why = "what another kernel gives than the one whose image was loaded";
        let (way, loaded) = match &plan.lse {
            Some(way) if lse.0 != 0 => (way, self.lse.ok_or(Error::Pointer { name: "lse", why })?),
            _ => (&plan.way, self.way),
        };
        way.launch(loaded, at, stream, plan.target == HOPPER)
    }
}
