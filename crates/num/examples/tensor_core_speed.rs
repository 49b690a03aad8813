//! Time of one tensor-core product on one core, the best of several rounds: `cargo run --release --example tensor_core_speed`.

use std::time::Instant;
use warpsmith_num::philox::Philox4x32;
use warpsmith_num::tensor_core::{Accumulator, Element, Generation, Numerics, Op, Product, multiply_accumulate};

fn main() {
    let ada = Numerics::Faithful(Generation::Ada);
    let hopper = Numerics::Faithful(Generation::Hopper);
    let ampere = Numerics::Faithful(Generation::Ampere);
    use Accumulator::{F16, F32};
    use Element::{Bf16, E4m3, Tf32};
    let f16 = Element::F16;
    let rows = [
        ("fast", Numerics::Fast, Op::MmaSync, [16, 8, 32], E4m3, F32),
        ("ada", ada, Op::MmaSync, [16, 8, 32], E4m3, F32),
        ("hopper", hopper, Op::MmaSync, [16, 8, 32], E4m3, F32),
        ("fast", Numerics::Fast, Op::MmaSync, [16, 8, 16], f16, F32),
        ("ampere", ampere, Op::MmaSync, [16, 8, 16], f16, F32),
        ("ampere", ampere, Op::MmaSync, [16, 8, 16], f16, F16),
        ("ampere", ampere, Op::MmaSync, [16, 8, 16], Bf16, F32),
        ("ampere", ampere, Op::MmaSync, [16, 8, 8], Tf32, F32),
        ("hopper", hopper, Op::MmaSync, [16, 8, 16], f16, F32),
        ("fast", Numerics::Fast, Op::Wmma, [16, 16, 16], f16, F32),
        ("ampere", ampere, Op::Wmma, [16, 16, 16], f16, F32),
        ("fast", Numerics::Fast, Op::Wgmma, [64, 128, 32], E4m3, F32),
        ("hopper", hopper, Op::Wgmma, [64, 128, 32], E4m3, F32),
    ];
    for (name, numerics, op, [m, n, k], element, accumulator) in rows {
        let product = Product { m, n, k, a: element, b: element, accumulator, op };
        let random = Philox4x32::new(1, 0);
        // Finite values that every element type can hold.
        let values = |count: usize, offset: u64| -> Vec<f32> {
            (0..count).map(|i| (random.at(offset + i as u64)[0] % 31) as f32 / 8.0 - 1.875).collect()
        };
        let (a, b, c) = (values(m * k, 0), values(n * k, 10_000), values(m * n, 20_000));
        let mut d = vec![0.0; m * n];
        let calls = 1_000_000 / (m * n * k);
        let best = (0..200)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..calls {
                    multiply_accumulate(numerics, &product, std::hint::black_box(&a), &b, &c, &mut d);
                    std::hint::black_box(&mut d);
                }
                start.elapsed().as_secs_f64() / calls as f64
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name:7} {op:?} m{m}n{n}k{k} {element:?} -> {accumulator:?}: {:.3} us", best * 1e6);
    }
}
