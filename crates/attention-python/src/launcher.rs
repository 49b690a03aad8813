//! Calls by the layouts of their tensors, and the launches that each makes.

use crate::dlpack::{Exchange, Layout};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, RwLock};
use warpsmith_attention::raw;
use warpsmith_attention::{Error, RawStream};

/// Calls that are known; then all are forgotten.
const MAX_CALLS: usize = 512;

/// A call's tensors, options, results and launches, and a launch's arguments, at most.
const TENSORS: usize = 8;
const OPTIONS: usize = 8;
const RESULTS: usize = 8;
const LAUNCHES: usize = 8;
const ARGUMENTS: usize = 8;

/// Streams whose rooms are known; then all are asked for anew.
const MAX_ROOMS: usize = 256;

/// What a tensor that is not given has for a layout: no tensor's.
const ABSENT: Layout = [-1; 10];

/// Which function it is of Python's, its tensors' layouts, and its options: numbers and truths by value, names and dtypes by identity.
#[derive(PartialEq, Eq, Clone)]
struct Key {
    kind: u64,
    layouts: [Layout; TENSORS],
    /// Four bits for each option: None, a truth, a whole number, another one, or a name or dtype, from 1 on.
    kinds: u64,
    options: [u64; OPTIONS],
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.layouts.as_flattened() {
            state.write_u64(*word as u64);
        }
        for word in self.options.into_iter().chain([self.kind, self.kinds]) {
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

/// Where an address in a launch comes from: so many bytes behind it.
#[derive(Clone, Copy)]
struct Source {
    from: Origin,
    offset: u64,
}

#[derive(Clone, Copy)]
enum Origin {
    Tensor(usize),
    Result(usize),
    Scratch,
    Counters,
}

/// A source as Python gives it: "tensor" or "result" with a place, "scratch" or "counters" with bytes.
type GivenSource = (String, u64);

/// What a call has addresses of.
#[derive(Default)]
struct Addresses {
    tensors: [u64; TENSORS],
    results: [u64; RESULTS],
    scratch: u64,
    counters: u64,
}

impl Addresses {
    fn of(&self, source: Source) -> u64 {
        let base = match source.from {
            Origin::Tensor(i) => self.tensors[i],
            Origin::Result(i) => self.results[i],
            Origin::Scratch => self.scratch,
            Origin::Counters => self.counters,
        };
        base + source.offset
    }
}

enum Argument {
    /// A struct's words, some of which are addresses.
    Struct { words: Box<[u64]>, addresses: Vec<(usize, Source)> },
    /// A tensor map (none where the kernel does not look at it), and the one of the last call by address: encoding takes longer than all else here.
    Map { shape: Option<MapShape>, source: Source, encoded: Box<Mutex<(u64, raw::TensorMap)>> },
}

/// An argument with its addresses.
enum Filled {
    Struct(Box<[u64]>),
    Map(raw::TensorMap),
}

impl Argument {
    fn fill(&self, at: &Addresses) -> Result<Filled, Error> {
        match self {
            Argument::Struct { words, addresses } => {
                let mut words = words.clone();
                for (word, source) in addresses {
                    words[*word] = at.of(*source);
                }
                Ok(Filled::Struct(words))
            }
            Argument::Map { shape, source, encoded } => {
                let mut encoded = encoded.lock().unwrap_or_else(|e| e.into_inner());
                let address = at.of(*source);
                if let Some((dims, strides, boxes)) = *shape
                    && encoded.0 != address
                {
                    *encoded = (address, raw::encode_bytes(address, dims, strides, boxes)?);
                }
                Ok(Filled::Map(encoded.1))
            }
        }
    }
}

struct Launch {
    function: raw::Function,
    grid: [u32; 3],
    block: u32,
    shared_bytes: u32,
    arguments: Vec<Argument>,
    dependent: bool,
}

impl Launch {
    fn start(&self, at: &Addresses, stream: RawStream) -> Result<(), Error> {
        let mut filled = self.arguments.iter().map(|a| a.fill(at)).collect::<Result<Vec<_>, _>>()?;
        let mut places: [*mut c_void; ARGUMENTS] = [std::ptr::null_mut(); ARGUMENTS];
        for (place, argument) in places.iter_mut().zip(&mut filled) {
            *place = match argument {
                Filled::Struct(words) => words.as_mut_ptr().cast(),
                Filled::Map(map) => std::ptr::from_mut(map).cast(),
            };
        }
        self.function.launch(self.grid, self.block, self.shared_bytes, stream, self.dependent, &places[..filled.len()])
    }
}

/// How a tensor is made that launches write, on the current device: a function, and its arguments.
type Fresh = (Py<PyAny>, Py<PyTuple>);

/// What eager launches on one stream share, as they follow each other: zeros to count with, and scratch.
#[derive(Clone, Copy)]
struct Room {
    counters: u64,
    units: u32,
    scratch: u64,
    scratch_bytes: u64,
}

struct Entry {
    /// The context that its functions were loaded in.
    context: usize,
    device: i32,
    /// Tensors that kernels read in pieces of 16 bytes, a bit each.
    aligned: u64,
    launches: Vec<Launch>,
    results: Vec<Fresh>,
    scratch: Option<Fresh>,
    scratch_bytes: u64,
    units: u32,
    /// torch's name of the device.
    torch_device: Py<PyAny>,
    /// Kept alive, as the key has addresses of some.
    _options: Py<PyTuple>,
}

/// A launch as Python gives it: function, grid, block, bytes of shared memory, arguments, whether the kernel waits for earlier ones itself.
type GivenLaunch<'py> = (usize, [u32; 3], u32, u32, Vec<Bound<'py, PyTuple>>, bool);

/// torch's functions: which device is the current one; make it that one, and say which was; and the same but for one that this process has not used, of which
/// torch remembers that it is the current one, while the driver's context stays another's.
type Devices = (Py<PyAny>, Py<PyAny>, Py<PyAny>);

/// Makes the launches of calls that Python has described.
#[pyclass(frozen)]
pub struct Launcher {
    exchange: Exchange,
    dtype: Py<PyAny>,
    grad_enabled: Py<PyAny>,
    counters: Py<PyAny>,
    room: Py<PyAny>,
    devices: Option<Devices>,
    rooms: Mutex<HashMap<(i32, usize), Room>>,
    calls: RwLock<HashMap<Key, Arc<Entry>, BuildHasherDefault<Mix>>>,
}

impl Launcher {
    /// Its kind and word; nothing where its value might change, or is not told by identity.
    fn option(&self, x: &Bound<'_, PyAny>) -> Option<(u64, u64)> {
        if x.is_none() {
            Some((1, 0))
        } else if x.is_exact_instance_of::<PyBool>() {
            Some((2, u64::from(x.is_truthy().ok()?)))
        } else if x.is_exact_instance_of::<PyInt>() {
            Some((3, x.extract::<i64>().ok()? as u64))
        } else if x.is_exact_instance_of::<PyFloat>() {
            Some((4, x.extract::<f64>().ok()?.to_bits()))
        } else if x.is_exact_instance_of::<PyString>() || x.get_type().as_ptr() == self.dtype.as_ptr() {
            Some((5, x.as_ptr() as u64))
        } else {
            None
        }
    }

    fn key(
        &self,
        kind: u64,
        tensors: &Bound<'_, PyTuple>,
        options: &Bound<'_, PyTuple>,
    ) -> Option<(Key, [u64; TENSORS])> {
        if tensors.len() > TENSORS || options.len() > OPTIONS {
            return None;
        }
        let mut key = Key { kind, layouts: [ABSENT; TENSORS], kinds: 0, options: [0; OPTIONS] };
        let mut at = [0; TENSORS];
        for (i, x) in tensors.iter_borrowed().enumerate() {
            if !x.is_none() {
                (key.layouts[i], at[i]) = self.exchange.look(&x)?;
            }
        }
        for (i, x) in options.iter_borrowed().enumerate() {
            let (kind, word) = self.option(&x)?;
            key.kinds |= kind << (4 * i);
            key.options[i] = word;
        }
        Some((key, at))
    }

    /// Whether a gradient is wanted of any tensor: the long way says that there is none.
    fn wants_gradient(&self, tensors: &Bound<'_, PyTuple>) -> bool {
        let py = tensors.py();
        let no = PyBool::new(py, false);
        let requires = |x: Borrowed<'_, '_, PyAny>| {
            !x.is_none() && x.getattr(intern!(py, "requires_grad")).map_or(true, |y| !y.is(&*no))
        };
        tensors.iter_borrowed().any(requires)
            && self.grad_enabled.call0(py).map_or(true, |y| y.is_truthy(py).unwrap_or(true))
    }

    /// The stream's, if the call is an eager one and wants no more. It is asked for once: Python takes 1 to 2 us for counters, and scratch is a tensor.
    fn room(&self, py: Python<'_>, e: &Entry, stream: *mut c_void) -> PyResult<Option<Room>> {
        if e.units == 0 && e.scratch.is_none() || raw::is_capturing(RawStream(stream)) != Ok(false) {
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
        Ok((e.units <= room.units && e.scratch_bytes <= room.scratch_bytes).then_some(room))
    }

    /// A tensor that launches write, and its address.
    fn make<'py>(&self, py: Python<'py>, fresh: &Fresh) -> PyResult<(Bound<'py, PyAny>, u64)> {
        // SAFETY: the interpreter's lock is held; a null result comes with its error.
        let made = unsafe {
            let made = ffi::PyObject_Call(fresh.0.as_ptr(), fresh.1.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)?
        };
        let (_, at) = self.exchange.look(&made).ok_or_else(|| PyRuntimeError::new_err("torch made no plain tensor"))?;
        Ok((made, at))
    }
}

/// A source within what the call has.
fn source(given: GivenSource, tensors: usize, results: usize) -> PyResult<Source> {
    let (name, number) = given;
    let place = number as usize;
    match name.as_str() {
        "tensor" if place < tensors => Ok(Source { from: Origin::Tensor(place), offset: 0 }),
        "result" if place < results => Ok(Source { from: Origin::Result(place), offset: 0 }),
        "scratch" => Ok(Source { from: Origin::Scratch, offset: number }),
        "counters" => Ok(Source { from: Origin::Counters, offset: number }),
        _ => Err(PyValueError::new_err(format!("a call has no {name} {number}"))),
    }
}

/// An argument: ("struct", bytes, [(byte, source)]) or ("map", shape or None, source).
fn argument(given: &Bound<'_, PyTuple>, tensors: usize, results: usize) -> PyResult<Argument> {
    let kind: String = given.get_item(0)?.extract()?;
    if kind == "map" {
        let (_, shape, from): (String, Option<MapShape>, GivenSource) = given.extract()?;
        let encoded = Box::new(Mutex::new((0, raw::TensorMap([0; 16]))));
        return Ok(Argument::Map { shape, source: source(from, tensors, results)?, encoded });
    }
    let (_, bytes, given): (String, Vec<u8>, Vec<(usize, GivenSource)>) = given.extract()?;
    let words: Box<[u64]> = bytes
        .chunks(8)
        .map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        })
        .collect();
    let mut addresses = Vec::new();
    for (byte, from) in given {
        if byte % 8 != 0 || byte / 8 >= words.len() {
            return Err(PyValueError::new_err(format!("a struct of {} bytes has no address at {byte}", bytes.len())));
        }
        addresses.push((byte / 8, source(from, tensors, results)?));
    }
    Ok(Argument::Struct { words, addresses })
}

#[pymethods]
impl Launcher {
    /// `tensor` is torch.Tensor, `dtype` torch.dtype, `grad_enabled` torch's, `counters(units, device, stream)` gives a tensor of zeros,
    /// `room(device, stream)` a stream's, (address of zeros, how many, address of scratch, its bytes) or None; `devices` is `Devices`, or None in a torch
    /// without CUDA.
    #[new]
    fn new(
        tensor: &Bound<'_, PyAny>,
        dtype: Py<PyAny>,
        grad_enabled: Py<PyAny>,
        counters: Py<PyAny>,
        room: Py<PyAny>,
        devices: Option<Devices>,
    ) -> PyResult<Launcher> {
        let exchange = Exchange::new(tensor)?;
        Ok(Launcher {
            exchange,
            dtype,
            grad_enabled,
            counters,
            room,
            devices,
            rooms: Mutex::default(),
            calls: RwLock::default(),
        })
    }

    /// Asks for streams' rooms anew.
    fn forget(&self) {
        self.rooms.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }

    /// Remembers the launches of a call of that kind, with tensors (or None) and options of this kind; its device's context is current. `results`
    /// are made anew for each, and so is `scratch`, if it is given, unless the stream's room suffices; `units` is how many counters are wanted.
    /// -> whether it can be called
    #[pyo3(signature = (kind, tensors, options, launches, results, aligned, device, scratch=None, scratch_bytes=0, units=0))]
    fn add(
        &self,
        kind: u64,
        tensors: &Bound<'_, PyTuple>,
        options: &Bound<'_, PyTuple>,
        launches: Vec<GivenLaunch<'_>>,
        results: Vec<Fresh>,
        aligned: u64,
        device: i32,
        scratch: Option<Fresh>,
        scratch_bytes: u64,
        units: u32,
    ) -> PyResult<bool> {
        let Some((key, _)) = self.key(kind, tensors, options) else { return Ok(false) };
        if results.len() > RESULTS || launches.len() > LAUNCHES || tensors.is_empty() {
            return Ok(false);
        }
        let mut made = Vec::new();
        for (function, grid, block, shared_bytes, arguments, dependent) in launches {
            if arguments.len() > ARGUMENTS {
                return Ok(false);
            }
            let arguments =
                arguments.iter().map(|a| argument(a, tensors.len(), results.len())).collect::<PyResult<_>>()?;
            // SAFETY: Python loaded it with the driver's cuModuleGetFunction and never unloads it.
            let function = unsafe { raw::Function::from_handle(function as *mut c_void) };
            made.push(Launch { function, grid, block, shared_bytes, arguments, dependent });
        }
        let entry = Entry {
            context: raw::context().map_err(|e| PyRuntimeError::new_err(e.to_string()))?,
            device,
            aligned,
            launches: made,
            results,
            scratch,
            scratch_bytes,
            units,
            torch_device: tensors.get_item(0)?.getattr("device")?.unbind(),
            _options: options.clone().unbind(),
        };
        let mut calls = self.calls.write().unwrap_or_else(|e| e.into_inner());
        if calls.len() >= MAX_CALLS {
            calls.clear();
        }
        calls.insert(key, Arc::new(entry));
        Ok(true)
    }

    /// Whether `add` was told of a call just like this; None where it cannot be.
    fn knows(&self, kind: u64, tensors: &Bound<'_, PyTuple>, options: &Bound<'_, PyTuple>) -> Option<bool> {
        let (key, _) = self.key(kind, tensors, options)?;
        Some(self.calls.read().unwrap_or_else(|e| e.into_inner()).contains_key(&key))
    }

    /// Launches if `add` was told of a call just like this, on the current stream. -> its result, a tuple of them where there are several, or None: the long way then.
    #[pyo3(signature = (kind, tensors, options, /))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        kind: u64,
        tensors: &Bound<'py, PyTuple>,
        options: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, at)) = self.key(kind, tensors, options) else { return Ok(None) };
        let Some(e) = self.calls.read().unwrap_or_else(|e| e.into_inner()).get(&key).cloned() else { return Ok(None) };
        let odd = |(i, address): (usize, &u64)| e.aligned >> i & 1 != 0 && address & 15 != 0;
        if at.iter().enumerate().any(odd) || self.wants_gradient(tensors) {
            return Ok(None);
        }
        let Some((current, exchange, maybe_exchange)) = &self.devices else { return Ok(None) };
        let start = || if raw::context().ok() == Some(e.context) { self.start(py, &e, at) } else { Ok(None) };
        if current.bind(py).call0()?.extract::<i32>()? == e.device {
            return start();
        }
        // Another one is again the current one afterwards.
        let before = exchange.bind(py).call1((e.device,))?;
        let made = start();
        maybe_exchange.bind(py).call1((before,))?;
        made
    }
}

impl Launcher {
    /// Makes what is written and launches, on the current stream of the call's device, which is the current one.
    fn start<'py>(&self, py: Python<'py>, e: &Entry, at: [u64; TENSORS]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(stream) = self.exchange.stream(e.device) else { return Ok(None) };
        let mut addresses = Addresses { tensors: at, ..Addresses::default() };
        let mut results = Vec::with_capacity(e.results.len());
        for (fresh, address) in e.results.iter().zip(&mut addresses.results) {
            let (made, at) = self.make(py, fresh)?;
            *address = at;
            results.push(made);
        }
        let room = self.room(py, e, stream)?;
        let scratch = if room.is_some() { None } else { e.scratch.as_ref().map(|f| self.make(py, f)).transpose()? };
        addresses.scratch = room.map_or(0, |r| r.scratch) | scratch.as_ref().map_or(0, |s| s.1);
        addresses.counters = room.map_or(0, |r| r.counters);
        let words; // alive until the launches are given
        if e.units > 0 && room.is_none() {
            words = self.counters.bind(py).call1((e.units, e.torch_device.bind(py), stream as u64))?;
            let looked = self.exchange.look(&words);
            addresses.counters = looked.ok_or_else(|| PyRuntimeError::new_err("counters are no plain tensor"))?.1;
        }
        let stream = RawStream(stream);
        // Without the lock: a full queue makes the driver wait.
        py.detach(|| e.launches.iter().try_for_each(|launch| launch.start(&addresses, stream)))
            .map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        if results.len() == 1 {
            return Ok(results.pop());
        }
        Ok(Some(PyTuple::new(py, results)?.into_any()))
    }
}
