//! `task.toml` to [`Task`], with the line of whatever is wrong.

use super::*;
use crate::accept;
use crate::document::{self, Item, Place, Table, Value};
use crate::formula::{self, Formula};
use std::collections::BTreeSet;
use std::str::FromStr;

const KEYS: [&str; 22] = [
    "title",
    "symbols",
    "shapes",
    "default_shapes",
    "tensors",
    "scalars",
    "masks",
    "formats",
    "scales",
    "layouts",
    "outs",
    "distributions",
    "judged_on",
    "timed_on",
    "seeds",
    "reference",
    "tolerance",
    "verdict",
    "baselines",
    "quantiser",
    "accept",
    "budget",
];
const MAX_BYTES: usize = 1 << 20;
const MAX_NAMES: usize = 256;

impl Task {
    /// Parses `task.toml`. `name` is the folder's name, `file` what messages call the file, `script` the text of a file beside it.
    pub fn parse(
        name: &str,
        file: &str,
        toml: &[u8],
        script: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Task, SpecError> {
        let place = Place { file: file.to_string(), code: SpecCode::TaskSyntax, what: "task" };
        if !is_name(name) {
            return Err(SpecError::new(
                SpecCode::TaskSyntax,
                format!("`{}` is no name for a task: letters, digits and _", shown(name)),
            )
            .in_file(file));
        }
        let text = document_text(&place, toml)?;
        let root = document::parse(&place, text, &|line| line)?;
        Reader { place, root: &root }.task(name, script)
    }
}

fn document_text<'a>(place: &Place, toml: &'a [u8]) -> Result<&'a str, SpecError> {
    let wrong = |m: String| Err(SpecError::new(place.code, m).in_file(&place.file));
    if toml.len() > MAX_BYTES {
        return wrong(format!("the file has {} bytes; a task has at most {MAX_BYTES}", toml.len()));
    }
    match std::str::from_utf8(toml) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(e) => wrong(format!("the file is not UTF-8 text (byte {})", e.valid_up_to())),
    }
}

/// Names of tasks, tensors, symbols, levers: as C's, ASCII only.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The words that a task has on the axes that decide shapes.
struct Words<'a> {
    scales: &'a [ScaleLayout],
    layouts: &'a [Layout],
    outs: &'a [DType],
    formats: &'a [Format],
}

impl Words<'_> {
    /// Whoever tells layouts of scales apart names all of the task's; the error is one that is missing.
    fn covered<T>(&self, found: &[(When, T)]) -> Result<(), ScaleLayout> {
        let by_scales = found.iter().all(|(when, _)| matches!(when, When::Scales(_)));
        let missing = |s: &&ScaleLayout| !found.iter().any(|(when, _)| *when == When::Scales(**s));
        match self.scales.iter().find(missing) {
            Some(missing) if by_scales => Err(*missing),
            _ => Ok(()),
        }
    }
}

struct Reader<'a> {
    place: Place,
    root: &'a Table,
}

impl Reader<'_> {
    fn task(&self, name: &str, script: &dyn Fn(&str) -> Option<String>) -> Result<Task, SpecError> {
        let (place, root) = (&self.place, self.root);
        root.only(place, "a task", &KEYS)?;
        let symbols = self.symbols()?;
        let known: BTreeSet<String> = symbols.iter().cloned().collect();
        let scales = self.words("scales", vec![ScaleLayout::None])?;
        let layouts = self.words("layouts", vec![Layout::Dense])?;
        let outs = self.words("outs", Vec::new())?;
        let formats = self.words("formats", vec![Format::F32])?;
        let axes = Words { scales: &scales, layouts: &layouts, outs: &outs, formats: &formats };
        let tensors = self.tensors(&known, &axes)?;
        let scalars = self.scalars(&known, &tensors, &axes)?;
        let shapes = self.shapes(&symbols)?;
        let distributions = self.words("distributions", vec![Distribution::Normal, Distribution::Zeros])?;
        let judged_on = self.one_of("judged_on", &distributions)?.unwrap_or(distributions[0]);
        let timed_on = match self.one_of("timed_on", &distributions)? {
            Some(d) => d,
            None if distributions.contains(&Distribution::Normal) => Distribution::Normal,
            None => judged_on,
        };
        let task = Task {
            name: name.to_string(),
            file: place.file.clone(),
            title: root.need(place, "the task", "title")?.text(place, "title")?.to_string(),
            default_shapes: self.default_shapes(&shapes)?,
            masks: self.words("masks", vec![Mask::None])?,
            formats,
            seeds: self.seeds()?,
            reference: self.reference(script)?,
            tolerance: self.tolerance()?,
            thresholds: self.thresholds()?,
            baselines: self.baselines()?,
            quantiser: self.quantiser()?,
            accept: self.accept()?,
            budget: match root.get("budget") {
                Some(item) => budget(place, item)?,
                None => Budget::default(),
            },
            symbols,
            tensors,
            scalars,
            shapes,
            scales,
            layouts,
            outs,
            distributions,
            judged_on,
            timed_on,
        };
        if task.distributions.contains(&Distribution::Needles)
            && task.reference != Reference::Builtin("attention".into())
        {
            let line = root.get("distributions").map_or(root.line, |i| i.line);
            return Err(place.error(line, "`needles` hides keys of attention; other tasks have no such distribution"));
        }
        for shape in &task.shapes {
            let line = root.get("shapes").map_or(root.line, |i| i.line);
            task.check_elements(&shape.sizes)
                .map_err(|why| place.error(line, format!("shape {}: {why}", shape.name)))?;
        }
        Ok(task)
    }

    fn symbols(&self) -> Result<Vec<String>, SpecError> {
        let item = self.root.need(&self.place, "the task", "symbols")?;
        let mut names = Vec::new();
        for (name, line) in item.texts(&self.place, "symbols")? {
            self.fresh_name(&names, name, line, "symbol")?;
            if crate::candidate::RESERVED_SYMBOLS.contains(&name) || !formula::is_free(name) {
                return Err(self.place.error(line, format!("`{name}` cannot be a symbol: formulas know it already")));
            }
            names.push(name.to_string());
        }
        Ok(names)
    }

    fn fresh_name(&self, taken: &[String], name: &str, line: u32, what: &str) -> Result<(), SpecError> {
        if !is_name(name) {
            return Err(self
                .place
                .error(line, format!("`{}` is no name for a {what}: letters, digits and _", shown(name))));
        }
        if taken.iter().any(|t| t == name) {
            return Err(self.place.error(line, format!("the {what} `{name}` is there twice")));
        }
        if taken.len() >= MAX_NAMES {
            return Err(self.place.error(line, format!("more than {MAX_NAMES} of them: {what}")));
        }
        Ok(())
    }

    fn tensors(&self, known: &BTreeSet<String>, axes: &Words<'_>) -> Result<Vec<Tensor>, SpecError> {
        let place = &self.place;
        let item = self.root.need(place, "the task", "tensors")?;
        let mut tensors: Vec<Tensor> = Vec::new();
        let mut names: Vec<String> = known.iter().cloned().collect();
        for (name, line, item) in &item.table(place, "tensors")?.entries {
            self.fresh_name(&names, name, *line, "tensor")?;
            names.push(name.clone());
            let owner = format!("[tensors.{name}]");
            let table = item.table(place, &owner)?;
            table.only(place, &owner, &["role", "dtype", "shape", "shapes", "scales", "optional"])?;
            let role_item = table.need(place, &owner, "role")?;
            let role = match role_item.text(place, "role")? {
                "input" => Role::Input,
                "scale" => Role::Scale,
                "output" => Role::Output,
                _ => return Err(role_item.expected(place, "role", "\"input\", \"scale\" or \"output\"")),
            };
            let dtype = table.need(place, &owner, "dtype")?;
            let element = match dtype.text(place, "dtype")? {
                "format" => ElementType::Format,
                "out" if !axes.outs.is_empty() => ElementType::Out,
                word => ElementType::Fixed(self.word(word, dtype.line)?),
            };
            let scales = match (role, table.get("scales")) {
                (Role::Scale, Some(of)) => {
                    let of_name = of.text(place, "scales")?;
                    if !tensors.iter().any(|t| t.name == of_name && t.role == Role::Input) {
                        return Err(place.unknown(of.line, format!("`{}` is no input above {owner}", shown(of_name))));
                    }
                    Some(of_name.to_string())
                }
                (Role::Scale, None) => {
                    return Err(place.error(table.line, format!("{owner} has no `scales`: of which input?")));
                }
                (_, Some(of)) => {
                    return Err(place.error(of.line, format!("{owner} is no scale, so it has no `scales`")));
                }
                (_, None) => None,
            };
            let optional = match table.get("optional") {
                None => false,
                Some(Item { value: Value::Bool(b), .. }) if role == Role::Output => *b,
                Some(item) => return Err(item.expected(place, "optional", "true or false, of an output")),
            };
            let shapes = self.tensor_shapes(table, &owner, known, axes)?;
            tensors.push(Tensor { name: name.clone(), role, element, shapes, scales, optional });
        }
        for (role, what) in [(Role::Input, "input"), (Role::Output, "output")] {
            if !tensors.iter().any(|t| t.role == role && !t.optional) {
                return Err(place.error(item.line, format!("the task has no {what} among its tensors")));
            }
        }
        Ok(tensors)
    }

    fn tensor_shapes(
        &self,
        table: &Table,
        owner: &str,
        known: &BTreeSet<String>,
        axes: &Words<'_>,
    ) -> Result<Vec<(When, Vec<Formula>)>, SpecError> {
        let place = &self.place;
        match (table.get("shape"), table.get("shapes")) {
            (Some(shape), None) => Ok(vec![(When::Always, formulas(place, shape, "shape", known)?)]),
            (None, Some(shapes)) => {
                let mut by_word = Vec::new();
                for (word, line, item) in &shapes.table(place, "shapes")?.entries {
                    by_word.push((self.when(word, *line, axes)?, formulas(place, item, word, known)?));
                }
                axes.covered(&by_word)
                    .map_err(|l| place.error(shapes.line, format!("{owner} has no shape for scales per {l}")))?;
                Ok(by_word)
            }
            (Some(_), Some(both)) => Err(place.error(both.line, format!("{owner} has both `shape` and `shapes`"))),
            (None, None) => Err(place.error(table.line, format!("{owner} has no `shape`"))),
        }
    }

    /// A word of one of the axes that decide shapes.
    fn when(&self, word: &str, line: u32, axes: &Words<'_>) -> Result<When, SpecError> {
        if let Some(layout) = axes.layouts.iter().find(|l| l.as_str() == word) {
            return Ok(When::Layout(*layout));
        }
        if let Some(out) = axes.outs.iter().find(|o| o.as_str() == word) {
            return Ok(When::Out(*out));
        }
        if let Some(format) = axes.formats.iter().find(|f| f.as_str() == word) {
            return Ok(When::Format(*format));
        }
        self.word::<ScaleLayout>(word, line).map(When::Scales)
    }

    fn scalars(
        &self,
        known: &BTreeSet<String>,
        tensors: &[Tensor],
        axes: &Words<'_>,
    ) -> Result<Vec<Scalar>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("scalars") else { return Ok(Vec::new()) };
        let mut names: Vec<String> = known.iter().cloned().chain(tensors.iter().map(|t| t.name.clone())).collect();
        let mut scalars = Vec::new();
        for (name, line, item) in &item.table(place, "scalars")?.entries {
            self.fresh_name(&names, name, *line, "scalar")?;
            names.push(name.clone());
            let owner = format!("[scalars.{name}]");
            let table = item.table(place, &owner)?;
            table.only(place, &owner, &["dtype", "value"])?;
            let dtype = table.need(place, &owner, "dtype")?;
            let value = table.need(place, &owner, "value")?;
            let values = match &value.value {
                Value::Table(by_word) => {
                    let mut values = Vec::new();
                    for (word, line, item) in &by_word.entries {
                        let when = self.when(word, *line, axes)?;
                        values.push((when, self::formula(place, item, word, known)?));
                    }
                    axes.covered(&values)
                        .map_err(|l| place.error(value.line, format!("{owner} has no value for scales per {l}")))?;
                    values
                }
                _ => vec![(When::Always, self::formula(place, value, "value", known)?)],
            };
            let dtype = self.word(dtype.text(place, "dtype")?, dtype.line)?;
            scalars.push(Scalar { name: name.clone(), dtype, values });
        }
        Ok(scalars)
    }

    fn shapes(&self, symbols: &[String]) -> Result<Vec<NamedShape>, SpecError> {
        let place = &self.place;
        let item = self.root.need(place, "the task", "shapes")?;
        let mut shapes = Vec::new();
        for (name, line, item) in &item.table(place, "shapes")?.entries {
            if !is_name(name) {
                return Err(
                    place.error(*line, format!("`{}` is no name for a shape: letters, digits and _", shown(name)))
                );
            }
            let sizes = item.array(place, name)?;
            if sizes.len() != symbols.len() {
                return Err(place.error(
                    item.line,
                    format!(
                        "shape {name} has {} sizes; the task has {} symbols: {}",
                        sizes.len(),
                        symbols.len(),
                        symbols.join(", ")
                    ),
                ));
            }
            let sizes = sizes.iter().map(|s| s.within(place, name, 1, MAX_SIZE)).collect::<Result<_, _>>()?;
            shapes.push(NamedShape { name: name.clone(), sizes });
        }
        if shapes.is_empty() {
            return Err(place.error(item.line, "the task has no shapes; a task has at least one"));
        }
        Ok(shapes)
    }

    fn default_shapes(&self, shapes: &[NamedShape]) -> Result<Vec<String>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("default_shapes") else { return Ok(vec![shapes[0].name.clone()]) };
        let names = || shapes.iter().map(|s| s.name.as_str());
        item.texts(place, "default_shapes")?
            .into_iter()
            .map(|(name, line)| {
                if names().any(|n| n == name) {
                    return Ok(name.to_string());
                }
                let near = did_you_mean(name, names());
                Err(place
                    .unknown(line, format!("`default_shapes` names `{}`, which is no shape{near}", shown(name)))
                    .hint(format!("shapes: {}", listed(names()))))
            })
            .collect()
    }

    /// A word of one of the axes, with the line in its error.
    fn word<T: FromStr<Err = SpecError>>(&self, word: &str, line: u32) -> Result<T, SpecError> {
        word.parse().map_err(|e: SpecError| e.at(&self.place.file, line))
    }

    fn words<T: FromStr<Err = SpecError> + PartialEq>(&self, key: &str, default: Vec<T>) -> Result<Vec<T>, SpecError> {
        let Some(item) = self.root.get(key) else { return Ok(default) };
        let mut found: Vec<T> = Vec::new();
        for (word, line) in item.texts(&self.place, key)? {
            let value = self.word(word, line)?;
            if found.contains(&value) {
                return Err(self.place.error(line, format!("`{key}` has `{word}` twice")));
            }
            found.push(value);
        }
        Ok(found)
    }

    fn one_of(&self, key: &str, among: &[Distribution]) -> Result<Option<Distribution>, SpecError> {
        let Some(item) = self.root.get(key) else { return Ok(None) };
        let value: Distribution = self.word(item.text(&self.place, key)?, item.line)?;
        if among.contains(&value) {
            return Ok(Some(value));
        }
        Err(self.place.error(item.line, format!("`{key}` is {value}, which `distributions` does not name")))
    }

    fn seeds(&self) -> Result<Vec<u64>, SpecError> {
        let Some(item) = self.root.get("seeds") else { return Ok(vec![0]) };
        let items = item.array(&self.place, "seeds")?;
        if items.is_empty() {
            return Err(self.place.error(item.line, "`seeds` is empty; a task has at least one"));
        }
        items.iter().map(|s| s.within(&self.place, "seeds", 0, i64::MAX).map(|n| n as u64)).collect()
    }

    fn reference(&self, script: &dyn Fn(&str) -> Option<String>) -> Result<Reference, SpecError> {
        let place = &self.place;
        let item = self.root.need(place, "the task", "reference")?;
        let text = item.text(place, "reference")?;
        if let Some(name) = text.strip_prefix("builtin:") {
            if !["attention", "pack"].contains(&name) {
                return Err(place
                    .unknown(item.line, format!("unknown built-in reference `{}`", shown(name)))
                    .hint("known: builtin:attention, builtin:pack; or a Python file beside task.toml"));
            }
            return Ok(Reference::Builtin(name.to_string()));
        }
        if !text.ends_with(".py") || text.contains(['/', '\\']) {
            return Err(item.expected(
                place,
                "reference",
                "\"builtin:attention\" or the name of a Python file beside task.toml",
            ));
        }
        match script(text) {
            Some(source) => Ok(Reference::Script { file: text.to_string(), source }),
            None => Err(place
                .error(item.line, format!("`reference` names {}, which is not beside the task's file", shown(text)))),
        }
    }

    fn tolerance(&self) -> Result<Tolerance, SpecError> {
        let place = &self.place;
        let item = self.root.need(place, "the task", "tolerance")?;
        let table = item.table(place, "tolerance")?;
        const OWNER: &str = "[tolerance]";
        table.only(place, OWNER, &["honest", "given", "factor", "floor", "log_floor"])?;
        let figures = |key: &str, owner: &Table, names: [&str; 2]| -> Result<(f64, f64), SpecError> {
            let item = owner.need(place, OWNER, key)?;
            let t = item.table(place, key)?;
            t.only(place, key, &names)?;
            let one = |name: &str| -> Result<f64, SpecError> {
                let item = t.need(place, key, name)?;
                match item.number(place, name)? {
                    x if x >= 0.0 => Ok(x),
                    _ => Err(item.expected(place, name, "a number that is not negative")),
                }
            };
            Ok((one(names[0])?, one(names[1])?))
        };
        let pair = |key: &str, owner: &Table| figures(key, owner, ["rel_frobenius", "worst_row"]);
        let base = match (table.get("honest"), table.get("given")) {
            (Some(honest), None) => {
                let t = honest.table(place, "honest")?;
                t.only(place, "honest", &["kernel", "p", "fold"])?;
                let kernel = t.need(place, "honest", "kernel")?;
                if kernel.text(place, "kernel")? != "attention" {
                    return Err(kernel.expected(
                        place,
                        "kernel",
                        "\"attention\", the only honest kernel that is emulated",
                    ));
                }
                let p = t.need(place, "honest", "p")?;
                let fold = t.need(place, "honest", "fold")?.within(place, "fold", 1, 1 << 20)? as u32;
                Base::HonestAttention { p: self.word(p.text(place, "p")?, p.line)?, fold }
            }
            (None, Some(_)) => {
                let (rel_frobenius, worst_row) = pair("given", table)?;
                Base::Given { rel_frobenius, worst_row }
            }
            _ => {
                return Err(place
                    .error(item.line, "[tolerance] has either `honest` (a kernel to emulate) or `given` (figures)"));
            }
        };
        let (factor_rel_frobenius, factor_worst_row) = pair("factor", table)?;
        let (floor_rel_frobenius, floor_worst_row) = pair("floor", table)?;
        let (log_floor_rms, log_floor_worst) = match table.get("log_floor") {
            Some(_) => figures("log_floor", table, ["rms", "worst"])?,
            None => (0.005, 0.03),
        };
        Ok(Tolerance {
            base,
            factor_rel_frobenius,
            factor_worst_row,
            floor_rel_frobenius,
            floor_worst_row,
            log_floor_rms,
            log_floor_worst,
        })
    }

    fn thresholds(&self) -> Result<Thresholds, SpecError> {
        let place = &self.place;
        let usual = Thresholds { excellent: 2.0, good: 1.5, modest: 1.1, parity: 0.9 };
        let Some(item) = self.root.get("verdict") else { return Ok(usual) };
        let table = item.table(place, "verdict")?;
        table.only(place, "[verdict]", &["excellent", "good", "modest", "parity"])?;
        let one = |name: &str, default: f64| table.get(name).map_or(Ok(default), |i| i.number(place, name));
        let t = Thresholds {
            excellent: one("excellent", usual.excellent)?,
            good: one("good", usual.good)?,
            modest: one("modest", usual.modest)?,
            parity: one("parity", usual.parity)?,
        };
        if t.excellent > t.good && t.good > t.modest && t.modest > t.parity && t.parity > 0.0 {
            return Ok(t);
        }
        Err(place.error(item.line, "[verdict] has to fall: excellent > good > modest > parity > 0"))
    }

    fn baselines(&self) -> Result<Vec<String>, SpecError> {
        let Some(item) = self.root.get("baselines") else { return Ok(Vec::new()) };
        Ok(item.texts(&self.place, "baselines")?.into_iter().map(|(name, _)| name.to_string()).collect())
    }

    fn quantiser(&self) -> Result<Quantiser, SpecError> {
        let place = &self.place;
        let mut quantiser = Quantiser { zero_threshold: 1e-6, block_tokens: 128 };
        let Some(item) = self.root.get("quantiser") else { return Ok(quantiser) };
        let table = item.table(place, "quantiser")?;
        table.only(place, "[quantiser]", &["zero_threshold", "block_tokens"])?;
        if let Some(item) = table.get("zero_threshold") {
            quantiser.zero_threshold = item.number(place, "zero_threshold")?;
        }
        if let Some(item) = table.get("block_tokens") {
            quantiser.block_tokens = item.within(place, "block_tokens", 1, 1 << 20)? as u32;
        }
        Ok(quantiser)
    }

    fn accept(&self) -> Result<Vec<Criterion>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("accept") else { return Ok(Vec::new()) };
        let table = item.table(place, "accept")?;
        table.only(place, "[accept]", &["criteria"])?;
        table
            .need(place, "[accept]", "criteria")?
            .texts(place, "criteria")?
            .into_iter()
            .map(|(text, line)| {
                accept::Criterion::parse(text).map_err(|e| SpecError { code: place.code, ..e }.at(&place.file, line))
            })
            .collect()
    }
}

/// `[budget]` of a task or a candidate.
pub(crate) fn budget(place: &Place, item: &Item) -> Result<Budget, SpecError> {
    let table = item.table(place, "budget")?;
    table.only(place, "[budget]", &["registers", "shared_bytes", "spill_bytes"])?;
    let one = |key: &str, low: i64, high: i64| -> Result<Option<i64>, SpecError> {
        table.get(key).map(|i| i.within(place, key, low, high)).transpose()
    };
    Ok(Budget {
        registers: one("registers", 1, 255)?.map(|n| n as u32),
        shared_bytes: one("shared_bytes", 0, 1 << 30)?.map(|n| n as u64),
        spill_bytes: one("spill_bytes", 0, 1 << 30)?.map(|n| n as u64),
    })
}

/// A whole number or a formula.
pub(crate) fn formula(place: &Place, item: &Item, name: &str, known: &BTreeSet<String>) -> Result<Formula, SpecError> {
    match &item.value {
        Value::Integer(n) => Ok(Formula::constant(*n, item.line)),
        Value::Text(text) => {
            Formula::parse(text, item.line, known).map_err(|e| e.at(place, item.line, name, text, known))
        }
        _ => Err(item.expected(place, name, "a whole number or a formula in quotes")),
    }
}

/// An array of them; it may be empty (the shape of a single number).
pub(crate) fn formulas(
    place: &Place,
    item: &Item,
    name: &str,
    known: &BTreeSet<String>,
) -> Result<Vec<Formula>, SpecError> {
    const MAX_DIMENSIONS: usize = 8;
    let items = item.array(place, name)?;
    if items.len() > MAX_DIMENSIONS {
        return Err(
            place.error(item.line, format!("`{name}` has {} dimensions; there can be {MAX_DIMENSIONS}", items.len()))
        );
    }
    items.iter().map(|i| self::formula(place, i, name, known)).collect()
}
