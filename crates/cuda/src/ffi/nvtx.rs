//! Names of ranges for profilers. A profiler that wants them names its library in NVTX_INJECTION64_PATH, as every program with NVTX
//! expects it; the library then puts its functions into the tables that are offered here. Without one nothing happens.
//!
//! Source: NVTX 3, nvtxDetail/nvtxInit.h and nvtxTypes.h. Limit: ranges of the default domain only; of its six tables two are offered.

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const CORE: c_int = 1;
const CORE2: c_int = 5;
/// Entry 0 and one behind the end stay empty, as in NVIDIA's own tables.
const SLOTS: usize = 16;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// Where the profiler's functions are put: by module, then by number.
static FUNCTIONS: [[AtomicUsize; SLOTS]; 2] = [const { [const { AtomicUsize::new(0) }; SLOTS] }; 2];
static TABLES: [Table; 2] = [Table::of(0), Table::of(1)];

#[repr(transparent)]
struct Table([*const AtomicUsize; SLOTS + 1]);

// SAFETY: addresses of statics, which never change; what is there is atomic.
unsafe impl Sync for Table {}

impl Table {
    const fn of(module: usize) -> Table {
        let mut entries = [ptr::null(); SLOTS + 1];
        let mut i = 1;
        while i < SLOTS {
            entries[i] = &raw const FUNCTIONS[module][i];
            i += 1;
        }
        Table(entries)
    }
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    bytes: usize,
    table: extern "C" fn(c_int, *mut *const Table, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct Version {
    bytes: usize,
    version: u32,
    reserved: u32,
    tell: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), table: module_table };
static VERSION: Version = Version { bytes: size_of::<Version>(), version: 3, reserved: 0, tell: injected_version };

extern "C" fn injected_version(_version: u32) {}

extern "C" fn module_table(module: c_int, table: *mut *const Table, entries: *mut c_uint) -> c_int {
    let found = match module {
        CORE => &raw const TABLES[0],
        CORE2 => &raw const TABLES[1],
        _ => return 0,
    };
    // SAFETY: the profiler gives addresses of its own to write to, or none.
    unsafe {
        if !entries.is_null() {
            // How many, without the one behind the end.
            *entries = SLOTS as c_uint;
        }
        if !table.is_null() {
            *table = found;
        }
    }
    1
}

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => ptr::null(),
    }
}

/// A profiler that listens.
pub(crate) struct Nvtx {
    _library: Library,
}

impl Nvtx {
    pub fn open() -> Option<Nvtx> {
        let path = std::env::var_os("NVTX_INJECTION64_PATH")?;
        // SAFETY: whoever started this process asks for the library to be loaded; its function has the signature that NVTX gives it.
        unsafe {
            let library = Library::new(path).ok()?;
            let begin = *library
                .get::<unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int>(b"InitializeInjectionNvtx2")
                .ok()?;
            (begin(export_table) != 0).then_some(Nvtx { _library: library })
        }
    }

    /// Begins a range within those that were begun.
    pub fn push(&self, name: &str) {
        let function = FUNCTIONS[0][RANGE_PUSH].load(Ordering::Acquire);
        if let (1.., Ok(name)) = (function, CString::new(name)) {
            // SAFETY: the profiler has put its nvtxRangePushA there, and its library is open.
            unsafe {
                let push: extern "C" fn(*const c_char) -> c_int = std::mem::transmute(function);
                push(name.as_ptr());
            }
        }
    }

    /// Ends the last range.
    pub fn pop(&self) {
        let function = FUNCTIONS[0][RANGE_POP].load(Ordering::Acquire);
        if function != 0 {
            // SAFETY: as above, nvtxRangePop.
            unsafe {
                let pop: extern "C" fn() -> c_int = std::mem::transmute(function);
                pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profiler_finds_the_tables_and_its_functions_are_found() {
        extern "C" fn pushed(_: *const c_char) -> c_int {
            7
        }
        assert!(export_table(2).is_null());
        let callbacks = export_table(1).cast::<Callbacks>();
        let (mut table, mut entries) = (ptr::null::<Table>(), 0);
        // SAFETY: what a profiler does with what it is given.
        unsafe {
            assert_eq!((*callbacks).bytes, size_of::<Callbacks>());
            assert_eq!(((*callbacks).table)(99, &mut table, &mut entries), 0);
            assert_eq!(((*callbacks).table)(CORE, &mut table, &mut entries), 1);
            assert_eq!(entries, 16);
            assert!((&(*table).0)[0].is_null() && (&(*table).0)[SLOTS].is_null());
            (*(&(*table).0)[RANGE_PUSH]).store(pushed as *const () as usize, Ordering::Release);
        }
        assert_eq!(FUNCTIONS[0][RANGE_PUSH].load(Ordering::Acquire), pushed as *const () as usize);
        FUNCTIONS[0][RANGE_PUSH].store(0, Ordering::Release);
    }
}
