//! What was proved and what was not, with the file that shows it; then what to do next, and how to have this run again.

use super::markup::{Column, commands, esc, table, word};
use crate::claims::claims as all_claims;
use crate::material::Material;
use crate::next::next_steps;

pub(super) fn claims(material: &Material) -> String {
    let rows = all_claims(material).into_iter().map(|c| {
        let file =
            c.file.map_or_else(|| "<span class=\"muted\">none</span>".into(), |f| format!("<code>{}</code>", esc(&f)));
        vec![esc(c.what), word(c.status.word()), esc(&c.how), file]
    });
    let head = ["claim", "status", "how far", "shown by (a path in the run)"].map(|h| (h, Column::Text));
    let mut text = table("The same list for every run, so that what is missing is seen", &head, rows);
    if !material.record.accept.is_empty() {
        let rows = material.record.accept.iter().map(|c| {
            vec![
                format!("<code>{}</code>", esc(&c.criterion)),
                word(&c.status),
                esc(&c.target),
                c.actual.map_or("-".into(), super::markup::figure),
            ]
        });
        let head = ["criterion", "status", "target", "actual"].map(|h| (h, Column::Text));
        text.push_str(&table("Criteria that the task or the candidate states", &head, rows));
    }
    text
}

pub(super) fn next(material: &Material) -> String {
    let mut text = String::from("<ol>\n");
    for step in next_steps(material) {
        text.push_str(&format!("<li>{}{}</li>\n", esc(&step.why), commands(&[step.command])));
    }
    text.push_str("</ol>\n<h3>Reproduce</h3>\n<p>Inputs come from counted random numbers and are the same on every machine; on the PTX machine so are the outputs, bit for bit.</p>\n");
    let mut lines = Vec::new();
    if let Some(commit) = &material.record.run.git_commit {
        lines.push(format!("git checkout {commit}"));
    }
    lines.push(crate::next::typed(&material.record.run.command));
    text.push_str(&commands(&lines));
    if material.record.run.git_dirty == Some(true) {
        text.push_str("<p class=\"warn\">\u{25d0} The checkout had uncommitted changes: the sources that were judged are those kept in the run.</p>\n");
    }
    text
}
