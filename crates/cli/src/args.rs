//! The command line as typed. Nothing is resolved here: names are looked up, and defaults filled in, by the commands.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Proves CUDA kernels right without a GPU: compiles them and executes their real PTX on the CPU.
#[derive(Debug, Parser)]
#[command(name = "warpsmith", version, disable_help_subcommand = true)]
#[command(
    after_help = "Without a command: gates 1 and 2, and gate 3 where there is a GPU, on the built-in ladder of FP8 attention kernels.\n\
    Exit codes: 0 all that was judged passed; 1 some verdict is not `passed`; 2 wrong usage or a malformed file; 3 the tool or its environment failed."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub common: Common,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Where the result goes. Of a run: its folder, ./runs/STAMP-NAME if not given, and one that is not empty is refused; `report`: a folder; `evidence`: the archive. Other commands leave nothing there
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the record as one JSON document, and nothing else, on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Use this CUDA toolkit instead of the first fitting one that is found
    #[arg(long, global = true, value_name = "DIR")]
    pub toolkit: Option<PathBuf>,
    /// Which line of toolkits to look for and to fetch: 13 or, for older drivers, 12
    #[arg(long, global = true, value_name = "LINE", default_value_t = 13, value_parser = clap::value_parser!(u8).range(12..=13))]
    pub toolkit_line: u8,
    /// Write the findings as SARIF 2.1.0 too, for code hosts and editors
    #[arg(long, global = true, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Write the results as JUnit XML too, for CI systems
    #[arg(long, global = true, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Run kernels on another machine, behind any command that leads to a shell there: 'ssh gpu', 'srun --gres=gpu:1', 'docker exec -i box'
    #[arg(long, global = true, value_name = "LAUNCHER")]
    pub on: Option<String>,
    /// The program that is sent there where this one does not fit: a file, or `build` to have cargo build it there
    #[arg(long, global = true, value_name = "FILE", requires = "on")]
    pub worker: Option<PathBuf>,
    /// Which of the machine's GPUs, as the driver counts them
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// A device that is none: kernels run on the PTX machine inside of the worker
    #[arg(long, global = true, hide = true)]
    pub fake_device: bool,
    /// Say more about what is done
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Gates 1 and 2: compile the kernels, execute them, compare with f64
    Check(Box<CheckArgs>),
    /// The evolution loop: proposals through the gates, the best kept; without a GPU ranked by an estimate
    Evolve(Box<EvolveArgs>),
    /// Gates 1 to 3: then time them against what people use, and launch them ten thousand times
    Bench(Box<BenchArgs>),
    /// Gates 1, 2 and 4: what bounds a kernel and what to try next, by hardware counters where they can be had
    Profile(Box<ProfileArgs>),
    /// Any .ptx or .cu from a small launch file: runs it, writes what it computed as .npy, and says what it does wrong
    Exec(ExecArgs),
    /// Tasks with their shapes, kernels with their levers, targets, distributions
    List,
    /// What a finding or an error means: a wrong kernel, the right one, how to mend it
    Explain {
        /// A code or a kind, as findings carry it; without one, all of them
        code: Option<String>,
    },
    /// A starting point for a kernel or a task of your own
    #[command(subcommand)]
    New(NewCommand),
    /// Which CUDA compiler is used, and why
    Toolkit {
        /// Fetch the pinned compiler into the cache if none is found
        #[arg(long)]
        fetch: bool,
    },
    /// Sizes of what is cached
    Cache {
        #[command(subcommand)]
        action: Option<CacheCommand>,
    },
    /// RUN/report.md and RUN/report.html, one file that opens anywhere, from what the run's folder holds
    Report {
        /// The run's folder
        #[arg(default_value = "runs/latest")]
        run: PathBuf,
    },
    /// What got faster, slower, or cannot be told, and what else changed: ratio = old time / new time
    Compare(CompareArgs),
    /// One archive with all that a reviewer needs (--out FILE); `evidence verify FILE` checks one
    Evidence(EvidenceArgs),
    /// Runs over time; with a kernel's name, that kernel's way through them
    History(HistoryArgs),
    /// A run in under 2,000 tokens, for a colleague or a coding agent
    Brief {
        /// The run's folder
        #[arg(default_value = "runs/latest")]
        run: PathBuf,
    },
    /// What this machine can do, and the next step for what it cannot
    Doctor {
        /// Measure what the GPU can do at most (DRAM, L2, shared memory, tensor cores, f32, exponentials), and keep it for the roofline
        #[arg(long)]
        measure: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Remove cached artifacts and passes
    Clean {
        /// The fetched toolkit too
        #[arg(long)]
        toolkit: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum NewCommand {
    /// NAME.cu in the current folder: a small, right FP8 attention kernel to change
    Kernel {
        name: String,
        /// fp8_sdpa, or fp8_attention: any mask, scale and output, and its layouts but packed and wide
        #[arg(long, default_value = "fp8_sdpa", conflicts_with = "from")]
        task: String,
        /// Propose front matter for a CUDA file that has none
        #[arg(long, value_name = "FILE.cu")]
        from: Option<PathBuf>,
    },
    /// The folder NAME with task.toml and reference.py
    Task { name: String },
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The kernel: PTX as it stands, or a CUDA source, which is compiled for the launch file's target
    pub file: PathBuf,
    /// Buffers, numbers and launches, in TOML (docs/exec.md)
    #[arg(long, value_name = "FILE")]
    pub launch: PathBuf,
    /// auto, gpu or cpu: the PTX machine on the CPU unless a GPU is asked for
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub backend: BackendArg,
    /// Tensor-core arithmetic of the PTX machine: the target's own, or plain f32
    #[arg(long, value_enum, default_value_t = NumericsArg::Faithful)]
    pub numerics: NumericsArg,
    /// Findings that are known and lived with become notes (TOML: code, entry, line, reason)
    #[arg(long, value_name = "FILE")]
    pub suppressions: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// A run's folder, a summary.json kept as a baseline, or one kernel of either: RUN:KERNEL or RUN:KERNEL,LEVER=VALUE
    pub old: String,
    /// The same; KERNEL alone is one of OLD's run
    pub new: String,
    /// Compare although conditions differ; they are named all the same
    #[arg(long)]
    pub allow_unequal: bool,
    /// A run of `warpsmith profile` with the old kernel, and perhaps the new one: what it let expect stands beside what was measured
    #[arg(long, value_name = "RUN")]
    pub profiles: Option<PathBuf>,
    /// Exit with 1 if a pair is so much worse: 'slower-than 3%', 'more-error-than 10%', 'more-work-than 5%',
    /// 'more-registers-than 8', 'more-shared-than 1024', 'more-spills-than 0'
    #[arg(long, value_name = "RULE")]
    pub fail_if: Vec<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvidenceArgs {
    #[command(subcommand)]
    pub action: Option<EvidenceCommand>,
    /// The run's folder
    #[arg(default_value = "runs/latest")]
    pub run: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// Check every checksum, then all that can be done again on this machine
    Verify {
        file: PathBuf,
        /// Do not execute the kernels again
        #[arg(long)]
        no_rerun: bool,
        /// Stop executing after so many seconds; what is left is said
        #[arg(long, default_value_t = 60, value_name = "SECONDS")]
        seconds: u64,
    },
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// A kernel, or the beginning of its levels' names: `level` finds level_00 to level_08
    pub kernel: Option<String>,
    /// The folder that holds the runs
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub runs: PathBuf,
    /// What an hour of the GPU costs, in dollars
    #[arg(long, value_name = "DOLLARS")]
    pub price: Option<f64>,
}

#[derive(Debug, Args, Default, Clone)]
pub struct CheckArgs {
    /// Candidate files, or names of built-in kernels; without any, all built-in ones of --task
    pub files: Vec<String>,
    /// Only kernels of this task; `fp8_sdpa` if neither it nor a file is given. A folder with a task.toml is taken too
    #[arg(long)]
    pub task: Option<String>,
    /// Names of the task's shapes, or shapes themselves (1x8x777x64), separated by commas
    #[arg(long, value_delimiter = ',')]
    pub shapes: Vec<String>,
    /// Seeds of the inputs, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub seeds: Vec<u64>,
    /// Input formats of the task, as `warpsmith list` shows them: e4m3, e5m2, u8 for fp8_sdpa
    #[arg(long, value_delimiter = ',')]
    pub format: Vec<String>,
    /// Layouts of the scales: tensor, head, block
    #[arg(long, value_delimiter = ',')]
    pub scales: Vec<String>,
    /// Distributions of the inputs: needles (the default), normal, outliers, peaked, shifted, constant, equal, zeros
    #[arg(long, value_delimiter = ',')]
    pub dist: Vec<String>,
    /// Masks: none, causal; both where the kernel takes `causal`
    #[arg(long, value_delimiter = ',')]
    pub mask: Vec<String>,
    /// Where tokens lie, for tasks that have more than one: dense, tokens, lengths, paged, ragged, packed, wide; all that the kernel takes if not given
    #[arg(long, value_delimiter = ',')]
    pub layout: Vec<String>,
    /// Formats of the output, for tasks that have more than one: bf16, f16, e4m3; the kernel's first if not given
    #[arg(long, value_delimiter = ',')]
    pub out_format: Vec<String>,
    /// auto, gpu, cpu, or fake:FILE. `check` runs on the PTX machine on the CPU unless a GPU is asked for, `bench` on the GPU; fake:FILE
    /// replays times from a file, for tests (docs/fake-backend.md)
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub backend: BackendArg,
    /// Tensor-core arithmetic of the PTX machine: the target's own, or plain f32
    #[arg(long, value_enum, default_value_t = NumericsArg::Faithful)]
    pub numerics: NumericsArg,
    /// The target that gate 2 executes; the kernel's first one if not given
    #[arg(long)]
    pub target: Option<String>,
    /// A lever's value, NAME=VALUE; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// A named configuration of the kernel
    #[arg(long)]
    pub config: Option<String>,
    /// All configurations, or all valid combinations of levers
    #[arg(long, conflicts_with = "config")]
    pub sweep: bool,
    /// Judge anew what has passed before
    #[arg(long)]
    pub fresh: bool,
    /// Run compute-sanitizer's four tools too, on the GPU, here or where --on leads
    #[arg(long)]
    pub sanitize: bool,
    /// Findings that are known and lived with become notes (TOML: code, entry, line, reason)
    #[arg(long, value_name = "FILE")]
    pub suppressions: Option<PathBuf>,
    /// The last gate that is run: compile, correctness or performance, or 1, 2, 3
    #[arg(long, value_enum, ignore_case = true)]
    pub gate: Option<GateArg>,
}

/// What `profile` takes besides what `check` takes.
#[derive(Debug, Args, Clone)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub check: CheckArgs,
    /// Launches of the kernel to profile; those of one pass through its plan if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub launches: Option<u32>,
    /// Nsight Compute's command line, where it is not on the PATH
    #[arg(long, value_name = "PATH")]
    pub ncu: Option<PathBuf>,
    /// Read a profile that was taken elsewhere: a report (.ncu-rep), or its raw page as CSV; without a kernel, show it
    #[arg(long, value_name = "FILE")]
    pub import: Option<PathBuf>,
    /// Rules of your own before the built-in ones (TOML, docs/profile.md)
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct EvolveArgs {
    /// The candidate to begin with: a file, or a built-in's name; the ladder's level_07 if neither it nor a task is given
    pub file: Option<String>,
    /// The task; the file's own if not given
    #[arg(long)]
    pub task: Option<String>,
    /// What a proposer is told, and how the population is kept, as EvoEngineer has them
    #[arg(long, value_enum, default_value_t = VariantArg::Free)]
    pub variant: VariantArg,
    /// single, elite:K or islands:NxK, where it is not to be the variant's own
    #[arg(long, value_name = "KIND", value_parser = population)]
    pub population: Option<warpsmith_evolve::archive::PopulationKind>,
    /// levers, llm:PROVIDER/MODEL (openai, anthropic, gemini, ollama), agent:COMMAND (prompt on its standard input, answer on its output),
    /// or replay:FILE.jsonl
    #[arg(long, default_value = "levers")]
    pub proposer: String,
    #[command(flatten)]
    pub outside: OutsideArgs,
    /// Evaluations, or evaluations=40,calls=30,tokens=200000,usd=5,gpu_seconds=600,seconds=3600
    #[arg(long, default_value = "40")]
    pub budget: String,
    /// Decides every draw
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Where the search begins: `default` levers, `random`, a corner that the seed draws, or values: NAME=VALUE,NAME=VALUE
    #[arg(long, default_value = "default", value_name = "WHERE")]
    pub start: StartArg,
    /// Shapes that every solution is judged on; the task's default ones if not given
    #[arg(long, value_delimiter = ',')]
    pub shapes: Vec<String>,
    /// The target that is judged; the kernel's first one if not given
    #[arg(long)]
    pub target: Option<String>,
    /// The device whose rates the estimate takes: L4 (the default), A100, H100, H200; solutions are ranked by the estimate then
    #[arg(long, value_name = "NAME")]
    pub estimate_for: Option<String>,
    /// auto: ranked by times where there is a GPU (or --on), else by the estimate; gpu; cpu: by the estimate; fake:FILE: by times of a file
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub backend: BackendArg,
    /// GPUs that time, by number; each takes one solution at a time, and a number may be repeated behind a launcher that gives another GPU each time
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub devices: Vec<u32>,
    /// The least speed-up that entry to the population demands
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub elite_min_speedup: f64,
    /// Over what: the baseline that the loop began with, or the parent that a solution came from
    #[arg(long, value_enum, default_value_t = AgainstArg::Baseline)]
    pub elite_against: AgainstArg,
    /// End when the best holds all of the task's [accept] criteria, on a GPU in common rounds with what they compare with
    #[arg(long)]
    pub until_accepted: bool,
    /// The Python that has the peers of those criteria
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// A lever that is kept at this value, NAME=VALUE; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// A named configuration to begin with
    #[arg(long)]
    pub config: Option<String>,
    /// Solutions that are proposed before the first of them is judged; decides the course. 2, or as many as there are GPUs
    #[arg(long)]
    pub batch: Option<usize>,
    /// Solutions that are judged at once on the CPU, one for each core if not given; without effect on the course
    #[arg(long)]
    pub workers: Option<usize>,
    /// Go on with this loop
    #[arg(long, value_name = "RUN", conflicts_with_all = ["file", "rerun"])]
    pub resume: Option<PathBuf>,
    /// Work this loop's journal through again, without any evaluation, and compare
    #[arg(long, value_name = "RUN", conflicts_with = "file")]
    pub rerun: Option<PathBuf>,
    /// How well the estimate orders what this run of `bench` has measured: rank correlation by workload
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["file", "rerun", "resume"])]
    pub correlate: Option<PathBuf>,
    /// Search this run's exhaustive times of one kernel (`bench FILE --sweep`), five times a variant, each with a quarter of the evaluations
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["file", "rerun", "resume", "correlate"])]
    pub rehearse: Option<PathBuf>,
}

/// For proposers that are asked: a model, an agent.
#[derive(Debug, Args, Default, Clone)]
pub struct OutsideArgs {
    /// The model's server, where it is not the provider's own
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The file that holds the key; else OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Seconds for one proposal
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub proposal_seconds: u64,
    /// Tokens that one answer of a model may have
    #[arg(long, value_name = "N", default_value_t = 16_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub answer_tokens: u64,
    /// What the model costs, in US dollars for a million tokens of input and of output; list prices are known for some
    #[arg(long, value_name = "IN,OUT")]
    pub price: Option<warpsmith_evolve::llm::Price>,
    /// Turns in which a solution that failed may be mended
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=20))]
    pub fixes: u64,
    /// A folder with templates in place of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Tokens that one prompt may have, a token being four bytes
    #[arg(long, value_name = "N", default_value_t = warpsmith_evolve::prompt::DEFAULT_TOKENS)]
    pub prompt_tokens: usize,
    /// lessons.json of an earlier loop, for the prompts of insight and full, and for the order of moves of levers
    #[arg(long, value_name = "FILE")]
    pub lessons: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VariantArg {
    Free,
    Insight,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgainstArg {
    Baseline,
    Parent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartArg {
    Default,
    Random,
    At(Vec<String>),
}

impl std::str::FromStr for StartArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(StartArg::Default),
            "random" => Ok(StartArg::Random),
            values if values.contains('=') => Ok(StartArg::At(values.split(',').map(str::to_string).collect())),
            _ => Err("it is default, random, or NAME=VALUE,NAME=VALUE".into()),
        }
    }
}

/// `single`, `elite:3`, `islands:4x3`.
fn population(text: &str) -> Result<warpsmith_evolve::archive::PopulationKind, String> {
    use warpsmith_evolve::archive::PopulationKind;
    let number = |n: &str| match n.parse::<usize>() {
        Ok(n) if (1..=1000).contains(&n) => Ok(n),
        _ => Err(format!("{n:?} is not a number from 1 to 1000")),
    };
    match text.split_once(':') {
        None if text == "single" => Ok(PopulationKind::Single),
        None if text == "elite" => Ok(PopulationKind::Elite { keep: 3 }),
        Some(("elite", keep)) => Ok(PopulationKind::Elite { keep: number(keep)? }),
        Some(("islands", sizes)) => {
            let (islands, keep) = sizes.split_once('x').ok_or("write islands:NxK")?;
            Ok(PopulationKind::Islands { islands: number(islands)?, keep: number(keep)? })
        }
        _ => Err("write single, elite:K or islands:NxK".into()),
    }
}

/// Where gates 2 and 3 run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BackendArg {
    #[default]
    Auto,
    Gpu,
    Cpu,
    /// Values from the PTX machine, times from this file.
    Fake(PathBuf),
}

impl std::str::FromStr for BackendArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(BackendArg::Auto),
            "gpu" => Ok(BackendArg::Gpu),
            "cpu" => Ok(BackendArg::Cpu),
            other => match other.strip_prefix("fake:") {
                Some(file) if !file.is_empty() => Ok(BackendArg::Fake(file.into())),
                _ => Err("it is auto, gpu, cpu or fake:FILE".into()),
            },
        }
    }
}

/// The last gate that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum GateArg {
    #[value(alias = "1")]
    Compile,
    #[value(alias = "2")]
    Correctness,
    #[value(alias = "3")]
    Performance,
}

/// What `bench` takes besides what `check` takes.
#[derive(Debug, Args, Clone)]
pub struct BenchArgs {
    #[command(flatten)]
    pub check: CheckArgs,
    /// What to compare with, separated by commas: peers (sdpa:auto, fa3:fp8 ...) and built-in kernels (level_00); `none`: nothing. The task's
    /// own list if not given
    #[arg(long, value_delimiter = ',')]
    pub baselines: Option<Vec<String>>,
    /// How to time: graph_cold, graph_warm, event, eager; ratios are by the first
    #[arg(long, value_delimiter = ',', default_value = "graph_cold,graph_warm,event,eager")]
    pub methods: Vec<String>,
    /// Exactly so many samples of each subject by each method
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iters: Option<u32>,
    /// Replays before the first sample, not kept
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub warmup: u32,
    /// About so many seconds for each subject and shape, fewer where the ratios are known to 1% before
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25)]
    pub time: f64,
    /// Launches that stability is tried with at every shape; 10000 at the smallest default shape, and what fits 0.5 s elsewhere, if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000_000_000))]
    pub stability: Option<u64>,
    /// Where there is no GPU, let gates 1 and 2 on the CPU decide
    #[arg(long)]
    pub allow_no_gpu: bool,
    /// Finish a run that was cut off: what is done is kept, the rest is done with the same options and the same secret
    #[arg(long, value_name = "RUN")]
    pub resume: Option<PathBuf>,
    /// Draw inputs, order and samples from this secret, as a run's `seed_secret` has it, instead of a fresh one
    #[arg(long, value_name = "N")]
    pub seed_secret: Option<u64>,
    /// The Python that has the baselines' packages; python3 if not given
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// As the command line's defaults are.
impl Default for BenchArgs {
    fn default() -> Self {
        BenchArgs {
            check: CheckArgs::default(),
            baselines: None,
            methods: ["graph_cold", "graph_warm", "event", "eager"].map(String::from).to_vec(),
            iters: None,
            warmup: 3,
            time: 0.25,
            stability: None,
            allow_no_gpu: false,
            resume: None,
            seed_secret: None,
            python: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum NumericsArg {
    #[default]
    Faithful,
    Fast,
}
