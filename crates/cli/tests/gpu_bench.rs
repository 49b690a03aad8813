//! Gate 3 on a device: kernels that only a GPU, or only many launches, show wrong lose their own evaluations and nobody else's.

mod common;

use common::{Place, root};
use std::collections::BTreeMap;
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
        expected.insert(path.display().to_string(), verdict);
    }
    assert!(expected.len() >= 6);
    let mut arguments = vec!["bench"];
    arguments.extend(expected.keys().map(String::as_str));
    let levels: Vec<String> = (0..9).map(|n| format!("level_0{n}")).collect();
    arguments.extend(levels.iter().map(String::as_str));
    // Nine levels on two shapes, two masks and fourteen seeds: 504 evaluations beside the hostile ones.
    arguments.extend([
        "--shapes",
        "tiny,1x1x64x64",
        "--seeds",
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13",
        "--baselines",
        "none",
    ]);
    arguments.extend(["--methods", "graph_cold", "--time", "0.02", "--stability", "40", "--target", "sm_90"]);
    let (exit, record) = place.json(&arguments);
    assert_eq!(exit, 1, "{record}");
    let mut right = 0;
    for result in record["results"].as_array().unwrap() {
        let candidate = result["candidate"].as_str().unwrap();
        let want = expected.get(candidate).map_or("passed", String::as_str);
        assert_eq!(result["verdict"], want, "{candidate} {}: {}", result["shape"], result["finding"]);
        right += usize::from(want == "passed");
    }
    assert!(right >= 500, "{right}");
}
