//! Broken texts: whatever is done to a compiler's output, the parser answers with a tree or an error.
//!
//! The mutants are the same in every run. `PTX_MUTANTS=1000000 cargo test --release -p warpsmith-ptx --test
//! mutations` makes more of them.

mod support;

use support::FIXTURES;
use warpsmith_num::splitmix::SplitMix64;

/// What is put in where a mutant gets something new.
const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ":",
    ",",
    "|",
    "@",
    "-",
    "<",
    ">",
    ".reg .b32 %r<1000000>;",
    ".loc 1 1 1, inlined_at 1 1 1",
    "0xFFFFFFFFFFFFFFFF",
    "-9223372036854775808",
    "[4294967295]",
    "0f3",
    "1e309",
    "\"",
    "/*",
    "\u{e9}",
];

fn mutate(text: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..1 + random.index(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.index(bytes.len());
        let end = (at + 1 + random.index(64)).min(bytes.len());
        match random.index(8) {
            0 => bytes[at] ^= 1 << random.index(8),
            1 => bytes[at] = random.bits() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, copy);
            }
            // Most of the text is wanted: what is cut off early tests little.
            4 if random.index(4) == 0 => bytes.truncate(at),
            5 => {
                let digit = bytes[at..].iter().position(u8::is_ascii_digit);
                if let Some(digit) = digit {
                    bytes[at + digit] = b'0' + random.index(10) as u8;
                }
            }
            6 => {
                let to = random.index(bytes.len());
                bytes.swap(at, to);
            }
            _ => {
                let word = WORDS[random.index(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
        }
    }
    bytes
}

#[test]
fn no_mutant_makes_the_parser_panic() {
    let count: usize = std::env::var("PTX_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut random = SplitMix64(15);
    let (mut parsed, mut refused) = (0usize, 0usize);
    for n in 0..count {
        let (_, text) = FIXTURES[n % FIXTURES.len()];
        let mutant = mutate(text.as_bytes(), &mut random);
        let mutant = String::from_utf8_lossy(&mutant);
        match warpsmith_ptx::parse(&mutant) {
            Ok(module) => {
                parsed += 1;
                check_indices(&module);
            }
            Err(why) => {
                refused += 1;
                let lines = mutant.matches('\n').count() as u32 + 1;
                assert!(why.line >= 1 && why.line <= lines && why.column >= 1, "{why}");
            }
        }
    }
    println!("{count} mutants: {parsed} parsed, {refused} refused");
    // Both happen often, or the mutants test nothing.
    assert!(parsed > count / 20 && refused > count / 20);
}

/// Every index that the tree promises to hold does.
fn check_indices(module: &warpsmith_ptx::ast::Module) {
    use warpsmith_ptx::ast::{AddressBase, Operand};
    fn check(operand: &Operand, registers: usize, instructions: usize) {
        match operand {
            Operand::Reg(id) | Operand::NotReg(id) => assert!((*id as usize) < registers),
            Operand::Address(AddressBase::Reg(id), _) => assert!((*id as usize) < registers),
            Operand::Label(target) => assert!(*target as usize <= instructions),
            Operand::Vector(all) | Operand::List(all) => {
                all.iter().for_each(|o| check(o, registers, instructions));
            }
            Operand::Tensor(base, _, all) => {
                if let AddressBase::Reg(id) = base {
                    assert!((*id as usize) < registers);
                }
                all.iter().for_each(|o| check(o, registers, instructions));
            }
            Operand::Pair(first, second) => {
                check(first, registers, instructions);
                check(second, registers, instructions);
            }
            _ => {}
        }
    }
    for function in &module.functions {
        let (registers, instructions) = (function.registers.len(), function.instructions.len());
        for instruction in &function.instructions {
            let guard = instruction.guard.map(|g| g.reg as usize);
            assert!(guard.is_none_or(|reg| reg < registers));
            for operand in &instruction.operands {
                check(operand, registers, instructions);
            }
        }
        for targets in function.branch_targets.values() {
            assert!(targets.iter().all(|t| *t as usize <= instructions));
        }
    }
}
