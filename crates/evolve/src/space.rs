//! The lever space of a candidate: the settings that its constraints admit, and which of them are neighbours.

use crate::solution::Levers;
use serde::{Deserialize, Serialize};

/// Every setting that may be tried, in the order in which a sweep lists them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub settings: Vec<Levers>,
}

impl Space {
    /// How many levers differ.
    pub fn distance(a: &Levers, b: &Levers) -> usize {
        b.iter().filter(|(name, value)| a.get(*name) != Some(value)).count()
    }

    /// The settings at this distance, by index.
    pub fn at_distance<'a>(&'a self, from: &'a Levers, distance: usize) -> impl Iterator<Item = usize> + 'a {
        (0..self.settings.len()).filter(move |i| Self::distance(from, &self.settings[*i]) == distance)
    }

    pub fn index_of(&self, levers: &Levers) -> Option<usize> {
        self.settings.iter().position(|s| s == levers)
    }
}
