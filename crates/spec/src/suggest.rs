//! "Did you mean ...?": the nearest of the names there are.

/// The candidate nearest to `typed`, if one is near enough to be what was meant: at most a third of its letters differ. A swap of neighbours counts as one difference, case as half of one.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer "names" are not typing mistakes, and the distance is quadratic.
    if typed.is_empty() || typed.chars().count() > 64 {
        return None;
    }
    names
        .into_iter()
        .filter(|name| name.chars().count() <= 64)
        .map(|name| (distance(typed, name), name))
        .filter(|(d, name)| *d <= limit(typed.chars().count().max(name.chars().count())))
        .min_by_key(|(d, _)| *d)
        .map(|(_, name)| name)
}

/// "; did you mean `grid`?" or nothing.
pub fn did_you_mean<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(typed, names) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}

/// "a, b and c" of names; a long list ends in "and N more".
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const LIMIT: usize = 24;
    let names: Vec<&str> = names.into_iter().collect();
    match names.len() {
        0 => "none".to_string(),
        n if n > LIMIT => format!("{} and {} more", names[..LIMIT].join(", "), n - LIMIT),
        _ => names.join(", "),
    }
}

/// In halves. Names of one or two letters differ in case at most: any other letter would be "near".
fn limit(letters: usize) -> usize {
    if letters <= 2 { letters } else { 2 * ((letters + 1) / 3) }
}

/// Optimal string alignment distance, doubled so that a difference in case can count half.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).map(|j| 2 * j).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![2 * i];
        for j in 1..=b.len() {
            let change = if a[i - 1] == b[j - 1] {
                0
            } else if a[i - 1].eq_ignore_ascii_case(&b[j - 1]) {
                1
            } else {
                2
            };
            let mut best = (rows[i - 1][j] + 2).min(row[j - 1] + 2).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 2);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_or_none() {
        let keys = ["grid", "block", "entry", "args", "shared_bytes"];
        for (typed, want) in [
            ("gird", Some("grid")),
            ("Grid", Some("grid")),
            ("blok", Some("block")),
            ("shared_byte", Some("shared_bytes")),
            ("arguments", None),
            ("", None),
            ("zzzzzz", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, keys), want, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), keys), None);
    }
}
