//! The C interface: `include/warpsmith_attention.h` is made from this file (`header.rs`), doc comments too.
//!
//! SAFETY, for all of it: pointers come from the caller, who keeps them valid for the call; null is looked for. No panic crosses: nothing here
//! panics on any input.

use crate::driver::{Device, RawStream};
use crate::error::Error;
use crate::error::ProblemError;
use crate::plan::{DevicePtr, LoadedPlan, Plan, Pointers};
use crate::problem::{Lengths, Mask, Output, Problem, ScaleStrides, Strides, check_scales};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

/// `ws_attention_problem`.
/// Sizes, strides and options of one call; q (batch, heads_q, seqlen_q, head_dim), k and v (batch, heads_kv, seqlen_k, head_dim), all e4m3.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CProblem {
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    seqlen_q: u32,
    seqlen_k: u32,
    /// 64, 128 or 256
    head_dim: u32,
    /// 1: aligned bottom-right
    causal: u32,
    /// 0 bf16, 1 f16, 2 e4m3: round(o / out_scale)
    out_format: u32,
    out_scale: f32,
    /// 0: 1 / sqrt(head_dim)
    softmax_scale: f32,
    /// of q, k and v over (batch, head, token), in elements, multiples of 16
    strides: [[i64; 3]; 3],
    /// of their f32 scales, which are finite and not negative, over (batch, head, block of 128 tokens); 0 where shared
    scale_strides: [[i32; 3]; 3],
    /// 1: v is transposed, (batch, heads_kv, head_dim, keys in whole tiles of 128), contiguous, as transpose.cuh orders it; Hopper only
    packed_values: u32,
    /// 1, with packed_values: q is of 16 bits, bf16 or f16 as the output is; its strides are in elements too, and q_scale may be 0. No log-sum-exp
    wide_queries: u32,
    /// 1: outputs may be rounded more where that is faster: many queries over many keys at head dimensions 128 and 256, no log-sum-exp
    fast: u32,
    /// lengths 2: steps over sequences of the page table
    table_stride: i64,
    /// 0: all sequences are alike; 1: each uses a part of its seqlen_k keys, as pointers.used says; 2: the same by pages; 3: one behind another. 1 to 3 are for v as it comes
    lengths: u32,
    /// lengths 2: k and v are pools (pages, page_size, heads_kv, head_dim), their strides' first over pages; seqlen_k is a multiple of page_size
    page_size: u32,
    pages: u32,
    /// lengths 3: tokens of all sequences: q (tokens_q, heads_q, head_dim), k and v (tokens_k, heads_kv, head_dim); seqlen_q and seqlen_k are the most that one has, strides' first is not looked at
    tokens_q: u32,
    tokens_k: u32,
}

/// `ws_attention_pointers`.
/// Addresses in the device's memory; tensors on 16 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CPointers {
    q: u64,
    k: u64,
    v: u64,
    q_scale: u64,
    k_scale: u64,
    v_scale: u64,
    /// (batch, heads_q, seqlen_q, head_dim), contiguous
    out: u64,
    /// f32 (batch, heads_q, seqlen_q), natural logarithm, or 0; a launch with it may be another kernel's than one without, and take longer
    lse: u64,
    /// what ws_attention_workspace says; may be 0 if that is 0
    scratch: u64,
    /// 32-bit words, zero before the first launch; every launch leaves them zero
    counters: u64,
    /// with packed_values: f32 (batch, heads_kv, head_dim), added to rows that see a key, or 0
    v_mean: u64,
    /// lengths 1 and 2: int32 (batch), keys of each sequence, new ones among them
    used: u64,
    /// lengths 2: int32, the i-th page of sequence b at [b * table_stride + i]
    pages: u64,
    /// lengths 3: int32 (batch + 1), where each sequence begins; out is (tokens_q, heads_q, head_dim), lse (heads_q, tokens_q)
    cu_seqlens_q: u64,
    cu_seqlens_k: u64,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

pub(crate) const OK: c_int = 0;
const WRONG_ARGUMENT: c_int = 1;
const NO_KERNEL: c_int = 2;
const DRIVER: c_int = 3;

pub(crate) fn say(error: &Error) -> c_int {
    // A message has no zero in it; one that had would be cut there.
    let text = error.to_string().replace('\0', " ");
    MESSAGE.with(|m| *m.borrow_mut() = CString::new(text).unwrap_or_default());
    match error {
        Error::Problem(_) | Error::Pointer { .. } => WRONG_ARGUMENT,
        Error::NoKernel { .. } | Error::Device { .. } | Error::Container { .. } => NO_KERNEL,
        Error::NoDriver { .. } | Error::Call { .. } => DRIVER,
    }
}

pub(crate) fn null(name: &'static str) -> c_int {
    say(&Error::Pointer { name, why: "null" })
}

impl CProblem {
    fn problem(&self) -> Result<Problem, ProblemError> {
        let strides = |[batch, head, token]: [i64; 3]| Strides { batch, head, token };
        let scales = |[batch, head, block]: [i32; 3]| ScaleStrides { batch, head, block };
        Ok(Problem {
            batch: self.batch,
            heads_q: self.heads_q,
            heads_kv: self.heads_kv,
            seqlen_q: self.seqlen_q,
            seqlen_k: self.seqlen_k,
            head_dim: self.head_dim,
            mask: if self.causal != 0 { Mask::Causal } else { Mask::Full },
            output: match self.out_format {
                0 => Output::Bf16,
                1 => Output::F16,
                2 => Output::E4m3 { scale: self.out_scale },
                other => return Err(ProblemError::OutFormat(other)),
            },
            softmax_scale: (self.softmax_scale != 0.0).then_some(self.softmax_scale),
            strides: self.strides.map(strides),
            scales: self.scale_strides.map(scales),
            packed_values: self.packed_values != 0,
            wide_queries: self.wide_queries != 0,
            fast: self.fast != 0,
            lengths: match self.lengths {
                0 => Lengths::Equal,
                1 => Lengths::Used,
                2 => {
                    let (page_size, pages, table_stride) = (self.page_size, self.pages, self.table_stride);
                    Lengths::Paged { page_size, pages, table_stride }
                }
                3 => Lengths::Varlen { tokens_q: self.tokens_q, tokens_k: self.tokens_k },
                other => return Err(ProblemError::LengthsKind(other)),
            },
        })
    }
}

impl From<&Problem> for CProblem {
    fn from(p: &Problem) -> CProblem {
        let (lengths, page_size, pages, table_stride, tokens_q, tokens_k) = match p.lengths {
            Lengths::Equal => (0, 0, 0, 0, 0, 0),
            Lengths::Used => (1, 0, 0, 0, 0, 0),
            Lengths::Paged { page_size, pages, table_stride } => (2, page_size, pages, table_stride, 0, 0),
            Lengths::Varlen { tokens_q, tokens_k } => (3, 0, 0, 0, tokens_q, tokens_k),
        };
        CProblem {
            batch: p.batch,
            heads_q: p.heads_q,
            heads_kv: p.heads_kv,
            seqlen_q: p.seqlen_q,
            seqlen_k: p.seqlen_k,
            head_dim: p.head_dim,
            causal: u32::from(p.mask == Mask::Causal),
            out_format: p.output.kind() as u32,
            out_scale: if let Output::E4m3 { scale } = p.output { scale } else { 1.0 },
            softmax_scale: p.softmax_scale.unwrap_or(0.0),
            strides: p.strides.map(|s| [s.batch, s.head, s.token]),
            scale_strides: p.scales.map(|s| [s.batch, s.head, s.block]),
            packed_values: u32::from(p.packed_values),
            wide_queries: u32::from(p.wide_queries),
            fast: u32::from(p.fast),
            table_stride,
            lengths,
            page_size,
            pages,
            tokens_q,
            tokens_k,
        }
    }
}

/// Writes what is asked for.
pub(crate) unsafe fn give<T>(made: T, into: *mut T) -> c_int {
    if into.is_null() {
        return null("into");
    }
    // SAFETY: see the module.
    unsafe { into.write(made) };
    OK
}

/// Contiguous tensors, a scale for each head, no mask, bf16 out: a problem to change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_dense(
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    seqlen_q: u32,
    seqlen_k: u32,
    head_dim: u32,
    into: *mut CProblem,
) -> c_int {
    // SAFETY: see the module.
    unsafe { give((&Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim)).into(), into) }
}

/// The same over packed keys and values, as ws_attention_pack_keys and ws_attention_pack_values say: scales of k and v of blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_packed(
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    seqlen_q: u32,
    seqlen_k: u32,
    head_dim: u32,
    into: *mut CProblem,
) -> c_int {
    // SAFETY: see the module.
    unsafe { give((&Problem::packed(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim)).into(), into) }
}

/// Queries q (batch, heads_q, seqlen_q, head_dim) over caches (batch, seqlen_k, heads_kv, head_dim) of which each sequence uses a part, a scale for each head, causal: to change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_cached(
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    seqlen_q: u32,
    seqlen_k: u32,
    head_dim: u32,
    into: *mut CProblem,
) -> c_int {
    // SAFETY: see the module.
    unsafe { give((&Problem::cached(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim)).into(), into) }
}

/// The same by pages, pools (pages, page_size, heads_kv, head_dim), with a contiguous table (batch, pages_of_sequence).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_paged(
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    seqlen_q: u32,
    pages_of_sequence: u32,
    page_size: u32,
    pages: u32,
    head_dim: u32,
    into: *mut CProblem,
) -> c_int {
    let problem = Problem::paged(batch, heads_q, heads_kv, seqlen_q, pages_of_sequence, page_size, pages, head_dim);
    // SAFETY: see the module.
    unsafe { give((&problem).into(), into) }
}

/// Sequences one behind another, contiguous (tokens, heads, head_dim), of at most seqlen_q and seqlen_k tokens each, a scale for each head of each, causal: to change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_varlen(
    batch: u32,
    heads_q: u32,
    heads_kv: u32,
    tokens_q: u32,
    tokens_k: u32,
    seqlen_q: u32,
    seqlen_k: u32,
    head_dim: u32,
    into: *mut CProblem,
) -> c_int {
    let problem = Problem::varlen(batch, heads_q, heads_kv, tokens_q, tokens_k, seqlen_q, seqlen_k, head_dim);
    // SAFETY: see the module.
    unsafe { give((&problem).into(), into) }
}

/// Checks the problem, chooses and loads the kernel in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_plan(problem: *const CProblem, into: *mut *mut c_void) -> c_int {
    if problem.is_null() || into.is_null() {
        return null(if problem.is_null() { "problem" } else { "into" });
    }
    // SAFETY: see the module.
    let problem = match unsafe { (*problem).problem() } {
        Ok(problem) => problem,
        Err(error) => return say(&error.into()),
    };
    // Wrong arguments are told from a missing device.
    let device = problem.check().map_err(Error::from).and_then(|()| Device::current());
    let made = device.and_then(|device| Plan::new(&problem, &device)).and_then(|plan| plan.load());
    match made {
        Ok(plan) => {
            // SAFETY: see the module.
            unsafe { into.write(Box::into_raw(Box::new(plan)).cast()) };
            OK
        }
        Err(error) => say(&error),
    }
}

/// Bytes of scratch memory and the number of counters of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_workspace(
    plan: *const c_void,
    scratch_bytes: *mut u64,
    counters: *mut u32,
) -> c_int {
    if plan.is_null() || scratch_bytes.is_null() || counters.is_null() {
        return null("an argument");
    }
    // SAFETY: see the module; the plan is one of ws_attention_plan's.
    let work = unsafe { &*plan.cast::<LoadedPlan>() }.plan().workspace();
    unsafe {
        scratch_bytes.write(work.scratch_bytes);
        counters.write(work.counters);
    }
    OK
}

/// One launch on the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_launch(
    plan: *const c_void,
    pointers: *const CPointers,
    stream: *mut c_void,
) -> c_int {
    if plan.is_null() || pointers.is_null() {
        return null(if plan.is_null() { "plan" } else { "pointers" });
    }
    // SAFETY: see the module; the plan is one of ws_attention_plan's.
    let (plan, p) = unsafe { (&*plan.cast::<LoadedPlan>(), &*pointers) };
    let given = |address: u64| (address != 0).then_some(DevicePtr(address));
    let at = Pointers {
        q: DevicePtr(p.q),
        k: DevicePtr(p.k),
        v: DevicePtr(p.v),
        v_mean: given(p.v_mean),
        q_scale: DevicePtr(p.q_scale),
        k_scale: DevicePtr(p.k_scale),
        v_scale: DevicePtr(p.v_scale),
        out: DevicePtr(p.out),
        lse: given(p.lse),
        scratch: DevicePtr(p.scratch),
        counters: DevicePtr(p.counters),
        used: given(p.used),
        pages: given(p.pages),
        cu_seqlens_q: given(p.cu_seqlens_q),
        cu_seqlens_k: given(p.cu_seqlens_k),
    };
    match plan.launch(&at, RawStream(stream)) {
        Ok(()) => OK,
        Err(error) => say(&error),
    }
}

/// Whether scales in the host's memory are finite and not negative; calls do not look at those on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_check_scales(scales: *const f32, count: u64) -> c_int {
    if scales.is_null() && count != 0 {
        return null("scales");
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > isize::MAX as usize / size_of::<f32>() {
        return say(&Error::Pointer { name: "scales", why: "more than an address space holds" });
    }
    // SAFETY: see the module; as many as the caller says.
    let scales = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(scales, count) } };
    match check_scales("scales", scales) {
        Ok(()) => OK,
        Err(error) => say(&error.into()),
    }
}

/// Gives a plan back; its kernel stays loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_free(plan: *mut c_void) {
    if !plan.is_null() {
        // SAFETY: see the module; the plan is one of ws_attention_plan's, given back once.
        drop(unsafe { Box::from_raw(plan.cast::<LoadedPlan>()) });
    }
}

/// What the last call of this thread that failed has to say; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn ws_attention_message() -> *const c_char {
    MESSAGE.with(|m| m.borrow().as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        MESSAGE.with(|m| m.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn wrong_arguments_are_told_before_any_device_is_asked() {
        let mut problem = std::mem::MaybeUninit::<CProblem>::uninit();
        let mut plan = std::ptr::null_mut();
        // SAFETY: both are written before they are read.
        let mut problem = unsafe {
            assert_eq!(ws_attention_dense(1, 8, 8, 512, 512, 64, problem.as_mut_ptr()), OK);
            problem.assume_init()
        };
        problem.out_format = 3;
        // SAFETY: pointers to what lives in this function.
        assert_eq!(unsafe { ws_attention_plan(&problem, &mut plan) }, WRONG_ARGUMENT);
        assert!(said().contains("out_format must be 0 (bf16), 1 (f16) or 2 (e4m3), not 3"), "{}", said());
        assert!(plan.is_null());
    }

    #[test]
    fn scales_on_the_host_are_looked_at() {
        let scales = [1.0, 0.0, -2.0];
        // SAFETY: as many as there are; none are read where there is no pointer.
        unsafe {
            assert_eq!(ws_attention_check_scales(scales.as_ptr(), 2), OK);
            assert_eq!(ws_attention_check_scales(std::ptr::null(), 0), OK);
            assert_eq!(ws_attention_check_scales(scales.as_ptr(), 3), WRONG_ARGUMENT);
            assert!(said().contains("scales[2] is -2"), "{}", said());
            assert_eq!(ws_attention_check_scales(scales.as_ptr(), u64::MAX), WRONG_ARGUMENT);
            assert_eq!(ws_attention_check_scales(std::ptr::null(), 1), WRONG_ARGUMENT);
        }
    }
}
