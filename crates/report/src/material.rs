//! What a report is made of: the record, and what else the run's folder holds. Pure data; whoever calls has read it.

use std::collections::{BTreeMap, BTreeSet};
use warpsmith_spec::record::{ResultRecord, RunRecord};

/// A run as its reports need it.
#[derive(Debug, Clone)]
pub struct Material<'a> {
    pub record: &'a RunRecord,
    /// How commands name the run: `runs/latest`, or the path that was typed.
    pub run: String,
    /// What a reader has to know before all else: the run was killed, its summary was damaged.
    pub notes: Vec<String>,
    /// Sources that the run keeps: path under the run -> text.
    pub sources: BTreeMap<String, String>,
    /// All files of the run: paths under it.
    pub files: BTreeSet<String>,
    /// What the codes of findings mean in a few words.
    pub titles: BTreeMap<String, String>,
}

impl<'a> Material<'a> {
    /// The record alone.
    pub fn of(record: &'a RunRecord) -> Material<'a> {
        Material {
            record,
            run: format!("runs/{}", record.run.name),
            notes: Vec::new(),
            sources: BTreeMap::new(),
            files: BTreeSet::new(),
            titles: BTreeMap::new(),
        }
    }

    /// The kept source that a finding's file means: the candidate's own, one that it includes, or a header of ours.
    pub fn source(&self, result: &ResultRecord, file: &str) -> Option<(&str, &str)> {
        let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let folder = folder(&result.candidate);
        let (stem, ending) = base.rsplit_once('.').unwrap_or((base, ""));
        let hash = result.source_sha256.as_deref().and_then(|h| h.get(..12)).unwrap_or("");
        // Two files of one name in one run: the second carries its hash.
        let exact = [format!("{folder}/source/{stem}-{hash}.{ending}"), format!("{folder}/source/{base}")];
        let by_ending = || {
            let tail = format!("/{base}");
            let ours = self.sources.keys().filter(|k| k.ends_with(&tail));
            ours.min_by_key(|k| (!k.starts_with(&folder), !k.starts_with("include/"), k.len())).cloned()
        };
        let path = exact.into_iter().find(|p| self.sources.contains_key(p)).or_else(by_ending)?;
        self.sources.get_key_value(&path).map(|(p, t)| (p.as_str(), t.as_str()))
    }

    /// Files of a candidate that match, for pointing at evidence.
    pub fn evidence(&self, result: &ResultRecord, part: &str) -> Option<&str> {
        let prefix = format!("{}/{part}", folder(&result.candidate));
        let there = || self.files.range(prefix.clone()..).take_while(|f| f.starts_with(&prefix));
        // Of what a compiler leaves the PTX is what was executed.
        there().find(|f| f.ends_with(".ptx")).or_else(|| there().next()).map(String::as_str)
    }
}

/// The candidate's folder in a run.
pub fn folder(candidate: &str) -> String {
    let name = candidate.rsplit(['/', '\\']).next().unwrap_or(candidate);
    format!("candidates/{}", safe(name.strip_suffix(".cu").unwrap_or(name)))
}

/// A name as a part of a path: candidates choose theirs.
pub fn safe(name: &str) -> String {
    let kept: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).take(120).collect();
    if kept.trim_matches('.').is_empty() { "_".into() } else { kept }
}
