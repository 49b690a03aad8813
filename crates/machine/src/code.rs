//! Decoded instructions: what the interpreter executes, dense and without names.
//!
//! Every register operand is the index of a row of 32 lanes in the warp's register file (a 64-bit register takes two
//! rows, a predicate one row whose first word is the mask of lanes). Immediates, parameters and special registers that
//! never change are rows too, filled once for each frame, so that an operand needs no case distinction at run time.
//! This module knows nothing about PTX's text; `decode` makes these structs, `exec` runs them.

use crate::api::Site;

/// Index of a row in a frame's window of the register file.
pub type RowId = u32;
/// Index of an instruction in [`Code::instrs`], over all functions of the module.
pub type Pc = u32;

/// The row that reads as zero (64 bits wide).
pub const ZERO: RowId = 0;
/// Where results that nobody wants go (64 bits wide).
pub const SINK: RowId = 2;
/// The carry flag `CC.CF` (a predicate row).
pub const CARRY: RowId = 4;
/// First row that decoding hands out.
pub const FIRST_FREE: RowId = 5;
/// No guard.
pub const ALWAYS: RowId = u32::MAX;

/// What a row holds when a frame starts.
#[derive(Debug, Clone, PartialEq)]
pub enum RowInit {
    /// 32 bits, or a 16-bit or 8-bit value zero-extended.
    Word(u32),
    Wide(u64),
    /// `%tid.x` and its like: constant for a thread during a launch.
    Special(Special),
    /// Address of a module variable plus an offset.
    Variable {
        variable: usize,
        offset: i64,
        wide: bool,
    },
    /// A function's handle, for indirect calls.
    Function {
        function: usize,
    },
    /// An offset in the frame's part of local memory.
    Local {
        offset: i64,
        wide: bool,
    },
    /// Bytes of a kernel parameter, sign-extended if asked for.
    Param {
        offset: u32,
        bytes: u32,
        signed: bool,
        wide: bool,
    },
    /// The generic address of a kernel parameter.
    ParamAddress {
        offset: i64,
    },
}

/// Special registers that do not change while a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NwarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    SmId,
    NsmId,
    GridId,
    DynamicShared,
    TotalShared,
    /// With what the system keeps.
    AggregateShared,
    /// Half of the address of what a cooperative launch offers its grid: 1 the upper, 2 the lower.
    GridWorkspace(u8),
    /// Where cooperative groups of several warps keep their barriers.
    ReservedShared,
    /// Position in the cluster; clusters of one CTA only.
    ClusterZero,
    ClusterOne,
    ClusterId(u8),
    NclusterId(u8),
}

/// Widths of a row operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8, 16 and 32 bits.
    W32,
    W64,
    Pred,
}

/// A scalar function of one lane: three operands (zero-extended) and the instruction's immediate.
pub type LaneFn = fn(u64, u64, u64, u64) -> u64;

/// Which family of handlers runs an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Lane-wise, no memory, no control: operands in d, a, b, c. 32-bit integers and predicates.
    Ints,
    /// Lane-wise: 64-bit integers.
    Wides,
    /// Lane-wise: f32.
    Floats,
    /// Lane-wise: conversions and packing.
    Converts,
    /// Lane-wise: all else.
    Rare,
    Memory,
    Control,
    /// Needs the lanes of a warp, or of several, together.
    Warp,
}

macro_rules! ops {
    ($($class:ident { $($name:ident),* $(,)? })*) => {
        /// What an instruction does. Suffixes: width of the operands, type where it matters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op { $($($name),*),* }
        impl Op {
            /// All operations.
            #[cfg(test)]
            pub const ALL: &[Op] = &[$($(Op::$name),*),*];

            /// The family of an operation.
            pub fn class(self) -> Class {
                match self { $($(Op::$name)|* => Class::$class),* }
            }
        }
    };
}

ops! {
    Ints {
        Nop, Mov32, MovPred, Add32, Sub32, MulLo32, MadLo32, MulHiU32, MulHiS32, MinS32, MaxS32, MinU32,
        MaxU32, And32, Or32, Xor32, Not32, Neg32, Shl32, ShrU32, ShrS32, Shl16, ShrU16, ShrS16, Add16, Sub16,
        MulLo16, Lop3, Prmt, Bfe32, ShfWrapL, ShfWrapR, SetpS32, SetpU32, SetpS16, Selp32, AndPred, OrPred,
        XorPred, NotPred, SetpU16,
    }
    Wides {
        Mov64, MulWideS32, MulWideU32, MadWideS32, MadWideU32, Add64, Sub64, MulLo64, MadLo64, And64, Or64,
        Xor64, Not64, Shl64, ShrU64, ShrS64, MinS64, MaxS64, MinU64, MaxU64, SetpS64, SetpU64, Selp64,
    }
    Floats {
        AddF32, SubF32, MulF32, FmaF32, DivF32, MinF32, MaxF32, NegF32, AbsF32, Ex2F32, RcpF32, SqrtF32,
        RsqrtF32, SetpF32,
    }
    Converts {
        CvtU64U32, CvtS64S32, CvtLow32, CvtLow16, CvtF32S32, CvtF32U32, CvtF32F16, CvtF16F32, CvtF16x2F32,
        CvtBf16x2F32, CvtF16x2E4m3x2, CvtE4m3x2F32, Pack2x16, Pack2x32, Unpack2x16, Unpack2x32,
    }
    Rare { Lane, Lop3Pred, Bfi, SetpLane, SetLane, Carry, PackMany, UnpackMany }
    Memory { Clock, Load, Store, Atom, CpAsync, CpAsyncCommit, CpAsyncWait, Prefetch }
    Control { Bra, BraIndex, Call, Ret, Exit, Trap, Fence, Sleep, Unsupported }
    Warp { Shfl, Vote, Match, Redux, ActiveMask, Elect, BarWarp, Barrier, Mma, MovMatrix, Mbarrier, LoadMatrix, StoreMatrix, WmmaLoad, WmmaStore }
}

/// One instruction. Fields that an operation does not use hold [`ZERO`] or [`SINK`].
#[derive(Debug, Clone)]
pub struct Instr {
    pub op: Op,
    pub class: Class,
    /// A comparison, a rounding, a mode: what `op` says.
    pub sub: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    pub guard_negated: bool,
    pub guard: RowId,
    pub d: RowId,
    /// A second destination: `d|p`, or the upper half of an unpacked register.
    pub d2: RowId,
    pub a: RowId,
    pub b: RowId,
    pub c: RowId,
    /// Address offset, branch target, immediate.
    pub imm: i64,
    /// Index into the side table of the operation.
    pub side: u32,
}

/// Bits of [`Instr::flags`].
pub mod flag {
    pub const FTZ: u8 = 1;
    pub const SAT: u8 = 2;
    /// setp: combine with the predicate in c: and, or, xor in `imm`.
    pub const COMBINE: u8 = 16;
    /// setp: the combining predicate is negated.
    pub const COMBINE_NOT: u8 = 32;
}

/// Comparisons of `setp`, in PTX's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unordered variants: true if either is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// `Op::Lane`: the function and the widths of what it reads and writes.
#[derive(Debug, Clone)]
pub struct LaneOp {
    pub fun: LaneFn,
    pub d: Width,
    pub a: Width,
    pub b: Width,
    pub c: Width,
    /// Bits of the result that are kept: 16 for 16-bit destinations.
    pub cut: u8,
    /// Set when the result only approximates the hardware's.
    pub approximate: bool,
}

/// `setp` and `set` of the rarer types.
#[derive(Debug, Clone)]
pub struct CompareOp {
    pub ty: warpsmith_ptx::ast::Ty,
    /// `Pred` for setp; u32, s32, f32 and so on for set.
    pub to: warpsmith_ptx::ast::Ty,
    pub width: Width,
    /// f16x2: p is the lower half's result, q the upper's.
    pub pair: bool,
}

/// `mov` between a register and its pieces of 1 or 2 bytes.
#[derive(Debug, Clone)]
pub struct PackOp {
    pub rows: Vec<RowId>,
    pub bytes: u32,
    pub wide: bool,
}

/// The spaces an access names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    Generic,
    Global,
    Shared,
    Local,
}

/// Where an access finds its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressOperand {
    pub row: RowId,
    pub wide: bool,
    pub offset: i64,
}

/// `ld`, `st`: one to eight elements.
#[derive(Debug, Clone)]
pub struct MemOp {
    pub area: Area,
    pub address: AddressOperand,
    /// Bytes of one element: 1, 2, 4, 8.
    pub bytes: u32,
    /// Rows of the elements; for a store, the sources.
    pub rows: Vec<(RowId, Width)>,
    /// Bits that a signed value is extended to: those of the register; 0 for unsigned.
    pub extend: u32,
    /// volatile, relaxed, acquire, release: takes part in synchronisation, and is no plain access.
    pub strong: bool,
    pub acquire: bool,
    pub release: bool,
    /// `.cta`: says nothing to other CTAs.
    pub narrow: bool,
    /// `.relaxed`: what it reads orders nothing before the next fence.
    pub relaxed: bool,
}

/// Operations of `atom` and `red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

/// Element types of `atom` and `redux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomTy {
    U32,
    S32,
    U64,
    S64,
    B16,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
}

#[derive(Debug, Clone)]
pub struct AtomicOp {
    pub area: Area,
    pub address: AddressOperand,
    pub op: AtomOp,
    pub ty: AtomTy,
    pub release: bool,
    /// `.cta`: says nothing to other CTAs.
    pub narrow: bool,
    /// None: `red`.
    pub d: Option<RowId>,
    pub b: RowId,
    pub c: RowId,
    /// Destination and operand of a vector's further elements, one after the other in memory.
    pub more: Vec<(Option<RowId>, RowId)>,
}

/// `cp.async`.
#[derive(Debug, Clone)]
pub struct CopyOp {
    pub shared: AddressOperand,
    pub global: AddressOperand,
    pub bytes: u32,
    /// Row of src-size, if given.
    pub src_size: Option<RowId>,
    /// Row of the `ignore-src` predicate and its negation.
    pub ignore: Option<(RowId, bool)>,
}

/// `ldmatrix`, `stmatrix`.
#[derive(Debug, Clone)]
pub struct MatrixOp {
    pub area: Area,
    pub address: AddressOperand,
    pub count: usize,
    pub transposed: bool,
    pub rows: Vec<RowId>,
}

/// Which lane's which register holds which element of an operand.
#[derive(Debug, Clone, PartialEq)]
pub struct Fragment {
    pub rows: usize,
    pub cols: usize,
    pub element: Elem,
    /// Where an element lies in a dense matrix (A and C by rows, B by columns): for register, lane, element of the register.
    pub dense: Vec<u16>,
    /// (row, col) in the same order.
    pub places: Vec<(u16, u16)>,
    /// Elements in one register: 32 to 1.
    pub packed: usize,
    pub per_lane: usize,
}

/// Elements of matrix operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elem {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

impl Elem {
    /// Bits in a register or in memory.
    pub fn bits(self) -> usize {
        match self {
            Elem::B1 => 1,
            Elem::S4 | Elem::U4 => 4,
            Elem::E4m3 | Elem::E5m2 | Elem::S8 | Elem::U8 => 8,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Tf32 | Elem::F32 | Elem::S32 => 32,
            Elem::F64 => 64,
        }
    }

    /// Bytes in memory; those of the word that holds them, for elements of less than a byte.
    pub fn bytes(self) -> usize {
        if self.bits() < 8 { 4 } else { self.bits() / 8 }
    }
}

/// `wmma.load`, `wmma.store`.
#[derive(Debug, Clone)]
pub struct WmmaMemOp {
    pub area: Area,
    pub address: AddressOperand,
    pub stride: RowId,
    /// Elements that share one of the fragment's: 8 or 32 where they are smaller than a byte, and the fragment is one of words.
    pub per_word: u32,
    pub column_major: bool,
    pub fragment: Fragment,
    pub rows: Vec<RowId>,
}

/// `mma.sync`, `wmma.mma`.
#[derive(Debug, Clone)]
pub struct MmaOp {
    /// The product, where the tensor core takes operands as registers hold them.
    pub in_registers: Option<warpsmith_num::tensor_core::Product>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub wmma: bool,
    pub a: Fragment,
    pub b: Fragment,
    pub c: Fragment,
    pub d: Fragment,
    pub a_rows: Vec<RowId>,
    pub b_rows: Vec<RowId>,
    pub c_rows: Vec<RowId>,
    pub d_rows: Vec<RowId>,
    pub saturate: bool,
    /// Single bits: whether products are `and`, not `xor`.
    pub and: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Debug, Clone)]
pub struct ShflOp {
    pub mode: ShflMode,
    pub d: RowId,
    pub pred: Option<RowId>,
    pub a: RowId,
    pub b: RowId,
    pub c: RowId,
    pub members: RowId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Debug, Clone)]
pub struct VoteOp {
    pub mode: VoteMode,
    pub d: RowId,
    pub pred: RowId,
    pub negated: bool,
    pub members: RowId,
}

#[derive(Debug, Clone)]
pub struct MatchOp {
    pub all: bool,
    pub wide: bool,
    pub d: RowId,
    pub pred: Option<RowId>,
    pub a: RowId,
    pub members: RowId,
}

#[derive(Debug, Clone)]
pub struct ReduxOp {
    pub op: AtomOp,
    pub signed: bool,
    pub float: Option<(bool, bool)>,
    pub d: RowId,
    pub a: RowId,
    pub members: RowId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    Sync,
    Arrive,
    RedPopc,
    RedAnd,
    RedOr,
}

#[derive(Debug, Clone)]
pub struct BarrierOp {
    pub kind: BarrierKind,
    pub aligned: bool,
    pub id: RowId,
    pub count: Option<RowId>,
    pub pred: Option<(RowId, bool)>,
    pub d: RowId,
}

/// Operations of `mbarrier`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierKind {
    Init,
    Inval,
    Arrive,
    ArriveDrop,
    ArriveExpectTx,
    ExpectTx,
    /// `test_wait` and `try_wait`.
    Wait,
    PendingCount,
    /// `cp.async.mbarrier.arrive`; counted: the arrival is one of those expected (`.noinc`).
    CopiesArrive {
        counted: bool,
    },
}

#[derive(Debug, Clone)]
pub struct MbarrierOp {
    pub kind: MbarrierKind,
    pub area: Area,
    pub address: AddressOperand,
    pub d: Option<RowId>,
    /// Count, bytes, phase token or parity.
    pub value: Option<RowId>,
    pub parity: bool,
}

/// What is called, and what goes in and out: (offset in the caller's frame, bytes) for each.
#[derive(Debug, Clone)]
pub struct CallOp {
    pub target: CallTarget,
    pub args: Vec<CallValue>,
    pub returns: Vec<CallValue>,
}

#[derive(Debug, Clone)]
pub enum CallTarget {
    Function(usize),
    /// A row that holds the handle.
    Indirect(RowId),
    Vprintf,
    AssertFail,
}

/// A call's argument or result: `.param` bytes in the caller's local frame, or a register.
#[derive(Debug, Clone, Copy)]
pub enum CallValue {
    Local { offset: u32, bytes: u32 },
    Row { row: RowId, width: Width },
}

/// Side tables, one for each family that needs more operands than [`Instr`] has.
#[derive(Debug, Default, Clone)]
pub struct Sides {
    pub lanes: Vec<LaneOp>,
    pub compares: Vec<CompareOp>,
    pub packs: Vec<PackOp>,
    pub mems: Vec<MemOp>,
    pub atoms: Vec<AtomicOp>,
    pub copies: Vec<CopyOp>,
    pub matrices: Vec<MatrixOp>,
    pub wmmas: Vec<WmmaMemOp>,
    pub mmas: Vec<MmaOp>,
    pub shfls: Vec<ShflOp>,
    pub votes: Vec<VoteOp>,
    pub matches: Vec<MatchOp>,
    pub reduxes: Vec<ReduxOp>,
    pub barriers: Vec<BarrierOp>,
    pub mbarriers: Vec<MbarrierOp>,
    pub calls: Vec<CallOp>,
    pub tables: Vec<Vec<Pc>>,
    pub unsupported: Vec<String>,
}

/// A decoded function.
#[derive(Debug, Clone)]
pub struct FunctionCode {
    pub name: String,
    pub is_entry: bool,
    pub has_body: bool,
    pub start: Pc,
    pub end: Pc,
    /// Rows of a frame's window.
    pub rows: u32,
    pub inits: Vec<(RowId, RowInit)>,
    /// Bytes of local memory of a frame, and what lies there.
    pub local_bytes: u32,
    pub locals: Vec<NamedRange>,
    /// Where parameters and returns lie in the frame (`.func` only): offset, bytes.
    pub params: Vec<(u32, u32)>,
    pub returns: Vec<(u32, u32)>,
    /// Functions that this one may call directly.
    pub callees: Vec<usize>,
    pub indirect_calls: bool,
    /// First instruction that the machine does not have, if any.
    pub unsupported: Option<(Pc, String)>,
}

/// A named piece of a frame's local memory.
#[derive(Debug, Clone)]
pub struct NamedRange {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

/// All code of a module.
#[derive(Debug, Default, Clone)]
pub struct Code {
    pub instrs: Vec<Instr>,
    pub sides: Sides,
    /// By pc.
    pub sites: Vec<Site>,
    /// For each instruction the number of its place in `places`.
    pub chains: Vec<u32>,
    /// Chains of lines, innermost first: where an instruction stands, and where that was inlined. The first is empty.
    pub places: Vec<Vec<(String, u32)>>,
    /// By pc: a number for the source line; instructions without one have a number each.
    pub lines: Vec<u32>,
    /// By pc: index into `mnemonics`.
    pub mnemonic_of: Vec<u16>,
    pub mnemonics: Vec<String>,
    pub functions: Vec<FunctionCode>,
}
