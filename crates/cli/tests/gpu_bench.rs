//! Gate 3 on a device: kernels that only a GPU, or only many launches, show wrong lose their own evaluations and nobody else's.

mod common;

use common::{Place, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

#[test]
#[ignore = "needs a CUDA device"]
fn hostile_kernels_get_their_own_verdicts_and_the_others_keep_theirs() {
    let place = Place::new();
    let folder = root().join("tests/candidates/gpu");
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let verdict = text.lines().find_map(|l| l.strip_prefix("// expect: ")).unwrap().to_string();
        // One shape each: a kernel that hangs costs its deadline every time.
        let narrow = text.replace("\"D == 64\"", "\"D == 64\", \"S == 32\"");
        assert_ne!(narrow, text, "{}", path.display());
        let own = place.path().join(path.file_name().unwrap());
        fs::write(&own, narrow).unwrap();
        expected.insert(own.display().to_string(), verdict);
    }
    assert!(expected.len() >= 6);
    let mut arguments = vec!["bench"];
    arguments.extend(expected.keys().map(String::as_str));
    let levels: Vec<String> = (0..9).map(|n| format!("level_0{n}")).collect();
    arguments.extend(levels.iter().map(String::as_str));
    // Nine levels, 28 shapes, two masks: 504 evaluations beside the hostile ones.
    let shapes: Vec<String> =
        std::iter::once("tiny".to_string()).chain((33..60).map(|n| format!("1x1x{n}x64"))).collect();
    let shapes = shapes.join(",");
    arguments.extend(["--shapes", &shapes, "--baselines", "none"]);
    arguments.extend(["--methods", "graph_cold", "--time", "0.02", "--stability", "40", "--target", "sm_90"]);
    let (exit, record) = place.json(&arguments);
    assert_eq!(exit, 1, "{record}");
    let (mut right, mut hostile) = (0, BTreeSet::new());
    for result in record["results"].as_array().unwrap() {
        let candidate = result["candidate"].as_str().unwrap();
        let want = expected.get(candidate).map_or("passed", String::as_str);
        assert_eq!(result["verdict"], want, "{candidate} {}: {}", result["shape"], result["finding"]);
        right += usize::from(want == "passed");
        hostile.extend((want != "passed").then_some(candidate));
    }
    assert!(right >= 500, "{right}");
    assert_eq!(hostile.len(), expected.len(), "{hostile:?}");
}
