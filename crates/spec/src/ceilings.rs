//! What a device can do at most: rated figures by name, and measured ones that replace them. Pure data, in `data/devices.toml`.
//!
//! Rates are dense TFLOP/s, 1e12 exponentials a second, GB/s. It knows no kernel and takes no measurement.
//! Source: NVIDIA's data sheets; where one gives none (shared memory, exponentials) the widths of the CUDA programming guide at the boost clock.

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Ceilings of one device. Absent: it has no such unit, or nobody says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CeilingsRecord {
    pub device: String,
    /// `measured` | `data_sheet`
    pub source: String,
    /// When it was measured, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The SM clock during the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_tflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp16_tflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp32_tflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_tera: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_gb: Option<f64>,
}

impl CeilingsRecord {
    /// Measured figures where there are some, the data sheet's for the rest; `self` says which it was. Nothing and more than half as much
    /// again as the data sheet promises are faults of a measurement, not figures.
    pub fn over(&self, rated: &CeilingsRecord) -> CeilingsRecord {
        let pick = |own: Option<f64>, rated: Option<f64>| {
            own.filter(|x| *x > 0.0 && rated.is_none_or(|r| *x <= 1.5 * r)).or(rated)
        };
        CeilingsRecord {
            fp8_tflops: pick(self.fp8_tflops, rated.fp8_tflops),
            fp16_tflops: pick(self.fp16_tflops, rated.fp16_tflops),
            fp32_tflops: pick(self.fp32_tflops, rated.fp32_tflops),
            exp_tera: pick(self.exp_tera, rated.exp_tera),
            dram_gb: pick(self.dram_gb, rated.dram_gb),
            l2_gb: pick(self.l2_gb, rated.l2_gb),
            shared_gb: pick(self.shared_gb, rated.shared_gb),
            ..self.clone()
        }
    }

    pub fn is_measured(&self) -> bool {
        self.source == "measured"
    }

    /// Each ceiling by the name and unit that pages, prompts and tables call it by, whether it is known or not.
    pub fn rows(&self) -> [(&'static str, Option<f64>, &'static str); 7] {
        [
            ("DRAM", self.dram_gb, "GB/s"),
            ("L2", self.l2_gb, "GB/s"),
            ("shared memory", self.shared_gb, "GB/s"),
            ("FP8 tensor cores", self.fp8_tflops, "TFLOP/s"),
            ("FP16 tensor cores", self.fp16_tflops, "TFLOP/s"),
            ("FP32 without tensor cores", self.fp32_tflops, "TFLOP/s"),
            ("exponentials", self.exp_tera, "10^12/s"),
        ]
    }
}

#[derive(Deserialize)]
struct Row {
    name: String,
    words: Vec<String>,
    #[serde(default)]
    usual: Vec<String>,
    sms: u32,
    mhz: u32,
    fp8: Option<f64>,
    fp16: f64,
    fp32: f64,
    dram: f64,
}

fn rows() -> &'static [Row] {
    #[derive(Deserialize)]
    struct File {
        device: Vec<Row>,
    }
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let text = include_str!("../data/devices.toml");
        // A test reads the table; a damaged one rates no device.
        toml::from_str::<File>(text).map(|f| f.device).unwrap_or_default()
    })
}

/// The data sheet of a device by the name that its driver gives, or of the card that a target usually runs on.
pub fn rated(device_or_target: &str) -> Option<CeilingsRecord> {
    let named: Vec<&str> = device_or_target.split([' ', '-', '_']).collect();
    let by_name = || {
        // `H100 PCIe` before `H100`: of the rows whose words all stand in the name, the one with most words.
        let fits = |r: &&Row| r.words.iter().all(|w| named.iter().any(|n| n.eq_ignore_ascii_case(w)));
        rows().iter().filter(fits).max_by_key(|r| r.words.len())
    };
    let row = rows().iter().find(|r| r.usual.iter().any(|t| t == device_or_target)).or_else(by_name)?;
    let clocks = f64::from(row.sms) * f64::from(row.mhz) * 1e6;
    Some(CeilingsRecord {
        device: row.name.clone(),
        source: "data_sheet".into(),
        fp8_tflops: row.fp8,
        fp16_tflops: Some(row.fp16),
        fp32_tflops: Some(row.fp32),
        exp_tera: Some(16.0 * clocks / 1e12),
        dram_gb: Some(row.dram),
        shared_gb: Some(128.0 * clocks / 1e9),
        ..CeilingsRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name_and_by_target() {
        assert!(rows().len() >= 10);
        for (name, want) in [
            ("NVIDIA H200", "NVIDIA H200 SXM"),
            ("NVIDIA L4", "NVIDIA L4"),
            ("sm_89", "NVIDIA L4"),
            ("sm_90a", "NVIDIA H100 SXM"),
            ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
            ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
            ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
            ("NVIDIA GeForce RTX 4090", "NVIDIA RTX 4090"),
        ] {
            assert_eq!(rated(name).map(|c| c.device).as_deref(), Some(want), "{name}");
        }
        assert!(rated("sm_120").is_none() && rated("NVIDIA L400").is_none() && rated("").is_none());
    }

    #[test]
    fn rates_follow_from_widths_where_a_sheet_gives_none() {
        let h100 = rated("NVIDIA H100 80GB HBM3").unwrap();
        assert!((h100.exp_tera.unwrap() - 4.18).abs() < 0.01 && (h100.shared_gb.unwrap() - 33_454.0).abs() < 1.0);
        assert_eq!(rated("sm_80").unwrap().fp8_tflops, None, "A100 has no FP8");
        let measured = CeilingsRecord { source: "measured".into(), dram_gb: Some(3000.0), ..CeilingsRecord::default() };
        let both = measured.over(&h100);
        assert!(both.is_measured() && both.dram_gb == Some(3000.0) && both.fp16_tflops == Some(989.0));
    }
}
