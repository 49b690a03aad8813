//! Whole loops with a proposer outside: a model behind a scripted server, or a command. What prompts hold by variant, what is counted, what
//! is kept, and that a kill costs no more than the call that it cut off.

mod server;

use server::{Say, Server};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpsmith_evolve::archive::PopulationKind;
use warpsmith_evolve::driver::{Driver, DriverError, Ended, Evaluator, Journal};
use warpsmith_evolve::event::{Effect, Refusal};
use warpsmith_evolve::lessons::Lessons;
use warpsmith_evolve::llm::{Model, Provider};
use warpsmith_evolve::outcome::{Brief, Resources};
use warpsmith_evolve::prompt::{Prompts, Sheet};
use warpsmith_evolve::proposer::outside::{Outside, Speaker};
use warpsmith_evolve::request::{LoopRequest, PromptRequest, ProposerKind, Rules};
use warpsmith_evolve::rerun::{Recorded, differences};
use warpsmith_evolve::score::{Estimate, Score};
use warpsmith_evolve::solution::{Levers, Operator};
use warpsmith_evolve::{Event, Judged, Solution, Space, State, Variant};
use warpsmith_spec::record::VerdictWord;
use warpsmith_spec::workload::expand;
use warpsmith_spec::{Candidate, TaskSet, WorkloadRequest};
use warpsmith_store::text_hash;

const START: &str = r#"//! task = "fp8_sdpa"
//! targets = ["sm_89"]
//! [levers]
//! BLOCK_M = [32, 64]
//! [[launch]]
//! entry = "sdpa"
//! grid = ["ceil_div(S, BLOCK_M)", "B * H"]
//! block = [128]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S", "causal"]
extern "C" __global__ void sdpa() {
  run(SPEED 1000 );
}
"#;

const LESSONS: &str = r#"{"schema": "warpsmith.lessons/1", "lessons": [{"task": "fp8_sdpa", "kernel": "level_01", "device": "L4",
"measure": "estimate", "kind": "idea", "text": "LESSON of wide loads", "helped": 3, "hurt": 0, "failed": 1, "gain": 1.25, "evidence": []}]}"#;

type Texts = Arc<Mutex<BTreeMap<String, String>>>;

/// Judges by what a text says of itself: `SPEED n`, and the verdict that it names. Fewer is better; BLOCK_M 64 is a tenth better.
struct ByWords {
    texts: Texts,
}

impl Evaluator for ByWords {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        let text = self.texts.lock().unwrap().get(&solution.source_sha256).cloned().ok_or("no such text")?;
        let verdict = [
            ("WRONG", VerdictWord::Incorrect),
            ("CHEAT", VerdictWord::Rejected),
            ("BROKEN", VerdictWord::CompileFailed),
        ]
        .into_iter()
        .find(|(word, _)| text.contains(word));
        let mut cost: f64 =
            text.split("SPEED ").nth(1).and_then(|t| t.split_whitespace().next()?.parse().ok()).unwrap_or(1.0);
        if solution.levers.get("BLOCK_M").is_some_and(|v| v.to_string() == "64") {
            cost *= 0.9;
        }
        let line = text.lines().position(|l| l.contains("FAULT HERE")).map(|l| l as u32 + 1);
        let found = || Brief { code: "made-up".into(), message: "the FINDING of it".into(), line };
        Ok(Judged {
            findings: verdict.iter().map(|_| found()).collect(),
            score: verdict
                .is_none()
                .then(|| Score::Estimate(Estimate::new("L4", "m/1", [("tiny".into(), cost)].into()).unwrap())),
            resources: Some(Resources { registers: 111, shared_bytes: 2222, spill_bytes: 0 }),
            insights: vec!["INSIGHT of conflicts".into()],
            wrong_at: verdict.iter().map(|_| "On tiny, causal. HEAT MAP 0009".to_string()).collect(),
            ..Judged::of(verdict.map_or(VerdictWord::Passed, |(_, v)| v))
        })
    }
}

struct Memory {
    events: Vec<Event>,
    texts: Texts,
    /// The push that fails, as a kill would.
    dies_at: usize,
}

impl Journal for Memory {
    fn push(&mut self, event: &Event) -> Result<(), String> {
        if self.events.len() >= self.dies_at {
            return Err("killed".into());
        }
        self.events.push(serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap());
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<String, String> {
        let sha = text_hash(text);
        self.texts.lock().unwrap().insert(sha.clone(), text.into());
        Ok(sha)
    }
}

fn request(variant: Variant, proposer: ProposerKind, budget: &str) -> LoopRequest {
    LoopRequest {
        task: "fp8_sdpa".into(),
        task_text: None,
        ceilings: None,
        shapes: vec!["tiny".into()],
        target: "sm_89".into(),
        backend: "ptx_machine".into(),
        device: "L4".into(),
        variant,
        population: variant.population(),
        proposer,
        rules: Rules::default(),
        budget: budget.parse().unwrap(),
        fixes: 1,
        seed: 1,
        batch: 1,
        space: Space::default(),
        lessons: Some(LESSONS.into()),
        prompts: PromptRequest::default(),
        until_accepted: false,
        compared: Vec::new(),
        times_sha256: None,
    }
}

fn openai() -> ProposerKind {
    ProposerKind::Llm {
        provider: Provider::OpenAi,
        model: "m".into(),
        base_url: None,
        seconds: 20,
        answer_tokens: 1000,
        price: None,
    }
}

struct Rig {
    tasks: TaskSet,
    texts: Texts,
    events: Vec<Event>,
}

impl Rig {
    fn new(request: LoopRequest, start: &str) -> Rig {
        let tasks = warpsmith_builtin::tasks().unwrap();
        let levers: Levers = Candidate::parse("start.cu", START.as_bytes(), &tasks).unwrap().default_setting().levers;
        let first = Solution {
            id: 0,
            candidate: "start.cu".into(),
            source_sha256: text_hash(start),
            levers,
            parents: vec![],
            operator: Operator::Start,
            change: "the start".into(),
            rationale: None,
        };
        let texts: Texts = Arc::default();
        texts.lock().unwrap().insert(text_hash(start), start.into());
        Rig { tasks, texts, events: vec![Event::Started { request: Box::new(request), start: Box::new(first) }] }
    }

    fn outside(&self, speaker: Speaker) -> Outside<'_> {
        let state = State::fold(&self.events).unwrap();
        let task = self.tasks.get("fp8_sdpa").unwrap();
        let start = Candidate::parse("start.cu", START.as_bytes(), &self.tasks).unwrap();
        let asked = WorkloadRequest { shapes: vec!["tiny".into()], ..WorkloadRequest::default() };
        let workloads = expand(task, &start, &asked).unwrap();
        let headers = [("warpsmith/a.cuh".to_string(), "// HEADER\n".to_string())].into();
        let sheet = Sheet::new(task, &workloads, "sm_89", "L4", true, state.request.rules.announce, &headers);
        let prompts = Prompts::new(&state.request.prompts.templates, state.request.prompts.tokens).unwrap();
        let texts = self.texts.clone();
        let text = move |sha: &str| texts.lock().unwrap().get(sha).cloned().ok_or_else(|| "gone".to_string());
        Outside::new(&self.tasks, sheet, prompts, speaker, Box::new(text), text_hash)
    }

    /// Drives the loop until it ends or dies at an event.
    fn drive(&mut self, speaker: Speaker, dies_at: usize, cancelled: &dyn Fn() -> bool) -> Result<Ended, DriverError> {
        let mut outside = self.outside(speaker);
        let evaluator = ByWords { texts: self.texts.clone() };
        let mut journal = Memory { events: self.events.clone(), texts: self.texts.clone(), dies_at };
        let state = State::fold(&self.events).unwrap();
        let mut driver = Driver {
            state,
            journal: &mut journal,
            evaluator: &evaluator,
            asker: Some(&mut outside),
            observe: &mut |_, _| {},
        };
        let ended = driver.run(cancelled);
        drop(driver);
        drop(outside);
        self.events = journal.events;
        ended
    }

    fn whole(&mut self, speaker: Speaker) -> State {
        assert_eq!(self.drive(speaker, usize::MAX, &|| false).unwrap(), Ended::Finished);
        self.state()
    }

    /// What working the journal through again finds, answers read anew.
    fn rerun(&self) -> Option<String> {
        let outside = self.outside(Speaker::Nobody);
        let text = |sha: &str| self.texts.lock().unwrap().get(sha).cloned().ok_or_else(|| "gone".to_string());
        let recorded = Recorded { asker: &outside, text: &text, hash: text_hash };
        differences(&self.events, Some(&recorded))
    }

    fn state(&self) -> State {
        State::fold(&self.events).unwrap()
    }
}

fn model(provider: Provider, server: &Server) -> Speaker {
    let mut model = Model::new(provider, "m");
    model.base_url = Some(server.url.clone());
    model.pause = Duration::from_millis(1);
    model.seconds = 20;
    Speaker::Model(Box::new(model))
}

fn agent(command: &str) -> Speaker {
    Speaker::Agent { command: command.into(), seconds: 20 }
}

fn replace(name: &str, old: &str, new: &str) -> String {
    format!(
        "name: {name}\nthought: THOUGHT about {name}\n<<<<<<< SEARCH\n  run(SPEED {old} );\n=======\n  run(SPEED {new} );\n>>>>>>> REPLACE\n"
    )
}

/// What a model really sends, one after the other.
fn script(n: usize) -> Say {
    match n {
        0 => Say::Text(replace("faster", "1000", "900"), 500, 50),
        1 => Say::Status(429, "slow down".into(), Some("0")),
        2 => Say::Text(
            format!(
                "name: broken\nthought: THOUGHT of broken\n```cuda\n{}```",
                START.replace("run(SPEED 1000 );", "run(BROKEN ); // FAULT HERE")
            ),
            500,
            50,
        ),
        3 => Say::Text(
            format!("name: mended\nthought: THOUGHT of mended\n```cuda\n{}```", START.replace("1000", "950")),
            500,
            50,
        ),
        4 => Say::Refuses,
        5 => Say::Nonsense,
        6 => Say::Status(503, "busy".into(), None),
        7 => Say::Text("I would use tensor cores here.".into(), 500, 10),
        8 => Say::Text(format!("```cuda\n{}```", START.replace("{\n", "{ // comment\n\n")), 500, 50),
        9 => Say::Text("name: wider\nthought: THOUGHT of levers\nlevers: BLOCK_M=64".into(), 500, 10),
        10 => Say::Text(
            format!("name: cheat\nthought: THOUGHT of cheat\n```cuda\n{}```", START.replace("1000", "1 CHEAT")),
            500,
            50,
        ),
        11 => Say::Text("y".repeat(2 << 20), 500, 50),
        12 => Say::Overloaded,
        13 => Say::Text(
            format!("```cuda\n{}```", START.replace("//! [levers]", "//! constraints = [\"S > 4096\"]\n//! [levers]")),
            500,
            50,
        ),
        n => {
            let two = [n, n + 1000].map(|k| {
                format!(
                    "name: v{k}\nthought: THOUGHT of v{k}\n```cuda\n{}```\n",
                    START
                        .replace("1000", &(2000 - n % 100).to_string())
                        .replace("sdpa() {", &format!("sdpa() {{ int v{k};"))
                )
            });
            Say::Text(two.concat(), 500, 50)
        }
    }
}

#[test]
fn all_variants_run_to_their_end_with_every_format() {
    for provider in Provider::ALL {
        for variant in Variant::ALL {
            let server = Server::start(|n, _| script(n));
            let mut rig = Rig::new(request(variant, openai(), "evaluations=12,calls=40"), START);
            let state = rig.whole(model(provider, &server));
            let at = format!("{provider:?} {variant:?}");
            assert!(state.finished.as_deref().unwrap().contains("12 evaluations"), "{at}: {:?}", state.finished);
            assert_eq!(state.account.evaluations, 12, "{at}");
            let best = &state.solutions[state.best.unwrap() as usize];
            assert!((state.score(best.id).unwrap().value() - 810.0).abs() < 1e-6, "{at}: {}", best.change);
            for member in state.archive.members() {
                assert!(state.judged[&member.id].passed(), "{at}");
            }
            let refused = |f: &dyn Fn(&Refusal) -> bool| state.refusals.iter().filter(|r| f(r)).count();
            assert!(refused(&|r| matches!(r, Refusal::Duplicate { of: 0 })) == 1, "{at}: {:?}", state.refusals);
            assert!(refused(&|r| matches!(r, Refusal::NotApplicable { .. })) == 1, "{at}: {:?}", state.refusals);
            assert!(refused(&|r| matches!(r, Refusal::Unreadable { .. })) >= 2, "{at}: {:?}", state.refusals);
            let mended = state.solutions.iter().find(|s| s.candidate == "mended.cu").unwrap();
            assert_eq!(
                (mended.operator, state.solutions[mended.parents[0] as usize].candidate.as_str()),
                (Operator::Fix, "broken.cu")
            );
            assert!(state.account.tokens > 3000 && state.account.calls == state.turns, "{at}: {:?}", state.account);
            prompts_hold_what_the_variant_says(variant, &server.prompts(), &at);
            assert_eq!(rig.rerun(), None, "{at}");
        }
    }
}

#[test]
fn an_answer_or_a_prompt_that_is_another_one_now_is_found() {
    let server = Server::start(|n, _| script(n));
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=4,calls=9"), START);
    rig.whole(model(Provider::OpenAi, &server));
    assert_eq!(rig.rerun(), None);
    let answered = rig.events.iter().find_map(|e| match e {
        Event::Answered { answer_sha256, .. } => answer_sha256.clone(),
        _ => None,
    });
    let kept = rig.texts.lock().unwrap().insert(answered.clone().unwrap(), replace("faster", "1000", "901")).unwrap();
    assert!(rig.rerun().is_some_and(|why| why.contains("answer is read in another way")));
    rig.texts.lock().unwrap().insert(answered.unwrap(), kept);
    if let Event::Started { request, .. } = &mut rig.events[0] {
        request.prompts.templates.insert("format.md".into(), "Answer.".into());
    }
    assert!(rig.rerun().is_some_and(|why| why.contains("prompt is another one")));
}

fn prompts_hold_what_the_variant_says(variant: Variant, prompts: &[String], at: &str) {
    let last = prompts.last().unwrap();
    let all = prompts.concat();
    for (word, held) in [
        ("softmax_scale", true),
        ("SPEED 900", true),
        ("// HEADER", true),
        ("model cycles on the L4", true),
        ("INSIGHT of conflicts", variant.has_insights()),
        ("111 registers", variant.has_insights()),
        ("What was tried", variant.has_insights()),
        ("LESSON of wide loads", variant.has_insights()),
        ("THOUGHT of cheat", variant.has_insights()),
        ("rejected: made-up", variant.has_insights()),
        ("Earlier solutions", variant.has_history()),
    ] {
        assert_eq!(last.contains(word), held, "{at}: {word}\n{last}");
    }
    // Texts of other correct solutions than the best are history; what failed is seen by the fixer alone.
    assert_eq!(last.matches("```cuda\n//! task").count() > 1, variant.has_history(), "{at}");
    let fixer: Vec<&String> = prompts.iter().filter(|p| p.contains("A kernel that failed")).collect();
    assert!(
        fixer.len() >= 2 && fixer[0].contains("the FINDING of it") && fixer[0].contains("BROKEN ); // FAULT HERE"),
        "{at}"
    );
    assert!(fixer[0].contains("HEAT MAP 0009"), "{at}");
    assert!(fixer[0].contains("at line 11"), "{at}: {}", fixer[0]);
    assert_eq!(all.contains("The two parents to cross"), variant.has_history(), "{at}");
    if !variant.has_insights() {
        assert!(!all.contains("THOUGHT"), "{at}");
    }
}

#[test]
fn without_anything_correct_there_is_a_prompt_too() {
    let server = Server::start(|n, _| match n {
        0 => Say::Text(format!("```cuda\n{}```", START.replace("1000", "700")), 5, 5),
        _ => Say::Text(String::new(), 5, 5),
    });
    let start = START.replace("SPEED", "WRONG SPEED");
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=2"), &start);
    let state = rig.whole(model(Provider::OpenAi, &server));
    let first = &server.prompts()[0];
    assert!(
        first.contains("no correct kernel yet") && first.contains("WRONG SPEED") && !first.contains("The current best")
    );
    assert_eq!(state.best, Some(1));
}

#[test]
fn a_model_that_says_nothing_useful_is_given_up_with_the_reason() {
    let server = Server::start(|_, _| Say::Text("As a language model I like attention.".into(), 5, 5));
    let mut rig = Rig::new(request(Variant::Free, openai(), "evaluations=50"), START);
    let state = rig.whole(model(Provider::Anthropic, &server));
    assert_eq!((state.account.evaluations, state.account.calls), (1, 20));
    assert!(state.finished.unwrap().contains("no block of code"));
    let mut rig = Rig::new(request(Variant::Free, openai(), "evaluations=50,calls=3"), START);
    assert_eq!(rig.whole(model(Provider::Anthropic, &server)).account.calls, 3);
    let mut rig = Rig::new(request(Variant::Free, openai(), "evaluations=50,tokens=25"), START);
    assert_eq!(rig.whole(model(Provider::Ollama, &server)).account.tokens, 30);
}

#[test]
fn killed_at_every_event_a_call_without_answer_is_made_and_counted_again() {
    let answers = |n: usize, _: &server::Asked| match n % 3 {
        0 => Say::Text(replace("x", "1000", "800"), 5, 5),
        1 => Say::Text(format!("name: broken\n```cuda\n{}```", START.replace("SPEED 1000", "BROKEN")), 5, 5),
        _ => Say::Text("nothing".into(), 5, 5),
    };
    let first = |n| Rig::new(request(Variant::Full, openai(), n), START);
    let server = Server::start(answers);
    let mut rig = first("evaluations=9,calls=8");
    let calls = rig.whole(model(Provider::OpenAi, &server)).account.calls;
    assert_eq!(calls, 8);
    for kill in 2..rig.events.len() {
        let server = Server::start(answers);
        let mut killed = first("evaluations=9,calls=8");
        assert!(killed.drive(model(Provider::OpenAi, &server), kill, &|| false).is_err());
        let open = killed.state().open.clone();
        let state = killed.whole(model(Provider::OpenAi, &server));
        let asked =
            killed.events.iter().filter(|e| matches!(e, Event::Asked { asked: Effect::Propose { .. } })).count();
        assert_eq!((asked as u64, state.turns), (8, 8), "killed at {kill}");
        if let Some(Effect::Propose { turn, parents, fixes, .. }) = open {
            let again = killed.events.iter().any(|e| {
                matches!(e, Event::Asked { asked: Effect::Propose { turn: t, parents: p, fixes: f, .. } }
                    if *t == turn + 1 && *p == parents && *f == fixes)
            });
            assert!(again || turn == 8, "killed at {kill}");
        }
        assert_eq!(killed.rerun(), None, "killed at {kill}");
    }
}

#[test]
fn a_cancelled_call_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let kind = ProposerKind::Agent { command: "x".into(), seconds: 20 };
    let mut rig = Rig::new(request(Variant::Free, kind, "evaluations=3"), START);
    let slow = agent(&format!("touch {}; sleep 60", begun.display()));
    assert_eq!(rig.drive(slow, usize::MAX, &|| begun.exists()).unwrap(), Ended::Cancelled);
    assert!(matches!(rig.state().open, Some(Effect::Propose { turn: 1, .. })));
    let state = rig.whole(agent("printf 'name: n\\nlevers: BLOCK_M=64\\n'"));
    assert_eq!(state.account.calls, state.turns);
    assert_eq!(state.solutions[1].levers["BLOCK_M"].to_string(), "64");
}

#[test]
fn lessons_say_what_helped_and_are_read_again() {
    let server = Server::start(|n, _| script(n));
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=10"), START);
    let state = rig.whole(model(Provider::OpenAi, &server));
    let lessons = Lessons::of(&state, "run-1");
    let text = serde_json::to_string_pretty(&lessons).unwrap();
    assert_eq!(Lessons::parse(&text).unwrap(), lessons);
    let lines = lessons.lines(&state.request);
    for says in [
        "THOUGHT about faster: helped 1",
        "BLOCK_M 32 -> 64: helped 1",
        "THOUGHT of cheat: helped 0, hurt 0, failed 1 (made-up",
    ] {
        assert!(lines.iter().any(|l| l.contains(says)), "{says}: {lines:#?}");
    }
    let [from, to] = ["32", "64"].map(|v| {
        Levers::from([("BLOCK_M".to_string(), v.parse::<i64>().map(warpsmith_spec::LeverValue::Int).unwrap())])
    });
    assert!(lessons.prior(&state.request, &from, &to) > 1.05 && lessons.prior(&state.request, &to, &from) < 0.95);
    assert_eq!(Lessons::default().prior(&state.request, &from, &to), 1.0);
    for wrong in ["", "{}", "{\"schema\": \"x\", \"lessons\": []}", "[1]"] {
        assert!(Lessons::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn templates_can_be_others_and_the_size_is_kept() {
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=12"), START);
    let server = Server::start(|n, _| script(n));
    let state = rig.whole(model(Provider::OpenAi, &server));
    let texts = rig.texts.clone();
    let text = |sha: &str| texts.lock().unwrap().get(sha).cloned().ok_or_else(|| "gone".to_string());
    let outside = rig.outside(agent("true"));
    let parents = [state.best.unwrap()];
    let prompt = |tokens: usize| {
        Prompts::new(&BTreeMap::new(), tokens).unwrap().prompt(&state, &outside.sheet, &parents, None, &text)
    };
    let full = prompt(100_000).unwrap();
    assert!(!full.contains("Left out"));
    for share in [0.9, 0.8, 0.7] {
        let tokens = (full.len() as f64 / 4.0 * share) as usize;
        let less = prompt(tokens).unwrap();
        assert!(less.len() <= tokens * 4 && less.contains("Left out") && less.contains("SPEED 900"), "{share}: {less}");
    }
    assert!(prompt(100).unwrap_err().to_string().contains("--prompt-tokens"));
    let instead = |name: &str, text: &str| Prompts::new(&[(name.to_string(), text.to_string())].into(), 9000);
    let own = instead("format.md", "Answer in verse, at most {{ most }}.").unwrap();
    assert!(own.prompt(&state, &outside.sheet, &parents, None, &text).unwrap().contains("in verse, at most 3."));
    for (name, body, says) in
        [("format.md", "{% if %}", "format.md"), ("verse.md", "", "propose.md"), ("fix.md", "{{ x", "line 1")]
    {
        let why = instead(name, body).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

/// The prompts as they are, for eyes: `cargo test` with BLESS=1 writes them anew.
#[test]
fn snapshots() {
    for variant in Variant::ALL {
        let server = Server::start(|n, _| script(n));
        let mut rig = Rig::new(request(variant, openai(), "evaluations=9"), START);
        rig.whole(model(Provider::OpenAi, &server));
        let prompts = server.prompts();
        matches_file(&format!("{}.md", variant.word()), prompts.last().unwrap());
        if variant == Variant::Insight {
            matches_file("fix.md", prompts.iter().find(|p| p.contains("A kernel that failed")).unwrap());
        }
    }
}

fn matches_file(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/prompts").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(want == text, "{name} is another prompt now; look at it, then run with BLESS=1:\n{text}");
}

/// A kernel of this speed under this name, whole.
fn whole_kernel(name: &str, speed: u64) -> Say {
    let text = START.replace("1000", &speed.to_string());
    Say::Text(format!("name: {name}\nthought: THOUGHT of {name}\n```cuda\n{text}```"), 5, 5)
}

#[test]
fn an_elite_that_demands_more_has_its_own_prompt() {
    let server = Server::start(|n, _| whole_kernel(&format!("k{n}"), 990 - n as u64));
    let request = LoopRequest {
        rules: Rules { elite_min_speedup: 2.0, ..Rules::default() },
        ..request(Variant::Full, openai(), "evaluations=4,calls=10")
    };
    let mut rig = Rig::new(request, START);
    let state = rig.whole(model(Provider::OpenAi, &server));
    assert!(state.archive.members().is_empty() && state.best.is_some_and(|b| b != 0));
    let last = server.prompts().pop().unwrap();
    assert!(last.contains("the elite is empty") && last.contains("at least 2 times"), "{last}");
    // The search moves on all the same.
    assert!(last.contains("SPEED 989"), "{last}");
}

#[test]
fn islands_take_turns() {
    let server = Server::start(|n, _| whole_kernel(&format!("k{n}"), 900 + 7 * (n as u64 % 5)));
    let mut rig = Rig::new(
        LoopRequest {
            population: PopulationKind::Islands { islands: 2, keep: 2 },
            ..request(Variant::Free, openai(), "evaluations=6,calls=12")
        },
        START,
    );
    let state = rig.whole(model(Provider::OpenAi, &server));
    let asked = rig.events.iter().filter_map(|e| match e {
        Event::Asked { asked: Effect::Propose { parents, .. } } => parents.first().copied(),
        _ => None,
    });
    let homes: std::collections::BTreeSet<u64> = asked.collect();
    assert!(homes.len() > 1, "every turn went on from #{homes:?}");
    assert!(state.archive.islands().len() == 2 && state.archive.islands().iter().all(|i| i.len() <= 2));
    assert_eq!(rig.rerun(), None);
}

#[test]
fn the_fixers_budget_ends_the_mending_and_not_the_loop() {
    // Nothing is ever mended: every answer is broken, with other words.
    let broken = |n: usize| {
        let text = START.replace("SPEED 1000", &format!("BROKEN {n}"));
        Say::Text(format!("name: k{n}\n```cuda\n{text}```"), 5, 5)
    };
    let fixers = |budget: &str| {
        let server = Server::start(move |n, _| broken(n));
        let request = LoopRequest { fixes: 3, ..request(Variant::Free, openai(), budget) };
        let state = Rig::new(request, START).whole(model(Provider::OpenAi, &server));
        assert_eq!(state.account.evaluations, 9, "{budget}");
        let asked = server.prompts().iter().filter(|p| p.contains("A kernel that failed")).count() as u64;
        assert_eq!(state.account.fixes, asked, "{budget}");
        asked
    };
    assert_eq!(fixers("evaluations=9,fixes=2"), 2);
    assert!(fixers("evaluations=9") > 2);
}

#[test]
fn what_the_last_call_brought_is_judged() {
    for (budget, reached) in [("evaluations=9,calls=1", "1 calls"), ("evaluations=9,tokens=10", "10 tokens")] {
        let server = Server::start(|n, _| script(n + 20));
        let mut rig = Rig::new(request(Variant::Free, openai(), budget), START);
        let state = rig.whole(model(Provider::OpenAi, &server));
        // Two variants of one call, and the start.
        assert_eq!((state.account.calls, state.account.evaluations), (1, 3), "{budget}");
        assert!(state.pending().is_empty() && state.finished.as_deref().unwrap().contains(reached), "{budget}");
        assert_eq!(rig.rerun(), None, "{budget}");
    }
}

#[test]
fn a_server_that_is_gone_leaves_a_loop_that_can_be_gone_on_with() {
    let back = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let up = back.clone();
    let server = Server::start(move |n, _| match n {
        0 => script(0),
        n if up.load(std::sync::atomic::Ordering::SeqCst) => script(n + 20),
        _ => Say::Status(503, "gone".into(), Some("0")),
    });
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=6"), START);
    let failed = rig.drive(model(Provider::OpenAi, &server), usize::MAX, &|| false).unwrap_err();
    assert!(failed.to_string().contains("5 calls in a row") && failed.to_string().contains("gone"), "{failed}");
    assert!(rig.state().finished.is_none() && rig.state().account.calls == 6);
    back.store(true, std::sync::atomic::Ordering::SeqCst);
    let state = rig.whole(model(Provider::OpenAi, &server));
    assert_eq!(state.account.evaluations, 6);
    assert_eq!(rig.rerun(), None);
}

#[test]
fn a_kernel_that_fills_the_prompt_is_refused() {
    let long = format!("```cuda\n{}```", START.replace("{\n", &format!("{{\n{}", "  x += 1;\n".repeat(9000))));
    let server = Server::start(move |n, _| if n == 0 { Say::Text(long.clone(), 1, 1) } else { script(n + 20) });
    let mut rig = Rig::new(request(Variant::Full, openai(), "evaluations=4"), START);
    let state = rig.whole(model(Provider::OpenAi, &server));
    let told = |r: &Refusal| r.words().contains("--prompt-tokens");
    assert!(state.refusals.iter().any(told), "{:?}", state.refusals);
}
