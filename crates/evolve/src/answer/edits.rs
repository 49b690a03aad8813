//! Changes of a text: SEARCH/REPLACE blocks and unified diffs, both as "these lines become those".
//!
//! Line numbers of diffs are not believed: models get them wrong. Lines are looked for exactly, then without their trailing, then without all
//! outer white space; a place that is not unique is refused, for a change at the wrong place can still be a right kernel.

/// These lines become those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub search: Vec<String>,
    pub replace: Vec<String>,
}

/// Changes of one answer.
const MAX_EDITS: usize = 200;

/// `<<<<<<< SEARCH`, `=======`, `>>>>>>> REPLACE`.
pub fn from_markers(text: &str) -> Result<Vec<Edit>, String> {
    #[derive(PartialEq)]
    enum At {
        Outside,
        Search,
        Replace,
    }
    let (mut at, mut edits) = (At::Outside, Vec::new());
    let (mut search, mut replace) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mark = line.trim();
        match at {
            At::Outside if mark.starts_with("<<<<<<<") => at = At::Search,
            At::Outside => {}
            At::Search if mark.starts_with("=======") => at = At::Replace,
            At::Search if mark.starts_with(">>>>>>>") => return Err("a SEARCH has no `=======` after it".into()),
            At::Search => search.push(line.to_string()),
            At::Replace if mark.starts_with(">>>>>>>") => {
                edits.push(Edit { search: std::mem::take(&mut search), replace: std::mem::take(&mut replace) });
                at = At::Outside;
            }
            At::Replace => replace.push(line.to_string()),
        }
    }
    if at != At::Outside {
        return Err("a SEARCH/REPLACE block is not closed: the answer was cut off".into());
    }
    Ok(edits)
}

/// Hunks of a unified diff; a diff without `@@` is one hunk.
pub fn from_unified(text: &str) -> Result<Vec<Edit>, String> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut open = Edit { search: Vec::new(), replace: Vec::new() };
    let mut close = |edit: &mut Edit| {
        let edit = std::mem::replace(edit, Edit { search: Vec::new(), replace: Vec::new() });
        if edit.search != edit.replace {
            edits.push(edit);
        }
    };
    for line in text.lines() {
        let header = ["diff ", "index ", "--- ", "+++ ", "\\"].iter().any(|h| line.starts_with(h));
        if line.starts_with("@@") {
            close(&mut open);
        } else if header && open.search.is_empty() {
        } else if let Some(new) = line.strip_prefix('+') {
            open.replace.push(new.to_string());
        } else if let Some(old) = line.strip_prefix('-') {
            open.search.push(old.to_string());
        } else if !line.starts_with('\\') {
            // Context; its leading space is often left out.
            let same = line.strip_prefix(' ').unwrap_or(line).to_string();
            open.search.push(same.clone());
            open.replace.push(same);
        }
    }
    close(&mut open);
    if edits.is_empty() { Err("the diff changes nothing".into()) } else { Ok(edits) }
}

/// Makes the changes, each on what the ones before it left.
pub fn apply(base: &str, edits: &[Edit]) -> Result<String, String> {
    if edits.len() > MAX_EDITS {
        return Err(format!("it has {} parts, more than {MAX_EDITS}", edits.len()));
    }
    let mut lines: Vec<String> = base.lines().map(str::to_string).collect();
    for (n, edit) in edits.iter().enumerate() {
        let (from, to, replace) = place(&lines, edit).map_err(|why| format!("part {}: {why}", n + 1))?;
        lines.splice(from..to, replace);
    }
    Ok(lines.join("\n") + "\n")
}

fn place(lines: &[String], edit: &Edit) -> Result<(usize, usize, Vec<String>), String> {
    let filled: Vec<usize> = (0..edit.search.len()).filter(|i| !edit.search[*i].trim().is_empty()).collect();
    let (Some(first), Some(last)) = (filled.first(), filled.last()) else {
        return Err("there are no lines to look for".into());
    };
    let whole = (edit.search.as_slice(), edit.replace.clone());
    // Blank lines around what is looked for are no part of it; those around the replacement go with them.
    let blanks_after = edit.search.len() - 1 - last;
    let inner_replace: Vec<String> = {
        let lead = edit.replace.iter().take(*first).take_while(|l| l.trim().is_empty()).count();
        let tail = edit.replace[lead..].iter().rev().take(blanks_after).take_while(|l| l.trim().is_empty()).count();
        edit.replace[lead..edit.replace.len() - tail].to_vec()
    };
    let inner = (&edit.search[*first..=*last], inner_replace);
    let exact: fn(&str) -> &str = |l| l;
    for (search, replace) in [whole, inner] {
        for plain in [exact, str::trim_end, str::trim] {
            let found = places(lines, search, plain);
            match found[..] {
                [] => {}
                [at] => return Ok((at, at + search.len(), replace)),
                _ => return Err(format!("{:?} is found {} times: give more lines around it", search[0], found.len())),
            }
        }
    }
    Err(format!("{:?} and the lines after it are not in the kernel", edit.search[*first].trim()))
}

fn places(lines: &[String], search: &[String], plain: fn(&str) -> &str) -> Vec<usize> {
    if search.is_empty() || search.len() > lines.len() {
        return Vec::new();
    }
    let same = |at: &usize| search.iter().zip(&lines[*at..]).all(|(a, b)| plain(a) == plain(b));
    (0..=lines.len() - search.len()).filter(same).collect()
}
