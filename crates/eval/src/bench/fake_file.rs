//! The file of `--backend fake:FILE`: what each subject's times are to be and what is to go wrong. TOML, or JSON where the name ends so.
//!
//! `docs/fake-backend.md` describes it. It exists so that the whole of gate 3 can be tested, and its failures shown, without a GPU.

use serde::Deserialize;
use std::collections::BTreeMap;
use warpsmith_spec::error::{SpecCode, SpecError};
use warpsmith_spec::levers::LeverValue;
use warpsmith_spec::record::RunRecord;

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeFile {
    #[serde(default = "device")]
    pub device: String,
    /// The device's own target: what gate 2 runs where the candidate has it.
    #[serde(default)]
    pub target: Option<String>,
    /// Relative deviation of every sample, unless a subject has its own.
    #[serde(default = "noise")]
    pub noise: f64,
    /// Of the noise.
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub conditions: FakeConditions,
    /// For floors.
    #[serde(default)]
    pub terabytes_per_second: Option<f64>,
    #[serde(default)]
    pub teraoperations_per_second: Option<f64>,
    /// Who holds the device: it is then never to be had.
    #[serde(default)]
    pub held_by: Option<String>,
    /// What has no row of its own has no time; else it takes 10 microseconds.
    #[serde(default)]
    pub strict: bool,
    /// The first that fits counts.
    #[serde(default, rename = "subject")]
    pub subjects: Vec<FakeSubject>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeConditions {
    pub sm_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<u32>,
    #[serde(default)]
    pub throttle: Vec<String>,
}

/// What a candidate or a baseline does.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeSubject {
    /// A candidate as it is named, its file's stem, a baseline, or `*`.
    pub name: String,
    pub shape: Option<String>,
    pub causal: Option<bool>,
    pub config: Option<String>,
    /// Values that the candidate's levers have; those that are not named may have any.
    #[serde(default)]
    pub levers: BTreeMap<String, LeverValue>,
    /// Microseconds: one number, or one for each method; `graph_cold` stands in for those that are missing.
    pub us: Option<FakeTimes>,
    pub noise: Option<f64>,
    /// Relative, from one request to the next: what a clock that sinks does.
    #[serde(default)]
    pub drift: f64,
    /// The launch, from 1, at which the device reports a fault.
    pub fault_at: Option<u64>,
    /// The fault shows only where launches are under way together.
    #[serde(default)]
    pub fault_in_flight_only: bool,
    /// Timing never ends.
    #[serde(default)]
    pub hang: bool,
    /// The connection to the device is lost at this launch.
    pub lost_at: Option<u64>,
    /// From this launch on outputs are wrong.
    pub wrong_from: Option<u64>,
    /// From this launch on outputs differ in their last bits, within the limits.
    pub unstable_from: Option<u64>,
    /// Timed calls change an input.
    #[serde(default)]
    pub changes_input: bool,
    /// A baseline that is not installed: why.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum FakeTimes {
    One(f64),
    ByMethod(BTreeMap<String, f64>),
}

fn device() -> String {
    "Fake device".into()
}

fn noise() -> f64 {
    0.005
}

impl FakeFile {
    /// Reads the text of a file of that name.
    pub fn parse(name: &str, text: &str) -> Result<FakeFile, SpecError> {
        let wrong = |why: String| {
            SpecError::new(SpecCode::TaskSyntax, format!("this is no file for --backend fake: {why}"))
                .in_file(name)
                .hint("docs/fake-backend.md shows one")
        };
        let file: FakeFile = if name.ends_with(".json") {
            let value: serde_json::Value = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
            let is_record = value.get("schema").is_some();
            if is_record {
                let record: RunRecord = serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?;
                return FakeFile::replaying(&record).ok_or_else(|| wrong("the record holds no times".into()));
            }
            serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e| wrong(e.to_string()))?
        };
        let bad = |x: f64| !x.is_finite() || x < 0.0;
        for s in &file.subjects {
            let times: Vec<f64> = match &s.us {
                None => Vec::new(),
                Some(FakeTimes::One(us)) => vec![*us],
                Some(FakeTimes::ByMethod(by)) => by.values().copied().collect(),
            };
            if times.iter().any(|us| bad(*us) || *us == 0.0) || s.noise.is_some_and(bad) || !s.drift.is_finite() {
                return Err(wrong(format!("the times of `{}` are no positive numbers", s.name)));
            }
        }
        if bad(file.noise) {
            return Err(wrong("the noise is no number from 0 on".into()));
        }
        Ok(file)
    }

    /// The times of a run's record, each with the spread of its own samples. None where it holds none.
    pub fn replaying(record: &RunRecord) -> Option<FakeFile> {
        let mut file = FakeFile { device: device(), noise: noise(), strict: true, ..FakeFile::default() };
        for result in &record.results {
            let Some(measured) = result.measurement.as_ref().filter(|m| !m.methods.is_empty()) else { continue };
            file.device = format!("{}, replayed", measured.device);
            file.target = Some(result.target.clone());
            file.conditions.sm_mhz = measured.conditions.sm_mhz;
            file.conditions.memory_mhz = measured.conditions.memory_mhz;
            let spread = measured.methods.get(&measured.method).map(|t| (t.p90_us - t.p10_us) / (2.56 * t.median_us));
            file.subjects.push(FakeSubject {
                name: result.candidate.clone(),
                shape: Some(result.shape.clone()),
                causal: Some(result.causal),
                levers: result.levers.clone(),
                us: Some(FakeTimes::ByMethod(measured.methods.iter().map(|(m, t)| (m.clone(), t.median_us)).collect())),
                // Ten and ninety per cent of a normal spread lie 2.56 deviations apart.
                noise: spread.filter(|s| s.is_finite() && *s >= 0.0),
                ..FakeSubject::default()
            });
        }
        (!file.subjects.is_empty()).then_some(file)
    }

    /// The row of a subject.
    pub fn subject(
        &self,
        name: &str,
        config: Option<&str>,
        levers: &BTreeMap<String, LeverValue>,
        shape: &str,
        causal: bool,
    ) -> Option<&FakeSubject> {
        let stem = name.rsplit(['/', '\\']).next().unwrap_or(name).trim_end_matches(".cu");
        self.subjects.iter().find(|s| {
            (s.name == "*" || s.name == name || s.name == stem)
                && s.shape.as_deref().is_none_or(|x| x == shape)
                && s.causal.is_none_or(|x| x == causal)
                && s.config.as_deref().is_none_or(|x| Some(x) == config)
                && s.levers.iter().all(|(lever, value)| levers.get(lever) == Some(value))
        })
    }
}

impl FakeSubject {
    /// Microseconds by a method; 10 where the file does not say.
    pub fn us(&self, method: &str) -> f64 {
        match &self.us {
            None => 10.0,
            Some(FakeTimes::One(us)) => *us,
            Some(FakeTimes::ByMethod(by)) => by.get(method).or_else(|| by.get("graph_cold")).copied().unwrap_or(10.0),
        }
    }
}
