//! A loaded module: parsed and decoded PTX, ready to launch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use warpsmith_ptx::ast::{Module, Space};

use crate::code::{Code, RowInit, Special};
use crate::decode::{self, DecodedModule, ModuleVariable};

/// Why a text cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct LoadError {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// A kernel that can be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    pub name: String,
    pub params: Vec<ParamInfo>,
    /// Shared memory that the entry and the functions it calls declare with a size.
    pub static_shared_bytes: u32,
    /// Whether it names shared memory whose size the launch gives.
    pub uses_dynamic_shared: bool,
    /// `.maxntid` or `.reqntid`: the most threads of a block, if the entry says so.
    pub max_threads: Option<u32>,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamInfo {
    pub name: String,
    pub bytes: u32,
    pub align: u32,
    /// Eight bytes that are no array: a pointer, or a 64-bit number.
    pub is_pointer_sized: bool,
}

/// A module.
#[derive(Debug)]
pub struct Program {
    pub(crate) id: u64,
    pub(crate) decoded: DecodedModule,
    entries: Vec<EntryInfo>,
    target: String,
}

/// Bytes between two shared variables that belong to none, so that an access beyond one is seen: a symbol is an object, and no kernel may
/// take what lies behind it for another. A multiple of any alignment that kernels rely on without asking for it.
const GUARD: u32 = 1024;
/// With more variables than this there are no guards.
const MOST_GUARDED: usize = 48;

/// Where shared variables lie for an entry: (variable, offset), the bytes of all that have a size.
#[derive(Default)]
pub(crate) struct SharedLayout {
    pub offsets: Vec<(usize, u32)>,
    /// With the guards between them.
    pub bytes: u32,
    /// Without: what the kernel asks for.
    pub plain_bytes: u32,
    /// Start and end of each guard.
    pub guards: Vec<(u32, u32)>,
    guarded: bool,
    /// Where memory of the launch's size starts, if any variable asks for it.
    pub dynamic: bool,
    /// Where the scratch memory of cooperative groups lies, if it is asked for.
    pub reserved: Option<u32>,
}

impl SharedLayout {
    /// The offset of the next object.
    fn place(&mut self, align: u32, bytes: u32) -> u32 {
        let mut offset = self.bytes.next_multiple_of(align);
        if self.guarded && self.bytes > 0 {
            offset = (offset + GUARD).next_multiple_of(align);
            self.guards.push((self.bytes, offset));
        }
        self.bytes = offset.saturating_add(bytes);
        self.plain_bytes = self.plain_bytes.next_multiple_of(align).saturating_add(bytes);
        offset
    }
}

/// Bytes of that scratch memory: five barriers, and eight bytes for each warp.
pub(crate) const RESERVED_BYTES: u32 = 512;

impl Program {
    /// Parses and decodes. Opcodes that the machine does not have are no error here, but end a launch that contains them.
    pub fn load(ptx: &str) -> Result<Program, LoadError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let module =
            warpsmith_ptx::parse(ptx).map_err(|e| LoadError { line: e.line, column: e.column, message: e.message })?;
        let decoded = decode::decode(&module);
        let entries = entries(&module, &decoded);
        Ok(Program { id: NEXT.fetch_add(1, Relaxed), decoded, entries, target: module.target })
    }

    /// All entries, in the order of the text.
    pub fn entries(&self) -> Vec<EntryInfo> {
        self.entries.clone()
    }

    /// `sm_89`: what the text was compiled for.
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn code(&self) -> &Code {
        &self.decoded.code
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&EntryInfo> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The PTX line of an entry's first instruction.
    pub(crate) fn entry_line(&self, name: &str) -> u32 {
        let code = self.code();
        let start = self.function_index(name).map(|f| code.functions[f].start as usize);
        start.and_then(|pc| code.sites.get(pc)).map_or(0, |s| s.ptx_line)
    }

    pub(crate) fn variables(&self) -> &[ModuleVariable] {
        &self.decoded.variables
    }

    pub(crate) fn function_index(&self, name: &str) -> Option<usize> {
        self.decoded.code.functions.iter().position(|f| f.name == name)
    }

    /// The entry and all it may call.
    pub(crate) fn reachable(&self, entry: usize) -> Vec<usize> {
        reachable(&self.decoded.code, entry, true)
    }

    /// The same without what only calls through pointers may reach: destructors in tables of virtual functions, say.
    pub(crate) fn named(&self, entry: usize) -> Vec<usize> {
        reachable(&self.decoded.code, entry, false)
    }

    pub(crate) fn shared_layout(&self, entry: usize) -> SharedLayout {
        shared_layout(&self.decoded, entry)
    }
}

fn reachable(code: &Code, entry: usize, pointers: bool) -> Vec<usize> {
    let mut found = vec![entry];
    let mut n = 0;
    while n < found.len() {
        let f = &code.functions[found[n]];
        let mut next = f.callees.clone();
        if pointers && f.indirect_calls {
            next.extend(
                (0..code.functions.len()).filter(|&k| !code.functions[k].is_entry && code.functions[k].has_body),
            );
        }
        for k in next {
            if !found.contains(&k) {
                found.push(k);
            }
        }
        n += 1;
    }
    found
}

fn shared_layout(decoded: &DecodedModule, entry: usize) -> SharedLayout {
    let functions = reachable(&decoded.code, entry, true);
    let used = |v: &ModuleVariable| v.space == Space::Shared && v.used_by.iter().any(|f| functions.contains(f));
    let mut layout = SharedLayout::default();
    let sized = |v: &ModuleVariable| !(v.is_extern || v.bytes == 0);
    let of_their_own = || decoded.variables.iter().enumerate().filter(|(_, v)| used(v) && sized(v));
    layout.guarded = of_their_own().count() <= MOST_GUARDED;
    for (n, v) in of_their_own() {
        let offset = layout.place(v.align.clamp(1, 1 << 16), v.bytes.min(1 << 30) as u32);
        layout.offsets.push((n, offset));
    }
    let asked = |f: &usize| {
        let inits = &decoded.code.functions[*f].inits;
        inits.iter().any(|(_, init)| matches!(init, RowInit::Special(Special::ReservedShared)))
    };
    if functions.iter().any(asked) {
        layout.reserved = Some(layout.place(16, RESERVED_BYTES));
    }
    // Memory of the launch's size comes after all other, all such variables at one address.
    let dynamic: Vec<usize> = (0..decoded.variables.len())
        .filter(|&n| used(&decoded.variables[n]) && !sized(&decoded.variables[n]))
        .collect();
    let align = dynamic.iter().map(|&n| decoded.variables[n].align.clamp(16, 1 << 16)).max();
    if let Some(align) = align {
        let offset = layout.place(align, 0);
        layout.dynamic = true;
        layout.offsets.extend(dynamic.into_iter().map(|n| (n, offset)));
    }
    layout
}

fn entries(module: &Module, decoded: &DecodedModule) -> Vec<EntryInfo> {
    let mut list = Vec::new();
    for f in module.functions.iter().filter(|f| f.is_entry && f.has_body) {
        let Some(index) = decoded.code.functions.iter().position(|c| c.name == f.name) else { continue };
        let params = f.params.iter().map(|v| ParamInfo {
            name: v.name.clone(),
            bytes: v.bytes as u32,
            align: v.align,
            is_pointer_sized: v.bytes == 8 && decode::bytes_of(v.ty) == 8,
        });
        let threads = f.directives.iter().filter(|(n, _)| n == "maxntid" || n == "reqntid");
        let layout = shared_layout(decoded, index);
        list.push(EntryInfo {
            name: f.name.clone(),
            params: params.collect(),
            static_shared_bytes: layout.plain_bytes,
            uses_dynamic_shared: layout.dynamic,
            max_threads: threads.map(|(_, n)| n.iter().product::<u64>().min(1024) as u32).min(),
        });
    }
    list
}
