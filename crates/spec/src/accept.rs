//! Acceptance criteria as data: `registers <= 128`, `speedup(level_02) >= 1.15`, `shapes(speedup(best_peer) >= 2.0) >= 2`.
//!
//! A criterion is a figure, a comparison and a number. Figures come from a run's results; one whose gate did not run has no figure,
//! and the criterion is then neither held nor missed. It knows nothing of how results come about.

use crate::error::{SpecCode, SpecError, shown};
use crate::formula;
use crate::record::{AcceptRecord, ResultRecord, VerdictWord};
use crate::speedups;
use crate::suggest::{did_you_mean, listed};
use rhai::Expr;

/// A figure of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// The largest among all results, targets and entries.
    Resource(&'static str),
    /// The largest among all results and outputs.
    Error(&'static str),
    /// Baseline's time / ours: the geometric mean over the results; `best_peer` is each result's fastest peer.
    Speedup(String),
    /// How many shapes the inner criterion holds on, each for itself.
    Shapes(Box<Criterion>),
    /// Share of results whose verdict is `passed`, from 0 to 1.
    Passed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    /// As it was written.
    pub text: String,
    pub figure: Figure,
    pub comparison: Comparison,
    pub target: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Held,
    Missed,
    NotRun,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Held => "held",
            Status::Missed => "missed",
            Status::NotRun => "not_run",
        }
    }
}

const RESOURCES: [&str; 4] = ["registers", "shared_bytes", "stack_bytes", "spill_bytes"];
const ERRORS: [&str; 9] =
    ["rel_frobenius", "worst_row", "max_abs_err", "mean_abs_err", "rmse", "pct_bad", "nan", "inf", "cosine"];

impl Criterion {
    pub fn parse(text: &str) -> Result<Criterion, SpecError> {
        let expression = formula::expression(text).map_err(|why| wrong(text, &why))?;
        criterion(text, &expression)
    }

    /// The record of this criterion over a run's results.
    pub fn judge(&self, results: &[ResultRecord]) -> AcceptRecord {
        let (status, actual) = self.status(&results.iter().collect::<Vec<_>>());
        AcceptRecord {
            criterion: self.text.clone(),
            target: format!("{} {}", self.comparison.as_str(), self.target),
            actual,
            status: status.as_str().to_string(),
        }
    }

    /// The status, and the figure that decided it.
    pub fn status(&self, results: &[&ResultRecord]) -> (Status, Option<f64>) {
        match self.figure.value(results) {
            None => (Status::NotRun, None),
            Some(actual) if self.comparison.holds(actual, self.target) => (Status::Held, Some(actual)),
            Some(actual) => (Status::Missed, Some(actual)),
        }
    }
}

impl Figure {
    /// None: no result has it, so its gate did not run.
    fn value(&self, results: &[&ResultRecord]) -> Option<f64> {
        match self {
            Figure::Resource(name) => largest(results.iter().flat_map(|r| resource(r, name))),
            Figure::Error("cosine") => largest(results.iter().flat_map(|r| error(r, "cosine")).map(|x| -x)).map(|x| -x),
            Figure::Error(name) => largest(results.iter().flat_map(|r| error(r, name))),
            Figure::Speedup(baseline) => {
                let ratios: Vec<f64> = results.iter().filter_map(|r| speedups::ratio(r, baseline)).collect();
                // A mean over fewer results than there are would be another figure.
                if ratios.is_empty() || ratios.len() < results.len() {
                    return None;
                }
                Some((ratios.iter().map(|x| x.ln()).sum::<f64>() / ratios.len() as f64).exp())
            }
            Figure::Shapes(inner) => {
                let mut shapes: Vec<&str> = results.iter().map(|r| r.shape.as_str()).collect();
                shapes.sort_unstable();
                shapes.dedup();
                let statuses: Vec<Status> = shapes
                    .iter()
                    .map(|s| inner.status(&results.iter().copied().filter(|r| r.shape == *s).collect::<Vec<_>>()).0)
                    .collect();
                if statuses.iter().all(|s| *s == Status::NotRun) {
                    return None;
                }
                Some(statuses.iter().filter(|s| **s == Status::Held).count() as f64)
            }
            Figure::Passed => {
                let passed = results.iter().filter(|r| r.verdict == VerdictWord::Passed).count();
                if results.is_empty() { None } else { Some(passed as f64 / results.len() as f64) }
            }
        }
    }
}

impl Comparison {
    fn parse(operator: &str) -> Option<Comparison> {
        Some(match operator {
            "<" => Comparison::Less,
            "<=" => Comparison::LessEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterEqual,
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Comparison::Less => "<",
            Comparison::LessEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterEqual => ">=",
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
        }
    }

    /// A NaN holds nothing, not even `!=`: it is no figure.
    pub fn holds(self, actual: f64, target: f64) -> bool {
        match self {
            Comparison::Less => actual < target,
            Comparison::LessEqual => actual <= target,
            Comparison::Greater => actual > target,
            Comparison::GreaterEqual => actual >= target,
            Comparison::Equal => actual == target,
            Comparison::NotEqual => actual != target && !actual.is_nan(),
        }
    }
}

fn wrong(text: &str, why: &str) -> SpecError {
    SpecError::new(SpecCode::TaskSyntax, format!("the criterion `{}` cannot be read: {why}", shown(text)))
        .hint("for example `registers <= 128`, `speedup(level_02) >= 1.15`, `shapes(speedup(best_peer) >= 2.0) >= 2`")
}

fn criterion(text: &str, expression: &Expr) -> Result<Criterion, SpecError> {
    let shape = || wrong(text, "it has to be FIGURE, a comparison, and a number");
    let Expr::FnCall(call, _) = expression else { return Err(shape()) };
    let comparison = Comparison::parse(&call.name).filter(|_| call.is_operator_call()).ok_or_else(shape)?;
    let [left, right] = &call.args[..] else { return Err(shape()) };
    let target = number(right).ok_or_else(|| wrong(text, "its right side has to be a number"))?;
    Ok(Criterion { text: text.trim().to_string(), figure: figure(text, left)?, comparison, target })
}

fn figure(text: &str, e: &Expr) -> Result<Figure, SpecError> {
    const CALLS: [&str; 2] = ["speedup(NAME)", "shapes(CRITERION)"];
    let unknown = |name: &str| {
        let names = || RESOURCES.iter().chain(&ERRORS).chain(&["passed", "speedup", "shapes"]).copied();
        let near = did_you_mean(name, names());
        SpecError::new(
            SpecCode::UnknownName,
            format!("unknown figure `{}` in the criterion `{}`{near}", shown(name), shown(text)),
        )
        .hint(format!("figures: {}", listed(RESOURCES.iter().chain(&ERRORS).chain(&["passed"]).chain(&CALLS).copied())))
    };
    match e {
        Expr::Variable(v, ..) => {
            let name = v.1.as_str();
            if let Some(n) = RESOURCES.iter().find(|n| **n == name) {
                Ok(Figure::Resource(n))
            } else if let Some(n) = ERRORS.iter().find(|n| **n == name) {
                Ok(Figure::Error(n))
            } else if name == "passed" {
                Ok(Figure::Passed)
            } else {
                Err(unknown(name))
            }
        }
        Expr::FnCall(call, _) if !call.is_operator_call() => match (call.name.as_str(), &call.args[..]) {
            ("speedup", [Expr::Variable(v, ..)]) => Ok(Figure::Speedup(v.1.to_string())),
            ("speedup", [Expr::StringConstant(s, _)]) => Ok(Figure::Speedup(s.to_string())),
            ("speedup", _) => Err(wrong(text, "speedup takes one baseline's name, in quotes if it has a colon")),
            ("shapes", [inner]) => {
                let inner = criterion(text, inner)?;
                if matches!(inner.figure, Figure::Shapes(_)) {
                    return Err(wrong(text, "shapes cannot stand in shapes"));
                }
                Ok(Figure::Shapes(Box::new(inner)))
            }
            ("shapes", _) => Err(wrong(text, "shapes takes one criterion")),
            (name, _) => Err(unknown(name)),
        },
        _ => Err(wrong(text, "its left side has to be a figure")),
    }
}

fn number(e: &Expr) -> Option<f64> {
    match e {
        Expr::IntegerConstant(n, _) => Some(*n as f64),
        Expr::FloatConstant(x, _) => Some(**x).filter(|x| x.is_finite()),
        Expr::FnCall(call, _) if call.name == "-" && call.args.len() == 1 => number(&call.args[0]).map(|x| -x),
        _ => None,
    }
}

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |most, x| match most {
        // A NaN among the figures must not be hidden by the others.
        Some(m) if m.is_nan() || m >= x => Some(m),
        _ => Some(x),
    })
}

fn resource(result: &ResultRecord, name: &str) -> Vec<f64> {
    let entries = result.compile.values().flat_map(|entries| entries.values());
    entries
        .map(|e| match name {
            "registers" => f64::from(e.registers),
            "shared_bytes" => f64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0) as f64,
            "stack_bytes" => f64::from(e.stack_bytes),
            _ => f64::from(e.spill_bytes),
        })
        .collect()
}

fn error(result: &ResultRecord, name: &str) -> Vec<f64> {
    let checks = result.check.iter().flat_map(|outputs| outputs.values());
    checks
        .map(|c| match name {
            "rel_frobenius" => c.kernel.rel_frobenius,
            "worst_row" => c.kernel.worst_row,
            "max_abs_err" => c.max_abs_err,
            "mean_abs_err" => c.mean_abs_err,
            "rmse" => c.rmse,
            "pct_bad" => c.pct_bad,
            "nan" => c.nan as f64,
            "inf" => c.inf as f64,
            _ => c.cosine,
        })
        .collect()
}
