//! ncu's CSV: the raw page in both of its forms, and the source page.
//!
//! Raw: one row for each metric (columns `Metric Name`, `Metric Unit`, `Metric Value`), as a run with `--csv` prints it, or one row
//! for each launch with a column for each metric and a row of units below the head, as `--page raw` prints it. Source: rows of lines
//! (`Line No`, under a row `File Name`) or of instructions (`Address`, under a row `Kernel Name`). What ncu or the program print before or
//! between is passed over. Numbers may have marks of thousands, of either kind: `1,205.00`, `27.595.520`, `65,77`.
//! Sources: Nsight Compute's CLI documentation, and CSV that people published (2022 to 2025). Limits: [`MAX_BYTES`], [`MAX_LAUNCHES`].

use super::cubin_lines::Chain;
use std::collections::BTreeMap;
use warpsmith_spec::record::SampleRecord;

/// Bytes of CSV that are read.
pub const MAX_BYTES: usize = 64 << 20;
/// Launches of one report that are read.
pub const MAX_LAUNCHES: usize = 1000;
/// Places that are kept of a page.
const MAX_SAMPLES: usize = 800;

/// One launch as ncu saw it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launched {
    pub id: String,
    pub kernel: String,
    pub grid: String,
    pub block: String,
    /// Compute capability: `9.0`.
    pub capability: String,
    /// Metric -> value and unit.
    pub values: BTreeMap<String, (f64, String)>,
}

/// Why a text is no page of ncu's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    #[error("it has {0} bytes; at most {MAX_BYTES} are read")]
    TooLarge(usize),
    #[error("it has no head row of ncu's ({0})")]
    NoHead(&'static str),
    #[error("it holds no launch: nothing was profiled")]
    Empty,
}

/// All rows that CSV readers can make of a text, whatever lies between them.
fn rows(text: &str) -> Result<Vec<Vec<String>>, CsvError> {
    if text.len() > MAX_BYTES {
        return Err(CsvError::TooLarge(text.len()));
    }
    // Lines of the program and of the tool itself (`==PROF== ...`) are no rows.
    let quoted: String = text
        .trim_start_matches('\u{feff}')
        .lines()
        .filter(|l| !l.starts_with("==") && l.contains(','))
        .flat_map(|l| [l, "\n"])
        .collect();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(quoted.as_bytes());
    Ok(reader.records().map_while(Result::ok).map(|r| r.iter().map(|c| c.trim().to_string()).collect()).collect())
}

/// The launches of a raw page, in the order of their ids.
pub fn raw(text: &str) -> Result<Vec<Launched>, CsvError> {
    let rows = rows(text)?;
    let head = rows
        .iter()
        .position(|r| r.first().is_some_and(|c| c == "ID") && r.iter().any(|c| c == "Kernel Name"))
        .ok_or(CsvError::NoHead("\"ID\",...,\"Kernel Name\""))?;
    let columns: BTreeMap<&str, usize> = rows[head].iter().enumerate().map(|(i, c)| (c.as_str(), i)).rev().collect();
    let cell = |row: &[String], name: &str| columns.get(name).and_then(|i| row.get(*i)).cloned().unwrap_or_default();
    let body = &rows[head + 1..];
    // Only values tell: a host may be called 127.0.0.1.
    let values: Vec<usize> = match columns.get("Metric Value") {
        Some(at) => vec![*at],
        None => columns.iter().filter(|(name, _)| name.contains("__")).map(|(_, at)| *at).collect(),
    };
    let style = Style::of(body.iter().flat_map(|row| values.iter().filter_map(|at| row.get(*at))));
    let mut launches: Vec<Launched> = Vec::new();
    let named = |row: &[String]| Launched {
        id: cell(row, "ID"),
        kernel: cell(row, "Kernel Name"),
        grid: cell(row, "Grid Size"),
        block: cell(row, "Block Size"),
        capability: cell(row, "CC"),
        values: BTreeMap::new(),
    };
    if columns.contains_key("Metric Name") {
        for row in body.iter().filter(|r| !r.is_empty() && r[0].parse::<u64>().is_ok()) {
            let id = cell(row, "ID");
            let at = match launches.iter().rposition(|l| l.id == id) {
                Some(at) => at,
                None if launches.len() < MAX_LAUNCHES => {
                    launches.push(named(row));
                    launches.len() - 1
                }
                None => continue,
            };
            if let Some(value) = style.number(&cell(row, "Metric Value")) {
                launches[at].values.insert(cell(row, "Metric Name"), (value, cell(row, "Metric Unit")));
            }
        }
    } else {
        // The row below the head holds units, and no id.
        let units = body.first().filter(|r| r.first().is_some_and(String::is_empty));
        for row in body.iter().filter(|r| r.first().is_some_and(|id| id.parse::<u64>().is_ok())).take(MAX_LAUNCHES) {
            let mut launch = named(row);
            for (name, at) in columns.iter().filter(|(name, _)| name.contains("__")) {
                if let Some(value) = row.get(*at).and_then(|c| style.number(c)) {
                    let unit = units.and_then(|u| u.get(*at)).cloned().unwrap_or_default();
                    launch.values.insert((*name).to_string(), (value, unit));
                }
            }
            launches.push(launch);
        }
    }
    if launches.is_empty() { Err(CsvError::Empty) } else { Ok(launches) }
}

/// Which character parts thousands, and which begins a fraction.
#[derive(Clone, Copy)]
struct Style {
    comma_is_decimal: bool,
}

impl Style {
    /// A comma is a decimal mark where any number of the file can only be read so.
    fn of<'a>(cells: impl Iterator<Item = &'a String>) -> Style {
        let decimal = |cell: &&String| {
            let number = !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || ",.-".contains(c));
            let (comma, dot) = (cell.rfind(','), cell.rfind('.'));
            number
                && match (comma, dot) {
                    (Some(c), Some(d)) => c > d,
                    (Some(c), None) => cell.matches(',').count() == 1 && cell.len() - c - 1 != 3,
                    (None, Some(_)) => cell.matches('.').count() > 1,
                    (None, None) => false,
                }
        };
        Style { comma_is_decimal: cells.filter(decimal).count() > 0 }
    }

    fn number(self, cell: &str) -> Option<f64> {
        let plain: String = if self.comma_is_decimal {
            cell.chars().filter(|c| *c != '.').map(|c| if c == ',' { '.' } else { c }).collect()
        } else {
            cell.chars().filter(|c| *c != ',').collect()
        };
        plain.trim().parse::<f64>().ok().filter(|x| x.is_finite())
    }
}

/// The samples of a source page: by line where the page has lines; else by instruction, whose `lines` are given by their distance from the
/// kernel's first one, the innermost place first.
pub fn samples(text: &str, lines: &dyn Fn(&str, u64) -> Option<Chain>) -> Result<Vec<SampleRecord>, CsvError> {
    const ALL: &str = "Warp Stall Sampling (All Samples)";
    let rows = rows(text)?;
    let mut found: BTreeMap<Chain, SampleRecord> = BTreeMap::new();
    let (mut file, mut kernel, mut first) = (None, String::new(), None);
    let mut columns: BTreeMap<String, usize> = BTreeMap::new();
    let mut heads = 0;
    for row in &rows {
        let Some(begin) = row.first() else { continue };
        match begin.as_str() {
            "File Name" | "File Path" => file = row.get(1).map(|f| base(f)),
            "Kernel Name" | "Function Name" if row.len() <= 3 || !row.iter().any(|c| c == ALL) => {
                kernel = row.get(1).cloned().unwrap_or_default();
                first = None;
            }
            _ if row.iter().any(|c| c == ALL || c == "# Samples") => {
                columns = row.iter().enumerate().rev().map(|(i, c)| (c.clone(), i)).collect();
                heads += 1;
            }
            _ => {
                let cell = |name: &str| columns.get(name).and_then(|i| row.get(*i)).map(String::as_str);
                let number = |name: &str| cell(name).and_then(|c| c.replace([',', '.'], "").parse::<u64>().ok());
                let Some(count) = number(ALL).or_else(|| number("# Samples")) else { continue };
                let place = match (cell("Line No").and_then(|l| l.parse::<u32>().ok()), cell("Address")) {
                    (Some(line), _) => vec![(file.clone().unwrap_or_default(), line)],
                    (None, Some(address)) => {
                        let Some(address) = hexadecimal(address) else { continue };
                        let start = *first.get_or_insert(address);
                        let chain = lines(&kernel, address.saturating_sub(start)).unwrap_or_default();
                        chain.into_iter().map(|(file, line)| (base(&file), line)).collect()
                    }
                    _ => continue,
                };
                if count == 0 {
                    continue;
                }
                let entry = found.entry(place).or_insert_with_key(|place| SampleRecord {
                    file: place.first().map(|p| p.0.clone()).filter(|f| !f.is_empty()),
                    line: place.first().map(|p| p.1),
                    via: place.iter().skip(1).cloned().collect(),
                    ..SampleRecord::default()
                });
                entry.samples += count;
                for (name, _) in columns.iter().filter(|(n, _)| n.starts_with("stall_") && !n.contains("Not Issued")) {
                    let n = number(name).unwrap_or(0);
                    let reason = name.trim_start_matches("stall_").to_string();
                    match entry.stalls.iter_mut().find(|(r, _)| *r == reason) {
                        Some((_, sum)) => *sum += n,
                        None if n > 0 => entry.stalls.push((reason, n)),
                        None => {}
                    }
                }
            }
        }
    }
    if heads == 0 {
        return Err(CsvError::NoHead("\"Warp Stall Sampling (All Samples)\""));
    }
    let mut found: Vec<SampleRecord> = found.into_values().collect();
    for f in &mut found {
        f.stalls.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        f.stalls.truncate(5);
    }
    found.sort_by_key(|s| std::cmp::Reverse(s.samples));
    found.truncate(MAX_SAMPLES);
    Ok(found)
}

/// The opcodes of each kernel of a source page that lists instructions; a kernel that was launched more than once counts once.
pub fn opcodes(text: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let (mut kernel, mut first_time) = (String::new(), false);
    let (mut address, mut source) = (None, None);
    for row in &rows(text).unwrap_or_default() {
        match row.first().map(String::as_str) {
            Some("Kernel Name" | "Function Name") if row.len() <= 3 => {
                kernel = row.get(1).cloned().unwrap_or_default();
                first_time = !found.contains_key(&kernel);
                (address, source) = (None, None);
            }
            _ if row.iter().any(|c| c == "Address") && row.iter().any(|c| c == "Source") => {
                address = row.iter().position(|c| c == "Address");
                source = row.iter().position(|c| c == "Source");
            }
            _ => {
                let cell = |at: Option<usize>| at.and_then(|at| row.get(at)).map(String::as_str);
                if !first_time || cell(address).and_then(hexadecimal).is_none() {
                    continue;
                }
                let word = cell(source).unwrap_or("").split_whitespace().find(|w| !w.starts_with('@')).unwrap_or("");
                let opcode = word.trim_end_matches(';');
                if opcode.starts_with(|c: char| c.is_ascii_uppercase()) {
                    *found.entry(kernel.clone()).or_default().entry(opcode.to_string()).or_default() += 1;
                }
            }
        }
    }
    found
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn base(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC""#;

    #[test]
    fn both_forms_of_the_raw_page_are_read() {
        let long = format!(
            "==PROF== Connected to process 7\nhello, I am the program\n{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
             \"0\",\"7\",\"w\",\"h\",\"k(int, float *)\",\"1\",\"7\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"0\",\"9.0\",\"Command line profiler metrics\",\"a__b.sum\",\"byte\",\"27,595,520\"\n\
             \"0\",\"7\",\"w\",\"h\",\"k(int, float *)\",\"1\",\"7\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"0\",\"9.0\",\"Command line profiler metrics\",\"c__d.pct\",\"%\",\"65.77\"\n\
             \"1\",\"7\",\"w\",\"h\",\"k(int, float *)\",\"1\",\"7\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"0\",\"9.0\",\"Command line profiler metrics\",\"c__d.pct\",\"\",\"n/a\"\n\
             ==PROF== Disconnected from process 7\n"
        );
        let wide = format!(
            "{HEAD},\"a__b.sum\",\"c__d.pct\"\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"byte\",\"%\"\n\
             \"0\",\"7\",\"w\",\"h\",\"k(int, float *)\",\"1\",\"7\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"0\",\"9.0\",\"27,595,520\",\"65.77\"\n"
        );
        for text in [long.as_str(), wide.as_str()] {
            let launches = raw(text).unwrap();
            let l = &launches[0];
            assert_eq!(
                (l.kernel.as_str(), l.grid.as_str(), l.capability.as_str()),
                ("k(int, float *)", "(64, 1, 1)", "9.0")
            );
            assert_eq!(l.values["a__b.sum"], (27_595_520.0, "byte".into()), "{text}");
            assert_eq!(l.values["c__d.pct"], (65.77, "%".into()));
        }
        assert!(raw(&long).unwrap()[1].values.is_empty(), "n/a is no number");
    }

    #[test]
    fn marks_of_thousands_follow_the_whole_file() {
        for (cells, want) in [
            (&["27.595.520", "65,77", "117.344"][..], &[27_595_520.0, 65.77, 117_344.0][..]),
            (&["27,595,520", "65.77", "1,205.00"], &[27_595_520.0, 65.77, 1205.0]),
            (&["12", "117.344"], &[12.0, 117.344]),
            (&["-", "1,234"], &[1234.0]),
        ] {
            let cells: Vec<String> = cells.iter().map(|c| (*c).to_string()).collect();
            let style = Style::of(cells.iter());
            let got: Vec<f64> = cells.iter().filter_map(|c| style.number(c)).collect();
            assert_eq!(got, want, "{cells:?}");
        }
    }

    #[test]
    fn a_page_of_an_h200_is_read_as_ncu_wrote_it() {
        let launches = raw(include_str!("../../tests/fixtures/h200_level_07_raw.csv")).unwrap();
        let l = &launches[0];
        assert_eq!(
            (l.kernel.as_str(), l.grid.as_str(), l.capability.as_str()),
            ("fp8_sdpa_level_07", "(8, 8, 1)", "9.0")
        );
        for (metric, value, unit) in [
            ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 17.30, "%"),
            ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1.46, "%"),
            ("smsp__inst_executed.sum", 1_477_376.0, "inst"),
            ("dram__bytes.sum", 808_448.0, "byte"),
            ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", 1.15, "inst"),
        ] {
            assert_eq!(l.values.get(metric), Some(&(value, unit.to_string())), "{metric}");
        }
    }

    #[test]
    fn what_is_none_of_ncus_pages_is_told() {
        assert_eq!(raw("a,b\n1,2\n"), Err(CsvError::NoHead("\"ID\",...,\"Kernel Name\"")));
        assert_eq!(raw(&format!("{HEAD}\n")), Err(CsvError::Empty));
        assert!(raw("").is_err() && samples("", &|_, _| None).is_err());
    }

    #[test]
    fn samples_by_line_and_by_instruction() {
        let head =
            "\"Warp Stall Sampling (All Samples)\",\"stall_barrier\",\"stall_long_sb\",\"stall_barrier (Not Issued)\"";
        let by_line = format!(
            "\"File Name\",\"/somewhere/k.cu\"\n\"Line No\",\"Source\",{head}\n\"12\",\"x = a, b;\",\"30\",\"20\",\"10\",\"5\"\n\"13\",\"\",\"0\",\"0\",\"0\",\"0\"\n\"14\",\"\",\"-\",\"\",\"\",\"\"\n"
        );
        let got = samples(&by_line, &|_, _| None).unwrap();
        assert_eq!((got.len(), got[0].file.as_deref(), got[0].line, got[0].samples), (1, Some("k.cu"), Some(12), 30));
        assert_eq!(got[0].stalls, [("barrier".to_string(), 20), ("long_sb".to_string(), 10)]);
        let by_address = format!(
            "\"Kernel Name\",\"k\",\"more\"\n\"Address\",\"Source\",{head}\n\"0x7f00\",\"MOV R1, R2\",\"4\",\"4\",\"0\",\"0\"\n\"0x7f10\",\"BAR.SYNC\",\"6\",\"6\",\"0\",\"0\"\n"
        );
        let mixes = opcodes(&by_address);
        assert_eq!(mixes["k"], [("MOV".to_string(), 1), ("BAR.SYNC".to_string(), 1)].into());
        let at =
            |kernel: &str, offset: u64| (kernel == "k").then(|| vec![("a/k.cu".to_string(), 20 + offset as u32 / 16)]);
        let got = samples(&by_address, &at).unwrap();
        let lines: Vec<_> = got.iter().map(|s| (s.line, s.samples)).collect();
        assert_eq!(lines, [(Some(21), 6), (Some(20), 4)]);
    }
}
