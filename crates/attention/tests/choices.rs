//! The heuristic gives what its Python version gives: `choices.tsv` is written by `python/tests/choices.py`, whose own test keeps it fresh.

use warpsmith_attention::heuristic::{Shape, choose};
use warpsmith_attention::{Mask, instances};

#[test]
fn rows_of_the_table() {
    let table = include_str!("choices.tsv");
    let mut seen = 0;
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let (shape, want) = line.split_once('\t').unwrap();
        let n: Vec<u32> = shape.split(' ').map(|w| w.parse().unwrap()).collect();
        let [batch, heads_kv, group, seqlen_q, seqlen_k, head_dim, causal, plain, sms] = n[..] else {
            panic!("{line}")
        };
        let mask = if causal == 1 { Mask::Causal } else { Mask::Full };
        let c = choose(&Shape { batch, heads_kv, group, seqlen_q, seqlen_k, head_dim, mask, plain: plain == 1 }, sms);
        let boxes = c.boxes.map_or("-".into(), |(q, k)| format!("{q}x{k}"));
        let [x, y, z] = c.grid;
        let got = format!(
            "{} {x}x{y}x{z} {} {} {} {} {} {} {} {} {} {boxes}",
            c.instance.name(),
            c.block,
            c.shared_bytes,
            c.tiles_per_unit,
            c.tiles_per_worker,
            c.total_tiles,
            c.row_tiles,
            c.section,
            c.partial_floats,
            c.units
        );
        assert_eq!(got, want, "{shape}");
        seen += 1;
    }
    assert!(seen > 400, "{seen} rows");
}

#[test]
fn every_choice_is_in_the_list_of_instances() {
    let names: std::collections::BTreeSet<String> = instances().iter().map(|i| i.name()).collect();
    for line in include_str!("choices.tsv").lines().filter(|l| !l.starts_with('#')) {
        let name = line.split_once('\t').unwrap().1.split(' ').next().unwrap();
        for kind in 0..3 {
            let name = format!("{name}_out{kind}");
            assert!(names.contains(&name), "{name}");
        }
    }
}
