//! Calls of a model against a scripted server that speaks the real wire formats.

mod server;

use server::{Say, Server};
use std::time::Duration;
use warpsmith_evolve::driver::Answer;
use warpsmith_evolve::llm::{Key, Model, Price, Provider};

fn model(provider: Provider, url: &str) -> Model {
    let mut model = Model::new(provider, "a/model-1");
    model.base_url = Some(url.into());
    model.key = Key::new("sk-secret-0123456789\n");
    model.price = Some(Price { input: 1.0, output: 10.0 });
    model.pause = Duration::from_millis(1);
    model.seconds = 20;
    model
}

fn one(provider: Provider, script: impl Fn(usize) -> Say + Send + 'static) -> (Result<Answer, String>, Server) {
    let server = Server::start(move |n, _| script(n));
    let answer = model(provider, &server.url).call("the prompt", 20, &|| false);
    (answer, server)
}

#[test]
fn each_format_is_asked_and_understood() {
    let long = "// é…\n".repeat(3000);
    for (provider, path, header) in [
        (Provider::OpenAi, "/v1/chat/completions", ("authorization", "Bearer sk-secret-0123456789")),
        (Provider::Anthropic, "/v1/messages", ("x-api-key", "sk-secret-0123456789")),
        (
            Provider::Gemini,
            "/v1beta/models/a%2Fmodel-1:streamGenerateContent?alt=sse",
            ("x-goog-api-key", "sk-secret-0123456789"),
        ),
        (Provider::Ollama, "/api/chat", ("authorization", "Bearer sk-secret-0123456789")),
    ] {
        let text = long.clone();
        let (answer, server) = one(provider, move |_| Say::Text(text.clone(), 1000, 100));
        let answer = answer.unwrap();
        assert_eq!(answer.text.as_deref(), Some(long.as_str()), "{provider:?}: {:?}", answer.failure);
        assert_eq!((answer.tokens, answer.failure), (1100, None), "{provider:?}");
        assert!((answer.usd - 0.002).abs() < 1e-12, "{provider:?}");
        let asked = server.asked.lock().unwrap()[0].clone();
        assert_eq!((asked.path.as_str(), asked.prompt.as_str()), (path, "the prompt"));
        assert_eq!(asked.header(header.0), Some(header.1), "{provider:?}");
        // A server that does not stream is understood too.
        let (answer, _) = one(provider, |_| Say::Whole("all at once".into()));
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_deref(), answer.tokens), (Some("all at once"), 10), "{provider:?}");
    }
}

#[test]
fn what_passes_is_waited_out_and_what_does_not_is_told() {
    for provider in Provider::ALL {
        let busy = |n: usize| match n {
            0 => Say::Status(429, "slow down".into(), Some("0")),
            1 => Say::Status(529, "overloaded".into(), None),
            2 => Say::Overloaded,
            _ => Say::Text("at last".into(), 5, 5),
        };
        let (answer, server) = one(provider, busy);
        assert_eq!(answer.unwrap().text.as_deref(), Some("at last"), "{provider:?}");
        assert_eq!(server.prompts().len(), 4);
        for (say, says) in [
            (Say::Refuses, "refused"),
            (Say::Nonsense, "malformed"),
            (Say::Text(String::new(), 5, 0), "empty"),
            (Say::BreaksOff("half".into()), "broke off"),
            (Say::TooLong("half".into()), "cut off"),
            (Say::Status(429, "for ever".into(), None), "for ever"),
            (Say::Status(400, "too many tokens".into(), None), "too many tokens"),
        ] {
            let kept = say.clone();
            let (answer, _) = one(provider, move |_| kept.clone());
            let answer = answer.unwrap();
            if matches!(provider, Provider::Ollama) && matches!(say, Say::Refuses) {
                assert!(answer.text.is_some());
                continue;
            }
            let why = answer.failure.unwrap_or_default();
            assert!(why.contains(says), "{provider:?} {say:?}: {why:?}");
            let has_text = matches!(say, Say::BreaksOff(_) | Say::TooLong(_));
            assert_eq!(answer.text.is_some(), has_text, "{provider:?} {say:?}");
        }
    }
}

#[test]
fn what_no_call_can_mend_ends_it_without_the_key() {
    for (status, says) in [(401, "is the key right"), (404, "is there a model")] {
        let (answer, server) = one(Provider::OpenAi, move |_| {
            Say::Status(status, "Incorrect API key provided: sk-secret-0123456789".into(), None)
        });
        let why = answer.unwrap_err();
        assert!(why.contains(says) && why.contains("[key]") && !why.contains("sk-secret"), "{why}");
        assert_eq!(server.prompts().len(), 1);
    }
    let (answer, _) = one(Provider::Anthropic, |_| Say::Text("your key is sk-secret-0123456789".into(), 1, 1));
    assert!(!answer.unwrap().text.unwrap().contains("sk-secret"));
    let mut nobody = model(Provider::OpenAi, "http://127.0.0.1:9");
    let why = nobody.call("x", 20, &|| false).unwrap_err();
    assert!(why.contains("--base-url"), "{why}");
    assert!(!format!("{nobody:?}").contains("sk-secret"));
    assert!(Key::new("a b").is_none() && Key::new(" \n").is_none());
}

#[test]
fn a_server_that_hangs_holds_nobody() {
    let server = Server::start(|_, _| Say::Hangs);
    let mut slow = model(Provider::OpenAi, &server.url);
    let answer = slow.call("x", 1, &|| false).unwrap();
    assert!(answer.unreached && answer.failure.as_ref().unwrap().contains("--proposal-seconds"), "{answer:?}");
    let answer = slow.call("x", 600, &|| true).unwrap();
    assert_eq!((answer.text, answer.failure.as_deref()), (None, Some("cancelled")));
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let (answer, _) = one(Provider::Ollama, |_| Say::Text("x".repeat(3 << 20), 1, 1));
    let answer = answer.unwrap();
    assert!(answer.text.unwrap().len() <= 1 << 20);
    assert!(answer.failure.unwrap().contains("cut off at"));
}

#[test]
fn a_server_that_knows_another_form_is_asked_in_that_form() {
    let server = Server::start(|_, asked| {
        let has = |name: &str| asked.body.get(name).is_some();
        if has("stream_options") {
            return Say::Status(400, "unknown field stream_options".into(), None);
        }
        if has("max_tokens") {
            return Say::Status(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.".into(), None);
        }
        Say::Text("here".into(), 1, 1)
    });
    let answer = model(Provider::OpenAi, &server.url).call("x", 20, &|| false).unwrap();
    assert_eq!((answer.text.as_deref(), server.prompts().len()), (Some("here"), 3), "{answer:?}");
    // It is tried once: a server that refuses both is told of.
    let (answer, server) = one(Provider::OpenAi, |_| Say::Status(400, "no max_tokens".into(), None));
    assert!(answer.unwrap().failure.unwrap().contains("no max_tokens") && server.prompts().len() == 2);
}
