//! What a user of the quantisers relies on: scales, the threshold, the error, refusals.

use warpsmith_num::philox::Philox4x32;
use warpsmith_num::quant::{BLOCK_TOKENS, Code, Layout, QuantError, Sizes, dequantize, quantize};

const CODES: [Code; 3] = [Code::E4m3, Code::E5m2, Code::U8];
const LAYOUTS: [Layout; 3] = [Layout::Tensor, Layout::Head, Layout::Block];

fn line(tokens: usize) -> Sizes {
    Sizes { batch: 1, heads: 1, tokens, dim: 1 }
}

#[test]
fn scales_are_the_largest_magnitude_over_the_codes_largest() {
    // Two batches, two heads, 300 tokens: blocks of 128, 128 and 44.
    let sizes = Sizes { batch: 2, heads: 2, tokens: 300, dim: 4 };
    let Some(len) = sizes.len() else { panic!("2400 elements") };
    let mut values = vec![0.5f32; len];
    let head = 300 * 4;
    values[3] = -2.0; // head 0, block 0
    values[head + 299 * 4] = 3.0; // head 1, last block
    values[3 * head + BLOCK_TOKENS * 4] = 100.0; // head 3, block 1
    for (code, largest) in [(Code::E4m3, 448.0), (Code::E5m2, 57344.0), (Code::U8, 127.0)] {
        let rows: [(Layout, &[f32]); 3] = [
            (Layout::Tensor, &[100.0]),
            (Layout::Head, &[2.0, 3.0, 0.5, 100.0]),
            (Layout::Block, &[2.0, 0.5, 0.5, 0.5, 0.5, 3.0, 0.5, 0.5, 0.5, 0.5, 100.0, 0.5]),
        ];
        for (layout, magnitudes) in rows {
            let quantized = quantize(code, layout, sizes, &values).unwrap();
            let want: Vec<f32> = magnitudes.iter().map(|magnitude| magnitude / largest).collect();
            assert_eq!(quantized.scales, want, "{code:?} {layout:?}");
            assert_eq!(code.decode(quantized.codes[3 * head + BLOCK_TOKENS * 4]), largest, "{code:?} {layout:?}");
        }
    }
}

#[test]
fn up_to_the_threshold_the_scale_is_one_and_zeros_are_zeros() {
    let above = f32::from_bits(1e-6f32.to_bits() + 1);
    for code in CODES {
        for layout in LAYOUTS {
            for (largest, one) in
                [(0.0, true), (-0.0, true), (1e-30, true), (1e-6, true), (-1e-6, true), (above, false)]
            {
                let quantized = quantize(code, layout, line(3), &[0.0, largest, 0.0]).unwrap();
                let label = format!("{code:?} {layout:?} {largest:e}");
                if one {
                    assert_eq!(quantized.scales, [1.0], "{label}");
                } else {
                    assert_eq!(quantized.scales, [largest / code.max()], "{label}");
                }
                let values = dequantize(&quantized).unwrap();
                assert_eq!((values[0], values[2]), (0.0, 0.0), "{label}");
                // What the threshold swallows becomes zero; just above it nothing is lost.
                let error = (values[1] - largest).abs();
                assert!(if one { values[1] == 0.0 } else { error <= largest * 1e-6 }, "{label}: {}", values[1]);
            }
        }
    }
}

#[test]
fn the_error_is_half_a_step_at_most() {
    let random = Philox4x32::new(3, 0);
    let sizes = Sizes { batch: 1, heads: 3, tokens: 140, dim: 16 };
    let values: Vec<f32> = (0..3 * 140 * 16).map(|index| random.normal(index) as f32).collect();
    for layout in LAYOUTS {
        // Relative half step, and the absolute one below the smallest normal code, in units of the scale.
        for (code, relative, absolute) in
            [(Code::E4m3, 1.0 / 16.0, 0.5 / 512.0), (Code::E5m2, 1.0 / 8.0, 0.5 / 65536.0), (Code::U8, 0.0, 0.5)]
        {
            let quantized = quantize(code, layout, sizes, &values).unwrap();
            let largest_scale = quantized.scales.iter().fold(0.0f32, |a, b| a.max(*b));
            for (value, back) in values.iter().zip(dequantize(&quantized).unwrap()) {
                let limit = (value.abs() * relative).max(absolute * largest_scale) * 1.00001;
                assert!((value - back).abs() <= limit, "{code:?} {layout:?}: {value} became {back}");
            }
        }
    }
}

#[test]
fn u8_has_its_midpoint_at_128_and_uses_127_steps_each_way() {
    let quantized = quantize(Code::U8, Layout::Head, line(6), &[-127.0, -1.0, 0.0, 0.5, 1.5, 127.0]).unwrap();
    assert_eq!(quantized.codes, [1, 127, 128, 128, 130, 255]);
    assert_eq!(quantized.scales, [1.0]);
}

#[test]
fn what_has_no_code_is_refused() {
    for (value, index) in [(f32::NAN, 1), (f32::INFINITY, 0), (f32::NEG_INFINITY, 2)] {
        let mut values = [1.0; 3];
        values[index] = value;
        for code in CODES {
            let error = quantize(code, Layout::Tensor, line(3), &values).unwrap_err();
            assert!(matches!(error, QuantError::NotFinite { index: at, .. } if at == index), "{error}");
        }
    }
    let error = quantize(Code::E4m3, Layout::Tensor, line(3), &[1.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "3 values expected, 4 given");
    let huge = Sizes { batch: usize::MAX, heads: 2, tokens: 1, dim: 1 };
    assert!(quantize(Code::E4m3, Layout::Tensor, huge, &[]).is_err());
    let empty = quantize(Code::E4m3, Layout::Block, line(0), &[]).unwrap();
    assert_eq!((empty.codes.len(), empty.scales.len()), (0, 0));
}
