//! The words of a workload's axes and of element types: one enum each, with its spelling in files, options and records. And the words
//! that are taken.
//!
//! They know no arithmetic: what e4m3 means is `num`'s, what a distribution draws is the generator's.

/// Makes an enum with spellings: `ALL`, `as_str`, `FromStr`, `Display` and serde all use the same word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $noun:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word in files, options and records.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::error::SpecError;

            fn from_str(word: &str) -> Result<$name, crate::error::SpecError> {
                match word {
                    $($word => Ok($name::$variant),)+
                    _ => {
                        let known = || $name::ALL.iter().map(|x| x.as_str());
                        Err(crate::error::SpecError::new(
                            crate::error::SpecCode::UnknownName,
                            format!("unknown {} `{}`{}", $noun, crate::error::shown(word), crate::suggest::did_you_mean(word, known())),
                        )
                        .hint(format!("known: {}", crate::suggest::listed(known()))))
                    }
                }
            }
        }
    };
}

words! {
    /// How the inputs of a task with a format axis are encoded.
    Format, "format" {
        E4m3 = "e4m3",
        E5m2 = "e5m2",
        /// The older simulated 8 bits: unsigned, midpoint 128, one scale for each head.
        U8 = "u8",
        F16 = "f16",
        Bf16 = "bf16",
        F32 = "f32",
    }
}

impl Format {
    /// The macro that `defines = ["format"]` gives, `WS_FORMAT=WS_E4M3`.
    pub fn macro_name(self) -> &'static str {
        match self {
            Format::E4m3 => "WS_E4M3",
            Format::E5m2 => "WS_E5M2",
            Format::U8 => "WS_U8",
            Format::F16 => "WS_F16",
            Format::Bf16 => "WS_BF16",
            Format::F32 => "WS_F32",
        }
    }

    /// What that macro expands to: never 0, which is what an undefined macro compares equal to.
    pub fn macro_value(self) -> u32 {
        match self {
            Format::E4m3 => 1,
            Format::E5m2 => 2,
            Format::U8 => 3,
            Format::F16 => 4,
            Format::Bf16 => 5,
            Format::F32 => 6,
        }
    }

    /// The element type that tensors of this format have.
    pub fn dtype(self) -> DType {
        match self {
            Format::E4m3 => DType::E4m3,
            Format::E5m2 => DType::E5m2,
            Format::U8 => DType::U8,
            Format::F16 => DType::F16,
            Format::Bf16 => DType::Bf16,
            Format::F32 => DType::F32,
        }
    }
}

words! {
    /// How many elements share one scale. `None`: the task has no scales.
    ScaleLayout, "layout of scales" {
        None = "none",
        /// One for the whole tensor, shape ().
        Tensor = "tensor",
        /// One for each (batch, head), shape (B, H).
        Head = "head",
        /// One for each block of 128 tokens of a head, shape (B, H, ceil(S / 128)).
        Block = "block",
    }
}

impl ScaleLayout {
    /// The macro that `defines = ["scales"]` gives, `WS_SCALES=WS_HEAD`, and its value.
    pub fn macro_name(self) -> (&'static str, u32) {
        match self {
            ScaleLayout::None => ("WS_NONE", 4),
            ScaleLayout::Tensor => ("WS_TENSOR", 1),
            ScaleLayout::Head => ("WS_HEAD", 2),
            ScaleLayout::Block => ("WS_BLOCK", 3),
        }
    }
}

words! {
    /// Where the tokens of a task with sequences lie, and how a kernel learns of it. Tensors of a task can have a shape for each.
    Layout, "layout" {
        /// (B, H, S, D), contiguous.
        Dense = "dense",
        /// (B, S, H, D): other strides, the same numbers.
        Tokens = "tokens",
        /// Caches of which each sequence uses a part.
        Lengths = "lengths",
        /// Caches in pages, found by a table.
        Paged = "paged",
        /// Sequences one behind another.
        Ragged = "ragged",
        /// Dense, keys and values quantised once: each channel's mean over the keys was taken out before.
        Packed = "packed",
        /// Dense, keys and values not quantised yet: the candidate packs them itself.
        Wide = "wide",
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::ALL[0]
    }
}

impl Layout {
    /// The macro that `defines = ["layout"]` gives, `WS_LAYOUT=WS_PAGED`, and its value.
    pub fn macro_name(self) -> (&'static str, u32) {
        match self {
            Layout::Dense => ("WS_DENSE", 1),
            Layout::Tokens => ("WS_TOKENS", 2),
            Layout::Lengths => ("WS_LENGTHS", 3),
            Layout::Paged => ("WS_PAGED", 4),
            Layout::Ragged => ("WS_RAGGED", 5),
            Layout::Packed => ("WS_PACKED", 6),
            Layout::Wide => ("WS_WIDE", 7),
        }
    }
}

words! {
    /// How inputs are drawn.
    Distribution, "distribution" {
        /// Normal, but one query in four is 3 x a secret key: a kernel that leaves out one key fails.
        Needles = "needles",
        Normal = "normal",
        Outliers = "outliers",
        Peaked = "peaked",
        Shifted = "shifted",
        Constant = "constant",
        /// All keys of a head are the same, every value is one: the output is one, however many keys there are.
        Equal = "equal",
        Zeros = "zeros",
    }
}

words! {
    /// Which keys a query may see.
    Mask, "mask" {
        None = "none",
        Causal = "causal",
    }
}

words! {
    /// Element types of tensors, workspaces and scalars.
    DType, "dtype" {
        I8 = "i8",
        U8 = "u8",
        I16 = "i16",
        U16 = "u16",
        I32 = "i32",
        U32 = "u32",
        I64 = "i64",
        U64 = "u64",
        F16 = "f16",
        Bf16 = "bf16",
        F32 = "f32",
        F64 = "f64",
        E4m3 = "e4m3",
        E5m2 = "e5m2",
    }
}

impl DType {
    /// The value of the macro that `defines = ["out"]` gives, `WS_OUT`: 0 bf16, 1 f16, 2 e4m3, as the attention library numbers
    /// them; 3 for any other type.
    pub fn out_kind(self) -> u32 {
        match self {
            DType::Bf16 => 0,
            DType::F16 => 1,
            DType::E4m3 => 2,
            _ => 3,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64 | DType::E4m3 | DType::E5m2)
    }
}

words! {
    /// In what P is kept by the honest kernel whose error the limits are a factor of.
    Precision, "precision" {
        E4m3 = "e4m3",
        F16 = "f16",
    }
}

/// Words of C++, and names of CUDA's that every kernel meets: a macro of that name would break all headers.
const CPP_WORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const \
    const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum \
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not \
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short \
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef \
    typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq main std size_t printf \
    exp2f min max fmaxf fmaf threadIdx blockIdx blockDim gridDim warpSize half sqrtf";

/// Whether C++ or CUDA have the word.
pub(crate) fn is_cpp_word(name: &str) -> bool {
    CPP_WORDS.split_whitespace().any(|w| w == name)
}
