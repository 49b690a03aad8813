//! The kernel around one form: every thread loads its registers from a record, executes the instruction and stores what it wrote.
//!
//! `k(in, out, mem)`: thread t of the grid reads [`Kernel::inputs`] from `in`, writes [`Kernel::outputs`] to `out`, and has [`GLOBAL_BYTES`] of `mem` for
//! itself. Shared and local memory begin as the complement of these bytes, and are written back there at the end, so that what an instruction did to
//! memory can be compared too. Blocks have 128 threads at most.

use super::Form;

/// Bytes of `mem` for each thread.
pub const GLOBAL_BYTES: usize = 128;
/// Threads of the largest block.
pub const BLOCK: usize = 128;

/// One register of a record; records are arrays of 8-byte slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// PTX's type: `u16`, `f32`, `pred` ...
    pub ty: String,
    /// Bytes from the record's start.
    pub offset: usize,
}

/// A module with the entry `k` for one form.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub ptx: String,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    /// Bytes of a thread's record in `in` and `out`; 0 where there is none.
    pub input_bytes: usize,
    pub output_bytes: usize,
    /// Whether the instruction reads or writes memory.
    pub memory: bool,
}

#[derive(Default)]
struct Writer {
    registers: String,
    loads: String,
    stores: String,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    bytes: [usize; 2],
    count: usize,
}

/// Register type and the load's type of an operand.
fn register_type(ty: &str) -> (&'static str, &'static str) {
    match ty {
        "pred" => ("pred", "u32"),
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => ("b16", "b16"),
        "b64" | "u64" | "s64" | "f32x2" => ("b64", "b64"),
        "f32" => ("f32", "f32"),
        "f64" => ("f64", "f64"),
        "b128" => ("b128", "b128"),
        _ => ("b32", "b32"),
    }
}

impl Writer {
    /// A register of type `ty`: its name.
    fn operand(&mut self, ty: &str, write: bool) -> String {
        let (register, access) = register_type(ty);
        let n = self.count;
        self.count += 1;
        let name = format!("%v{n}");
        let size = if ty == "b128" { 16 } else { 8 };
        let at = self.bytes[usize::from(write)].next_multiple_of(size);
        self.bytes[usize::from(write)] = at + size;
        let slot = Slot { ty: ty.to_string(), offset: at };
        self.registers += &format!(".reg .{register} {name};\n");
        match (register, write) {
            ("pred", false) => {
                self.registers += &format!(".reg .b32 %w{n};\n");
                self.loads += &format!(
                    "ld.global.u32 %w{n}, [%in+{at}];\nand.b32 %w{n}, %w{n}, 1;\nsetp.ne.u32 {name}, %w{n}, 0;\n"
                );
            }
            ("pred", true) => {
                self.registers += &format!(".reg .b32 %w{n};\n");
                self.stores += &format!("selp.u32 %w{n}, 1, 0, {name};\nst.global.u32 [%out+{at}], %w{n};\n");
            }
            (_, false) => self.loads += &format!("ld.global.{access} {name}, [%in+{at}];\n"),
            (_, true) => self.stores += &format!("st.global.{access} [%out+{at}], {name};\n"),
        }
        if write {
            self.outputs.push(slot)
        } else {
            self.inputs.push(slot)
        }
        name
    }

    /// `=f32*4` and the like, from behind the sign: the registers, and what remains of the text.
    fn operands<'a>(&mut self, text: &'a str, write: bool) -> (String, &'a str) {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (ty, rest) = text.split_at(end);
        let Some(count) = rest.strip_prefix('*') else { return (self.operand(ty, write), rest) };
        let end = count.find(|c: char| !c.is_ascii_digit()).unwrap_or(count.len());
        let n: usize = count[..end].parse().unwrap_or(1);
        let list: Vec<String> = (0..n).map(|_| self.operand(ty, write)).collect();
        (list.join(", "), &count[end..])
    }
}

/// The register that holds the address of `[x`: by the letter, or by the opcode's own space.
fn address(letter: char, opcode: &str) -> &'static str {
    let names = |space: &str| opcode.split('.').any(|w| w == space || w.split("::").next() == Some(space));
    match letter {
        's' => "%shared",
        'l' => "%local",
        'g' => "%mem",
        'q' => "%generic",
        'A' if names("shared") => "%warpshared",
        'A' => "%warpmem",
        'a' if names("shared") => "%shared",
        'a' if names("local") => "%local",
        _ => "%mem",
    }
}

/// Operands in PTX.
fn written(w: &mut Writer, operands: &str, opcode: &str) -> String {
    let mut out = String::new();
    let mut rest = operands;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        match c {
            '=' | '$' => {
                let (names, tail) = w.operands(tail, c == '=');
                out += &names;
                rest = tail;
            }
            '[' => {
                let letter = tail.chars().next().unwrap_or('g');
                out.push('[');
                out += address(letter, opcode);
                rest = &tail[letter.len_utf8()..];
            }
            c => {
                out.push(c);
                rest = tail;
            }
        }
    }
    out
}

fn instruction(w: &mut Writer, text: &str) -> String {
    match text.split_once(' ') {
        Some((opcode, "-")) | Some((opcode, "")) => format!("{opcode};\n"),
        Some((opcode, operands)) => format!("{opcode} {};\n", written(w, operands, opcode)),
        None => format!("{text};\n"),
    }
}

const ADDRESSES: &str = "\
ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nld.param.u64 %mem, [mem];\n\
cvta.to.global.u64 %in, %in;\ncvta.to.global.u64 %out, %out;\ncvta.to.global.u64 %mem, %mem;\n\
mov.u32 %mine, %tid.x;\nmov.u32 %sink, %ctaid.x;\nmov.u32 %half, %ntid.x;\nmad.lo.u32 %thread, %sink, %half, %mine;\n";

/// Shared and local copies of the thread's bytes, complemented.
fn copies(space: &str, register: &str, back: bool) -> String {
    (0..GLOBAL_BYTES / 8)
        .map(|n| {
            let at = 8 * n;
            if back {
                format!("ld.{space}.u64 %sink64, [{register}+{at}];\nst.global.u64 [%mem+{at}], %sink64;\n")
            } else {
                format!("ld.global.u64 %sink64, [%mem+{at}];\nnot.b64 %sink64, %sink64;\nst.{space}.u64 [{register}+{at}], %sink64;\n")
            }
        })
        .collect()
}

/// The smallest module that holds a form: nothing is loaded, nothing stored. Food for trials of the reader.
pub fn bare(form: &Form) -> String {
    let mut w = Writer::default();
    let text = instruction(&mut w, &form.name());
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p)\n{{\n.reg .b32 %shared, %warpshared, %sink;\n.reg .b64 %mem, %local, %generic, %warpmem, %policy, %sink64;\n{}{text}ret;\n}}\n",
        w.registers
    )
}

/// The kernel of a form. Forms that are not supported have one too.
pub fn kernel(form: &Form) -> Kernel {
    let mut w = Writer::default();
    let mut body = String::new();
    let before = form.before.map(|b| instruction(&mut w, b));
    let main = instruction(&mut w, &form.name());
    let after = form.after.map(|a| instruction(&mut w, a));
    let text = format!("{}{main}{}", before.unwrap_or_default(), after.unwrap_or_default());
    let uses = |register: &str| text.contains(register);
    let (shared, local) = (uses("%shared") || uses("%warpshared") || uses("%generic"), uses("%local"));
    body += ADDRESSES;
    for (register, bytes) in
        [("%in", w.bytes[0].next_multiple_of(16)), ("%out", w.bytes[1].next_multiple_of(16)), ("%mem", GLOBAL_BYTES)]
    {
        body += &format!("mul.wide.u32 %sink64, %thread, {bytes};\nadd.u64 {register}, {register}, %sink64;\n");
    }
    if shared {
        body += &format!(
            "mov.u32 %shared, area;\nmad.lo.u32 %shared, %mine, {GLOBAL_BYTES}, %shared;\ncvt.u64.u32 %generic, %shared;\ncvta.shared.u64 %generic, %generic;\n"
        );
    }
    if local {
        body += "mov.u64 %local, mine;\n";
    }
    if uses("%warpmem") {
        body += &format!(
            "and.b32 %sink, %thread, -32;\nmul.wide.u32 %sink64, %sink, {GLOBAL_BYTES};\nld.param.u64 %warpmem, [mem];\ncvta.to.global.u64 %warpmem, %warpmem;\nadd.u64 %warpmem, %warpmem, %sink64;\n"
        );
    }
    if uses("%warpshared") {
        body += &format!(
            "and.b32 %sink, %mine, -32;\nmov.u32 %warpshared, area;\nmad.lo.u32 %warpshared, %sink, {GLOBAL_BYTES}, %warpshared;\n"
        );
    }
    body += &w.loads;
    body += &if shared { copies("shared", "%shared", false) } else { String::new() };
    body += &if local { copies("local", "%local", false) } else { String::new() };
    if uses("%policy") {
        body += "createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n";
    }
    let memory = shared || local || uses("%mem") || uses("%warpmem");
    // What lanes of a warp share has to be there for all of them, and stay until all have read it.
    let whole = if shared || uses("%warpmem") { "bar.sync 0;\n" } else { "" };
    body += &format!("{whole}{text}{whole}");
    body += &w.stores;
    body += &if shared { copies("shared", "%shared", true) } else { String::new() };
    body += &if local { copies("local", "%local", true) } else { String::new() };
    let declared = [
        (".reg .b32 %mine, %thread, %sink, %half;\n.reg .b64 %in, %out, %mem, %sink64;\n".to_string(), true),
        (
            format!(
                ".shared .align 128 .b8 area[{}];\n.reg .b32 %shared;\n.reg .b64 %generic;\n",
                BLOCK * GLOBAL_BYTES
            ),
            shared,
        ),
        (format!(".local .align 16 .b8 mine[{GLOBAL_BYTES}];\n.reg .b64 %local;\n"), local),
        (".reg .b64 %warpmem;\n".into(), uses("%warpmem")),
        (".reg .b32 %warpshared;\n".into(), uses("%warpshared")),
        (".reg .b64 %policy;\n".into(), uses("%policy")),
    ];
    let declared: String = declared.into_iter().filter(|(_, on)| *on).map(|(text, _)| text).collect();
    let (ptx, sm) = (form.ptx.max(70), form.sm.max(80));
    let suffix = if form.arch_specific { "a" } else { "" };
    let ptx = format!(
        ".version {}.{}\n.target sm_{sm}{suffix}\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 mem)\n{{\n{declared}{}{body}ret;\n}}\n",
        ptx / 10,
        ptx % 10,
        w.registers
    );
    let bytes = w.bytes.map(|b| b.next_multiple_of(16));
    Kernel { ptx, inputs: w.inputs, outputs: w.outputs, input_bytes: bytes[0], output_bytes: bytes[1], memory }
}
