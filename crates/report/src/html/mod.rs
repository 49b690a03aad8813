//! `report.html`: one file that opens offline, without JavaScript, in light and dark, on a phone and in print.
//!
//! Order: the verdict and its conditions; what is wrong and where; times and what bounds the kernel, where there are any; the gates; kernels
//! side by side; what was proved and what was not; what to do next; everything in detail. Pure functions of [`Material`]. It judges nothing and rounds only what it shows.
//! Limits: details of at most [`MAX_DETAILS_BYTES`]; beyond it a kernel's row names the files that hold the rest.

mod causes;
mod details;
mod head;
mod lines;
mod markup;
mod profile;
mod proof;
mod results;
mod roofline;
mod search;
mod speed;
mod svg;

use crate::material::Material;
pub(crate) use markup::{esc, figure};
pub use search::{Node, Search, search_html};

/// Bytes of all kernels' details together. A report of 500 candidates stays under 10 MB.
pub const MAX_DETAILS_BYTES: usize = 5 << 19;

/// The whole page.
pub fn html(material: &Material) -> String {
    let record = material.record;
    let timed = record.results.iter().any(|r| crate::measured::measured(r).is_some());
    let profiled = record.results.iter().any(|r| r.profile.is_some());
    let times = ("times", "Times", speed::section(material));
    let roofline = ("roofline", "Roofline", roofline::section(material));
    let bound = ("bound", "What bounds it, and what to try", profile::section(material));
    let gates = ("gates", "Gates", head::gates(material));
    let kernels = ("kernels", "Kernels side by side", results::side_by_side(material));
    let mut parts = vec![("wrong", "What is wrong", causes::section(material))];
    // What was asked for comes first: a measurement's figures, a profile's reasons, else what the gates said.
    match (timed, profiled) {
        (true, _) => parts.extend([times, bound, roofline, gates, kernels]),
        (false, true) => parts.extend([bound, roofline, gates, kernels, times]),
        (false, false) => parts.extend([gates, kernels, times, roofline]),
    }
    parts.extend([
        ("proved", "What is proved, and what is not", proof::claims(material)),
        ("next", "Next steps, and how to reproduce this", proof::next(material)),
        ("results", "All results", results::all(material)),
        ("details", "Each kernel in detail", details::section(material)),
        ("example", "Shown because it must fail", causes::examples(material)),
    ]);
    let mut body = String::new();
    let mut links = String::new();
    for (id, title, text) in parts.iter().filter(|(_, _, text)| !text.is_empty()) {
        links.push_str(&format!("<li><a href=\"#{id}\">{}</a></li>", esc(title)));
        body.push_str(&markup::section(id, title, text));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"warpsmith {}\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n<body>\n\
         <header>\n<h1>Warpsmith report: {}</h1>\n{}</header>\n<main>\n<nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n{body}</main>\n\
         <footer><p>Written by warpsmith {} from the run's journal. This file holds all that it shows; it loads nothing.</p></footer>\n</body>\n</html>\n",
        esc(&record.run.warpsmith),
        esc(&format!("{}: {}", record.run.name, crate::decision::headline(record).1)),
        include_str!("style.css"),
        esc(&record.run.name),
        head::head(material),
        esc(&record.run.warpsmith),
    )
}
