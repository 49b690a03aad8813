//! The C interface of quantising and packing; as `capi.rs`, of which this is the second half, in the header too. SAFETY: see there.

use crate::capi::{OK, give, null, say};
use crate::driver::{Device, RawStream};
use crate::error::{Error, ProblemError};
use crate::plan::DevicePtr;
use crate::problem::Strides;
use crate::quantise::{LoadedQuantisePlan, MOST_PARTS, Quantisation, QuantisePlan, Quantised, Scales, Wide};
use std::ffi::{c_int, c_void};

/// `ws_attention_quantisation`.
/// What becomes of one tensor x (batch, heads, tokens, head_dim): e4m3 codes and f32 scales, each the largest magnitude / 448, and 1 where that is at most 1e-6. What is transposed is Hopper's alone.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CQuantisation {
    batch: u32,
    heads: u32,
    tokens: u32,
    /// a multiple of 8, at most 256; 64, 128 or 256 with centred, transposed, even, or without codes
    head_dim: u32,
    /// 0 bf16, 1 f16, 2 f32
    from: u32,
    /// 0: one; 1: (batch, heads); 2: (batch, heads, blocks of 128 tokens); contiguous
    scales: u32,
    /// of x over (batch, head, token), in elements: whole 16 bytes
    strides: [i64; 3],
    /// of codes, multiples of 8, of 16 for attention
    code_strides: [i64; 3],
    /// 0, with scales 2 and transposed: no codes of x's layout are wanted
    codes: u32,
    /// 1, with scales 2: each channel's mean over up to 64 tokens is taken out, where these show one, and written. With keys of which one was taken out outputs are the same, and log-sum-exps less by softmax_scale q mean
    centred: u32,
    /// 1, with scales 2: codes (batch, heads, head_dim, tokens in whole tiles of 128) as packed_values takes v are written
    transposed: u32,
    /// with scales 2: 0, or a block's scale is its head's, with so many sixteenths of room, where its values fit
    even: u32,
}

/// `ws_attention_quantised`.
/// Addresses of one tensor and of what becomes of it, on 16 bytes, scales on 4.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CQuantised {
    x: u64,
    /// with codes
    codes: u64,
    scale: u64,
    /// with centred: f32 (batch, heads, head_dim)
    mean: u64,
    /// with transposed
    transposed: u64,
}

impl CQuantisation {
    fn part(&self) -> Result<Quantisation, ProblemError> {
        let (from, scales) = match (self.from, self.scales) {
            (from @ 0..=2, scales @ 0..=2) => (
                [Wide::Bf16, Wide::F16, Wide::F32][from as usize],
                [Scales::Tensor, Scales::Head, Scales::Block][scales as usize],
            ),
            (from, scales) => return Err(ProblemError::QuantisedKinds { from, scales }),
        };
        let strides = |[batch, head, token]: [i64; 3]| Strides { batch, head, token };
        Ok(Quantisation {
            batch: self.batch,
            heads: self.heads,
            tokens: self.tokens,
            head_dim: self.head_dim,
            from,
            strides: strides(self.strides),
            codes: (self.codes != 0).then_some(strides(self.code_strides)),
            scales,
            centred: self.centred != 0,
            transposed: self.transposed != 0,
            even: self.even,
        })
    }
}

impl From<Quantisation> for CQuantisation {
    fn from(q: Quantisation) -> CQuantisation {
        let strides = |s: Strides| [s.batch, s.head, s.token];
        CQuantisation {
            batch: q.batch,
            heads: q.heads,
            tokens: q.tokens,
            head_dim: q.head_dim,
            from: q.from as u32,
            scales: q.scales as u32,
            strides: strides(q.strides),
            code_strides: strides(q.codes.unwrap_or(q.strides)),
            codes: u32::from(q.codes.is_some()),
            centred: u32::from(q.centred),
            transposed: u32::from(q.transposed),
            even: q.even,
        }
    }
}

/// Writes what is asked for, if there are such kinds.
unsafe fn offer(made: CQuantisation, into: *mut CQuantisation) -> c_int {
    match made.part() {
        // SAFETY: see capi.rs.
        Ok(_) => unsafe { give(made, into) },
        Err(error) => say(&error.into()),
    }
}

/// Codes and scales of a contiguous tensor: to change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_quantise_dense(
    batch: u32,
    heads: u32,
    tokens: u32,
    head_dim: u32,
    from: u32,
    scales: u32,
    into: *mut CQuantisation,
) -> c_int {
    let made = Quantisation::dense(batch, heads, tokens, head_dim, Wide::Bf16, Scales::Head);
    let made = CQuantisation { from, scales, ..made.into() };
    // SAFETY: see capi.rs.
    unsafe { offer(made, into) }
}

/// What packs contiguous keys for attention over packed values: codes, scales of blocks, centred, and even where kernels gain by it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_pack_keys(
    batch: u32,
    heads: u32,
    tokens: u32,
    head_dim: u32,
    from: u32,
    into: *mut CQuantisation,
) -> c_int {
    let made = CQuantisation { from, ..Quantisation::keys(batch, heads, tokens, head_dim, Wide::Bf16).into() };
    // SAFETY: see capi.rs.
    unsafe { offer(made, into) }
}

/// The same of values: transposed codes alone, whose mean goes to v_mean of ws_attention_pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_pack_values(
    batch: u32,
    heads: u32,
    tokens: u32,
    head_dim: u32,
    from: u32,
    into: *mut CQuantisation,
) -> c_int {
    let made = CQuantisation { from, ..Quantisation::values(batch, heads, tokens, head_dim, Wide::Bf16).into() };
    // SAFETY: see capi.rs.
    unsafe { offer(made, into) }
}

/// Checks one to three quantisations that go together, with one kind of scales, and loads their kernels in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_quantise_plan(
    parts: *const CQuantisation,
    count: u32,
    into: *mut *mut c_void,
) -> c_int {
    if parts.is_null() || into.is_null() {
        return null(if parts.is_null() { "parts" } else { "into" });
    }
    let count = count as usize;
    if count == 0 || count > MOST_PARTS {
        return say(&ProblemError::Parts(count).into());
    }
    // SAFETY: see capi.rs; as many as the caller says.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let parts: Vec<Quantisation> = match parts.iter().map(CQuantisation::part).collect() {
        Ok(parts) => parts,
        Err(error) => return say(&Error::from(error)),
    };
    // Wrong arguments are told from a missing device.
    let made = Device::current().map_err(|error| match QuantisePlan::new(&parts, &Device::HOPPER) {
        Err(wrong) => wrong,
        Ok(_) => error,
    });
    match made.and_then(|device| QuantisePlan::new(&parts, &device)).and_then(|plan| plan.load()) {
        Ok(plan) => {
            // SAFETY: see capi.rs.
            unsafe { into.write(Box::into_raw(Box::new(plan)).cast()) };
            OK
        }
        Err(error) => say(&error),
    }
}

/// The number of 32-bit counters of such a plan, zero before the first launch; every launch leaves them zero. Launches that may overlap need their own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_quantise_counters(plan: *const c_void, counters: *mut u32) -> c_int {
    if plan.is_null() || counters.is_null() {
        return null("an argument");
    }
    // SAFETY: see capi.rs; the plan is one of ws_attention_quantise_plan's.
    unsafe { counters.write((*plan.cast::<LoadedQuantisePlan>()).plan().counters()) };
    OK
}

/// One launch on the stream, or two; at has an element for each of the plan's quantisations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_quantise_launch(
    plan: *const c_void,
    at: *const CQuantised,
    counters: u64,
    stream: *mut c_void,
) -> c_int {
    if plan.is_null() || at.is_null() {
        return null(if plan.is_null() { "plan" } else { "at" });
    }
    // SAFETY: see capi.rs; the plan is one of ws_attention_quantise_plan's.
    let plan = unsafe { &*plan.cast::<LoadedQuantisePlan>() };
    let count = plan.plan().parts().len();
    // SAFETY: see capi.rs; as many as the plan has.
    let given = unsafe { std::slice::from_raw_parts(at, count) };
    let mut places = [Quantised::default(); MOST_PARTS];
    for (place, p) in places.iter_mut().zip(given) {
        let [x, codes, scale, mean, transposed] = [p.x, p.codes, p.scale, p.mean, p.transposed].map(DevicePtr);
        *place = Quantised { x, codes, scale, mean, transposed };
    }
    match plan.launch(&places[..count], DevicePtr(counters), RawStream(stream)) {
        Ok(()) => OK,
        Err(error) => say(&error),
    }
}

/// Gives such a plan back; its kernels stay loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_attention_quantise_free(plan: *mut c_void) {
    if !plan.is_null() {
        // SAFETY: see capi.rs; the plan is one of ws_attention_quantise_plan's, given back once.
        drop(unsafe { Box::from_raw(plan.cast::<LoadedQuantisePlan>()) });
    }
}
