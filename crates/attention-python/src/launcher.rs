//! Plans by the layout of their tensors, and their launches.

use crate::dlpack::{Exchange, Layout};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, RwLock};
use warpsmith_attention::raw;
use warpsmith_attention::{Error, Params, RawStream, Values};

/// Plans that are kept; then all are forgotten.
const MAX_PLANS: usize = 512;

/// A call's tensors, at most: q, k, v, their scales, then cache_seqlens and page_table of decode_fp8, or cu_seqlens_q and cu_seqlens_k of sdpa_fp8_varlen.
const TENSORS: usize = 8;

/// Streams whose rooms are known; then all are asked for anew.
const MAX_ROOMS: usize = 256;

/// What a tensor that is not given has for a layout: no tensor's.
const ABSENT: Layout = [-1; 10];

/// Layouts, dense calls having two that are absent; then the options: numbers by value, `out_dtype` and `mode` by identity; and the longest sequences of varlen calls, which alone have queries of three dimensions.
#[derive(PartialEq, Eq, Clone)]
struct Key {
    layouts: [Layout; TENSORS],
    options: [u64; 6],
    longest: [u64; 2],
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.layouts.as_flattened() {
            state.write_u64(*word as u64);
        }
        for word in self.options.into_iter().chain(self.longest) {
            state.write_u64(word);
        }
    }
}

/// Multiply and rotate: the keys are few and no enemy chooses them.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A tensor map's dimensions, strides and box.
type MapShape = ([u64; 4], [u64; 3], [u32; 4]);

/// Tensor maps' shapes (a kernel that does not look at one has none for it), and the maps of the last call by address: encoding one takes
/// longer than all else here.
struct Maps {
    shapes: [Option<MapShape>; 3],
    encoded: Mutex<[(u64, raw::TensorMap); 3]>,
}

impl Maps {
    fn new(shapes: [Option<MapShape>; 3]) -> Maps {
        Maps { shapes, encoded: Mutex::new([(0, raw::TensorMap([0; 16])); 3]) }
    }

    fn at(&self, at: [u64; 3]) -> Result<[raw::TensorMap; 3], Error> {
        let mut encoded = self.encoded.lock().unwrap_or_else(|e| e.into_inner());
        for (i, address) in at.into_iter().enumerate() {
            let Some((dims, strides, boxes)) = self.shapes[i] else { continue };
            if encoded[i].0 != address {
                encoded[i] = (address, raw::encode_bytes(address, dims, strides, boxes)?);
            }
        }
        Ok([encoded[0].1, encoded[1].1, encoded[2].1])
    }
}

/// A struct of a kernel's own, behind the others; the addresses of some tensors belong into it.
struct Own {
    /// It stands first, and begins with the params.
    joined: bool,
    words: Vec<u64>,
    /// The word, and the tensor's place in the call.
    addresses: Vec<(usize, usize)>,
}

/// The launch before the kernel's that makes V^T, in the scratch.
struct Transposition {
    function: raw::Function,
    grid: [u32; 3],
    block: u32,
    shared_bytes: u32,
    /// All but the address of counters.
    values: Values,
    /// Whether attention waits for its tiles one by one, by counters.
    beside: bool,
    /// Or which tensor's address stands there: that of where sequences begin.
    begins: Option<usize>,
    /// Of V and of V^T.
    maps: Maps,
}

/// How a contiguous tensor is made that a launch writes: a function of torch, and its arguments.
struct Fresh {
    make: Py<PyAny>,
    arguments: Py<PyTuple>,
}

/// What eager launches on one stream share, as they follow each other: zeros to count with, and scratch.
#[derive(Clone, Copy)]
struct Room {
    counters: u64,
    units: u32,
    scratch: u64,
    scratch_bytes: u64,
}

struct Entry {
    function: raw::Function,
    /// The context that it was loaded in.
    context: usize,
    device: i32,
    grid: [u32; 3],
    block: u32,
    shared_bytes: u32,
    params: Params,
    maps: Option<Maps>,
    own: Option<Own>,
    transposition: Option<Transposition>,
    /// What a launch writes.
    out: Fresh,
    lse: Option<Fresh>,
    partial: Option<Fresh>,
    partial_bytes: u64,
    units: u32,
    /// torch's name of the device.
    torch_device: Py<PyAny>,
    /// Kept alive, as the key has their addresses.
    _held: (Py<PyAny>, Py<PyAny>),
}

/// Launches plans that Python has made.
#[pyclass(frozen)]
pub struct Launcher {
    exchange: Exchange,
    empty_like: Py<PyAny>,
    /// `(sizes, strides, dtype)`, on the current device, past the dispatcher: what torch's compiled code makes its tensors by. It takes 1.1 us
    /// where `empty_like` takes 2.5 (1.7 and 2.9 after a wait; an H100's host, 2026-11-28), and is private to torch.
    empty_strided: Option<Py<PyAny>>,
    grad_enabled: Py<PyAny>,
    counters: Py<PyAny>,
    room: Py<PyAny>,
    rooms: Mutex<HashMap<(i32, usize), Room>>,
    plans: RwLock<HashMap<Key, Arc<Entry>, BuildHasherDefault<Mix>>>,
}

/// A number by value, None apart from all numbers; nothing for other types.
fn number(x: &Bound<'_, PyAny>) -> Option<u64> {
    if x.is_none() {
        return Some(u64::MAX); // the bits of a NaN that no arithmetic makes
    }
    let exact = x.is_exact_instance_of::<pyo3::types::PyFloat>() || x.is_exact_instance_of::<pyo3::types::PyInt>();
    if exact { x.extract::<f64>().ok().map(f64::to_bits) } else { None }
}

fn truth(x: &Bound<'_, PyAny>) -> Option<u64> {
    x.is_exact_instance_of::<PyBool>().then(|| x.is_truthy().map(u64::from).ok())?
}

impl Launcher {
    /// At most `TENSORS` tensors.
    fn key(
        &self,
        tensors: &[&Bound<'_, PyAny>],
        options: [&Bound<'_, PyAny>; 6],
        longest: Option<[&Bound<'_, PyAny>; 2]>,
    ) -> Option<(Key, [u64; TENSORS])> {
        let mut key = Key { layouts: [ABSENT; TENSORS], options: [0; 6], longest: [0; 2] };
        if let Some([of_q, of_k]) = longest {
            // A float is none, though it be whole: the long way says so.
            let whole = |x: &Bound<'_, PyAny>| x.is_exact_instance_of::<pyo3::types::PyInt>().then(|| number(x))?;
            key.longest = [whole(of_q)?, whole(of_k)?];
        }
        let mut at = [0; TENSORS];
        for (i, x) in tensors.iter().enumerate() {
            if i > 5 && x.is_none() {
                continue;
            }
            (key.layouts[i], at[i]) = self.exchange.look(x)?;
        }
        let [causal, softmax_scale, out_dtype, out_scale, return_lse, mode] = options;
        let address = |x: &Bound<'_, PyAny>| x.as_ptr() as u64;
        key.options = [
            truth(causal)?,
            number(softmax_scale)?,
            address(out_dtype),
            number(out_scale)?,
            truth(return_lse)?,
            address(mode),
        ];
        Some((key, at))
    }

    /// Whether a gradient is wanted of any tensor: the long way says that there is none.
    fn wants_gradient(&self, py: Python<'_>, tensors: &[&Bound<'_, PyAny>]) -> bool {
        let requires = |x: &&Bound<'_, PyAny>| {
            x.getattr(intern!(py, "requires_grad")).map_or(true, |y| !y.is(&*PyBool::new(py, false)))
        };
        tensors.iter().any(requires) && self.grad_enabled.call0(py).map_or(true, |y| y.is_truthy(py).unwrap_or(true))
    }

    /// How tensors like one element that was expanded are made.
    fn fresh(&self, py: Python<'_>, like: Py<PyAny>) -> PyResult<Fresh> {
        if let Some(arguments) = self.strided(like.bind(py))
            && let Some(make) = &self.empty_strided
        {
            return Ok(Fresh { make: make.clone_ref(py), arguments: arguments.unbind() });
        }
        Ok(Fresh { make: self.empty_like.clone_ref(py), arguments: PyTuple::new(py, [like])?.unbind() })
    }

    /// `empty_strided`'s arguments, if it makes the kind of tensor that this is: one of four elements is made to see.
    fn strided<'py>(&self, like: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
        let py = like.py();
        let make = self.empty_strided.as_ref()?.bind(py);
        let (layout, _) = self.exchange.look(like)?;
        let dimensions = (layout[0] & 0xffff_ffff) as usize;
        let sizes = layout[2..].get(..dimensions)?;
        if layout[6..].get(..dimensions)?.iter().zip(sizes).any(|(stride, size)| *stride != 0 && *size != 1) {
            return None; // not expanded: `empty_like` keeps what order it has
        }
        let dtype = like.getattr("dtype").ok()?;
        let arguments = |sizes: &[i64]| {
            let mut strides = vec![1; sizes.len()];
            for i in (1..sizes.len()).rev() {
                strides[i - 1] = strides[i] * sizes[i].max(1);
            }
            (PyTuple::new(py, sizes)?, PyTuple::new(py, strides)?, &dtype).into_pyobject(py)
        };
        let (probed, _) = self.exchange.look(&make.call1(arguments(&[2, 2]).ok()?).ok()?)?;
        let alike =
            probed[0] >> 32 == layout[0] >> 32 && probed[1] == layout[1] && probed[2..] == [2, 2, 0, 0, 2, 1, 0, 0];
        if alike { arguments(sizes).ok() } else { None }
    }

    /// The stream's, if the launch is an eager one and wants no more. It is asked for once: Python takes 1 to 2 us for counters, and scratch is a tensor.
    fn room(&self, py: Python<'_>, e: &Entry, stream: *mut c_void) -> PyResult<Option<Room>> {
        if e.units == 0 && e.partial.is_none() || raw::is_capturing(RawStream(stream)) != Ok(false) {
            return Ok(None);
        }
        let key = (e.device, stream as usize);
        let known = self.rooms.lock().unwrap_or_else(|e| e.into_inner()).get(&key).copied();
        let room = match known {
            Some(room) => room,
            None => {
                let made = self.room.bind(py).call1((e.torch_device.bind(py), stream as u64))?;
                let Some((counters, units, scratch, scratch_bytes)) = made.extract()? else { return Ok(None) };
                let room = Room { counters, units, scratch, scratch_bytes };
                let mut rooms = self.rooms.lock().unwrap_or_else(|e| e.into_inner());
                if rooms.len() >= MAX_ROOMS {
                    rooms.clear();
                }
                rooms.insert(key, room);
                room
            }
        };
        Ok((e.units <= room.units && e.partial_bytes <= room.scratch_bytes).then_some(room))
    }

    /// Launches if there is a plan for just this, on the current stream. -> out, (out, lse), or None: the long way then.
    fn run<'py>(
        &self,
        py: Python<'py>,
        tensors: &[&Bound<'py, PyAny>],
        options: [&Bound<'py, PyAny>; 6],
        longest: Option<[&Bound<'py, PyAny>; 2]>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, at)) = self.key(tensors, options, longest) else { return Ok(None) };
        let Some(e) = self.plans.read().unwrap_or_else(|e| e.into_inner()).get(&key).cloned() else { return Ok(None) };
        if (at[0] | at[1] | at[2]) & 15 != 0
            || raw::context().ok() != Some(e.context)
            || self.wants_gradient(py, &tensors[..6])
        {
            return Ok(None);
        }
        let Some(stream) = self.exchange.stream(e.device) else { return Ok(None) };
        let make = |fresh: &Fresh| -> PyResult<(Bound<'py, PyAny>, u64)> {
            // SAFETY: the interpreter's lock is held; a null result comes with its error.
            let made = unsafe {
                let made = ffi::PyObject_Call(fresh.make.as_ptr(), fresh.arguments.as_ptr(), std::ptr::null_mut());
                Bound::from_owned_ptr_or_err(py, made)?
            };
            let (_, at) =
                self.exchange.look(&made).ok_or_else(|| PyRuntimeError::new_err("torch made no plain tensor"))?;
            Ok((made, at))
        };
        let (out, out_at) = make(&e.out)?;
        let lse = e.lse.as_ref().map(make).transpose()?;
        let room = self.room(py, &e, stream)?;
        let partial = if room.is_some() { None } else { e.partial.as_ref().map(make).transpose()? };
        let mut arrived = room.map_or(0, |r| r.counters);
        if e.units > 0 && room.is_none() {
            let words = self.counters.bind(py).call1((e.units, e.torch_device.bind(py), stream as u64))?;
            arrived = self.exchange.look(&words).map(|(_, at)| at).unwrap_or(0);
        }
        let mut params = e.params;
        params.addresses[..6].copy_from_slice(&at[..6]);
        params.addresses[6..].copy_from_slice(&[
            out_at,
            lse.as_ref().map_or(0, |l| l.1),
            room.map_or(0, |r| r.scratch) | partial.as_ref().map_or(0, |p| p.1),
            arrived,
        ]);
        let stream = RawStream(stream);
        // Without the lock: a full queue makes the driver wait.
        py.detach(|| e.launch(&mut params, &at, stream)).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        match lse {
            Some((lse, _)) => Ok(Some((out, lse).into_pyobject(py)?.into_any())),
            None => Ok(Some(out)),
        }
    }
}

#[pymethods]
impl Launcher {
    /// `tensor` is torch.Tensor, `empty_like` and `grad_enabled` torch's, `counters(units, device, stream)` gives a tensor of zeros, `room(device, stream)` a stream's, (address of
    /// zeros, how many, address of scratch, its bytes) or None;
    /// `empty_strided(sizes, strides, dtype)`, if torch has it, one of the current device.
    #[new]
    #[pyo3(signature = (tensor, empty_like, grad_enabled, counters, room, empty_strided=None))]
    fn new(
        tensor: &Bound<'_, PyAny>,
        empty_like: Py<PyAny>,
        grad_enabled: Py<PyAny>,
        counters: Py<PyAny>,
        room: Py<PyAny>,
        empty_strided: Option<Py<PyAny>>,
    ) -> PyResult<Launcher> {
        let exchange = Exchange::new(tensor)?;
        let (rooms, plans) = (Mutex::default(), RwLock::default());
        Ok(Launcher { exchange, empty_like, empty_strided, grad_enabled, counters, room, rooms, plans })
    }

    /// Asks for streams' rooms anew.
    fn forget(&self) {
        self.rooms.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }

    /// Remembers a plan for tensors and options of this kind. `params` is the struct's bytes; its device's context is current. `own` is the
    /// bytes of a struct of the kernel's own, which words of it are addresses of which tensors, and whether `params` is the first part of it.
    /// `transposition`, a function with its grid, block, shared memory, struct's bytes, whether it takes counters, V's tensor map, and which tensor says where sequences begin, is launched before, and makes V^T in
    /// `partial`: the last of `maps` has that one's shape then. `longest`: of a varlen call.
    /// -> whether it can be called
    #[pyo3(signature = (tensors, options, function, grid, block, shared_bytes, params, maps, out, lse, partial, units, device, own=None, transposition=None, longest=None))]
    fn add(
        &self,
        tensors: Vec<Bound<'_, PyAny>>,
        options: [Bound<'_, PyAny>; 6],
        function: usize,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
        params: &[u8],
        maps: Option<[Option<MapShape>; 3]>,
        out: Py<PyAny>,
        lse: Option<Py<PyAny>>,
        partial: Option<Py<PyAny>>,
        units: u32,
        device: i32,
        own: Option<(Vec<u8>, Vec<(usize, usize)>, bool)>,
        transposition: Option<(usize, [u32; 3], u32, u32, Vec<u8>, bool, MapShape, Option<usize>)>,
        longest: Option<[Bound<'_, PyAny>; 2]>,
    ) -> PyResult<bool> {
        let given: Vec<_> = tensors.iter().collect();
        if !(6..=TENSORS).contains(&given.len()) {
            return Ok(false);
        }
        let longest = longest.as_ref().map(|x| x.each_ref());
        let Some((key, _)) = self.key(&given, options.each_ref(), longest) else { return Ok(false) };
        if params.len() != size_of::<Params>() {
            return Err(PyValueError::new_err("params has another size than this build's"));
        }
        let own = own.map(|(bytes, addresses, joined)| {
            let before = if joined { params } else { &[] };
            let words = before.chunks(8).chain(bytes.chunks(8)).map(|c| {
                let mut word = [0; 8];
                word[..c.len()].copy_from_slice(c);
                u64::from_le_bytes(word)
            });
            let addresses = addresses.iter().map(|(word, tensor)| (before.len() / 8 + word, *tensor));
            Own { joined, words: words.collect(), addresses: addresses.collect() }
        });
        if own
            .iter()
            .flat_map(|o| o.addresses.iter().map(move |a| (o, a)))
            .any(|(o, (word, tensor))| *word >= o.words.len() || *tensor >= given.len())
        {
            return Err(PyValueError::new_err("own's addresses lie outside of it"));
        }
        let torch_device = tensors[0].getattr("device")?.unbind();
        let transposition = transposition.map(|(function, grid, block, shared_bytes, bytes, beside, rows, begins)| {
            if bytes.len() != size_of::<Values>() {
                return Err(PyValueError::new_err("the transposition's struct has another size than this build's"));
            }
            if partial.is_none() {
                return Err(PyValueError::new_err("the transposition has no scratch"));
            }
            if beside && units == 0 {
                return Err(PyValueError::new_err("the transposition has no counters"));
            }
            if begins.is_some_and(|i| i >= given.len()) {
                return Err(PyValueError::new_err("the transposition's sequences begin in no tensor"));
            }
            let v_t = maps.and_then(|m| m[2]);
            // SAFETY: Values is plain numbers of any value, and the sizes were compared.
            let values = unsafe { bytes.as_ptr().cast::<Values>().read_unaligned() };
            // SAFETY: as the kernel's below.
            let function = unsafe { raw::Function::from_handle(function as *mut c_void) };
            Ok(Transposition {
                function,
                grid,
                block,
                shared_bytes,
                values,
                beside,
                begins,
                maps: Maps::new([Some(rows), v_t, None]),
            })
        });
        let transposition = transposition.transpose()?;
        let py = tensors[0].py();
        let (out, lse) = (self.fresh(py, out)?, lse.map(|x| self.fresh(py, x)).transpose()?);
        let partial_bytes = partial.as_ref().map(|x| x.bind(py).getattr("nbytes")?.extract()).transpose()?.unwrap_or(0);
        let partial = partial.map(|x| self.fresh(py, x)).transpose()?;
        let context = raw::context().map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        // SAFETY: Params is plain numbers of any value, and the sizes were compared.
        let params = unsafe { params.as_ptr().cast::<Params>().read_unaligned() };
        // SAFETY: Python loaded it with the driver's cuModuleGetFunction and never unloads it.
        let function = unsafe { raw::Function::from_handle(function as *mut c_void) };
        let held = (options[2].clone().unbind(), options[5].clone().unbind());
        let entry = Entry {
            function,
            context,
            device,
            grid,
            block,
            shared_bytes,
            params,
            maps: maps.map(Maps::new),
            own,
            transposition,
            out,
            lse,
            partial,
            partial_bytes,
            units,
            torch_device,
            _held: held,
        };
        let mut plans = self.plans.write().unwrap_or_else(|e| e.into_inner());
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, Arc::new(entry));
        Ok(true)
    }

    /// `sdpa_fp8`, where `add` was told of a call like it.
    #[pyo3(signature = (q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, /))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        q: &Bound<'py, PyAny>,
        k: &Bound<'py, PyAny>,
        v: &Bound<'py, PyAny>,
        q_scale: &Bound<'py, PyAny>,
        k_scale: &Bound<'py, PyAny>,
        v_scale: &Bound<'py, PyAny>,
        causal: &Bound<'py, PyAny>,
        softmax_scale: &Bound<'py, PyAny>,
        out_dtype: &Bound<'py, PyAny>,
        out_scale: &Bound<'py, PyAny>,
        return_lse: &Bound<'py, PyAny>,
        mode: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.run(
            py,
            &[q, k, v, q_scale, k_scale, v_scale],
            [causal, softmax_scale, out_dtype, out_scale, return_lse, mode],
            None,
        )
    }

    /// `sdpa_fp8_varlen`, where `add` was told of a call like it.
    #[pyo3(signature = (q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, /))]
    fn varlen<'py>(
        &self,
        py: Python<'py>,
        q: &Bound<'py, PyAny>,
        k: &Bound<'py, PyAny>,
        v: &Bound<'py, PyAny>,
        q_scale: &Bound<'py, PyAny>,
        k_scale: &Bound<'py, PyAny>,
        v_scale: &Bound<'py, PyAny>,
        cu_seqlens_q: &Bound<'py, PyAny>,
        cu_seqlens_k: &Bound<'py, PyAny>,
        max_seqlen_q: &Bound<'py, PyAny>,
        max_seqlen_k: &Bound<'py, PyAny>,
        causal: &Bound<'py, PyAny>,
        softmax_scale: &Bound<'py, PyAny>,
        out_dtype: &Bound<'py, PyAny>,
        out_scale: &Bound<'py, PyAny>,
        return_lse: &Bound<'py, PyAny>,
        mode: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let tensors = [q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k];
        let options = [causal, softmax_scale, out_dtype, out_scale, return_lse, mode];
        self.run(py, &tensors, options, Some([max_seqlen_q, max_seqlen_k]))
    }

    /// `decode_fp8`, where `add` was told of a call like it.
    #[pyo3(signature = (q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, causal, softmax_scale, out_dtype, out_scale, return_lse, mode, /))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        q: &Bound<'py, PyAny>,
        k_cache: &Bound<'py, PyAny>,
        v_cache: &Bound<'py, PyAny>,
        q_scale: &Bound<'py, PyAny>,
        k_scale: &Bound<'py, PyAny>,
        v_scale: &Bound<'py, PyAny>,
        cache_seqlens: &Bound<'py, PyAny>,
        page_table: &Bound<'py, PyAny>,
        causal: &Bound<'py, PyAny>,
        softmax_scale: &Bound<'py, PyAny>,
        out_dtype: &Bound<'py, PyAny>,
        out_scale: &Bound<'py, PyAny>,
        return_lse: &Bound<'py, PyAny>,
        mode: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let tensors = [q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table];
        self.run(py, &tensors, [causal, softmax_scale, out_dtype, out_scale, return_lse, mode], None)
    }
}

impl Entry {
    fn launch(&self, params: &mut Params, at: &[u64; TENSORS], stream: RawStream) -> Result<(), Error> {
        let mut maps;
        let mut words;
        if let Some(t) = &self.transposition {
            let [v, scratch, counters] = [2, 8, 9].map(|i| params.addresses[i]);
            let made = t.begins.map_or(if t.beside { counters } else { 0 }, |i| at[i]);
            let mut values = Values { made, ..t.values };
            let [mut rows, mut v_t, _] = t.maps.at([v, scratch, 0])?;
            let arguments = [
                std::ptr::from_mut(&mut values).cast(),
                std::ptr::from_mut(&mut rows).cast(),
                std::ptr::from_mut(&mut v_t).cast(),
            ];
            t.function.launch(t.grid, t.block, t.shared_bytes, stream, true, &arguments)?;
            params.addresses[2] = scratch;
        }
        let mut arguments: [*mut c_void; 5] = [std::ptr::from_mut(params).cast(); 5];
        let mut used = 1;
        if let Some(shapes) = &self.maps {
            maps = shapes.at([params.addresses[0], params.addresses[1], params.addresses[2]])?;
            for map in &mut maps {
                arguments[used] = std::ptr::from_mut(map).cast();
                used += 1;
            }
        }
        if let Some(own) = &self.own {
            words = own.words.clone();
            if own.joined {
                words[..params.addresses.len()].copy_from_slice(&params.addresses);
            }
            for (word, tensor) in &own.addresses {
                words[*word] = at[*tensor];
            }
            let place = if own.joined { 0 } else { used };
            arguments[place] = words.as_mut_ptr().cast();
            used = used.max(place + 1);
        }
        self.function.launch(self.grid, self.block, self.shared_bytes, stream, true, &arguments[..used])
    }
}
