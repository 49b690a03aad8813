//! `[buffers.*]`, `[workspace.*]` and `[tensor_maps.*]` of a launch file.

use super::parse::{MAX_EACH, Reader};
use super::scalars::{dtype, range};
use super::*;
use crate::document::{Item, Table};
use crate::error::{SpecCode, SpecError};
use crate::tensor_map::Modes;
use std::path::{Component, Path};

const MAX_RANK: usize = 8;
const FILLS: [&str; 5] = ["normal", "uniform", "arange", "zeros", "poison"];

impl Reader<'_> {
    pub(super) fn buffers(&mut self) -> Result<Vec<BufferDecl>, SpecError> {
        let place = self.place.clone();
        let Some(item) = self.root.get("buffers") else { return Ok(Vec::new()) };
        let mut found: Vec<BufferDecl> = Vec::new();
        for (name, line, item) in &item.table(&place, "buffers")?.entries {
            self.take(name, *line, "buffer")?;
            if found.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} buffers")));
            }
            let buffer = self.buffer(name, *line, item)?;
            self.allocate(buffer.bytes(), &format!("[buffers.{name}]"), *line)?;
            if let Some(other) = found.iter().find(|b| b.out.is_some() && b.out == buffer.out) {
                return Err(place.error(*line, format!("`{name}` and `{}` have the same `out`", other.name)));
            }
            found.push(buffer);
        }
        Ok(found)
    }

    fn buffer(&self, name: &str, line: u32, item: &Item) -> Result<BufferDecl, SpecError> {
        let place = &self.place;
        let owner = format!("[buffers.{name}]");
        let table = item.table(place, &owner)?;
        let keys = ["dtype", "shape", "from", "seed", "low", "high", "out", "expect", "rtol", "atol"];
        table.only(place, &owner, &keys)?;
        let (dtype, shape) = self.tensor(table, &owner)?;
        let from = self.from(table, dtype, &owner)?;
        let out = match table.get("out") {
            None => None,
            Some(item) => {
                let text = item.text(place, "out")?;
                if !is_out(text) {
                    return Err(item.expected(place, "out", "a file's name under the run's folder, such as \"y.npy\""));
                }
                Some(text.to_string())
            }
        };
        let expect = self.expect(table, dtype, &owner)?;
        let from_line = table.get("from").map_or(item.line, |i| i.line);
        Ok(BufferDecl { name: name.to_string(), dtype, shape, from, out, expect, line, from_line })
    }

    /// Element type and sizes.
    fn tensor(&self, table: &Table, owner: &str) -> Result<(DType, Vec<u64>), SpecError> {
        let place = &self.place;
        let word = table.need(place, owner, "dtype")?;
        let dtype = dtype(word.text(place, "dtype")?).map_err(|e| e.at(&place.file, word.line))?;
        let item = table.need(place, owner, "shape")?;
        let shape = self.sizes(item, &format!("shape of {owner}"), MAX_BYTES)?;
        let bytes = shape.iter().fold(dtype.bytes(), |n, s| n.saturating_mul(*s));
        if bytes > MAX_BYTES {
            let message = format!("{owner} has {bytes} bytes; the limit is {MAX_BYTES} for all buffers together");
            return Err(place.error(item.line, message));
        }
        Ok((dtype, shape))
    }

    fn sizes(&self, item: &Item, name: &str, most: u64) -> Result<Vec<u64>, SpecError> {
        let items = item
            .array(&self.place, name)
            .map_err(|_| item.expected(&self.place, name, "an array of whole numbers or formulas"))?;
        if items.len() > MAX_RANK {
            let message = format!("`{name}` has {} dimensions; there can be {MAX_RANK}", items.len());
            return Err(self.place.error(item.line, message));
        }
        items.iter().map(|i| self.size(i, name, 1, most, SpecCode::LaunchSyntax)).collect()
    }

    fn from(&self, table: &Table, dtype: DType, owner: &str) -> Result<From, SpecError> {
        let place = &self.place;
        let seed = match table.get("seed") {
            None => 0,
            Some(item) => item.within(place, "seed", 0, i64::MAX)? as u64,
        };
        let bound = |key: &str, default: f64| table.get(key).map_or(Ok(default), |i| i.number(place, key));
        let word = match table.get("from") {
            None => "poison",
            Some(item) => item.text(place, "from")?,
        };
        if word != "uniform"
            && let Some(item) = table.get("low").or(table.get("high"))
        {
            return Err(place.error(item.line, format!("`low` and `high` of {owner} go with `from = \"uniform\"`")));
        }
        let line = table.get("from").map_or(table.line, |i| i.line);
        Ok(match word {
            "normal" if !dtype.is_float() => {
                let message = format!("{owner} holds whole numbers, which are not drawn as `normal`");
                return Err(place.error(line, message).hint("`uniform` with `low` and `high` draws whole numbers"));
            }
            "normal" => From::Normal { seed },
            "uniform" => {
                let whole = !dtype.is_float();
                let most = if whole { (range(dtype).1 as f64 + 1.0).min(256.0) } else { 1.0 };
                let (low, high) = (bound("low", 0.0)?, bound("high", most)?);
                let fits = !whole || (low >= range(dtype).0 as f64 && high <= range(dtype).1 as f64 + 1.0);
                if low >= high || !fits || (whole && low.ceil() >= high) {
                    let message = format!("{owner} draws {dtype} from {low} to below {high}, where there is none");
                    return Err(place.error(line, message));
                }
                From::Uniform { seed, low, high }
            }
            "arange" => From::Arange,
            "zeros" => From::Zeros,
            "poison" => From::Poison,
            file if file.ends_with(".npy") => From::File(file.to_string()),
            other => {
                let mut e = self.no_such(line, "there is no way to fill a buffer called", other, &FILLS);
                e.hint = Some(format!("`from` is a file (.npy), or one of {}", FILLS.join(", ")));
                return Err(e);
            }
        })
    }

    fn expect(&self, table: &Table, dtype: DType, owner: &str) -> Result<Option<Expect>, SpecError> {
        let place = &self.place;
        let tolerance = |key: &str, default: f64| -> Result<f64, SpecError> {
            let Some(item) = table.get(key) else { return Ok(default) };
            match item.number(place, key)? {
                x if x >= 0.0 => Ok(x),
                _ => Err(item.expected(place, key, "a number that is not negative")),
            }
        };
        let (rtol, atol) = Expect::tolerance(dtype);
        let (rtol, atol) = (tolerance("rtol", rtol)?, tolerance("atol", atol)?);
        match table.get("expect") {
            None => match table.get("rtol").or(table.get("atol")) {
                None => Ok(None),
                Some(item) => Err(place.error(item.line, format!("{owner} has a tolerance, but no `expect`"))),
            },
            Some(item) => {
                let file = item.text(place, "expect")?;
                if !file.ends_with(".npy") {
                    return Err(item.expected(place, "expect", "a file of NumPy's such as \"y_ref.npy\""));
                }
                Ok(Some(Expect { file: file.to_string(), line: item.line, rtol, atol }))
            }
        }
    }

    pub(super) fn workspaces(&mut self) -> Result<Vec<ResolvedWorkspace>, SpecError> {
        let place = self.place.clone();
        let Some(item) = self.root.get("workspace") else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, line, item) in &item.table(&place, "workspace")?.entries {
            self.take(name, *line, "workspace")?;
            if found.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} workspaces")));
            }
            let owner = format!("[workspace.{name}]");
            let table = item.table(&place, &owner)?;
            table.only(&place, &owner, &["dtype", "shape", "init"])?;
            let (dtype, shape) = self.tensor(table, &owner)?;
            let zeroed = match table.get("init") {
                None => false,
                Some(item) => match item.text(&place, "init")? {
                    "zero" | "zeros" => true,
                    "poison" => false,
                    _ => return Err(item.expected(&place, "init", "\"zero\" or \"poison\"")),
                },
            };
            let bytes = shape.iter().product::<u64>() * dtype.bytes();
            self.allocate(bytes, &owner, *line)?;
            found.push(ResolvedWorkspace { name: name.clone(), dtype, shape, bytes, zeroed });
        }
        Ok(found)
    }

    pub(super) fn tensor_maps(
        &mut self,
        buffers: &[BufferDecl],
        workspaces: &[ResolvedWorkspace],
    ) -> Result<Vec<ResolvedTensorMap>, SpecError> {
        let place = self.place.clone();
        let Some(item) = self.root.get("tensor_maps") else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, line, item) in &item.table(&place, "tensor_maps")?.entries {
            self.take(name, *line, "tensor map")?;
            if found.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} tensor maps")));
            }
            found.push(self.tensor_map(name, item, buffers, workspaces)?);
        }
        Ok(found)
    }

    fn tensor_map(
        &self,
        name: &str,
        item: &Item,
        buffers: &[BufferDecl],
        workspaces: &[ResolvedWorkspace],
    ) -> Result<ResolvedTensorMap, SpecError> {
        let place = &self.place;
        let owner = format!("[tensor_maps.{name}]");
        let table = item.table(place, &owner)?;
        let keys =
            ["tensor", "box", "dims", "strides", "element_strides", "swizzle", "interleave", "fill", "l2_promotion"];
        table.only(place, &owner, &keys)?;
        let of = table.need(place, &owner, "tensor")?;
        let tensor = of.text(place, "tensor")?;
        let all = || {
            let own = buffers.iter().map(|b| (b.name.as_str(), b.dtype, &b.shape));
            own.chain(workspaces.iter().map(|w| (w.name.as_str(), w.dtype, &w.shape)))
        };
        let Some((_, dtype, shape)) = all().find(|(n, ..)| *n == tensor) else {
            let names: Vec<&str> = all().map(|(n, ..)| n).collect();
            return Err(self.no_such(of.line, &format!("{owner} maps no buffer of this file:"), tensor, &names));
        };
        let sizes = |key: &str, most: u64| -> Result<Option<Vec<u64>>, SpecError> {
            table.get(key).map(|i| self.sizes(i, &format!("{key} of {owner}"), most)).transpose()
        };
        let modes = Modes::of(table, place)?;
        let small = |found: Vec<u64>| found.into_iter().map(|n| n as u32).collect::<Vec<u32>>();
        let box_sizes = small(self.sizes(table.need(place, &owner, "box")?, &format!("box of {owner}"), 256)?);
        let dims = sizes("dims", 1 << 32)?.unwrap_or_else(|| shape.iter().rev().copied().collect());
        let contiguous = || {
            let rows = dims.iter().take(dims.len().saturating_sub(1));
            rows.scan(dtype.bytes(), |at, d| {
                *at = at.saturating_mul(*d);
                Some(*at)
            })
            .collect()
        };
        let strides = sizes("strides", 1 << 40)?.unwrap_or_else(contiguous);
        let element_strides = small(sizes("element_strides", 8)?.unwrap_or_else(|| vec![1; dims.len()]));
        let rank = dims.len();
        let fits = box_sizes.len() == rank && element_strides.len() == rank && strides.len() + 1 == rank;
        if !fits || rank > 5 {
            let message = format!(
                "{owner} has {rank} dimensions (from 1 to 5), but {} sizes of the box, {} strides and {} element strides",
                box_sizes.len(),
                strides.len(),
                element_strides.len()
            );
            return Err(place.error(item.line, message));
        }
        Ok(ResolvedTensorMap {
            name: name.to_string(),
            tensor: tensor.to_string(),
            dtype,
            dims,
            strides,
            box_sizes,
            element_strides,
            swizzle: modes.swizzle.into(),
            interleave: modes.interleave.into(),
            fill: modes.fill.into(),
            l2_promotion: modes.l2_promotion.into(),
        })
    }
}

/// A path that stays under the run's folder and is none of the run's own files.
fn is_out(text: &str) -> bool {
    let parts: Vec<Component> = Path::new(text).components().collect();
    let inside = !parts.is_empty() && parts.iter().all(|p| matches!(p, Component::Normal(_)));
    inside && text.ends_with(".npy") && text.len() <= 200 && !text.contains(['\\', ':', '\0'])
}
