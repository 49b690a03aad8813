//! Compiles CUDA sources for a target and prints what gate 1 knows of each entry.
//!
//! ```text
//! cargo run -p warpsmith-compile --example compile -- CACHE_DIR 13 sm_89 [-DNAME=VALUE] [-HFOLDER] FILE.cu...
//! ```
//!
//! `-HFOLDER` holds headers that are included as if they were built in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpsmith_compile::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let first = args.next().ok_or("expected CACHE_DIR LINE TARGET FILE...")?;
    if first == CHILD_ARG {
        child_main();
    }
    let cache_dir = PathBuf::from(first);
    let line = args.next().as_deref().and_then(Line::parse).ok_or("expected LINE (13 or 12) TARGET FILE...")?;
    let target = args.next().ok_or("expected TARGET FILE...")?;
    let child = ChildCommand::this_program()?;
    let need = Need::of(std::slice::from_ref(&target), []);
    let search =
        Search { explicit: None, cache_dir: cache_dir.clone(), line, allow_fetch: true, need, child: child.clone() };
    let toolkit = find_or_fetch(&search, &mut |event| eprintln!("{event:?}"))?;
    println!("{} from {} ({})", toolkit.id, toolkit.origin, toolkit.root.display());
    let compiler = Compiler::new(toolkit, ArtifactCache::new(cache_dir.join("artifacts")), Limits::default(), child);
    let (mut defines, mut headers) = (Vec::new(), BTreeMap::new());
    for file in args {
        if let Some((name, value)) = file.strip_prefix("-D").and_then(|d| d.split_once('=')) {
            defines.push((name.to_owned(), value.to_owned()));
            continue;
        }
        if let Some(folder) = file.strip_prefix("-H") {
            read_headers(Path::new(folder), "", &mut headers)?;
            continue;
        }
        let path = PathBuf::from(&file);
        let request = Request {
            name: path.file_name().and_then(|n| n.to_str()).ok_or("a file has no name")?.to_owned(),
            source: std::fs::read_to_string(&path)?,
            include_root: path.parent().map(Into::into),
            builtin_headers: Arc::new(headers.clone()),
            defines: defines.clone(),
            options: CompileOptions::default(),
            entries: Vec::new(),
            target: target.clone(),
            build: BuildKind::Release,
        };
        let start = std::time::Instant::now();
        match compiler.compile(&request)? {
            Ok(artifact) => {
                println!(
                    "{file}: PTX {} bytes, {}, {:?}",
                    artifact.ptx.len(),
                    &artifact.ptx_sha256[..12],
                    start.elapsed()
                );
                for e in &artifact.entries {
                    println!(
                        "  {}: {} registers, {} B shared, {} B stack, {}+{} B spilled, {:?}, parameters {:?}",
                        e.lowered,
                        e.registers,
                        e.shared_bytes,
                        e.stack_bytes,
                        e.spill_store_bytes,
                        e.spill_load_bytes,
                        e.tensor_ops,
                        e.params
                    );
                }
                artifact.warnings.iter().for_each(|w| println!("  {:?}: {w}", w.kind));
            }
            Err(failure) => println!("{file}: {}: {}", failure.kind(), failure.diagnostic()),
        }
    }
    Ok(())
}

fn read_headers(folder: &Path, below: &str, into: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = format!("{below}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            read_headers(&path, &format!("{name}/"), into)?;
        } else {
            into.insert(name, std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
