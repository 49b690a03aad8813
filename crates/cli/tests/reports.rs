//! What is made of a run afterwards: report, comparison, evidence, brief, history; and what becomes of damaged runs.

mod common;

use common::{Place, root, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use warpsmith_store::{pack, unpack};

/// One right kernel and one wrong one, with the files for CI systems.
fn judged() -> Place {
    let place = Place::new();
    let fault = root().join("tests/faults/uninit_scores.cu");
    let output = place.run(&[
        "check",
        "level_07",
        fault.to_str().unwrap(),
        "--shapes",
        "tiny",
        "--mask",
        "none",
        "--out",
        "r",
        "--sarif",
        "r.sarif",
        "--junit",
        "r.xml",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    place
}

fn read(place: &Place, path: &str) -> String {
    fs::read_to_string(place.path().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The same run in another folder, with its journal edited and its summary to be made anew.
fn edited(place: &Place, to: &str, from: &str, with: &str) {
    let (old, new) = (place.path().join("r"), place.path().join(to));
    fs::create_dir(&new).unwrap();
    let journal = fs::read_to_string(old.join("journal.jsonl")).unwrap();
    assert!(journal.contains(from), "{from} is not in the journal");
    fs::write(new.join("journal.jsonl"), journal.replace(from, with)).unwrap();
}

#[test]
fn a_run_tells_people_programs_and_ci_systems() {
    let place = judged();
    let page = read(&place, "r/report.html");
    for words in ["level_07", "uninit_scores", "Do not merge", "not run on a GPU", "<svg", "__shfl_sync"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("<script") && !page.contains("src=\"http"));
    assert!(read(&place, "r/candidates/level_07/source/level_07.cu").starts_with("//!"), "the source is kept");
    let sarif: Value = serde_json::from_str(&read(&place, "r.sarif")).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "uninitialized-read");
    assert!(read(&place, "r.xml").contains("failures=\"1\""));
    let before = read(&place, "r/report.html");
    assert_eq!(place.run(&["report", "r"]).status.code(), Some(0));
    assert_eq!(
        read(&place, "r/report.html"),
        before.replace("runs/r", "r"),
        "made again from the folder, it is the same"
    );
    let brief = text(&place.run(&["brief", "r"]));
    assert!(
        brief.len() < 7000
            && brief.contains("uninit_scores.cu:")
            && brief.contains("warpsmith explain uninitialized-read"),
        "{brief}"
    );
}

#[test]
fn a_damaged_summary_is_made_again_and_nothing_is_lost() {
    let place = judged();
    let summary = read(&place, "r/summary.json");
    fs::write(place.path().join("r/summary.json"), "{\"schema\": ").unwrap();
    let output = place.run(&["report", "r"]);
    assert!(output.status.code() == Some(0) && text(&output).contains("summary.json is damaged"), "{}", text(&output));
    assert_eq!(read(&place, "r/summary.json"), summary);
    assert_eq!(read(&place, "r/summary.json.damaged"), "{\"schema\": ");
}

#[test]
fn a_killed_run_is_told_as_far_as_it_came() {
    let place = judged();
    let journal = read(&place, "r/journal.jsonl");
    let second = journal.match_indices('\n').nth(1).unwrap().0;
    fs::create_dir(place.path().join("killed")).unwrap();
    fs::write(place.path().join("killed/journal.jsonl"), &journal[..second + 30]).unwrap();
    let output = place.run(&["report", "killed"]);
    assert!(output.status.code() == Some(0) && text(&output).contains("has not come to its end"), "{}", text(&output));
    assert!(read(&place, "killed/report.html").contains("has not come to its end"));
}

#[test]
fn folders_that_are_no_runs_are_refused_and_left_alone() {
    let place = judged();
    let folder = place.path();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir(folder.join("foreign")).unwrap();
    fs::write(folder.join("foreign/summary.json"), "{\"schema\": \"somebody.else/2\"}").unwrap();
    fs::create_dir(folder.join("broken")).unwrap();
    fs::write(folder.join("broken/journal.jsonl"), "not json\n{}\n").unwrap();
    fs::write(folder.join("a-file"), "x").unwrap();
    for (name, words) in [
        ("empty", "no journal.jsonl"),
        ("foreign", "somebody.else/2"),
        ("broken", "journal.jsonl:1"),
        ("a-file", "a-file"),
        ("nowhere", "no such folder"),
    ] {
        for command in [
            &["report", name][..],
            &["brief", name],
            &["evidence", name, "--out", "e"],
            &["compare", name, "r"],
            &["compare", "r", name],
        ] {
            let (code, document) = place.json(command);
            let message = document["error"]["message"].as_str().unwrap_or_default();
            assert!(code == 2 && (message.contains(words) || message.contains(name)), "{command:?}: {code} {document}");
        }
        let left: Vec<_> =
            fs::read_dir(folder.join(name)).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
        assert!(left.len() <= 1, "{name}: {left:?}");
    }
    assert!(!folder.join("e").exists());
}

#[test]
fn comparisons_end_as_ci_needs_them_to() {
    let place = judged();
    edited(&place, "lost", "\"verdict\":\"passed\"", "\"verdict\":\"incorrect\"");
    edited(&place, "other", "\"numerics\":\"faithful\"", "\"numerics\":\"fast\"");
    edited(&place, "work", "\"warp_instructions\":", "\"warp_instructions\":9");
    edited(&place, "seeds", "\"seed\":0", "\"seed\":5");
    let baseline = place.path().join("baseline.json");
    fs::copy(place.path().join("r/summary.json"), &baseline).unwrap();
    let rows: [(&[&str], i32, &str); 12] = [
        (&["r", "r"], 0, "bit-identical"),
        (&["baseline.json", "r"], 0, "bit-identical"),
        (&["r", "r", "--fail-if", "slower-than 3%"], 0, "not judged"),
        (&["r", "r", "--fail-if", "more-work-than 0%"], 0, "held"),
        (&["r", "work", "--fail-if", "more-work-than 5%"], 1, "MISSED"),
        (&["work", "r", "--fail-if", "more-work-than 5%"], 0, "held"),
        (&["r", "lost"], 1, "lost: level_07"),
        (&["r", "other"], 2, "numerics"),
        (&["r", "other", "--allow-unequal"], 0, "unequal: numerics"),
        (&["r", "seeds"], 2, "in common"),
        (&["r", "r", "--fail-if", "faster 3"], 2, "slower-than 3%"),
        (&["r:level_07", "r:nobody"], 2, "uninit_scores"),
    ];
    for (arguments, code, words) in rows {
        let output = place.run(&[&["compare"], arguments].concat());
        let said = text(&output);
        assert!(
            output.status.code() == Some(code) && said.contains(words),
            "{arguments:?}: {:?} {said}",
            output.status.code()
        );
    }
    let (code, document) = place.json(&["compare", "r", "r"]);
    assert!(
        code == 0
            && document["pairs"].as_array().is_some_and(|p| p.len() == 2)
            && document["schema"] == "warpsmith.compare/1",
        "{document}"
    );
}

#[test]
fn two_levels_of_one_run_stand_against_each_other() {
    let place = Place::new();
    place.run(&["check", "level_06", "level_07", "--shapes", "tiny", "--mask", "none", "--out", "r"]);
    for arguments in [["compare", "r:level_06", "r:level_07"], ["compare", "r:level_06", "level_07"]] {
        let output = place.run(&arguments);
        let said = text(&output);
        assert!(
            output.status.code() == Some(0) && said.contains("level_06 -> level_07") && said.contains("HMMA"),
            "{said}"
        );
    }
}

#[test]
fn evidence_holds_and_a_changed_byte_or_a_lie_does_not() {
    let place = judged();
    let output = place.run(&["evidence", "r", "--out", "e.tar.zst"]);
    assert!(output.status.code() == Some(0) && !text(&output).contains("note:"), "{}", text(&output));
    // Who packs a run whose source was changed since hears of it, and not only who verifies.
    let source = place.path().join("r/candidates/level_07/source/level_07.cu");
    let whole = fs::read(&source).unwrap();
    fs::write(&source, "changed").unwrap();
    let changed = text(&place.run(&["evidence", "r", "--out", "changed"]));
    assert!(changed.contains("has not what was judged: source") && changed.contains("of level_07"), "{changed}");
    fs::write(&source, whole).unwrap();
    let packed = fs::read(place.path().join("e.tar.zst")).unwrap();
    let archive = unpack(&packed).unwrap();
    for name in [
        "summary.json",
        "journal.jsonl",
        "report.html",
        "README.txt",
        "evidence/tensor_cores.json",
        "evidence/commands.txt",
        "evidence/absent.txt",
        "candidates/level_07/source/level_07.cu",
    ] {
        assert!(archive.files.contains_key(name), "{name}");
    }
    let tensor: Value = serde_json::from_slice(&archive.files["evidence/tensor_cores.json"]).unwrap();
    assert!(tensor[0]["proved"] == true && tensor[0]["executed"].as_u64() > Some(0), "{tensor}");
    let (code, document) = place.json(&["evidence", "verify", "e.tar.zst"]);
    assert!(code == 0 && document["holds"] == true, "{document}");
    assert!(
        document.to_string().contains("2 results judged again here: the same PTX, verdict and output bits"),
        "{document}"
    );

    let mut bad = packed.clone();
    bad[packed.len() / 2] ^= 1;
    fs::write(place.path().join("bad"), bad).unwrap();
    let (code, document) = place.json(&["evidence", "verify", "bad"]);
    assert!(code == 2 && document["error"]["code"] == "evidence-changed", "{document}");
    fs::write(place.path().join("foreign"), vec![7u8; 5000]).unwrap();
    assert_eq!(place.json(&["evidence", "verify", "foreign"]).0, 2);

    // Whole and consistent, but the wrong kernel is said to have passed: executed again, it does not.
    let lie = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec())
            .unwrap()
            .replace("\"verdict\": \"faulted\"", "\"verdict\": \"passed\"")
            .replace("\"verdict\":\"faulted\"", "\"verdict\":\"passed\"")
            .into_bytes()
    };
    let mut files: BTreeMap<String, Vec<u8>> = archive.files.clone();
    for name in ["summary.json", "journal.jsonl"] {
        let told = lie(&files[name]);
        assert_ne!(told, files[name], "{name}");
        files.insert(name.into(), told);
    }
    fs::write(place.path().join("lie"), pack("r", "warpsmith", &files).unwrap().0).unwrap();
    let (code, document) = place.json(&["evidence", "verify", "lie"]);
    assert!(code == 1 && document.to_string().contains("passed there, faulted here"), "{code} {document}");
}

#[test]
fn history_is_an_index_that_mends_itself() {
    let place = Place::new();
    for stamp in ["20261121-100000-check", "20261121-110000-check"] {
        place.run(&["check", "level_07", "--shapes", "tiny", "--mask", "none", "--out", &format!("runs/{stamp}")]);
    }
    fs::create_dir(place.path().join("runs/20261121-120000-broken")).unwrap();
    fs::write(place.path().join("runs/20261121-120000-broken/journal.jsonl"), "x\ny\n").unwrap();
    let look = || text(&place.run(&["history"]));
    let first = look();
    assert!(
        first.contains("20261121-100000-check")
            && first.contains("20261121-110000-check")
            && first.contains("20261121-120000-broken is left out"),
        "{first}"
    );
    assert_eq!(look(), first);
    fs::write(place.path().join("runs/.index.json"), "damaged").unwrap();
    assert_eq!(look(), first);
    let kernel = text(&place.run(&["history", "level"]));
    assert!(kernel.contains("level_07") && kernel.contains("not timed"), "{kernel}");
    assert!(text(&place.run(&["history", "nobody"])).contains("no run of nobody"));
    assert_eq!(place.json(&["history", "--runs", "nowhere"]).0, 2);
    assert!(Path::new(&place.path().join("runs/.index.json")).exists());
}

#[test]
fn a_loops_report_is_made_again_from_its_folder() {
    let place = Place::new();
    let output = place.run(&["evolve", "--shapes", "tiny", "--budget", "2", "--out", "loop"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let pages = ["report.html", "report.md", "summary.json"].map(|p| (p, read(&place, &format!("loop/{p}"))));
    for (page, _) in &pages[..2] {
        fs::remove_file(place.path().join("loop").join(page)).unwrap();
    }
    assert_eq!(place.run(&["report", "loop"]).status.code(), Some(0));
    for (page, before) in &pages {
        assert_eq!(&read(&place, &format!("loop/{page}")), before, "{page}");
    }
}
