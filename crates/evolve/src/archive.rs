//! The population: which correct solutions are kept. Every add is answered with a status.

use serde::{Deserialize, Serialize};

/// How it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PopulationKind {
    /// The best one.
    Single,
    /// The best `keep`.
    Elite { keep: usize },
    /// `islands` elites of `keep`; a solution belongs to its first parent's island, and each island's best wanders to the next
    /// every [`MIGRATION`] adds.
    Islands { islands: usize, keep: usize },
}

/// Adds between two migrations.
pub const MIGRATION: u64 = 10;

/// What became of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The best of all.
    NewBest,
    /// Kept, in place of the one named where the island was full.
    Kept { instead_of: Option<u64> },
    /// Correct, but no better than what is kept.
    NotKept,
    /// Correct, but under the speed-up that entry demands.
    BelowEntry,
    /// Not correct: never kept.
    NotCorrect,
}

/// A member with the figure that orders it; lower is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    pub id: u64,
    pub value: f64,
}

/// The kept solutions by island, each island best first. Empty is a legal state.
#[derive(Debug, Clone, PartialEq)]
pub struct Archive {
    kind: PopulationKind,
    islands: Vec<Vec<Member>>,
    adds: u64,
}

impl Archive {
    pub fn new(kind: PopulationKind) -> Archive {
        let islands = match kind {
            PopulationKind::Islands { islands, .. } => islands.max(1),
            _ => 1,
        };
        Archive { kind, islands: vec![Vec::new(); islands], adds: 0 }
    }

    fn keep(&self) -> usize {
        match self.kind {
            PopulationKind::Single => 1,
            PopulationKind::Elite { keep } | PopulationKind::Islands { keep, .. } => keep.max(1),
        }
    }

    /// The island of a solution: its parent's, else one by its number.
    pub fn island_of(&self, id: u64, parents: &[u64]) -> usize {
        let home = parents.iter().find_map(|p| self.islands.iter().position(|i| i.iter().any(|m| m.id == *p)));
        home.unwrap_or((id % self.islands.len() as u64) as usize)
    }

    /// Adds a correct solution.
    pub fn add(&mut self, id: u64, value: f64, parents: &[u64]) -> Status {
        let keep = self.keep();
        let best = self.best();
        let home = self.island_of(id, parents);
        let status = insert(&mut self.islands[home], Member { id, value }, keep);
        self.adds += 1;
        if self.adds.is_multiple_of(MIGRATION) {
            self.migrate(keep);
        }
        match best {
            Some(best) if value >= best.value => status,
            _ => Status::NewBest,
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, id: u64) {
        self.islands.iter_mut().for_each(|island| island.retain(|m| m.id != id));
    }

    fn migrate(&mut self, keep: usize) {
        let bests: Vec<Option<Member>> = self.islands.iter().map(|i| i.first().copied()).collect();
        let n = self.islands.len();
        for (from, best) in bests.into_iter().enumerate().filter(|_| n > 1) {
            let to = &mut self.islands[(from + 1) % n];
            if let Some(best) = best.filter(|b| to.iter().all(|m| m.id != b.id)) {
                insert(to, best, keep);
            }
        }
    }

    /// The best of all.
    pub fn best(&self) -> Option<Member> {
        self.islands.iter().filter_map(|i| i.first().copied()).min_by(|a, b| a.value.total_cmp(&b.value))
    }

    /// All members, best first, each once.
    pub fn members(&self) -> Vec<Member> {
        let mut all: Vec<Member> = self.islands.iter().flatten().copied().collect();
        all.sort_by(|a, b| a.value.total_cmp(&b.value).then(a.id.cmp(&b.id)));
        all.dedup_by_key(|m| m.id);
        all
    }

    pub fn islands(&self) -> &[Vec<Member>] {
        &self.islands
    }
}

fn insert(island: &mut Vec<Member>, new: Member, keep: usize) -> Status {
    let at = island.partition_point(|m| m.value <= new.value);
    if at >= keep {
        return Status::NotKept;
    }
    island.insert(at, new);
    let instead_of = (island.len() > keep).then(|| island.pop().map(|m| m.id)).flatten();
    Status::Kept { instead_of }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every kind must hold: (kind, values in order of adding, ids kept best first).
    #[test]
    fn keeps_the_best() {
        let values = [5.0, 3.0, 4.0, 1.0, 2.0, 3.0];
        for (kind, want) in [
            (PopulationKind::Single, vec![3]),
            (PopulationKind::Elite { keep: 3 }, vec![3, 4, 1]),
            (PopulationKind::Elite { keep: 0 }, vec![3]),
            (PopulationKind::Islands { islands: 2, keep: 1 }, vec![3, 4]),
        ] {
            let mut archive = Archive::new(kind);
            assert!(archive.best().is_none() && archive.members().is_empty());
            for (id, value) in values.iter().enumerate() {
                archive.add(id as u64, *value, &[]);
            }
            assert_eq!(archive.members().iter().map(|m| m.id).collect::<Vec<_>>(), want, "{kind:?}");
        }
    }

    #[test]
    fn every_add_has_its_status() {
        let mut archive = Archive::new(PopulationKind::Elite { keep: 2 });
        assert_eq!(archive.add(0, 5.0, &[]), Status::NewBest);
        assert_eq!(archive.add(1, 6.0, &[0]), Status::Kept { instead_of: None });
        assert_eq!(archive.add(2, 5.5, &[0]), Status::Kept { instead_of: Some(1) });
        assert_eq!(archive.add(3, 7.0, &[0]), Status::NotKept);
        assert_eq!(archive.add(4, 5.0, &[0]), Status::Kept { instead_of: Some(2) });
        assert_eq!(archive.add(5, 4.0, &[0]), Status::NewBest);
    }

    #[test]
    fn islands_are_parted_until_their_best_wander() {
        let mut archive = Archive::new(PopulationKind::Islands { islands: 2, keep: 1 });
        archive.add(0, 1.0, &[]);
        archive.add(1, 9.0, &[]);
        for id in 2..MIGRATION {
            assert_eq!(archive.island_of(id, &[1]), 1);
            archive.add(id, 9.0 + id as f64, &[1]);
        }
        assert_eq!(archive.islands()[1][0].id, 0, "the best of island 0 came over");
    }
}
