//! The heuristic gives what its Python version gives: `choices.tsv`, `lengths.tsv` and `portable.tsv` are written by `python/tests/choices.py`, whose own test keeps them fresh.

use std::collections::BTreeSet;
use warpsmith_attention::bundle::Bundle;
use warpsmith_attention::heuristic::{
    Shape, choose, choose_lengths, choose_portable, choose_portable_lengths, choose_varlen,
};
use warpsmith_attention::{Choice, Mask, PORTABLE_TARGETS, instances, portable_instances};

/// Batch, key heads, group, queries, keys, head dimension; then whether plain, packed, lse, wide, fast.
fn shape_of(sizes: &[u32], causal: u32, truths: [u32; 5]) -> Shape {
    let &[batch, heads_kv, group, seqlen_q, seqlen_k, head_dim] = sizes else { panic!("{sizes:?}") };
    let [plain, packed, lse, wide, fast] = truths.map(|truth| truth == 1);
    let mask = if causal == 1 { Mask::Causal } else { Mask::Full };
    Shape { batch, heads_kv, group, seqlen_q, seqlen_k, head_dim, mask, plain, packed, lse, wide, fast, shared: 1 }
}

/// All that a choice says, as the tables have it.
fn said(c: &Choice) -> String {
    let boxes = c.boxes.map_or("-".into(), |(q, k)| format!("{q}x{k}"));
    let [x, y, z] = c.grid;
    format!(
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
    )
}

#[test]
fn rows_of_the_table() {
    let table = include_str!("choices.tsv");
    let mut seen = 0;
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let (shape, want) = line.split_once('\t').unwrap();
        let n: Vec<u32> = shape.split(' ').map(|w| w.parse().unwrap()).collect();
        let [ref sizes @ .., causal, plain, packed, lse, wide, fast, sms] = n[..] else { panic!("{line}") };
        let got = said(&choose(&shape_of(sizes, causal, [plain, packed, lse, wide, fast]), sms));
        assert_eq!(got, want, "{shape}");
        seen += 1;
    }
    assert!(seen > 400, "{seen} rows");
}

/// Of sequences whose lengths only the device knows, too; and a build has the kernels of all.
#[test]
fn rows_of_the_table_of_lengths() {
    let listed: BTreeSet<String> = instances().iter().map(|i| i.name()).collect();
    let (mut seen, mut made, mut decided) = (0, 0, 0);
    for line in include_str!("lengths.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [places, shape, want] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let n: Vec<u32> = shape.split(' ').map(|w| w.parse().unwrap()).collect();
        let [ref sizes @ .., causal, plain, lse, fast, sms] = n[..] else { panic!("{line}") };
        let s = shape_of(sizes, causal, [plain, 0, lse, 0, fast]);
        let c = match places.split(' ').collect::<Vec<_>>()[..] {
            ["caches", page] => choose_lengths(&s, sms, Some(page.parse().unwrap()).filter(|page| *page > 0)),
            ["tokens", q, k] => choose_varlen(&s, (q.parse().unwrap(), k.parse().unwrap()), sms),
            _ => panic!("{line}"),
        };
        let got = format!("{} {} {}", said(&c), u32::from(c.transposes), c.splits);
        assert_eq!(got, want, "{places}\t{shape}");
        for kind in 0..3 {
            let name = c.instance.with_output(kind).name();
            assert!(listed.contains(&name), "{name}");
        }
        seen += 1;
        made += u32::from(c.transposes);
        decided += u32::from(c.row_tiles > 0 && c.tiles_per_unit > 0 && c.instance.file != "decode");
    }
    assert!(seen >= 900 && made > 20 && decided > 20, "{seen} rows, {made} over V^T, {decided} decided by the device");
}

/// Of cards that are no Hopper, too.
#[test]
fn rows_of_the_table_of_other_cards() {
    let listed: BTreeSet<String> = portable_instances().iter().map(|i| i.name()).collect();
    let (mut seen, mut shared) = (0, 0);
    for line in include_str!("portable.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [places, shape, want] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let n: Vec<u32> = shape.split(' ').map(|w| w.parse().unwrap()).collect();
        let [ref sizes @ .., causal, sms, ada] = n[..] else { panic!("{line}") };
        let s = shape_of(sizes, causal, [1, 0, 0, 0, 0]);
        let c = match places.split(' ').collect::<Vec<_>>()[..] {
            ["alike"] => choose_portable(&s, sms, ada == 1),
            ["caches"] => choose_portable_lengths(&s, sms, None, ada == 1),
            ["tokens", q] => choose_portable_lengths(&s, sms, Some(q.parse().unwrap()), ada == 1),
            _ => panic!("{line}"),
        };
        assert_eq!(said(&c), want, "{places}\t{shape}");
        for kind in 0..3 {
            let name = c.instance.with_output(kind).name();
            assert!(listed.contains(&name), "{name}");
        }
        seen += 1;
        shared += u32::from(c.tiles_per_worker > 1);
    }
    assert!(seen >= 300 && shared > 50, "{seen} rows, {shared} whose CTAs share keys");
}

#[test]
fn every_choice_is_in_the_list_of_instances() {
    let names: BTreeSet<String> = instances().iter().map(|i| i.name()).collect();
    for line in include_str!("choices.tsv").lines().filter(|l| !l.starts_with('#')) {
        let name = line.split_once('\t').unwrap().1.split(' ').next().unwrap();
        for kind in 0..if name.contains("_wideq1") { 2 } else { 3 } {
            // tiny.cu with log-sum-exps asks for the output's format at run time.
            let name = if name.ends_with("_lse1") { name.to_string() } else { format!("{name}_out{kind}") };
            assert!(names.contains(&name), "{name}");
        }
    }
}

/// The list is made from a grid of shapes; whatever else is asked, on cards with fewer SMs too, runs on an instance of it.
#[test]
fn the_list_of_instances_holds_what_any_shape_gets() {
    let listed: BTreeSet<_> = instances().into_iter().collect();
    let mut state = 1u64;
    let mut below = |n: u32| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((state >> 33) % u64::from(n)) as u32
    };
    let mut pick = |of: &[u32]| of[below(of.len() as u32) as usize];
    let length = |pick: &mut dyn FnMut(&[u32]) -> u32| {
        let power = pick(&[0, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 17]);
        ((1 << power) + pick(&[0, 1, 3, 17, 40, 100])).saturating_sub(pick(&[0, 1, 2, 9])).max(1)
    };
    for _ in 0..20_000 {
        let shape = Shape {
            batch: pick(&[1, 2, 3, 7, 16, 64, 500]),
            heads_kv: pick(&[1, 2, 3, 5, 8, 32]),
            group: pick(&[1, 1, 2, 3, 4, 5, 8, 16, 64]),
            seqlen_q: length(&mut pick),
            seqlen_k: length(&mut pick),
            head_dim: pick(&[64, 128, 256]),
            mask: if pick(&[0, 1]) == 1 { Mask::Causal } else { Mask::Full },
            plain: pick(&[0, 1, 1]) == 1,
            packed: pick(&[0, 0, 1]) == 1,
            lse: pick(&[0, 1]) == 1,
            wide: false,
            fast: pick(&[0, 1]) == 1,
            shared: 1,
        };
        let wide = shape.packed && pick(&[0, 1]) == 1;
        let shape = Shape { wide, lse: shape.lse && !wide, ..shape };
        let sms = pick(&[132, 114, 78, 66, 144]);
        let instance = choose(&shape, sms).instance.with_output(pick(if wide { &[0, 1] } else { &[0, 1, 2] }));
        assert!(listed.contains(&instance), "{shape:?} on {sms} SMs wants {}", instance.name());
    }
}

/// Where kernels are embedded, all are that any plan can name: for every card, and of the right kind.
#[test]
fn a_build_with_kernels_has_all_of_them() {
    let bundle = Bundle::embedded().expect("what was embedded is whole");
    if bundle.is_empty() {
        return; // this build has none, and its plans say so
    }
    let hopper = instances().into_iter().map(|i| ("sm_90a", i));
    let others = PORTABLE_TARGETS.iter().flat_map(|target| portable_instances().into_iter().map(|i| (*target, i)));
    for (target, instance) in hopper.chain(others) {
        let name = instance.name();
        let code = bundle.find(target, &name).unwrap_or_else(|| panic!("{target}/{name} is not embedded"));
        let code = code.expect("it unpacks");
        let right = if target == "compute_80" {
            code.windows(14).take(4000).any(|w| w == b".target sm_80\n" || w == b".target sm_80,")
        } else {
            code.starts_with(b"\x7fELF")
        };
        assert!(right, "{target}/{name} is no code for its target");
    }
}
