//! Whoever runs a form's kernel: the machine, or a GPU through a worker.

use warpsmith_cuda::worker::protocol::{Arg, Buffer, End, Fill, Launch, Run};
use warpsmith_cuda::worker::{Blobs, Worker, WorkerCommand, sha256};
use warpsmith_machine::Options;
use warpsmith_machine::api::Numerics;
use warpsmith_machine::forms::trial::{self, Operands, Results};
use warpsmith_machine::forms::{Form, Kernel};
use warpsmith_num::tensor_core::Generation;

/// Seconds that one form may take on a device.
const SECONDS: u64 = 120;

/// Runs kernels of forms.
pub trait Backend {
    /// Its name, for reports.
    fn name(&self) -> String;
    /// 90 for compute capability 9.0; None: no limit.
    fn compute_capability(&self) -> Option<u32>;
    /// # Errors
    /// In words, where it does not complete.
    fn run(&mut self, form: &Form, k: &Kernel, operands: &Operands) -> Result<Results, String>;
}

/// The PTX machine.
pub struct Machine {
    pub numerics: Numerics,
}

impl Backend for Machine {
    fn name(&self) -> String {
        "the PTX machine".into()
    }

    fn compute_capability(&self) -> Option<u32> {
        None
    }

    fn run(&mut self, form: &Form, k: &Kernel, operands: &Operands) -> Result<Results, String> {
        let options = Options { numerics: self.numerics, max_instructions: 2_000_000_000, ..Options::default() };
        trial::run(form, k, operands, &options)
    }
}

/// A GPU.
pub struct Gpu {
    worker: Worker,
    command: WorkerCommand,
    ordinal: u32,
}

impl Gpu {
    /// Starts a worker: this program again.
    ///
    /// # Errors
    /// Where there is no driver or no device.
    pub fn open(ordinal: u32) -> Result<Gpu, String> {
        Gpu::by(WorkerCommand::this_program().map_err(|e| e.to_string())?, ordinal)
    }

    /// Starts this worker.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn by(command: WorkerCommand, ordinal: u32) -> Result<Gpu, String> {
        Ok(Gpu { worker: Worker::start(&command, ordinal, SECONDS).map_err(|e| e.to_string())?, command, ordinal })
    }
}

/// Numerics of the tensor cores of a compute capability.
pub fn numerics_of(compute_capability: Option<u32>) -> Numerics {
    Numerics::Faithful(match compute_capability {
        Some(..89) => Generation::Ampere,
        Some(89) => Generation::Ada,
        _ => Generation::Hopper,
    })
}

fn filled<'a>(bytes: &'a [u8], name: &str, blobs: &mut Blobs<'a>) -> Buffer {
    let hash = sha256(bytes);
    blobs.insert(hash.clone(), bytes);
    Buffer { name: name.into(), bytes: bytes.len() as u64, fill: Fill::Contents(hash) }
}

impl Backend for Gpu {
    fn name(&self) -> String {
        self.worker.device().name.clone()
    }

    fn compute_capability(&self) -> Option<u32> {
        let (major, minor) = self.worker.device().compute_capability;
        Some(10 * major + minor)
    }

    fn run(&mut self, form: &Form, k: &Kernel, operands: &Operands) -> Result<Results, String> {
        let (blocks, block) = trial::grid(operands.threads)?;
        let mut blobs = Blobs::new();
        let image = sha256(k.ptx.as_bytes());
        blobs.insert(image.clone(), k.ptx.as_bytes());
        let output_bytes = operands.threads * k.output_bytes.max(16);
        let records = if operands.records.is_empty() { &[0; 16][..] } else { &operands.records };
        let buffers = vec![
            filled(records, "in", &mut blobs),
            Buffer { name: "out".into(), bytes: output_bytes as u64, fill: Fill::Zero },
            filled(&operands.memory, "mem", &mut blobs),
        ];
        let run = Run {
            image,
            buffers,
            launches: vec![Launch {
                entry: "k".into(),
                grid: [blocks, 1, 1],
                block: [block, 1, 1],
                cluster: [1; 3],
                cooperative: false,
                shared_bytes: 0,
                args: ["in", "out", "mem"].map(|n| Arg::Buffer(n.into())).into(),
            }],
            want: vec!["out".into(), "mem".into()],
            poisons: vec![0xFF],
            seconds: SECONDS,
        };
        let ran = self.worker.run(&run, &blobs, SECONDS).map_err(|e| e.to_string())?;
        if ran.last {
            // The context is gone: the next form needs a new one.
            *self = Gpu::by(self.command.clone(), self.ordinal)?;
        }
        if ran.end != End::Completed {
            return Err(format!("{}: {:?}", form.name(), ran.end));
        }
        let mut bytes = ran.outputs.into_iter().map(|c| c.bytes);
        let mut records = bytes.next().flatten().unwrap_or_else(|| vec![0; output_bytes]);
        records.truncate(operands.threads * k.output_bytes);
        Ok(Results { records, memory: bytes.next().flatten().unwrap_or_else(|| operands.memory.clone()) })
    }
}
