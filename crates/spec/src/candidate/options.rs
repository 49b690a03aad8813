//! `[compile]`: the compiler options that a candidate may set, listed ones only, each a value or the name of a lever.

use crate::document::{Place, Table, Value};
use crate::error::SpecError;
use crate::levers::{Lever, LeverValue, Setting};

/// An option as written.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    Number(i64),
    Switch(bool),
    Word(&'static str),
    /// Takes the value of that lever: a number, or 0 and 1 for a switch.
    Lever(String),
}

/// What an option can be, and how NVRTC spells it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Number { low: i64, high: i64 },
    Switch,
    Word(&'static [&'static str]),
}

/// (key, flag, kind)
const OPTIONS: [(&str, &str, Kind); 8] = [
    ("maxrregcount", "--maxrregcount", Kind::Number { low: 16, high: 255 }),
    ("fast_math", "--use_fast_math", Kind::Switch),
    ("ftz", "--ftz", Kind::Switch),
    ("prec_div", "--prec-div", Kind::Switch),
    ("prec_sqrt", "--prec-sqrt", Kind::Switch),
    ("fmad", "--fmad", Kind::Switch),
    ("restrict", "--restrict", Kind::Switch),
    ("std", "--std", Kind::Word(&["c++17", "c++20"])),
];

/// The options of a candidate, in the order of the table above.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompileOptions {
    pub options: Vec<(&'static str, OptionValue)>,
}

/// The options for one setting of the levers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct ResolvedOptions {
    pub maxrregcount: Option<u32>,
    /// NVRTC's flags in a fixed order, `--maxrregcount` among them: `["--use_fast_math", "--fmad=false"]`.
    pub flags: Vec<String>,
}

impl CompileOptions {
    pub(crate) fn parse(place: &Place, table: &Table, levers: &[Lever]) -> Result<CompileOptions, SpecError> {
        let keys: Vec<&str> = OPTIONS.iter().map(|(k, _, _)| *k).collect();
        table.only(place, "[compile]", &keys)?;
        let mut options = Vec::new();
        for (key, _, kind) in OPTIONS {
            let Some(item) = table.get(key) else { continue };
            let value = match (&item.value, kind) {
                (Value::Text(word), Kind::Word(known)) => match known.iter().find(|k| *k == word) {
                    Some(word) => OptionValue::Word(word),
                    None => return Err(item.expected(place, key, &format!("one of {}", known.join(", ")))),
                },
                (Value::Integer(_), Kind::Number { low, high }) => {
                    OptionValue::Number(item.within(place, key, low, high)?)
                }
                (Value::Bool(b), Kind::Switch) => OptionValue::Switch(*b),
                (Value::Text(name), Kind::Number { .. } | Kind::Switch) => {
                    let Some(lever) = levers.iter().find(|l| l.name == *name) else {
                        let names = levers.iter().map(|l| l.name.as_str());
                        return Err(place
                            .unknown(
                                item.line,
                                format!(
                                    "`{key}` of [compile] names `{}`, which is no lever",
                                    crate::error::shown(name)
                                ),
                            )
                            .hint(format!("levers: {}", crate::suggest::listed(names))));
                    };
                    for value in &lever.values {
                        let fits = match (value, kind) {
                            (LeverValue::Int(n), Kind::Number { low, high }) => (low..=high).contains(n),
                            (LeverValue::Int(n), _) => *n == 0 || *n == 1,
                            (LeverValue::Text(_), _) => false,
                        };
                        if !fits {
                            return Err(place.error(
                                item.line,
                                format!("`{key}` of [compile] cannot be {value}, a value of lever {name}"),
                            ));
                        }
                    }
                    OptionValue::Lever(name.clone())
                }
                (_, Kind::Number { low, high }) => {
                    return Err(item.expected(
                        place,
                        key,
                        &format!("a whole number from {low} to {high}, or a lever's name"),
                    ));
                }
                (_, Kind::Switch) => return Err(item.expected(place, key, "true, false, or a lever's name")),
                (_, Kind::Word(known)) => {
                    return Err(item.expected(place, key, &format!("one of {}", known.join(", "))));
                }
            };
            options.push((key, value));
        }
        Ok(CompileOptions { options })
    }

    /// The options for one setting of the levers.
    pub fn resolve(&self, setting: &Setting) -> ResolvedOptions {
        let mut resolved = ResolvedOptions::default();
        for (key, value) in &self.options {
            let Some((_, flag, kind)) = OPTIONS.iter().find(|(k, _, _)| k == key) else { continue };
            let number = match value {
                OptionValue::Number(n) => *n,
                OptionValue::Switch(b) => i64::from(*b),
                OptionValue::Lever(name) => match setting.levers.get(name) {
                    Some(LeverValue::Int(n)) => *n,
                    _ => continue,
                },
                OptionValue::Word(word) => {
                    resolved.flags.push(format!("{flag}={word}"));
                    continue;
                }
            };
            match kind {
                Kind::Number { .. } => {
                    resolved.maxrregcount = u32::try_from(number).ok();
                    resolved.flags.push(format!("{flag}={number}"));
                }
                // These two have no value: they are there or not.
                _ if matches!(*key, "fast_math" | "restrict") => {
                    if number != 0 {
                        resolved.flags.push(flag.to_string());
                    }
                }
                _ => resolved.flags.push(format!("{flag}={}", number != 0)),
            }
        }
        resolved
    }
}
