//! Shared by the tests: fixtures, and a printer that turns operands back into PTX.

#![allow(dead_code)]

use warpsmith_ptx::ast::{AddressBase, Function, Instruction, Module, Operand};

/// Real compiler outputs, by name.
pub const FIXTURES: [(&str, &str); 5] = [
    ("clang_language", include_str!("../fixtures/clang_language.ptx")),
    ("nvrtc_debug", include_str!("../fixtures/nvrtc_debug.ptx")),
    ("nvrtc_hopper", include_str!("../fixtures/nvrtc_hopper.ptx")),
    ("nvrtc_language", include_str!("../fixtures/nvrtc_language.ptx")),
    ("nvrtc_lineinfo", include_str!("../fixtures/nvrtc_lineinfo.ptx")),
];

/// `text` with the header that every module needs.
pub fn with_header(text: &str) -> String {
    format!(".version 8.5\n.target sm_89\n.address_size 64\n{text}")
}

/// The module of a body, which gets a kernel around it: parameter `n`, registers %r<8>, %rd<8>, %p<4>, %f<4>.
pub fn kernel(body: &str) -> Result<Module, warpsmith_ptx::ParseError> {
    warpsmith_ptx::parse(&with_header(&format!(
        ".visible .entry k(.param .u64 n)\n{{\n.reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n.reg .pred %p<4>;\n\
         .reg .f32 %f<4>;\n{body}\n}}\n"
    )))
}

/// The instructions of the last function, printed.
pub fn printed(module: &Module) -> Vec<String> {
    let Some(function) = module.functions.last() else {
        return Vec::new();
    };
    function.instructions.iter().map(|i| print(function, i)).collect()
}

/// One instruction as PTX; labels are `#index`, integers decimal, names those unique in the function.
pub fn print(function: &Function, instruction: &Instruction) -> String {
    let mut text = String::new();
    if let Some(guard) = instruction.guard {
        let name = &function.registers[guard.reg as usize].name;
        text += &format!("@{}{name} ", if guard.negated { "!" } else { "" });
    }
    text += &instruction.opcode();
    for (at, operand) in instruction.operands.iter().enumerate() {
        text += if at == 0 { " " } else { ", " };
        text += &show(function, operand);
    }
    text
}

fn show(function: &Function, operand: &Operand) -> String {
    let register = |id: &u32| function.registers[*id as usize].name.clone();
    let all = |operands: &[Operand]| {
        let shown: Vec<String> = operands.iter().map(|o| show(function, o)).collect();
        shown.join(", ")
    };
    let plus = |n: i64| match n {
        0 => String::new(),
        n => format!("{n:+}"),
    };
    let base = |base: &AddressBase, offset: i64| match base {
        AddressBase::Reg(id) => register(id) + &plus(offset),
        AddressBase::Symbol(name) => name.clone() + &plus(offset),
        AddressBase::None => offset.to_string(),
    };
    match operand {
        Operand::Reg(id) => register(id),
        Operand::NotReg(id) => format!("!{}", register(id)),
        Operand::Int(value) => value.to_string(),
        Operand::F32(bits) => format!("0f{bits:08X}"),
        Operand::F64(bits) => format!("0d{bits:016X}"),
        Operand::Special(name) if name == "WARP_SZ" => name.clone(),
        Operand::Special(name) => format!("%{name}"),
        Operand::Symbol(name, offset) => name.clone() + &plus(*offset),
        Operand::Address(b, offset) => format!("[{}]", base(b, *offset)),
        Operand::Tensor(b, offset, parts) => format!("[{}, {{{}}}]", base(b, *offset), all(parts)),
        Operand::Vector(parts) => format!("{{{}}}", all(parts)),
        Operand::Pair(first, second) => {
            format!("{}|{}", show(function, first), show(function, second))
        }
        Operand::Sink => "_".into(),
        Operand::Label(target) => format!("#{target}"),
        Operand::List(parts) => format!("({})", all(parts)),
    }
}
