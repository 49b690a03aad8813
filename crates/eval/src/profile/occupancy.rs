//! Theoretical occupancy: how many CTAs of a launch fit one multiprocessor at once, and what limits them.
//!
//! Source: CUDA C++ Programming Guide, "Compute Capabilities" (limits by multiprocessor), and the CUDA occupancy calculator's units: registers are
//! allotted to a warp in units of 256, warps in units of 4, shared memory in units of 128 bytes with 1 KiB of the system's for each CTA.
//! Limits: clusters and carve-outs that a launch asks for are not looked at; the largest carve-out is assumed.

use warpsmith_spec::record::OccupancyRecord;

/// A multiprocessor.
#[derive(Debug, Clone, Copy)]
struct Sm {
    /// `sm_` and this.
    capability: u32,
    max_warps: u32,
    max_ctas: u32,
    shared_kib: u32,
}

/// 65,536 registers each.
const SMS: [Sm; 10] = [
    Sm { capability: 75, max_warps: 32, max_ctas: 16, shared_kib: 64 },
    Sm { capability: 80, max_warps: 64, max_ctas: 32, shared_kib: 164 },
    Sm { capability: 86, max_warps: 48, max_ctas: 16, shared_kib: 100 },
    Sm { capability: 87, max_warps: 48, max_ctas: 16, shared_kib: 164 },
    Sm { capability: 89, max_warps: 48, max_ctas: 24, shared_kib: 100 },
    Sm { capability: 90, max_warps: 64, max_ctas: 32, shared_kib: 228 },
    Sm { capability: 100, max_warps: 64, max_ctas: 32, shared_kib: 228 },
    Sm { capability: 103, max_warps: 64, max_ctas: 32, shared_kib: 228 },
    Sm { capability: 120, max_warps: 48, max_ctas: 24, shared_kib: 100 },
    Sm { capability: 121, max_warps: 48, max_ctas: 24, shared_kib: 100 },
];
const REGISTERS: u32 = 65_536;

/// What a launch asks of a multiprocessor.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    pub threads: u32,
    pub registers: u32,
    /// Static and dynamic, of one CTA.
    pub shared_bytes: u64,
    /// CTAs of the grid; 0: not known.
    pub ctas: u64,
    /// Multiprocessors that share them; 0: not known.
    pub sms: u32,
}

/// The number in `sm_90a`.
pub fn capability(target: &str) -> Option<u32> {
    target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
}

/// None for a target whose limits are not known.
pub fn occupancy(target: &str, launch: &Launch) -> Option<OccupancyRecord> {
    let number = capability(target)?;
    let sm = SMS.iter().find(|s| s.capability == number)?;
    let warps = launch.threads.div_ceil(32).max(1);
    let per_warp = launch.registers.max(1).saturating_mul(32).div_ceil(256).max(1).saturating_mul(256);
    // The register file is split among four schedulers, so whole warps fit each.
    let by_registers = (REGISTERS / 4 / per_warp * 4) / warps;
    let shared =
        launch.shared_bytes.div_ceil(128).saturating_mul(128).saturating_add(if number >= 80 { 1024 } else { 0 });
    let by_shared = (u64::from(sm.shared_kib) * 1024).checked_div(shared).unwrap_or(u64::MAX);
    let limits = [
        (sm.max_warps / warps, "warps"),
        (by_registers, "registers"),
        (u32::try_from(by_shared).unwrap_or(u32::MAX), "shared memory"),
        (sm.max_ctas, "CTAs"),
    ];
    let (ctas, limit) = limits.into_iter().min_by_key(|(n, _)| *n)?;
    let at_once = u64::from(ctas) * u64::from(launch.sms);
    let waves = (launch.ctas > 0 && at_once > 0).then(|| launch.ctas as f64 / at_once as f64);
    Some(OccupancyRecord {
        ctas,
        warps: ctas * warps,
        max_warps: sm.max_warps,
        limit: if ctas == 0 { format!("{limit}: not even one CTA fits") } else { limit.into() },
        waves,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of NVIDIA's occupancy calculator (the spreadsheet, and `cudaOccupancyMaxActiveBlocksPerMultiprocessor`).
    #[test]
    fn known_values() {
        // target, threads, registers, shared bytes -> CTAs, warps, limit
        let rows: [(&str, u32, u32, u64, u32, u32, &str); 14] = [
            ("sm_80", 256, 32, 0, 8, 64, "warps"),
            ("sm_80", 256, 64, 0, 4, 32, "registers"),
            ("sm_80", 128, 128, 0, 4, 16, "registers"),
            ("sm_80", 128, 255, 0, 2, 8, "registers"),
            ("sm_80", 32, 16, 0, 32, 32, "CTAs"),
            ("sm_80", 1024, 64, 0, 1, 32, "registers"),
            ("sm_80", 256, 32, 49_152, 3, 24, "shared memory"),
            ("sm_89", 256, 32, 0, 6, 48, "warps"),
            ("sm_89", 128, 32, 34_816, 2, 8, "shared memory"),
            ("sm_89", 32, 16, 0, 24, 24, "CTAs"),
            ("sm_90", 128, 168, 0, 3, 12, "registers"),
            ("sm_90", 384, 168, 0, 1, 12, "registers"),
            ("sm_90a", 128, 32, 116_736, 1, 4, "shared memory"),
            ("sm_90a", 1024, 32, 0, 2, 64, "warps"),
        ];
        for (target, threads, registers, shared_bytes, ctas, warps, limit) in rows {
            let got = occupancy(target, &Launch { threads, registers, shared_bytes, ctas: 0, sms: 0 }).unwrap();
            assert_eq!(
                (got.ctas, got.warps, got.limit.as_str()),
                (ctas, warps, limit),
                "{target} {threads} {registers} {shared_bytes}"
            );
        }
    }

    #[test]
    fn waves_and_launches_that_never_fit() {
        let launch = Launch { threads: 128, registers: 128, shared_bytes: 0, ctas: 64, sms: 132 };
        let got = occupancy("sm_90", &launch).unwrap();
        assert!((got.waves.unwrap() - 64.0 / (4.0 * 132.0)).abs() < 1e-12);
        let none = occupancy("sm_89", &Launch { shared_bytes: 1 << 20, ..launch }).unwrap();
        assert!(none.ctas == 0 && none.limit.contains("not even one") && none.waves.is_none());
        assert!(occupancy("sm_61", &launch).is_none() && occupancy("gfx90a", &launch).is_none());
        for threads in [0, 1, u32::MAX] {
            let _ = occupancy(
                "sm_90",
                &Launch { threads, registers: u32::MAX, shared_bytes: u64::MAX, ctas: u64::MAX, sms: u32::MAX },
            );
        }
    }
}
