//! A task: what is computed, on which shapes, how inputs are drawn and how close an output has to come. Pure data from
//! `tasks/NAME/task.toml`.
//!
//! It knows no kernel and no arithmetic: the reference is named here and computed elsewhere.

mod parse;
pub mod set;

pub(crate) use parse::{budget, formula, formulas, is_name};

use crate::accept::Criterion;
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::{Formula, Number, Symbols};
use crate::suggest::{did_you_mean, listed};
use crate::words::{DType, Distribution, Format, Layout, Mask, Precision, ScaleLayout};
use crate::workload::{Variant, Workload};

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Input,
    /// The scales of the input [`Tensor::scales`] names: x = code * scale.
    Scale,
    Output,
}

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    Fixed(DType),
    /// The workload's format.
    Format,
    /// The workload's format of outputs.
    Out,
}

/// Under which word of an axis something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    Scales(ScaleLayout),
    Layout(Layout),
    Out(DType),
    Format(Format),
}

/// `per head`, `in layout paged`, `for out e4m3`; nothing where it always holds.
impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            When::Always => Ok(()),
            When::Scales(scales) => write!(f, "per {scales}"),
            When::Layout(layout) => write!(f, "in layout {layout}"),
            When::Out(out) => write!(f, "for out {out}"),
            When::Format(format) => write!(f, "in {format}"),
        }
    }
}

/// The words of a workload that decide shapes and scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    pub scales: ScaleLayout,
    pub layout: Layout,
    pub out: Option<DType>,
    pub format: Option<Format>,
}

impl Axes {
    fn is(self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Scales(scales) => self.scales == scales,
            When::Layout(layout) => self.layout == layout,
            When::Out(out) => self.out == Some(out),
            When::Format(format) => self.format == Some(format),
        }
    }
}

impl From<ScaleLayout> for Axes {
    fn from(scales: ScaleLayout) -> Axes {
        Axes { scales, layout: Layout::Dense, out: None, format: None }
    }
}

impl From<&Workload> for Axes {
    fn from(w: &Workload) -> Axes {
        let Variant { layout, out, .. } = &w.variant;
        Axes { scales: w.scales, layout: *layout, out: *out, format: Some(w.format) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub role: Role,
    pub element: ElementType,
    /// Shape by a word of one axis; one entry (`When::Always`) where none makes a difference. In a layout that has no entry the
    /// tensor does not exist: an argument of its name is then null.
    pub shapes: Vec<(When, Vec<Formula>)>,
    /// Which input's scales these are.
    pub scales: Option<String>,
    /// An output that is asked of those candidates only that take it.
    pub optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    pub name: String,
    pub dtype: DType,
    /// By a word of one axis, as a tensor's shapes.
    pub values: Vec<(When, Formula)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NamedShape {
    pub name: String,
    /// One size for each symbol of the task, in their order.
    pub sizes: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reference {
    /// An operation computed by Warpsmith itself: `attention` in f64, or `pack` (keys and values to codes).
    Builtin(String),
    /// A Python script beside task.toml, run as `python3 reference.py IN_DIR OUT_DIR` (see [`crate::protocol`]).
    Script { file: String, source: String },
}

/// What "as good as an honest kernel" means.
#[derive(Debug, Clone, PartialEq)]
pub enum Base {
    /// The error of an emulated honest attention kernel on the same inputs: P kept in `p`, accumulators folded into f32 every
    /// `fold` keys.
    HonestAttention { p: Precision, fold: u32 },
    /// Figures that the task gives.
    Given { rel_frobenius: f64, worst_row: f64 },
}

/// A limit is `max(factor * base, floor)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerance {
    pub base: Base,
    pub factor_rel_frobenius: f64,
    pub factor_worst_row: f64,
    pub floor_rel_frobenius: f64,
    pub floor_worst_row: f64,
    /// Of outputs that are logarithms: floors of the root mean square and of the largest absolute error.
    pub log_floor_rms: f64,
    pub log_floor_worst: f64,
}

impl Tolerance {
    /// The base for a candidate that asks for `precision`: an honest kernel with P kept so.
    pub fn base_for(&self, precision: Option<Precision>) -> Base {
        match (&self.base, precision) {
            (Base::HonestAttention { fold, .. }, Some(p)) => Base::HonestAttention { p, fold: *fold },
            (base, _) => base.clone(),
        }
    }

    /// The limits of logarithms, for the absolute errors of the base: root mean square and largest.
    pub fn log_limits(&self, base_rms: f64, base_worst: f64) -> (f64, f64) {
        (
            (self.factor_rel_frobenius * base_rms).max(self.log_floor_rms),
            (self.factor_worst_row * base_worst).max(self.log_floor_worst),
        )
    }

    /// The two limits (relative Frobenius error, worst row's relative error) for the errors of the base.
    pub fn limits(&self, base_rel_frobenius: f64, base_worst_row: f64) -> (f64, f64) {
        (
            (self.factor_rel_frobenius * base_rel_frobenius).max(self.floor_rel_frobenius),
            (self.factor_worst_row * base_worst_row).max(self.floor_worst_row),
        )
    }
}

/// From which ratio (baseline's time / ours) on a measurement is called so; below `parity` it is a regression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    pub excellent: f64,
    pub good: f64,
    pub modest: f64,
    pub parity: f64,
}

impl Thresholds {
    /// The class of a ratio that lies outside the noise.
    pub fn class(&self, ratio: f64) -> &'static str {
        match ratio {
            r if r >= self.excellent => "excellent",
            r if r >= self.good => "good",
            r if r >= self.modest => "modest",
            r if r >= self.parity => "parity",
            _ => "regression",
        }
    }
}

/// How inputs become codes and scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiser {
    /// A largest magnitude of at most this gives scale 1.0 exactly.
    pub zero_threshold: f64,
    /// Tokens that share a scale in layout `block`.
    pub block_tokens: u32,
}

/// Limits of gate 1; absent: advice only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub registers: Option<u32>,
    /// Static and dynamic shared memory of an entry.
    pub shared_bytes: Option<u64>,
    pub spill_bytes: Option<u64>,
}

impl Budget {
    /// The stricter of both, each figure for itself.
    pub fn and(self, other: Budget) -> Budget {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Budget {
            registers: least(self.registers, other.registers),
            shared_bytes: least(self.shared_bytes, other.shared_bytes),
            spill_bytes: least(self.spill_bytes, other.spill_bytes),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub name: String,
    /// The file it came from, as it was named to the parser.
    pub file: String,
    pub title: String,
    /// Names of the sizes, in the order of a shape.
    pub symbols: Vec<String>,
    /// In the order of the file.
    pub tensors: Vec<Tensor>,
    pub scalars: Vec<Scalar>,
    pub shapes: Vec<NamedShape>,
    pub default_shapes: Vec<String>,
    /// `none` alone where the task has no mask.
    pub masks: Vec<Mask>,
    /// The first is the default.
    pub formats: Vec<Format>,
    /// The first is the default; `none` alone where the task has no scales.
    pub scales: Vec<ScaleLayout>,
    /// Where tokens lie; `dense` alone where the task has no other. The first is the default.
    pub layouts: Vec<Layout>,
    /// Formats of the outputs of type `out`; empty where the task has none. The first is the default.
    pub outs: Vec<DType>,
    pub distributions: Vec<Distribution>,
    /// The distribution that gate 2 judges on.
    pub judged_on: Distribution,
    /// The distribution that gate 3 times on.
    pub timed_on: Distribution,
    pub seeds: Vec<u64>,
    pub reference: Reference,
    pub tolerance: Tolerance,
    pub thresholds: Thresholds,
    /// What gate 3 compares with, in order.
    pub baselines: Vec<String>,
    pub quantiser: Quantiser,
    pub accept: Vec<Criterion>,
    pub budget: Budget,
}

/// Sizes beyond this are typing mistakes; the product is limited by [`MAX_ELEMENTS`].
pub const MAX_SIZE: i64 = 1 << 24;
/// Elements of one tensor.
pub const MAX_ELEMENTS: u64 = 1 << 34;

impl Task {
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    pub fn scalar(&self, name: &str) -> Option<&Scalar> {
        self.scalars.iter().find(|s| s.name == name)
    }

    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.role == Role::Input)
    }

    pub fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.role == Role::Output)
    }

    /// The scales of that input, if it has any.
    pub fn scales_of(&self, input: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.scales.as_deref() == Some(input))
    }

    pub fn has_causal(&self) -> bool {
        self.masks.contains(&Mask::Causal)
    }

    /// The shape of that name, or a literal such as `1x8x777x64`. An unknown name's error lists the names there are.
    pub fn shape(&self, text: &str) -> Result<NamedShape, SpecError> {
        if let Some(shape) = self.shapes.iter().find(|s| s.name == text) {
            return Ok(shape.clone());
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.literal_shape(text);
        }
        let names = || self.shapes.iter().map(|s| s.name.as_str());
        Err(SpecError::new(
            SpecCode::UnknownName,
            format!("task {} has no shape `{}`{}", self.name, shown(text), did_you_mean(text, names())),
        )
        .hint(format!("its shapes: {}; or sizes, as {}", listed(names()), self.shape_form())))
    }

    fn literal_shape(&self, text: &str) -> Result<NamedShape, SpecError> {
        let wrong = |why: String| {
            let names = listed(self.shapes.iter().map(|s| s.name.as_str()));
            SpecError::new(SpecCode::UnknownName, format!("shape `{}` of task {}: {why}", shown(text), self.name))
                .hint(format!("a shape is {}, each from 1 to {MAX_SIZE}, or a name: {names}", self.shape_form()))
        };
        let sizes: Vec<i64> = text
            .split('x')
            .map(|part| match part.parse::<i64>() {
                Ok(n) if (1..=MAX_SIZE).contains(&n) && part.bytes().all(|b| b.is_ascii_digit()) => Ok(n),
                _ => Err(wrong(format!("`{}` is no size", shown(part)))),
            })
            .collect::<Result<_, _>>()?;
        if sizes.len() != self.symbols.len() {
            return Err(wrong(format!("it has {} sizes, the task has {}", sizes.len(), self.symbols.len())));
        }
        let shape = NamedShape { name: text.to_string(), sizes };
        self.check_elements(&shape.sizes).map_err(wrong)?;
        Ok(shape)
    }

    /// `BxHxSxD`.
    pub fn shape_form(&self) -> String {
        self.symbols.join("x")
    }

    /// Sizes as symbols.
    pub fn symbols_of(&self, sizes: &[i64]) -> Symbols {
        self.symbols.iter().cloned().zip(sizes.iter().copied()).collect()
    }

    /// Whether the tensor exists in that layout. Scales do where what they scale does.
    pub fn has_tensor(&self, tensor: &Tensor, axes: impl Into<Axes>) -> bool {
        let axes = axes.into();
        let there = |t: &Tensor| t.shapes.iter().any(|(when, _)| axes.is(*when));
        let scaled = tensor.scales.as_deref().and_then(|of| self.tensor(of));
        there(tensor) && scaled.is_none_or(there)
    }

    /// The outputs that a workload asks for.
    pub fn outputs_of(&self, workload: &Workload) -> impl Iterator<Item = &Tensor> {
        self.outputs().filter(|t| !t.optional || workload.variant.optional.contains(&t.name))
    }

    /// The sizes of a tensor for these symbols, layout and layout of scales.
    pub fn tensor_sizes(&self, tensor: &Tensor, symbols: &Symbols, axes: impl Into<Axes>) -> Result<Vec<u64>, String> {
        let axes = axes.into();
        let shape = tensor.shapes.iter().find(|(when, _)| axes.is(*when)).ok_or_else(|| {
            format!("tensor {} has no shape for layout {} and scales per {}", tensor.name, axes.layout, axes.scales)
        })?;
        let mut elements: u64 = 1;
        let mut sizes = Vec::new();
        for formula in &shape.1 {
            let size = formula.eval_whole(symbols)?;
            if !(1..=MAX_SIZE).contains(&size) {
                return Err(format!("tensor {} would have the size {size} (`{}`)", tensor.name, formula.text()));
            }
            elements = elements.saturating_mul(size as u64);
            sizes.push(size as u64);
        }
        if elements > MAX_ELEMENTS {
            return Err(format!("tensor {} would have {elements} elements; the limit is {MAX_ELEMENTS}", tensor.name));
        }
        Ok(sizes)
    }

    /// The value of a scalar for these symbols.
    pub fn scalar_value(&self, scalar: &Scalar, symbols: &Symbols, axes: impl Into<Axes>) -> Result<Number, String> {
        let axes = axes.into();
        let value = scalar.values.iter().find(|(when, _)| axes.is(*when)).map(|(_, f)| f).ok_or_else(|| {
            format!("scalar {} has no value for layout {} and scales per {}", scalar.name, axes.layout, axes.scales)
        })?;
        if scalar.dtype.is_float() {
            value.eval_real(symbols).map(Number::Real)
        } else {
            value.eval_whole(symbols).map(Number::Whole)
        }
    }

    fn check_elements(&self, sizes: &[i64]) -> Result<(), String> {
        let symbols = self.symbols_of(sizes);
        for tensor in &self.tensors {
            for (when, _) in &tensor.shapes {
                let axes = match when {
                    When::Layout(layout) => Axes { layout: *layout, ..Axes::from(ScaleLayout::None) },
                    When::Scales(scales) => Axes::from(*scales),
                    When::Out(out) => Axes { out: Some(*out), ..Axes::from(ScaleLayout::None) },
                    When::Format(format) => Axes { format: Some(*format), ..Axes::from(ScaleLayout::None) },
                    When::Always => Axes::from(ScaleLayout::None),
                };
                self.tensor_sizes(tensor, &symbols, axes)?;
            }
        }
        Ok(())
    }
}
