//! Formulas of launch plans, constraints and tasks: whole numbers (and floating point, for scalars) over named symbols.
//!
//! An embedded expression engine (rhai) parses and evaluates them; here are the functions, the limits, and the check that a formula
//! names only symbols there are. It knows nothing of shapes or levers. Arithmetic is checked: overflow and division by zero are
//! errors, never a wrapped number. Limits: 1,000 characters, 64 levels, 10,000 operations.

use rhai::{AST, ASTNode, Dynamic, Engine, EvalAltResult, Expr, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::document::Place;
use crate::error::{SpecError, shown};
use crate::suggest::{did_you_mean, listed};

/// Values of symbols.
pub type Symbols = BTreeMap<String, i64>;

/// The functions there are and how many arguments each takes.
pub const FUNCTIONS: [(&str, usize); 7] =
    [("ceil_div", 2), ("min", 2), ("max", 2), ("align_up", 2), ("next_pow2", 1), ("abs", 1), ("sqrt", 1)];

const OPERATORS: [&str; 17] =
    ["+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">="];
const MAX_LENGTH: usize = 1000;

/// A parsed formula; it has been checked for syntax and for the symbols it names.
#[derive(Clone)]
pub struct Formula {
    text: String,
    line: u32,
    symbols: BTreeSet<String>,
    ast: AST,
}

impl std::fmt::Debug for Formula {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Formula({:?})", self.text)
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Formula) -> bool {
        self.text == other.text
    }
}

/// What a formula gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Whole(i64),
    Real(f64),
    Truth(bool),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Whole(n) => write!(f, "{n}"),
            Number::Real(x) => write!(f, "{x:?}"),
            Number::Truth(b) => write!(f, "{b}"),
        }
    }
}

/// Why a text is no formula.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FormulaError {
    Syntax(String),
    UnknownSymbol(String),
    UnknownFunction(String),
}

impl Formula {
    /// Parses `text`; `known` are the symbols it may name.
    pub(crate) fn parse(text: &str, line: u32, known: &BTreeSet<String>) -> Result<Formula, FormulaError> {
        let syntax = |what: &str| Err(FormulaError::Syntax(what.to_string()));
        if text.trim().is_empty() {
            return syntax("it is empty");
        }
        if text.len() > MAX_LENGTH {
            return syntax(&format!("it is longer than {MAX_LENGTH} characters"));
        }
        let ast = ENGINE.compile_expression(text).map_err(|e| {
            let column = e.1.position().map(|c| format!(", at character {c}")).unwrap_or_default();
            FormulaError::Syntax(format!("{}{column}", plain(&e.err_type().to_string())))
        })?;
        let mut symbols = BTreeSet::new();
        let mut wrong = None;
        ast.walk(&mut |path: &[ASTNode]| {
            if let Some(ASTNode::Expr(e)) = path.last() {
                wrong = check_node(e, known, &mut symbols).err();
            }
            wrong.is_none()
        });
        match wrong {
            Some(e) => Err(e),
            None => Ok(Formula { text: text.to_string(), line, symbols, ast }),
        }
    }

    /// A formula that is one number.
    pub(crate) fn constant(n: i64, line: u32) -> Formula {
        // `i64::MIN` has no literal of its own, and no limit here lets a constant come near.
        let text = n.max(i64::MIN + 1).to_string();
        let ast = ENGINE.compile_expression(&text).unwrap_or_default();
        Formula { text, line, symbols: BTreeSet::new(), ast }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line of the file it stands in.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The symbols it names.
    pub fn symbols(&self) -> &BTreeSet<String> {
        &self.symbols
    }

    /// Evaluates; the error says why there is no value, quoting the formula.
    pub fn eval(&self, values: &Symbols) -> Result<Number, String> {
        let mut scope = Scope::new();
        for name in &self.symbols {
            match values.get(name) {
                Some(value) => scope.push_constant(name.as_str(), *value),
                None => return Err(format!("`{}` needs `{name}`, which has no number here", shown(&self.text))),
            };
        }
        let value = ENGINE
            .eval_ast_with_scope::<Dynamic>(&mut scope, &self.ast)
            .map_err(|e| format!("`{}` has no value: {}{}", shown(&self.text), reason(&e), self.given(values)))?;
        if let Ok(n) = value.as_int() {
            Ok(Number::Whole(n))
        } else if let Ok(x) = value.as_float() {
            Ok(Number::Real(x))
        } else if let Ok(b) = value.as_bool() {
            Ok(Number::Truth(b))
        } else {
            Err(format!("`{}` gives no number", shown(&self.text)))
        }
    }

    /// Why it is wrong whatever the values: an operation that these types do not have. `values` are any values.
    pub(crate) fn type_error(&self, values: &Symbols) -> Option<String> {
        let mut scope = Scope::new();
        for name in &self.symbols {
            scope.push_constant(name.as_str(), *values.get(name)?);
        }
        match ENGINE.eval_ast_with_scope::<Dynamic>(&mut scope, &self.ast).map_err(|e| *e) {
            Err(e @ (EvalAltResult::ErrorFunctionNotFound(..) | EvalAltResult::ErrorMismatchDataType(..))) => {
                Some(format!("`{}` cannot be evaluated: {}", shown(&self.text), reason(&e)))
            }
            _ => None,
        }
    }

    /// Evaluates to a whole number.
    pub fn eval_whole(&self, values: &Symbols) -> Result<i64, String> {
        match self.eval(values)? {
            Number::Whole(n) => Ok(n),
            other => Err(format!("`{}` gives {other}, not a whole number{}", shown(&self.text), self.given(values))),
        }
    }

    /// Evaluates to a finite number of floating point.
    pub fn eval_real(&self, values: &Symbols) -> Result<f64, String> {
        match self.eval(values)? {
            Number::Whole(n) => Ok(n as f64),
            Number::Real(x) if x.is_finite() => Ok(x),
            other => Err(format!("`{}` gives {other}, not a finite number{}", shown(&self.text), self.given(values))),
        }
    }

    /// Evaluates a condition: a comparison, or a whole number that is not zero.
    pub fn holds(&self, values: &Symbols) -> Result<bool, String> {
        match self.eval(values)? {
            Number::Truth(b) => Ok(b),
            Number::Whole(n) => Ok(n != 0),
            Number::Real(_) => Err(format!("`{}` is not a condition", shown(&self.text))),
        }
    }

    /// " (S = 64, H = 8)": the values that a message should show.
    fn given(&self, values: &Symbols) -> String {
        let shown: Vec<String> =
            self.symbols.iter().filter_map(|s| values.get(s).map(|v| format!("{s} = {v}"))).collect();
        if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
    }
}

impl FormulaError {
    /// The error at its place in the file.
    pub(crate) fn at(self, place: &Place, line: u32, name: &str, text: &str, known: &BTreeSet<String>) -> SpecError {
        let text = shown(text);
        match self {
            FormulaError::Syntax(why) => place
                .error(line, format!("`{name}` has a formula that cannot be read: `{text}`: {why}"))
                .hint("a formula is whole numbers and symbols with + - * / %, comparisons, and ceil_div, min, max, align_up, next_pow2"),
            FormulaError::UnknownSymbol(symbol) => {
                let near = did_you_mean(&symbol, known.iter().map(String::as_str));
                place
                    .unknown(line, format!("unknown symbol `{}` in the formula `{text}` of `{name}`{near}", shown(&symbol)))
                    .hint(format!("symbols known here: {}", listed(known.iter().map(String::as_str))))
            }
            FormulaError::UnknownFunction(function) => {
                let near = did_you_mean(&function, FUNCTIONS.iter().map(|(n, _)| *n));
                place
                    .unknown(line, format!("unknown function `{}` in the formula `{text}` of `{name}`{near}", shown(&function)))
                    .hint(format!("functions: {}", listed(FUNCTIONS.iter().map(|(n, _)| *n))))
            }
        }
    }
}

/// The syntax tree of an expression that is not a formula (a criterion); it is never evaluated.
pub(crate) fn expression(text: &str) -> Result<Expr, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("it is longer than {MAX_LENGTH} characters"));
    }
    let ast = ENGINE.compile_expression(text).map_err(|e| e.err_type().to_string())?;
    let mut root = None;
    ast.walk(&mut |path: &[ASTNode]| {
        if let Some(ASTNode::Expr(e)) = path.last() {
            root = Some((*e).clone());
        }
        root.is_none()
    });
    root.ok_or_else(|| "it is empty".to_string())
}

/// Whether a name can be a symbol: the engine has words of its own, and functions have names.
pub(crate) fn is_free(name: &str) -> bool {
    !FUNCTIONS.iter().any(|(f, _)| *f == name) && matches!(expression(name), Ok(Expr::Variable(..)))
}

fn check_node(e: &Expr, known: &BTreeSet<String>, symbols: &mut BTreeSet<String>) -> Result<(), FormulaError> {
    match e {
        Expr::IntegerConstant(..) | Expr::FloatConstant(..) | Expr::BoolConstant(..) | Expr::And(..) | Expr::Or(..) => {
            Ok(())
        }
        Expr::Variable(v, ..) => {
            let name = v.1.as_str();
            if !known.contains(name) {
                return Err(FormulaError::UnknownSymbol(name.to_string()));
            }
            symbols.insert(name.to_string());
            Ok(())
        }
        Expr::FnCall(call, _) => {
            let name = call.name.as_str();
            if call.is_operator_call() {
                return if OPERATORS.contains(&name) || name == "!" {
                    Ok(())
                } else {
                    Err(FormulaError::Syntax(format!("the operator `{name}` does not exist in formulas")))
                };
            }
            match FUNCTIONS.iter().find(|(n, _)| *n == name) {
                Some((_, arity)) if *arity == call.args.len() => Ok(()),
                Some((_, arity)) => {
                    Err(FormulaError::Syntax(format!("{name} takes {arity} arguments, not {}", call.args.len())))
                }
                None => Err(FormulaError::UnknownFunction(name.to_string())),
            }
        }
        _ => Err(FormulaError::Syntax(
            "only numbers, symbols, operators and functions can stand in a formula".to_string(),
        )),
    }
}

/// The engine speaks of scripts, people of formulas.
fn plain(message: &str) -> String {
    match message {
        "Script is incomplete" => "it breaks off".to_string(),
        _ => message.replace("Unexpected 'Unexpected ", "unexpected ").replace("''", "'"),
    }
}

fn reason(e: &EvalAltResult) -> String {
    match e {
        EvalAltResult::ErrorArithmetic(why, _) => why.to_lowercase(),
        EvalAltResult::ErrorTooManyOperations(_) => "it takes too long".to_string(),
        EvalAltResult::ErrorFunctionNotFound(what, _) => {
            format!("{} does not apply to these operands", what.replace("i64", "whole number").replace("f64", "real"))
        }
        EvalAltResult::ErrorMismatchDataType(..) => {
            "&&, || and ! join conditions, such as `causal == 1`, not numbers".to_string()
        }
        EvalAltResult::ErrorRuntime(why, _) => why.to_string(),
        other => other.to_string().lines().next().unwrap_or_default().to_string(),
    }
}

type Fallible<T> = Result<T, Box<EvalAltResult>>;

fn ceil_div(a: i64, b: i64) -> Fallible<i64> {
    if b <= 0 {
        return Err(format!("ceil_div by {b}, which is not above zero").into());
    }
    let quotient = a.div_euclid(b);
    if a.rem_euclid(b) == 0 {
        Ok(quotient)
    } else {
        quotient.checked_add(1).ok_or_else(|| "overflow in ceil_div".into())
    }
}

fn align_up(a: i64, b: i64) -> Fallible<i64> {
    ceil_div(a, b)?.checked_mul(b).ok_or_else(|| "overflow in align_up".into())
}

fn next_pow2(a: i64) -> Fallible<i64> {
    if a > 1 << 62 {
        return Err("overflow in next_pow2".into());
    }
    Ok((a.max(1) as u64).next_power_of_two() as i64)
}

/// The engine's own shift drops the bits that do not fit.
fn shift_left(a: i64, b: i64) -> Fallible<i64> {
    let factor = u32::try_from(b).ok().filter(|b| *b < 63).map(|b| 1i64 << b);
    factor.and_then(|f| a.checked_mul(f)).ok_or_else(|| format!("overflow: {a} << {b}").into())
}

fn shift_right(a: i64, b: i64) -> Fallible<i64> {
    match u32::try_from(b) {
        Ok(b) if b < 64 => Ok(a >> b),
        _ => Err(format!("a shift by {b}").into()),
    }
}

fn sqrt(x: f64) -> Fallible<f64> {
    if x < 0.0 { Err("the square root of a negative number".into()) } else { Ok(x.sqrt()) }
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut engine = Engine::new_raw();
    engine.set_optimization_level(rhai::OptimizationLevel::None);
    engine.set_max_expr_depths(64);
    engine.set_max_operations(10_000);
    engine.set_max_string_size(MAX_LENGTH);
    // Off, so that the operators registered here are found before the built-in ones.
    engine.set_fast_operators(false);
    engine.register_fn("<<", shift_left);
    engine.register_fn(">>", shift_right);
    engine.register_fn("-", |a: i64| -> Fallible<i64> { a.checked_neg().ok_or_else(|| "overflow in negation".into()) });
    engine.register_fn("-", |a: f64| -a);
    engine.register_fn("+", |a: i64| a);
    engine.register_fn("+", |a: f64| a);
    engine.register_fn("!", |a: bool| !a);
    engine.register_fn("ceil_div", ceil_div);
    engine.register_fn("align_up", align_up);
    engine.register_fn("next_pow2", next_pow2);
    engine.register_fn("min", |a: i64, b: i64| a.min(b));
    engine.register_fn("max", |a: i64, b: i64| a.max(b));
    engine.register_fn("min", |a: f64, b: f64| a.min(b));
    engine.register_fn("max", |a: f64, b: f64| a.max(b));
    engine.register_fn("abs", |a: i64| -> Fallible<i64> { a.checked_abs().ok_or_else(|| "overflow in abs".into()) });
    engine.register_fn("abs", |a: f64| a.abs());
    engine.register_fn("sqrt", |a: i64| sqrt(a as f64));
    engine.register_fn("sqrt", sqrt);
    // `causal` is 0 or 1: `!causal` is what people write.
    engine.register_fn("!", |a: i64| a == 0);
    engine
});

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(text: &str) -> Result<Number, String> {
        let values: Symbols = [("S", 100), ("B", 2), ("ZERO", 0), ("NEG", -7), ("BIG", i64::MAX), ("LOW", i64::MIN)]
            .map(|(k, v)| (k.to_string(), v))
            .into();
        let known = values.keys().cloned().collect();
        Formula::parse(text, 1, &known).map_err(|e| format!("{e:?}"))?.eval(&values)
    }

    #[test]
    fn formulas_have_these_values() {
        for (text, want) in [
            ("ceil_div(S, 64)", 2),
            ("ceil_div(128, 64)", 2),
            ("ceil_div(ZERO, 64)", 0),
            ("ceil_div(NEG, 2)", -3),
            ("align_up(S, 32)", 128),
            ("next_pow2(S)", 128),
            ("next_pow2(NEG)", 1),
            ("min(S, B) + max(S, B)", 102),
            ("S * B - 3", 197),
            ("S / 3 % 5", 3),
            ("(S + 1) * 2", 202),
            ("-S", -100),
            ("3 - -S", 103),
            ("+S", 100),
            ("S + S * B", 300),
            ("2 ** 10", 1024),
            ("1 << 5 | 1", 33),
            ("0x40 + 1_000", 1064),
            ("abs(NEG)", 7),
        ] {
            assert_eq!(eval(text), Ok(Number::Whole(want)), "{text}");
        }
        assert_eq!(eval("1.0 / sqrt(64)"), Ok(Number::Real(0.125)));
        assert_eq!(eval("S == 100 && (B < 2 || !ZERO) && !(S == 3)"), Ok(Number::Truth(true)));
        assert_eq!(eval("max(1.5, 2.5)"), Ok(Number::Real(2.5)));
    }

    #[test]
    fn what_has_no_value_is_an_error_and_never_a_panic_or_a_wrapped_number() {
        for text in [
            "S / ZERO",
            "S % ZERO",
            "LOW / -1",
            "LOW % -1",
            "-LOW",
            "abs(LOW)",
            "BIG + 1",
            "LOW - 1",
            "BIG * 2",
            "BIG ** 2",
            "2 ** -1",
            "1 << 64",
            "1 << NEG",
            "1 >> 200",
            "ceil_div(S, ZERO)",
            "ceil_div(S, NEG)",
            "align_up(BIG, 64)",
            "next_pow2(BIG)",
            "sqrt(NEG)",
            "S && B",
            "S + (B == 2)",
            "2 ** 63",
            "ceil_div(1.5, 2)",
        ] {
            assert!(eval(text).is_err(), "{text}: {:?}", eval(text));
        }
    }

    #[test]
    fn what_is_no_formula_is_refused() {
        for text in [
            "",
            " ",
            "S +",
            "S S",
            "(S",
            "S)",
            "ceil_div(S, ",
            "ceil_div(S; 2)",
            "S = 3",
            "let x = 1",
            "x => x",
            "|x| x",
            "S.abs()",
            "[1]",
            "#{a: 1}",
            "\"a\"",
            "`a`",
            "'a'",
            "()",
            "{ 1 }",
            "if S { 1 } else { 2 }",
            "switch S { _ => 1 }",
            "loop { }",
            "print(S)",
            "eval(\"1\")",
            "type_of(S)",
            "Fn(\"a\")",
            "this",
            "S ?? B",
            "S in B",
            "1..5",
            "é",
            "S\n;",
            "/* ",
            "1 +\u{0} 2",
        ] {
            assert!(eval(text).is_err(), "{text}: {:?}", eval(text));
        }
        for free in ["BLOCK_M", "x", "D"] {
            assert!(is_free(free), "{free}");
        }
        for taken in ["min", "loop", "let", "fn", "this", "true", "in", "eval", "print", "switch", "ceil_div", "3", ""]
        {
            assert!(!is_free(taken), "{taken}");
        }
    }
}
