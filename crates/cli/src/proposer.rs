//! Proposers that are asked, as the command line names them: `--proposer`, its key, its templates, its lessons, and what they propose as files.

use crate::args::EvolveArgs;
use crate::catalog::Catalog;
use crate::error::CliError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use warpsmith_evolve::lessons::{self, Lessons};
use warpsmith_evolve::llm::{Key, Model, Price, Provider};
use warpsmith_evolve::prompt::{MAX_TEMPLATE_BYTES, Prompts, Sheet, TEMPLATES};
use warpsmith_evolve::proposer::outside::{Outside, Speaker};
use warpsmith_evolve::request::{PromptRequest, ReplayLine};
use warpsmith_evolve::{EvolveRecord, LoopRequest, ProposerKind, State};
use warpsmith_spec::workload::Workload;
use warpsmith_store::{LoopDir, text_hash};

const MAX_KEY_BYTES: u64 = 64 << 10;
const FORMS: &str = "--proposer levers, llm:PROVIDER/MODEL, agent:COMMAND, or replay:FILE.jsonl with lines {\"candidate\": ..., \"set\": {...}}";

/// Who makes proposals.
pub fn kind(
    args: &EvolveArgs,
    lines: &dyn Fn() -> Result<Vec<ReplayLine>, CliError>,
) -> Result<ProposerKind, CliError> {
    let text = args.proposer.as_str();
    match text.split_once(':') {
        None if text == "levers" => Ok(ProposerKind::Levers),
        Some(("replay", _)) => Ok(ProposerKind::Replay { lines: lines()? }),
        Some(("agent", command)) if !command.trim().is_empty() => {
            Ok(ProposerKind::Agent { command: command.to_string(), seconds: args.outside.proposal_seconds })
        }
        Some(("llm", model)) => llm(args, model),
        _ => Err(CliError::usage("wrong-usage", format!("there is no proposer {text:?}")).hint(FORMS)),
    }
}

fn llm(args: &EvolveArgs, text: &str) -> Result<ProposerKind, CliError> {
    let named = text.split_once('/').filter(|(_, model)| !model.trim().is_empty());
    let found = named.and_then(|(provider, model)| Some((Provider::of(provider)?, model)));
    let Some((provider, model)) = found else {
        let words: Vec<&str> = Provider::ALL.map(Provider::word).to_vec();
        return Err(CliError::usage("wrong-usage", format!("llm:{text}: no provider and model")).hint(format!(
            "write llm:PROVIDER/MODEL; providers: {}; a server that speaks OpenAI's format is openai with --base-url",
            words.join(", ")
        )));
    };
    let outside = &args.outside;
    if let Some(url) = &outside.base_url {
        let rest = url.strip_prefix("http://").or(url.strip_prefix("https://"));
        if rest.is_none_or(|r| r.is_empty() || r.contains('@') || r.contains('?')) {
            return Err(CliError::usage("wrong-usage", "--base-url is no plain http:// or https:// address")
                .hint("write it without a user, a key or a query: --base-url http://localhost:8000/v1"));
        }
    }
    let free = provider == Provider::Ollama;
    let price = outside.price.or(Price::listed(model)).or(free.then_some(Price { input: 0.0, output: 0.0 }));
    if price.is_none() && args.budget.contains("usd") {
        return Err(CliError::usage(
            "wrong-usage",
            format!("what {model} costs is not known, so a budget in dollars cannot be kept"),
        )
        .hint("say it: --price IN,OUT, in US dollars for a million tokens"));
    }
    Ok(ProposerKind::Llm {
        provider,
        model: model.to_string(),
        base_url: outside.base_url.clone(),
        seconds: outside.proposal_seconds,
        answer_tokens: outside.answer_tokens,
        price,
    })
}

/// Who is asked; None for proposers of the loop's own. The key comes from the file, else from the environment, and goes nowhere else.
pub fn speaker(request: &LoopRequest, key_file: Option<&Path>) -> Result<Option<Speaker>, CliError> {
    match &request.proposer {
        ProposerKind::Levers | ProposerKind::Replay { .. } => Ok(None),
        ProposerKind::Agent { command, seconds } => {
            Ok(Some(Speaker::Agent { command: command.clone(), seconds: *seconds }))
        }
        ProposerKind::Llm { provider, model, base_url, seconds, answer_tokens, price } => {
            let mut speaker = Model::new(*provider, model);
            speaker.base_url.clone_from(base_url);
            speaker.key = key(*provider, key_file)?;
            speaker.price = *price;
            speaker.seconds = *seconds;
            speaker.answer_tokens = *answer_tokens;
            if let Some(variable) = provider.key_variable().filter(|_| speaker.key.is_none() && base_url.is_none()) {
                return Err(CliError::usage("wrong-usage", format!("{} needs a key", provider.word()))
                    .hint(format!("set {variable}, or give --key-file FILE")));
            }
            Ok(Some(Speaker::Model(Box::new(speaker))))
        }
    }
}

fn key(provider: Provider, file: Option<&Path>) -> Result<Option<Key>, CliError> {
    let (text, place) = match (file, provider.key_variable()) {
        (Some(file), _) => (read(file, MAX_KEY_BYTES)?, file.display().to_string()),
        (None, Some(variable)) => match std::env::var(variable) {
            Ok(text) if !text.trim().is_empty() => (text, variable.to_string()),
            _ => return Ok(None),
        },
        (None, None) => return Ok(None),
    };
    // The key itself is not repeated.
    let wrong = || CliError::usage("wrong-usage", format!("{place} holds no key: one word of plain characters"));
    Key::new(&text).map(Some).ok_or_else(wrong)
}

fn read(file: &Path, most: u64) -> Result<String, CliError> {
    let unreadable =
        |why: String| CliError::usage("wrong-usage", format!("cannot read {}: {why}", file.display())).file(file);
    let size = fs::metadata(file).map_err(|e| unreadable(e.to_string()))?.len();
    if size > most {
        return Err(unreadable(format!("it has {size} bytes, more than {most}")));
    }
    fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))
}

/// The text of `--lessons`, which is read here and nowhere later.
pub fn lessons(args: &EvolveArgs) -> Result<Option<String>, CliError> {
    let Some(file) = &args.outside.lessons else { return Ok(None) };
    let text = read(file, lessons::MAX_BYTES as u64)?;
    let wrong = |why: String| {
        CliError::usage("wrong-usage", format!("{} holds no lessons: {why}", file.display()))
            .file(file)
            .hint("a loop leaves them as RUN/lessons.json")
    };
    Lessons::parse(&text).map_err(wrong)?;
    Ok(Some(text))
}

/// The templates of `--prompts`, checked.
pub fn prompts(args: &EvolveArgs) -> Result<PromptRequest, CliError> {
    let mut templates = BTreeMap::new();
    if let Some(folder) = &args.outside.prompts {
        for (name, _) in TEMPLATES {
            let file = folder.join(name);
            if file.is_file() {
                templates.insert(name.to_string(), read(&file, MAX_TEMPLATE_BYTES as u64)?);
            }
        }
        if templates.is_empty() {
            let names: Vec<&str> = TEMPLATES.iter().map(|(n, _)| *n).collect();
            let why = format!("there is no template in {}", folder.display());
            return Err(CliError::usage("wrong-usage", why).hint(format!("templates are {}", names.join(", "))));
        }
    }
    let request = PromptRequest { tokens: args.outside.prompt_tokens, templates };
    made(&request)?;
    Ok(request)
}

fn made(request: &PromptRequest) -> Result<Prompts, CliError> {
    Prompts::new(&request.templates, request.tokens).map_err(|e| CliError::usage("wrong-usage", e.to_string()))
}

/// The proposer with all that it needs of a loop whose folder is `run`.
pub fn outside<'a>(
    catalog: &'a Catalog,
    request: &LoopRequest,
    workloads: &[Workload],
    speaker: Speaker,
    run: &Path,
) -> Result<Outside<'a>, CliError> {
    let task = catalog.tasks.find(&request.task)?;
    let is_estimate = request.backend == "ptx_machine";
    let announce = request.rules.announce;
    let sheet = Sheet::new(task, workloads, &request.target, &request.device, is_estimate, announce, &catalog.headers)
        .with(request.ceilings.as_ref());
    let run = run.to_path_buf();
    let texts = move |sha: &str| LoopDir::text(&run, sha).map_err(|e| e.to_string());
    Ok(Outside::new(&catalog.tasks, sheet, made(&request.prompts)?, speaker, Box::new(texts), text_hash))
}

/// Writes what was proposed as files that `warpsmith check` takes, and names them in the record.
pub fn name_files(folder: &LoopDir, state: &State, record: &mut EvolveRecord) -> Result<(), CliError> {
    if !state.request.proposer.is_external() {
        return Ok(());
    }
    let start = state.solutions.first().map(|s| s.source_sha256.clone()).unwrap_or_default();
    for solution in state.solutions.iter().filter(|s| s.source_sha256 != start) {
        let text = LoopDir::text(folder.path(), &solution.source_sha256)?;
        let relative = Path::new("candidates").join(solution.id.to_string()).join(&solution.candidate);
        folder.write(&relative, text.as_bytes())?;
        if let Some(best) = record.best.as_mut().filter(|b| b.id == solution.id) {
            best.candidate = folder.path().join(&relative).display().to_string();
        }
    }
    Ok(())
}
