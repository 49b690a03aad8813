//! A job as the worker takes it: buffers by name, contents by hash, arguments as bytes.
//!
//! What the plan and the artifact alone show to be impossible is rejected here, in the words that the PTX machine's backend uses too.

use crate::backend::{Job, RunEnd};
use crate::finding::Code;
use std::collections::HashMap;
use warpsmith_cuda::worker::protocol::{Arg, Buffer, Fill, Launch, Run};
use warpsmith_cuda::worker::{Blobs, sha256};
use warpsmith_cuda::{DeviceInfo, TensorMapSpec};
use warpsmith_spec::plan::{Parameter, ResolvedArg, ResolvedLaunch, ResolvedTensorMap};
use warpsmith_spec::record::FindingRecord;

/// Poisons: all bits set, which is a NaN in every format, and one that differs from it in every byte.
const POISONS: [u8; 2] = [0xff, 0x7f];

/// A request and the blobs that it names.
pub(super) struct Prepared<'a> {
    pub run: Run,
    pub blobs: Blobs<'a>,
}

/// The request for a job, or the end that it comes to without being run.
pub(super) fn prepare<'a>(job: &Job<'a>, device: &DeviceInfo) -> Result<Prepared<'a>, Box<RunEnd>> {
    let image = image(job, device)?;
    let mut blobs: Blobs = HashMap::from([(sha256(image), image)]);
    let mut buffers = Vec::new();
    for tensor in job.inputs {
        let sha = sha256(&tensor.bytes);
        let fill = Fill::Contents(sha.clone());
        buffers.push(Buffer { name: tensor.name.clone(), bytes: tensor.bytes.len() as u64, fill });
        blobs.insert(sha, &tensor.bytes);
    }
    for output in job.outputs {
        buffers.push(Buffer { name: output.name.clone(), bytes: output.bytes() as u64, fill: Fill::Poison });
    }
    for workspace in &job.plan.workspaces {
        let fill = if workspace.zeroed { Fill::Zero } else { Fill::Poison };
        buffers.push(Buffer { name: workspace.name.clone(), bytes: workspace.bytes, fill });
    }
    let launches = job.plan.launches.iter().map(|step| launch(job, step, &buffers)).collect::<Result<_, _>>()?;
    let outputs = job.outputs.iter().map(|o| o.name.clone());
    let want = outputs.chain(job.inputs.iter().map(|i| i.name.clone())).collect();
    let run = Run { image: sha256(image), buffers, launches, want, poisons: POISONS.to_vec(), seconds: 0 };
    Ok(Prepared { run, blobs })
}

/// Bytes of PTX that the driver compiles in a second, for limits: an H100's host, one core of which is at work, takes 13.6 s for 1.8 MB and
/// 2.9 s for 0.7 MB (2026-11-28); where its cache is off, a run has it compile for each repeat.
const COMPILED_A_SECOND: u64 = 20_000;

/// Seconds that the driver may take to compile what it is given, beside the job's own: none for machine code.
pub(super) fn compile_seconds(job: &Job, device: &DeviceInfo) -> u64 {
    match machine_code(job, device) {
        Some(_) => 0,
        None => job.artifact.ptx.len() as u64 / COMPILED_A_SECOND,
    }
}

/// The artifact's machine code, where it has some for this device.
fn machine_code<'a>(job: &Job<'a>, device: &DeviceInfo) -> Option<&'a [u8]> {
    job.artifact.cubin.as_deref().filter(|_| device.runs_cubin(&job.artifact.target))
}

/// The machine code where it is for this device, else PTX that the driver can compile for it.
fn image<'a>(job: &Job<'a>, device: &DeviceInfo) -> Result<&'a [u8], Box<RunEnd>> {
    let artifact = job.artifact;
    match machine_code(job, device) {
        Some(cubin) => Ok(cubin),
        None if device.runs_ptx(&artifact.target) => Ok(artifact.ptx.as_bytes()),
        None => {
            let what = format!("code for {} ({} is {})", artifact.target, device.name, device.target());
            Err(Box::new(RunEnd::Unsupported { what, file: None, line: None }))
        }
    }
}

fn launch(job: &Job, step: &ResolvedLaunch, buffers: &[Buffer]) -> Result<Launch, Box<RunEnd>> {
    let reject = |f: FindingRecord, line: u32| Box::new(RunEnd::Rejected(Box::new(at(f, step, line))));
    let mismatch = |why: String| reject(Code::ArgumentMismatch.error("correctness", why), step.args_line);
    let Some(entry) = job.artifact.entry(&step.entry) else {
        let found: Vec<&str> = job.artifact.entries.iter().map(|e| e.expression.as_str()).collect();
        return Err(reject(
            Code::MissingEntry.error("correctness", step.missing_entry("", &found).message),
            step.entry_line,
        ));
    };
    let parameters: Vec<Parameter> =
        entry.params.iter().map(|bytes| Parameter { bytes: *bytes as usize, align: 1 }).collect();
    step.fits_parameters("", &parameters).map_err(|e| mismatch(e.message))?;
    if let Err(problem) = step.fits(job.target, u64::from(entry.shared_bytes)) {
        let over = step.shared_bytes.saturating_add(u64::from(entry.shared_bytes));
        let over = over > u64::from(job.target.shared_bytes_per_block);
        let code = if over { Code::SharedMemoryExceeded } else { Code::InvalidLaunch };
        let mut f = code.error("correctness", problem.message);
        f.limit = problem.limit;
        return Err(reject(f, problem.line.unwrap_or(step.line)));
    }
    let mut args = Vec::with_capacity(step.args.len());
    for (arg, parameter) in step.args.iter().zip(&parameters) {
        args.push(match arg {
            ResolvedArg::Tensor(name) | ResolvedArg::Workspace(name) => {
                known(name, buffers).map_err(mismatch)?;
                Arg::Buffer(name.clone())
            }
            ResolvedArg::Scalar { value, .. } => {
                let bytes = value.encode(parameter.bytes).map_err(mismatch)?;
                Arg::Bytes(bytes.iter().map(|b| format!("{b:02x}")).collect())
            }
            ResolvedArg::Bytes { bytes, .. } => Arg::Bytes(bytes.iter().map(|b| format!("{b:02x}")).collect()),
            ResolvedArg::Struct { bytes, addresses, .. } => {
                for address in addresses {
                    known(&address.of, buffers).map_err(mismatch)?;
                }
                let bytes = bytes.iter().map(|b| format!("{b:02x}")).collect();
                let buffers = addresses.iter().map(|a| (a.offset, a.of.clone())).collect();
                Arg::Struct { bytes, buffers }
            }
            ResolvedArg::TensorMap(name) => {
                let map = job.plan.tensor_maps.iter().find(|m| m.name == *name);
                let map = map.ok_or_else(|| mismatch(format!("there is no tensor map `{name}`")))?;
                known(&map.tensor, buffers).map_err(mismatch)?;
                Arg::TensorMap { buffer: map.tensor.clone(), map: Box::new(spec(map)) }
            }
        });
    }
    Ok(Launch {
        entry: entry.lowered.clone(),
        grid: step.grid,
        block: step.block,
        cluster: step.cluster,
        // The register by which cooperative groups find the grid's barrier. Without it a grid that waits for itself has its own means, and
        // one that does not may be larger than what fits at once.
        cooperative: step.cooperative && job.artifact.ptx.contains("%envreg2"),
        shared_bytes: u32::try_from(step.shared_bytes).unwrap_or(u32::MAX),
        args,
    })
}

fn known(name: &str, buffers: &[Buffer]) -> Result<(), String> {
    if buffers.iter().any(|b| b.name == name) { Ok(()) } else { Err(format!("there is no tensor `{name}`")) }
}

fn spec(map: &ResolvedTensorMap) -> TensorMapSpec {
    TensorMapSpec {
        dtype: map.dtype.to_string(),
        dims: map.dims.clone(),
        strides: map.strides.clone(),
        box_sizes: map.box_sizes.clone(),
        element_strides: map.element_strides.clone(),
        swizzle: map.swizzle.clone(),
        interleave: map.interleave.clone(),
        fill: map.fill.clone(),
        l2_promotion: map.l2_promotion.clone(),
    }
}

/// A finding at a line of the candidate's file.
pub(super) fn at(mut f: FindingRecord, step: &ResolvedLaunch, line: u32) -> FindingRecord {
    f.line = Some(line);
    f.entry = Some(step.entry.clone());
    f
}
