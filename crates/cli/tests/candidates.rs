//! Right and wrong kernels in many styles (`tests/candidates`): the right ones pass, the wrong ones end in the verdict that they name.

mod common;

use common::{Place, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// S 77 has a tail in every tile size; with two heads a mistaken head shows.
const SHAPES: &str = "tiny,1x2x77x64";

fn sources(kind: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/candidates").join(kind);
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    found.sort();
    found
}

fn verdicts(document: &Value, shape: Option<&str>) -> BTreeSet<String> {
    let results = document["results"].as_array().unwrap_or_else(|| panic!("{document}"));
    let chosen = results.iter().filter(|r| shape.is_none_or(|s| r["shape"] == s));
    chosen.map(|r| r["verdict"].as_str().unwrap().to_string()).collect()
}

#[test]
fn right_kernels_pass() {
    let files = sources("right");
    assert!(files.len() >= 12);
    for file in files {
        let (code, document) =
            Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu", "--shapes", SHAPES]);
        let finding = &document["results"].as_array().and_then(|r| r.iter().find(|r| r["verdict"] != "passed"));
        assert_eq!((code, verdicts(&document, None)), (0, BTreeSet::from(["passed".into()])), "{file:?}: {finding:?}");
    }
}

#[test]
fn wrong_kernels_end_in_the_verdict_that_they_name() {
    let files = sources("wrong");
    assert!(files.len() >= 12);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let expected = text
            .lines()
            .find_map(|l| l.strip_prefix("// expect: "))
            .unwrap_or_else(|| panic!("{file:?} expects nothing"));
        let (code, document) =
            Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu", "--shapes", SHAPES]);
        // Some need more keys than tiny has.
        let found = verdicts(&document, Some("1x2x77x64"));
        assert_eq!(
            (code, found),
            (1, BTreeSet::from([expected.to_string()])),
            "{file:?}: {}",
            document["results"][0]["finding"]
        );
    }
}

/// `tests/candidates/attention/attend.cu` on one setting: the exit code, and the findings' codes and tensors.
fn attend(config: &str, more: &[&str]) -> (i32, BTreeSet<String>, Value) {
    let file = root().join("tests/candidates/attention/attend.cu");
    let mut args = vec!["check", file.to_str().unwrap(), "--backend", "cpu"];
    if !config.is_empty() {
        args.extend(["--config", config]);
    }
    let (code, document) = Place::new().json(&[&args[..], more].concat());
    let results = document["results"].as_array().unwrap_or_else(|| panic!("{config} {more:?}: {document}"));
    let of = |f: &Value| format!("{} {}", f["code"].as_str().unwrap_or(""), f["tensor"].as_str().unwrap_or(""));
    let found = results.iter().filter_map(|r| r.get("finding")).map(of).collect();
    (code, found, document)
}

#[test]
fn fp8_attention_is_judged_in_every_layout_mask_scale_and_format() {
    let rows: [(&str, &[&str], usize); 5] = [
        ("six layouts, two masks", &["--shapes", "tiny"], 12),
        (
            "formats of outputs",
            &["--shapes", "1x2x1x9x40x64", "--layout", "dense,ragged", "--out-format", "f16,e4m3"],
            8,
        ),
        (
            "queries that see nothing",
            &["--shapes", "1x2x1x40x24x64", "--layout", "dense,lengths", "--mask", "causal"],
            2,
        ),
        (
            "scales",
            &["--shapes", "1x2x2x5x150x64", "--layout", "paged", "--scales", "tensor,block", "--mask", "none"],
            2,
        ),
        (
            "distributions",
            &[
                "--shapes",
                "3x2x1x6x40x64",
                "--layout",
                "tokens,paged,packed",
                "--mask",
                "causal",
                "--dist",
                "normal,shifted,peaked,outliers,equal,constant,zeros",
            ],
            21,
        ),
    ];
    for (what, args, workloads) in rows {
        let (code, found, document) = attend("", args);
        assert_eq!((code, found.len()), (0, 0), "{what}: {found:?}");
        let results = document["results"].as_array().unwrap();
        assert_eq!(results.len(), workloads, "{what}");
        for r in results {
            assert!(r["check"]["out"].is_object() && r["check"]["lse"].is_object(), "{what}: {}", r["variant"]);
        }
    }
}

/// The attention library's kernel for Ada (products in e4m3, with its 13 bits of accumulator) and for Ampere: any heads, lengths and strides.
#[test]
fn the_kernel_that_ships_for_other_cards_is_right_on_their_arithmetic() {
    for (file, target) in [("gate_any_portable.cu", "sm_89"), ("gate_any_portable_f16.cu", "sm_80")] {
        let file = root().join("kernels/attention/hopper").join(file);
        let file = file.to_str().unwrap();
        let rows: [(&str, &[&str], usize); 6] = [
            (
                "few rows whose keys twenty CTAs share",
                &["--config", "more", "--shapes", "1x4x2x3x700x64", "--layout", "dense"],
                2,
            ),
            (
                "more parts than shared memory has room for at a time",
                &["--config", "most", "--shapes", "1x2x1x50x1000x64", "--mask", "causal", "--layout", "dense"],
                1,
            ),
            (
                "three CTAs share keys",
                &["--config", "shared", "--shapes", "1x6x2x9x400x128", "--scales", "block", "--layout", "dense"],
                2,
            ),
            ("both layouts, both masks, scales", &["--shapes", "tiny", "--scales", "head,tensor,block"], 12),
            ("queries that see nothing, in groups of three", &["--shapes", "1x3x1x40x24x64", "--mask", "causal"], 2),
            (
                "two blocks of scales, long rows",
                &[
                    "--shapes",
                    "1x2x2x9x150x128",
                    "--scales",
                    "block",
                    "--layout",
                    "dense",
                    "--dist",
                    "outliers,shifted",
                ],
                4,
            ),
        ];
        for (what, more, workloads) in rows {
            let args = [&["check", file, "--backend", "cpu", "--target", target][..], more].concat();
            let (code, document) = Place::new().json(&args);
            let results = document["results"].as_array().unwrap_or_else(|| panic!("{what}: {document}"));
            let bad = results.iter().find(|r| r["verdict"] != "passed").map(|r| &r["finding"]);
            assert_eq!((code, bad, results.len()), (0, None, workloads), "{target}: {what}");
        }
    }
}

/// The same where only the device knows lengths: one behind another, parts of caches, pages; by one CTA to a row tile, and by three that share its keys.
#[test]
fn other_cards_have_sequences_of_their_own_lengths() {
    for file in ["gate_any_portable_lengths.cu", "gate_any_portable_f16_lengths.cu"] {
        shipped_pass(&[
            (file, "scales, both masks", &["--shapes", "tiny", "--scales", "head,block"], 12),
            (file, "shared", &["--config", "shared", "--shapes", "3x4x2x9x300x64", "--mask", "causal"], 3),
            (file, "by fifty", &["--config", "most", "--shapes", "2x2x1x40x700x64", "--mask", "causal"], 3),
            (
                file,
                "shared, queries that see nothing",
                &["--config", "shared", "--shapes", "2x3x1x40x24x64", "--mask", "causal", "--dist", "normal"],
                3,
            ),
        ]);
    }
}

/// Each file of `kernels/attention/hopper` passes on as many workloads as its row says: the file, what is judged, arguments, workloads.
fn shipped_pass(rows: &[(&str, &str, &[&str], usize)]) {
    for &(file, what, more, workloads) in rows {
        let path = root().join("kernels/attention/hopper").join(file);
        let args = [&["check", path.to_str().unwrap(), "--backend", "cpu"][..], more].concat();
        let (code, document) = Place::new().json(&args);
        let results = document["results"].as_array().unwrap_or_else(|| panic!("{file}: {what}: {document}"));
        let bad = results.iter().find(|r| r["verdict"] != "passed").map(|r| &r["finding"]);
        assert_eq!((code, bad, results.len()), (0, None, workloads), "{file}: {what}");
    }
}

/// The attention library's kernel for many queries at head dimension 64, with plain products and copies in the place of Hopper's: its arithmetic, rings and barriers.
#[test]
fn the_kernel_without_exponentials_is_right_on_plain_products() {
    const PLAIN: &str = "gate_any_forward_f16_plain.cu";
    const PACKED: &str = "gate_any_forward_f16_packed_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 6] = [
        (
            PLAIN,
            "groups of queries, ragged tiles",
            &["--shapes", "tiny,batch", "--scales", "head,tensor", "--sweep"],
            24,
        ),
        (
            PLAIN,
            "queries that see nothing, row tiles that see nothing, also where they are drawn from a counter",
            &["--shapes", "blind,1x3x1x270x40x64", "--sweep"],
            12,
        ),
        (
            PLAIN,
            "a key far above all before, outliers, equal keys; rings of buffers come round",
            &["--shapes", "1x2x1x70x700x64", "--dist", "peaked,needles,outliers,equal,zeros"],
            10,
        ),
        (
            PLAIN,
            "few keys, whose error nothing averages",
            &["--shapes", "1x1x1x5x7x64", "--dist", "normal,peaked", "--seeds", "0,2,4"],
            12,
        ),
        (
            PACKED,
            "scales by block; queries of 16 bits",
            &["--shapes", "tiny,blind", "--scales", "block,head", "--sweep"],
            24,
        ),
        (PACKED, "rings that come round", &["--shapes", "1x2x1x200x700x64", "--dist", "needles,shifted"], 4),
    ];
    shipped_pass(&rows);
}

/// The same at head dimension 128, with three consumers and two: scores in f16, weights made as e4m3 codes.
#[test]
fn the_kernel_that_makes_codes_of_weights_is_right_on_plain_products() {
    const PLAIN: &str = "gate_any_forward_e4m3_plain.cu";
    const BLOCKS: &str = "gate_any_forward_e4m3_blocks_plain.cu";
    const PACKED: &str = "gate_any_forward_e4m3_packed_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 10] = [
        (
            PLAIN,
            "groups of queries, ragged tiles",
            &["--shapes", "2x4x2x24x72x128,1x6x2x40x150x128", "--scales", "head,tensor", "--sweep"],
            40,
        ),
        (
            PLAIN,
            "queries that see nothing, row tiles that see nothing, consumers that see none of a row tile's keys",
            &["--shapes", "2x2x1x80x48x128,1x3x1x270x40x128,1x12x2x192x100x128", "--sweep"],
            30,
        ),
        (PLAIN, "row tiles that straddle the mask's edge", &["--shapes", "1x2x1x300x700x128", "--sweep"], 10),
        (
            PLAIN,
            "a key far above all before, outliers, equal keys; rings of buffers come round",
            &["--shapes", "1x2x1x70x700x128", "--dist", "peaked,needles,outliers,equal,zeros"],
            10,
        ),
        (
            PLAIN,
            "few keys, whose error nothing averages",
            &["--shapes", "1x1x1x5x7x128", "--dist", "normal,peaked", "--seeds", "0,2,4"],
            12,
        ),
        (
            BLOCKS,
            "scales by block, of queries too: a row tile's rows are of two blocks",
            &["--shapes", "1x2x1x200x300x128,1x3x1x270x40x128", "--scales", "block,head", "--sweep"],
            16,
        ),
        (
            BLOCKS,
            "scales that differ much, in rings that come round",
            &["--shapes", "1x2x1x70x1200x128", "--scales", "block", "--dist", "outliers,peaked"],
            4,
        ),
        (
            PACKED,
            "scales by block, and even ones; queries of 16 bits",
            &["--shapes", "2x4x2x24x72x128,2x2x1x80x48x128", "--scales", "block,head", "--sweep"],
            32,
        ),
        (PACKED, "rings that come round", &["--shapes", "1x2x1x200x700x128", "--dist", "needles,shifted"], 4),
        (
            PACKED,
            "a first tile behind all keys, then scores that rise by more than outputs' range: none is lost",
            &["--shapes", "1x2x1x500x333x128", "--scales", "block", "--config", "three"],
            2,
        ),
    ];
    shipped_pass(&rows);
}

/// The same over V^T, at head dimensions 128 and 256, two tiles of keys at a time behind the mask too; and what makes V^T.
#[test]
fn the_kernel_over_transposed_values_is_right_on_plain_products() {
    const TRANSPOSED: &str = "gate_any_forward_e4m3_transposed_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 9] = [
        (
            TRANSPOSED,
            "groups of queries, ragged tiles, queries and row tiles that see nothing",
            &["--shapes", "2x4x2x24x72x256,1x3x1x200x40x256", "--scales", "head,tensor"],
            8,
        ),
        (
            TRANSPOSED,
            "a key far above all before, outliers, equal keys; rings of buffers come round",
            &["--shapes", "1x1x1x70x700x256", "--dist", "peaked,needles,outliers,equal,zeros"],
            10,
        ),
        (TRANSPOSED, "few keys", &["--shapes", "1x1x1x5x7x256", "--dist", "normal,peaked", "--seeds", "0,2"], 8),
        (
            TRANSPOSED,
            "weights linear between powers of two, at 256 dimensions too",
            &["--shapes", "1x1x1x70x700x256,2x4x2x24x72x128", "--dist", "peaked,needles,equal", "--config", "linear"],
            12,
        ),
        (
            TRANSPOSED,
            "two and three consumers, any share of linear weights, rows that see nothing",
            &["--shapes", "2x2x1x150x200x128,1x3x1x200x40x128", "--sweep"],
            28,
        ),
        (
            TRANSPOSED,
            "made beside attention: each tile waited for, and the counters put back",
            &[
                "--shapes",
                "2x4x2x300x700x128,1x2x2x200x300x256",
                "--scales",
                "head",
                "--mask",
                "none",
                "--config",
                "beside_two",
            ],
            2,
        ),
        (
            TRANSPOSED,
            "steps by the loop without branches for far scores, and such that leave it",
            &[
                "--shapes",
                "1x1x1x70x300x128,1x1x1x70x512x128",
                "--dist",
                "normal,needles",
                "--mask",
                "none",
                "--config",
                "three",
            ],
            4,
        ),
        (
            TRANSPOSED,
            "fewer linear weights at 256 dimensions",
            &["--shapes", "1x1x1x70x512x256", "--dist", "normal", "--mask", "none", "--config", "short_two"],
            1,
        ),
        (
            TRANSPOSED,
            "the last row tile's second group of rows sees a tile more than its first",
            &["--shapes", "1x1x1x190x250x256,1x2x2x290x390x128", "--dist", "needles,shifted"],
            8,
        ),
    ];
    shipped_pass(&rows);
}

/// The kernels of few queries with plain products and copies: warps that are alone with their rings, what they exchange, teams of CTAs whose last comer adds.
#[test]
fn the_kernels_of_few_queries_are_right_on_plain_products() {
    const DECODE: &str = "gate_any_decode_plain.cu";
    const LENGTHS: &str = "gate_any_decode_lengths_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 10] = [
        (
            DECODE,
            "units alone, in teams and by stretches, by 8, 16 and 32 rows; the room for outputs is taken again",
            &["--shapes", "2x2x2x4x300x128", "--mask", "causal", "--sweep"],
            9,
        ),
        (DECODE, "wide heads, outputs in the rings", &["--shapes", "1x1x1x7x150x256", "--mask", "none", "--sweep"], 10),
        (
            DECODE,
            "rows by 16 and 32, of which the last unit lacks some",
            &["--shapes", "1x3x1x13x200x64,1x3x1x13x200x128", "--scales", "block", "--sweep"],
            16,
        ),
        (LENGTHS, "parts of caches, pages", &["--shapes", "3x2x1x3x250x64,2x1x1x4x140x256", "--mask", "causal"], 4),
        (
            LENGTHS,
            "rows by 16 and 32",
            &["--shapes", "2x3x1x11x200x128", "--mask", "causal", "--layout", "paged", "--sweep"],
            3,
        ),
        (
            LENGTHS,
            "stretches of several sequences, and of parts of one",
            &["--shapes", "5x2x1x3x250x64", "--mask", "causal", "--layout", "lengths", "--sweep"],
            6,
        ),
        (
            "gate_any_decode_tokens_plain.cu",
            "one behind another, by stretches and parts of one unit",
            &["--shapes", "5x4x2x4x300x128,40x2x2x2x48x64", "--mask", "causal", "--sweep"],
            6,
        ),
        (
            "gate_any_ragged_plain.cu",
            "one behind another, parts of caches, pages; keys split and not",
            &["--shapes", "2x4x2x9x300x64", "--sweep"],
            12,
        ),
        ("gate_any_ragged_plain.cu", "wide heads", &["--shapes", "2x2x1x40x200x256", "--mask", "causal", "--sweep"], 6),
        (
            "gate_any_split_plain.cu",
            "keys over warpgroups",
            &[
                "--shapes",
                "2x4x2x9x700x64,1x2x1x30x300x256",
                "--mask",
                "causal",
                "--layout",
                "tokens",
                "--scales",
                "block",
                "--sweep",
            ],
            4,
        ),
    ];
    shipped_pass(&rows);
}

/// Few rows of queries, whose keys CTAs share out: groups packed into row tiles, the last warp to come adds; caches of which a part is used, pages; sequences one behind another, whose
/// row tiles four CTAs draw from a counter.
#[test]
fn few_rows_over_many_keys_are_right_on_plain_products() {
    const CODES: &str = "gate_any_forward_e4m3_few_plain.cu";
    const CODES_LENGTHS: &str = "gate_any_forward_e4m3_few_lengths_plain.cu";
    const CODES_VARLEN: &str = "gate_any_forward_e4m3_few_varlen_plain.cu";
    const CODES_MADE: &str = "gate_any_forward_e4m3_few_varlen_made_plain.cu";
    const CODES_LENGTHS_MADE: &str = "gate_any_forward_e4m3_few_lengths_made_plain.cu";
    const CODES_BLOCKS: &str = "gate_any_forward_e4m3_few_blocks_plain.cu";
    const EXACT: &str = "gate_any_forward_few_plain.cu";
    const EXACT_BLOCKS: &str = "gate_any_forward_few_blocks_plain.cu";
    const F16: &str = "gate_any_forward_f16_few_plain.cu";
    const F16_VARLEN: &str = "gate_any_forward_f16_few_varlen_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 22] = [
        (
            EXACT,
            "a log-sum-exp of shares of keys, queries that see nothing",
            &["--shapes", "2x6x2x12x500x128,1x4x2x200x90x64", "--mask", "causal", "--sweep"],
            5,
        ),
        (
            EXACT,
            "shares without keys, new maxima",
            &["--shapes", "1x3x1x5x150x256,1x4x1x40x700x64", "--dist", "needles,outliers"],
            8,
        ),
        (
            EXACT_BLOCKS,
            "scales by block, many row tiles",
            &["--shapes", "1x3x1x230x200x128,2x2x1x9x300x256", "--scales", "block"],
            4,
        ),
        (
            "gate_any_forward_few_varlen_plain.cu",
            "log-sum-exps, one behind another, long ones and many",
            &["--shapes", "3x4x2x200x300x128,20x6x2x30x200x64", "--sweep"],
            10,
        ),
        (
            "gate_any_forward_few_lengths_plain.cu",
            "log-sum-exps and scales by block, parts of caches, pages",
            &["--shapes", "3x4x2x12x400x64,2x2x1x9x300x256", "--scales", "block"],
            8,
        ),
        (
            CODES_BLOCKS,
            "scales by block, queries that see nothing",
            &["--shapes", "1x3x1x230x200x128,1x4x2x100x40x256", "--scales", "block", "--mask", "causal"],
            2,
        ),
        (
            CODES,
            "row tiles of several heads, queries that see nothing",
            &["--shapes", "2x6x2x12x500x128,1x4x2x200x90x128", "--mask", "causal", "--sweep"],
            6,
        ),
        (CODES, "shares without keys, wide heads", &["--shapes", "1x3x1x5x150x128,1x2x1x70x200x256", "--sweep"], 14),
        (CODES, "new maxima in every share", &["--shapes", "1x4x1x40x900x128", "--dist", "needles,outliers,equal"], 6),
        (
            CODES_LENGTHS,
            "parts of caches, pages",
            &["--shapes", "3x4x2x12x400x128,2x2x1x9x300x256", "--set", "GROUPS=2"],
            8,
        ),
        (CODES_LENGTHS, "many row tiles", &["--shapes", "2x2x1x530x200x128", "--mask", "causal"], 2),
        (F16, "the kernel without exponentials", &["--shapes", "2x6x2x12x500x64,1x4x2x200x90x64", "--sweep"], 8),
        (F16, "many row tiles, in groups of three", &["--shapes", "1x3x1x530x200x64"], 2),
        (
            "gate_any_forward_f16_few_lengths_plain.cu",
            "the kernel without exponentials, parts of caches, pages",
            &["--shapes", "3x4x2x12x400x64", "--sweep"],
            12,
        ),
        (
            CODES_LENGTHS,
            "each sequence's own number of shares",
            &["--shapes", "3x4x2x12x600x128", "--config", "own_shared"],
            4,
        ),
        (
            CODES_VARLEN,
            "one behind another, long ones and many",
            &["--shapes", "3x4x2x600x700x128,40x2x1x30x200x128"],
            4,
        ),
        (
            CODES_VARLEN,
            "row tiles of one query head each, one behind another",
            &["--shapes", "2x3x1x150x300x256", "--config", "heads_apart"],
            2,
        ),
        (
            "gate_any_forward_few_lengths_plain.cu",
            "row tiles of one query head each, over caches and pages",
            &["--shapes", "2x3x1x70x300x256", "--config", "heads_apart"],
            4,
        ),
        (F16_VARLEN, "the kernel without exponentials", &["--shapes", "5x6x2x150x300x64", "--sweep"], 6),
        (
            CODES_MADE,
            "over V^T that is made before, long ones and many",
            &["--shapes", "3x4x2x200x300x128,20x4x2x30x200x256", "--sweep"],
            8,
        ),
        (
            CODES_LENGTHS_MADE,
            "over V^T of parts of caches, and of pages",
            &["--shapes", "3x4x2x12x400x128,2x2x1x9x300x256", "--set", "GROUPS=2"],
            8,
        ),
        (
            CODES_LENGTHS_MADE,
            "the same by three",
            &["--shapes", "2x4x2x100x300x128", "--set", "GROUPS=3", "--mask", "causal"],
            2,
        ),
    ];
    shipped_pass(&rows);
}

/// The kernel with exponentials, over V^T and V as it comes, with log-sum-exps: new maxima late, rows that see nothing, rings of buffers that come round.
#[test]
fn the_kernel_with_exponentials_is_right_on_plain_products() {
    const TRANSPOSED: &str = "gate_any_forward_transposed_plain.cu";
    const PLAIN: &str = "gate_any_forward_plain.cu";
    let rows: [(&str, &str, &[&str], usize); 4] = [
        (TRANSPOSED, "groups, rows that see nothing", &["--shapes", "1x4x2x24x72x256,1x3x1x200x40x128"], 4),
        (TRANSPOSED, "new maxima", &["--shapes", "1x1x1x70x700x256,1x1x1x70x700x128", "--dist", "needles,outliers"], 8),
        (
            PLAIN,
            "two, three and four consumers",
            &["--shapes", "1x4x2x200x300x64,1x2x1x200x150x256", "--mask", "causal", "--sweep"],
            3,
        ),
        (
            PLAIN,
            "rows that see nothing; new maxima",
            &["--shapes", "1x3x1x200x40x64,1x1x1x70x300x128", "--dist", "needles"],
            4,
        ),
    ];
    shipped_pass(&rows);
}

/// Packing: codes, scales and means of keys and values by definition; attention over what was packed; and both, one after the other.
#[test]
fn packing_that_ships_is_right_alone_and_with_attention_behind_it() {
    let ampere = "what stands for a conversion to e4m3 that Ampere does not have";
    let of = |format: &'static str, dist: &'static str| {
        ["--target", "sm_80", "--shapes", "ragged", "--format", format, "--dist", dist]
    };
    shipped_pass(&[
        ("gate_any_pack.cu", ampere, &of("bf16", "normal,zeros"), 2),
        ("gate_any_pack_keys.cu", ampere, &of("bf16,f16,f32", "outliers"), 3),
    ]);
    let rows: [(&str, &[&str], usize); 14] = [
        ("gate_any_pack_head.cu", &["--scales", "head", "--format", "bf16,f16", "--dist", "normal,zeros"], 8),
        ("gate_any_pack_head.cu", &["--scales", "head", "--shapes", "1x1x129x256,2x3x700x128", "--dist", "shifted"], 2),
        ("gate_any_pack_keys.cu", &["--shapes", "ragged,tiny,wide", "--format", "bf16,f16,f32"], 9),
        ("gate_any_pack_keys.cu", &["--shapes", "1x1x513x128,1x2x64x64,1x1x65x64,1x1x128x128", "--dist", "shifted"], 4),
        ("gate_any_pack_keys.cu", &["--shapes", "deep", "--format", "bf16,f32", "--dist", "outliers,zeros"], 4),
        ("gate_any_pack_all.cu", &["--shapes", "ragged,tiny,wide", "--format", "bf16,f16,f32"], 9),
        ("gate_any_pack_all.cu", &["--shapes", "ragged,deep", "--format", "f16", "--dist", "normal,outliers,zeros"], 6),
        ("gate_any_pack_all.cu", &["--shapes", "1x1x513x128,1x2x64x64,1x1x257x64", "--dist", "outliers"], 3),
        ("gate_any_pack.cu", &["--scales", "block,head,tensor"], 6),
        ("gate_any_pack.cu", &["--shapes", "ragged", "--format", "f16,f32", "--dist", "normal,outliers,zeros"], 6),
        ("gate_any_pack.cu", &["--shapes", "1x2x128x64,1x1x129x256", "--dist", "shifted"], 2),
        (
            "gate_any_portable_packed.cu",
            &["--shapes", "tiny", "--scales", "head,block", "--dist", "needles,shifted"],
            8,
        ),
        ("gate_any_pack_attend.cu", &["--shapes", "tiny", "--scales", "head,tensor,block", "--dist", "shifted"], 6),
        (
            "gate_any_pack_attend.cu",
            &["--shapes", "1x4x2x9x300x64", "--scales", "block", "--dist", "needles,outliers"],
            4,
        ),
    ];
    for (file, more, workloads) in rows {
        let path = root().join("kernels/attention/hopper").join(file);
        let args = [&["check", path.to_str().unwrap(), "--backend", "cpu", "--target", "sm_89"][..], more].concat();
        let (code, document) = Place::new().json(&args);
        let results = document["results"].as_array().unwrap_or_else(|| panic!("{file}: {document}"));
        let bad = results.iter().find(|r| r["verdict"] != "passed").map(|r| &r["finding"]);
        assert_eq!((code, bad, results.len()), (0, None, workloads), "{file} {more:?}");
    }
}

#[test]
fn each_mistake_of_an_attention_kernel_is_found_where_it_can_be_seen() {
    let rows: [(&str, &[&str], &str); 23] = [
        ("group_index", &["--layout", "dense"], "out"),
        ("top_left", &["--layout", "dense", "--mask", "causal"], "out"),
        ("lse_log2", &["--layout", "dense"], "lse"),
        ("lse_no_maximum", &["--layout", "dense"], "lse"),
        ("lse_of_scores", &["--layout", "dense"], "lse"),
        ("head_of_lse", &["--layout", "dense"], "lse"),
        ("first_table", &["--layout", "paged"], "out"),
        ("page_of_32", &["--layout", "paged"], "out"),
        ("whole_cache", &["--layout", "lengths"], "out"),
        ("last_key_of_cache", &["--layout", "lengths"], "out"),
        (
            "scale_block",
            &["--shapes", "1x2x2x5x150x64", "--layout", "dense", "--scales", "block", "--dist", "outliers"],
            "out",
        ),
        ("out_scale", &["--layout", "dense", "--out-format", "e4m3"], "out"),
        ("blind_nan", &["--shapes", "1x2x1x40x24x64", "--layout", "dense", "--mask", "causal"], "out"),
        ("blind_lse", &["--shapes", "1x2x1x40x24x64", "--layout", "dense", "--mask", "causal"], "lse"),
        ("keys_of_queries", &["--layout", "ragged"], "out"),
        ("scale_of_query_head", &["--layout", "dense"], "out"),
        ("dense_strides", &["--layout", "tokens"], "out"),
        ("mean_forgotten", &["--layout", "packed", "--dist", "shifted"], "out"),
        ("mean_of_query_head", &["--layout", "packed", "--dist", "shifted"], "out"),
        ("mean_scaled", &["--layout", "packed", "--dist", "shifted"], "out"),
        ("mean_before_division", &["--layout", "packed", "--dist", "shifted"], "out"),
        ("mean_in_blind_rows", &["--shapes", "1x2x1x40x24x64", "--layout", "packed", "--mask", "causal"], "out"),
        ("lse_without_mean", &["--layout", "packed", "--dist", "shifted"], "lse"),
    ];
    let text = fs::read_to_string(root().join("tests/candidates/attention/attend.cu")).unwrap();
    assert_eq!(text.matches("[[config]]").count(), rows.len() + 1, "each mistake of the file has a row");
    for (config, args, tensor) in rows {
        let mut args = args.to_vec();
        if !args.contains(&"--shapes") {
            args.extend(["--shapes", "tiny"]);
        }
        let (code, found, _) = attend(config, &args);
        assert_eq!(code, 1, "{config} passes");
        assert!(found.iter().any(|f| f.ends_with(tensor)), "{config}: {found:?}");
    }
}
