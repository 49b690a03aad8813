//! The page of what is supported, from the table: one line for each row.

use super::{Exactness, Form, all};

/// What hardware said of a form: from `tests/machine/hardware.tsv`.
struct Measured<'a> {
    row: &'a str,
    text: &'a str,
}

fn measured(hardware: &str) -> Vec<Measured<'_>> {
    hardware
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once('\t'))
        .map(|(row, text)| Measured { row, text })
        .collect()
}

/// `docs/ptx-support.md`. `hardware` holds lines of a row, a tab, and what a comparison with a GPU gave; it may be empty.
pub fn page(hardware: &str) -> String {
    let measured = measured(hardware);
    let forms = all();
    let count = |e: Exactness| forms.iter().filter(|f| f.exactness == e).count();
    let mut out = format!(
        "# PTX that the machine executes\n\n\
         Generated from the tables in `crates/machine/src/forms` by `cargo xtask forms`; a test says when it is stale. {} opcodes and operand forms: {} exact, \
         {} approximate, {} modelled, {} known and not executed. A launch that reaches one that is not executed, or one that is not in this table, ends as `unsupported` \
         with its name: it never goes on with a guess.\n\n\
         - **exact**: bit for bit what PTX defines.\n\
         - **approximate**: a function for which the ISA allows an error; the machine gives the correctly rounded value, a GPU one beside it.\n\
         - **modelled**: a tensor core's sum, by the model of the target's generation (`--numerics`).\n\
         - `{{a,b}}` is a choice, `[.a|.b]` a choice or nothing; `=T` is written, `$T` read, `*4` four registers; `[g]`, `[s]`, `[l]`, `[a]` are addresses in global, shared, local memory or in the opcode's own space, \
         `[A]` those of a warp. *needs* is what ptxas 13.0 wants, where it is more than sm_80 and PTX 7.0.\n\
         - *GPU* is what a comparison with a device gave, if there was one: number of operands, largest difference in units of the last place. Results near zero differ by many of them: there PTX bounds the absolute error (`lg2.approx` 2^-22 for operands from 0.5 to 2, `sin.approx` and `cos.approx` 2^-20.5 and more away from zero), and a comparison says that too.\n",
        forms.len(),
        count(Exactness::Exact),
        count(Exactness::Approximate),
        count(Exactness::Modelled),
        count(Exactness::Unsupported),
    );
    let mut group = "";
    let mut rest = forms;
    while let Some(first) = rest.first() {
        let n = rest.iter().take_while(|f| f.row == first.row && f.group == first.group).count();
        let (row, tail) = rest.split_at(n);
        if first.group != group {
            group = first.group;
            out += &format!("\n## {group}\n\n| form | forms | needs | | GPU |\n|---|---|---|---|---|\n");
        }
        out += &line(row, &measured);
        rest = tail;
    }
    out
}

fn line(row: &[Form], measured: &[Measured]) -> String {
    let f = &row[0];
    let mut needs = Vec::new();
    if f.sm > 80 {
        needs.push(format!("sm_{}{}", f.sm, if f.arch_specific { "a" } else { "" }));
    }
    if f.ptx > 70 {
        needs.push(format!("PTX {}.{}", f.ptx / 10, f.ptx % 10));
    }
    let fidelity = match f.why {
        Some(why) => format!("**not executed**: {why}"),
        None => f.exactness.word().to_string(),
    };
    let gpu = measured.iter().find(|m| m.row == f.row).map_or("", |m| m.text);
    format!(
        "| `{}` | {} | {} | {fidelity} | {gpu} |\n",
        f.row.trim_end_matches(" -").replace('|', "\\|"),
        row.len(),
        needs.join(", ")
    )
}
