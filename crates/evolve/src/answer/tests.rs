use super::*;
use warpsmith_num::philox::Philox4x32;

const BASE: &str = "//! task = \"t\"\n//! [levers]\n//! M = [1, 2]\nextern \"C\" __global__ void k(float* x) {\n  int i = threadIdx.x;\n  x[i] = 1.0f;\n  x[i] += 2.0f;\n}\n";
const OTHER: &str = "//! task = \"t\"\nextern \"C\" __global__ void k(float* x) { x[0] = 3.0f; }\n";

fn texts(answer: &str) -> Vec<String> {
    read(answer, Some(BASE)).drafts.into_iter().map(|d| d.text.unwrap_or_default()).collect()
}

#[test]
fn whole_kernels_in_every_wrapping() {
    for answer in [
        format!("```cuda\n{OTHER}```"),
        format!("Sure! Here it is:\n\n```cpp\n{OTHER}```\nThis should be faster."),
        format!("~~~\n{OTHER}~~~"),
        format!("````c++ title=\"k.cu\"\n{OTHER}````\n"),
        format!("  ```cuda\n{OTHER}  ```"),
        format!("```\r\n{}```\r\n", OTHER.replace('\n', "\r\n")),
        format!("<think>maybe ```cuda\nnothing\n``` no</think>\n```cuda\n{OTHER}```"),
        format!("```bash\nnvcc k.cu\n```\nthen\n```cuda\n{OTHER}```"),
        format!("I would write\n\n{OTHER}\nas the kernel."),
        format!("```cuda\n{OTHER}"),
        serde_json::json!({"name": "a", "thought": "b", "code": OTHER}).to_string(),
        format!("```json\n{}\n```", serde_json::json!({"variants": [{"source": OTHER}]})),
        format!("Here it is:\n```json\n{}\n```\nGood luck!", serde_json::json!({"name": "a", "code": OTHER})),
        serde_json::json!({"name": "a", "code": format!("```cuda\n{OTHER}```")}).to_string(),
        format!("I could ```cuda\nnothing __global__\n``` no</think>\n```cuda\n{OTHER}```"),
        format!("<think>a</think><think>b</think>c</think>\n```cuda\n{OTHER}```"),
        format!("{}```cuda\n{OTHER}```", "<think></think>".repeat(60_000)),
        format!("```cuda\n{OTHER}```\nAgain:\n```cuda\n{OTHER}```"),
    ] {
        assert_eq!(texts(&answer), [OTHER], "{}", shortened(&answer, 400));
    }
    let bare = OTHER.split_once('\n').unwrap().1;
    assert_eq!(texts(&format!("```cuda\n{bare}```")), [front_matter(BASE) + bare]);
}

#[test]
fn labels_belong_to_their_variants() {
    let answer = format!(
        "**Name:** wide loads\n**Thought:** Vectors of 16 bytes\nhalve the instructions.\n\n```cuda\n{OTHER}```\n\n### name: `two`\nthought: more\nlevers: M=2\n\nname: three\nlevers: `M=1`\n<<<<<<< SEARCH\n  x[i] = 1.0f;\n=======\n  x[i] = 4.0f;\n>>>>>>> REPLACE\n"
    );
    let Drafts { drafts, refused } = read(&answer, Some(BASE));
    assert_eq!(refused, Vec::<String>::new());
    let short: Vec<_> = drafts.iter().map(|d| (d.name.as_deref(), d.set.join(" "), d.text.is_some())).collect();
    assert_eq!(
        short,
        [
            (Some("wide_loads"), String::new(), true),
            (Some("two"), "M=2".into(), false),
            (Some("three"), "M=1".into(), true)
        ]
    );
    assert_eq!(drafts[0].thought.as_deref(), Some("Vectors of 16 bytes halve the instructions."));
    assert!(drafts[2].text.as_ref().unwrap().contains("x[i] = 4.0f;"));
}

#[test]
fn changes_are_made_where_they_belong() {
    let want = BASE.replace("x[i] = 1.0f;", "x[i] = 5.0f;");
    for change in [
        "```\n<<<<<<< SEARCH\n  x[i] = 1.0f;\n=======\n  x[i] = 5.0f;\n>>>>>>> REPLACE\n```",
        "<<<<<<< SEARCH\n\n  x[i] = 1.0f;  \n=======\n\n  x[i] = 5.0f;\n>>>>>>> REPLACE",
        "```diff\n--- a/k.cu\n+++ b/k.cu\n@@ -90,3 +90,3 @@ void k\n   int i = threadIdx.x;\n-  x[i] = 1.0f;\n+  x[i] = 5.0f;\n   x[i] += 2.0f;\n```",
        "```patch\n-  x[i] = 1.0f;\n+  x[i] = 5.0f;\n```",
    ] {
        assert_eq!(texts(change).join("|"), want, "{change}");
    }
    // Two blocks without a name between them are one variant.
    let two = "```\n<<<<<<< SEARCH\n  x[i] = 1.0f;\n=======\n  x[i] = 5.0f;\n>>>>>>> REPLACE\n```\nand\n```\n<<<<<<< SEARCH\n  x[i] += 2.0f;\n=======\n>>>>>>> REPLACE\n```";
    assert_eq!(texts(two), [want.replace("  x[i] += 2.0f;\n", "")]);
}

#[test]
fn it_says_why_it_cannot() {
    let open = "```cuda\n//! task = \"t\"\n__global__ void k(float* x) {\n  if (x";
    for (answer, says) in [
        ("", "empty"),
        ("   \n", "empty"),
        ("I'm sorry, I cannot help with that.", "no block of code"),
        ("```python\nprint(1)\n```", "none of the 1 blocks"),
        (open, "cut off"),
        ("```cuda\n__global__ void k() {\n// ... rest of the kernel unchanged ...\n}\n```", "leaves code out"),
        ("<<<<<<< SEARCH\nnot there\n=======\nx\n>>>>>>> REPLACE", "not in the kernel"),
        ("<<<<<<< SEARCH\n  x[i] = 1.0f;\n=======\n", "cut off"),
        ("<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE", "no lines to look for"),
        ("```diff\n@@ -1 +1 @@\n same\n```", "changes nothing"),
    ] {
        let got = read(answer, Some(BASE));
        assert!(got.drafts.is_empty() && got.refused.iter().any(|w| w.contains(says)), "{answer:?}: {got:?}");
    }
    let twice = "//! a\n__global__ void k() {\n a();\n a();\n}\n";
    let got = read("<<<<<<< SEARCH\n a();\n=======\n b();\n>>>>>>> REPLACE", Some(twice));
    assert!(got.refused[0].contains("2 times"), "{got:?}");
    let got = read("<<<<<<< SEARCH\n a();\n=======\n b();\n>>>>>>> REPLACE", None);
    assert!(got.refused[0].contains("no kernel"), "{got:?}");
    let many: String = (0..5).map(|i| format!("```cuda\n{}```\n", OTHER.replace("3.0", &format!("{i}.0")))).collect();
    let got = read(&many, None);
    assert!(got.drafts.len() == MAX_DRAFTS && got.refused.len() == 2, "{got:?}");
    assert!(read(&"x".repeat(MAX_BYTES + 1), None).refused[0].contains("bytes"));
}

#[test]
fn comments_and_spaces_make_no_new_kernel() {
    let same = BASE.replace("  int i", "\n // why\n    int   i").replace("= 1.0f;", "=1.0f; /* one */");
    assert_eq!(normalised(BASE), normalised(&same));
    assert_eq!(normalised("//! a = 1 # why\nx"), normalised("//! a  = 1\nx"));
    for other in [BASE.replace("1.0f", "1.5f"), BASE.replace("[1, 2]", "[1, 3]"), BASE.replace("int i", "inti")] {
        assert_ne!(normalised(BASE), normalised(&other), "{other}");
    }
    assert_ne!(normalised("#define F (x)\n"), normalised("#define F(x)\n"));
    assert_ne!(normalised("f(\"a//b\");"), normalised("f(\"a//c\");"));
}

/// Cut, doubled and overwritten answers: whatever comes, it is read or refused.
#[test]
fn nothing_makes_it_panic() {
    let seeds = [
        format!("name: a\nthought: b\n```cuda\n{BASE}```\nlevers: M=2"),
        "```diff\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n   int i = threadIdx.x;\n-  x[i] = 1.0f;\n+  x[i] = 5.0f;\n```"
            .to_string(),
        "<<<<<<< SEARCH\n\n  x[i] = 1.0f;\n\n=======\n\n>>>>>>> REPLACE\n<think>é…</think>".to_string(),
        serde_json::json!({"variants": [{"code": OTHER, "levers": {"M": 2}}]}).to_string(),
    ];
    let parts = [
        "```",
        "~~~~",
        "\n",
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "@@",
        "é",
        "\"",
        "/*",
        "//!",
        "<think>",
        "{",
        "\\",
    ];
    for round in 0..3000u64 {
        let draws = Philox4x32::new(round, 1);
        let lot = |i: u64, n: usize| ((draws.uniform(i) * n as f64) as usize).min(n.saturating_sub(1));
        let mut text: Vec<char> = seeds[lot(0, seeds.len())].chars().collect();
        for step in 0..1 + lot(1, 6) as u64 {
            let at = lot(10 + 4 * step, text.len() + 1);
            match lot(11 + 4 * step, 3) {
                0 => text.truncate(at),
                1 => {
                    let part = parts[lot(12 + 4 * step, parts.len())];
                    text.splice(at..at, part.chars());
                }
                _ => {
                    let to = (at + lot(13 + 4 * step, 40)).min(text.len());
                    text.drain(at..to);
                }
            }
        }
        let text: String = text.into_iter().collect();
        for base in [None, Some(BASE), Some("")] {
            let got = read(&text, base);
            assert!(!got.drafts.is_empty() || !got.refused.is_empty());
            got.drafts.iter().for_each(|d| drop(normalised(d.text.as_deref().unwrap_or_default())));
        }
    }
}
