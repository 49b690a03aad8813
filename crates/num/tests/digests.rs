//! Every conversion against NVIDIA's own functions, through the digests of whole tables that `cargo xtask num-digests` made.

use warpsmith_num::digests::{Set, tables};

#[test]
fn conversions_are_nvidias() {
    let committed = include_str!("nvidia_digests.txt");
    let want: Vec<(&str, &str)> = committed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .map(|(digest, name)| (name, digest))
        .collect();
    let got: Vec<(&str, String)> =
        tables(Set::Classes).into_iter().map(|(name, digest)| (name, format!("{digest:016x}"))).collect();
    assert_eq!(want.len(), got.len(), "tables");
    for ((want_name, want), (name, got)) in want.into_iter().zip(got) {
        assert_eq!((want_name, want), (name, got.as_str()));
    }
}
