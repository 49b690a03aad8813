//! The mutants as files: for tools that judge a candidate on a device, one case a line of `cases.tsv`.
//!
//! Each file is its kernel with one edit, or without any, and says sm_90 as its only target, for the device that the table is taken on.

use super::{Mutant, read_table};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the files are compiled for.
const DEVICE: &str = "sm_90";
/// The columns of cases.tsv. `expect` is what the PTX machine has to find, `-` for a clean twin; `config`, `scales` and `dist` are `-` for the default.
const COLUMNS: &str = "name\tfile\tshape\tmask\tconfig\texpect\tscales\tdist";

/// Writes `NAME.cu` for each mutant and each clean twin, and `cases.tsv`.
///
/// # Errors
/// A mutant that does not fit its kernel, or a folder that cannot be written.
pub fn write(root: &Path, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let (mut lines, mut seen) = (vec![COLUMNS.to_string()], BTreeSet::new());
    for m in read_table(root)? {
        let source = super::source(root, &m.file)?;
        if seen.insert(m.conditions()) {
            let stem = Path::new(&m.file).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            let name = format!("clean-{}-{stem}", seen.len());
            put(&format!("{name}.cu"), &for_device(&source))?;
            lines.push(line(&m, &name, "-"));
        }
        put(&format!("{}.cu", m.name), &for_device(&m.apply(&source)?))?;
        lines.push(line(&m, &m.name, &m.expect.join(",")));
    }
    put("cases.tsv", &format!("{}\n", lines.join("\n")))?;
    println!("{}: {} cases", folder.display(), lines.len() - 1);
    Ok(())
}

fn line(m: &Mutant, name: &str, expect: &str) -> String {
    let [config, scales, dist] = [&m.config, &m.scales, &m.dist].map(|x| x.as_deref().unwrap_or("-"));
    [name, &format!("{name}.cu"), &m.shape(), &m.mask().to_string(), config, expect, scales, dist].join("\t")
}

/// The same kernel for one target.
fn for_device(source: &str) -> String {
    let line = |l: &str| {
        if l.starts_with("//! targets = ") { format!("//! targets = [\"{DEVICE}\"]\n") } else { format!("{l}\n") }
    };
    source.lines().map(line).collect()
}
