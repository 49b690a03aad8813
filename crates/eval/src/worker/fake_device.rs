//! A fake device whose kernels run on the PTX machine: for taking whole evaluations through a worker, here or on another machine, without a
//! GPU. It takes PTX only, says that it is a fake, and stands for no hardware.
//!
//! Findings of the machine become the faults that a device would report; what needs undefined bytes to be known is not seen, as on a GPU.
//! Limit: no tensor maps.

use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_cuda::worker::fake::{Executor, FakeDevice, device};
use warpsmith_cuda::worker::{Device, LaunchValues, Value};
use warpsmith_cuda::{CudaError, DeviceInfo, FaultKind};
use warpsmith_machine::{
    Arg, AsyncCopies, BufferId, Contents, End, FindingKind, Launch, Memory, Options, Program, address_of, launch,
};
use warpsmith_num::tensor_core::{Generation, Numerics};

/// Warp-instructions of a launch.
const INSTRUCTIONS: u64 = 20_000_000_000;

/// A device that executes PTX.
pub fn fake_device() -> Box<dyn Device> {
    Box::new(FakeDevice::executing(Box::new(Machine::default())))
}

/// The machine with the program that it has loaded last.
#[derive(Default)]
struct Machine {
    program: Option<(Vec<u8>, Arc<Program>)>,
}

impl Machine {
    fn program(&mut self, image: &[u8]) -> Result<Arc<Program>, CudaError> {
        if let Some((known, program)) = &self.program
            && known == image
        {
            return Ok(program.clone());
        }
        let why = |why: String| CudaError::Image { why };
        let text = std::str::from_utf8(image).map_err(|_| why("the fake device takes PTX only".into()))?;
        let program = Arc::new(Program::load(text).map_err(|e| why(e.to_string()))?);
        self.program = Some((image.to_vec(), program.clone()));
        Ok(program)
    }
}

impl Executor for Machine {
    fn info(&self) -> DeviceInfo {
        // Of a generation that there is not: no machine code is for it, all PTX is.
        DeviceInfo { name: "Fake device (PTX machine)".into(), compute_capability: (99, 0), ..device() }
    }

    fn execute(
        &mut self,
        image: &[u8],
        values: &LaunchValues,
        buffers: &mut BTreeMap<u64, Vec<u8>>,
    ) -> Result<(), CudaError> {
        let program = self.program(image)?;
        let target = target(image);
        let mut memory = Memory::new();
        let ids: BTreeMap<u64, BufferId> =
            buffers.iter().map(|(at, bytes)| (*at, memory.alloc("buffer", Contents::Bytes(bytes)))).collect();
        let args = values.args.iter().map(|value| match value {
            Value::Bytes(bytes) => Ok(Arg::Bytes(bytes.clone())),
            Value::Address(at) => {
                let (start, id) = ids
                    .range(..=*at)
                    .next_back()
                    .ok_or_else(|| CudaError::Launch { what: format!("no buffer at {at:#x}") })?;
                Ok(Arg::Bytes((address_of(id.0) + (at - start)).to_le_bytes().to_vec()))
            }
            Value::TensorMap { .. } => Err(CudaError::Image { why: "the fake device has no tensor maps".into() }),
        });
        let launched = Launch {
            entry: values.entry.clone(),
            grid: values.geometry.grid,
            block: values.geometry.block,
            cluster: values.geometry.cluster,
            shared_bytes: values.geometry.shared_bytes,
            args: args.collect::<Result<_, _>>()?,
        };
        if !program.entries().iter().any(|e| e.name == launched.entry) {
            return Err(CudaError::NoEntry { entry: launched.entry });
        }
        let options = Options {
            numerics: Numerics::Faithful(match target.as_str() {
                "sm_75" | "sm_80" | "sm_86" | "sm_87" => Generation::Ampere,
                "sm_89" => Generation::Ada,
                _ => Generation::Hopper,
            }),
            max_instructions: INSTRUCTIONS,
            schedule_seed: 1,
            async_copies: AsyncCopies::Late,
            max_shared_bytes: self.info().shared_bytes_per_block,
            threads: 0,
            cooperative: values.geometry.cooperative,
            ..Options::default()
        };
        let outcome = launch(&program, &mut memory, &launched, &options);
        print!("{}", outcome.printed);
        for (at, id) in ids {
            buffers.insert(at, memory.read(id));
        }
        match outcome.end {
            _ if !outcome.findings.is_empty() => Err(fault(outcome.findings[0].kind)),
            End::Completed => Ok(()),
            End::Faulted => Err(fault(FindingKind::Trap)),
            End::LimitReached { .. } => Err(CudaError::Fault {
                kind: FaultKind::LaunchTimeout,
                code: 702,
                name: "CUDA_ERROR_LAUNCH_TIMEOUT".into(),
                call: "fake",
            }),
            End::Unsupported { what, .. } => Err(CudaError::Image { why: what }),
            End::InvalidLaunch { what } => Err(CudaError::Launch { what }),
        }
    }
}

/// What a device would say of a finding.
fn fault(kind: FindingKind) -> CudaError {
    let (kind, code, name) = match kind {
        FindingKind::OutOfBounds | FindingKind::InvalidAccess => {
            (FaultKind::IllegalAddress, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        }
        FindingKind::MisalignedAccess => (FaultKind::MisalignedAddress, 716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
        FindingKind::AssertFailed => (FaultKind::AssertFailed, 710, "CUDA_ERROR_ASSERT"),
        _ => (FaultKind::LaunchFailed, 719, "CUDA_ERROR_LAUNCH_FAILED"),
    };
    CudaError::Fault { kind, code, name: name.into(), call: "fake" }
}

/// The target that PTX is written for.
fn target(image: &[u8]) -> String {
    let text = String::from_utf8_lossy(image);
    let line = text.lines().find_map(|l| l.trim().strip_prefix(".target "));
    line.and_then(|l| l.split([',', ' ']).next()).unwrap_or_default().to_string()
}
