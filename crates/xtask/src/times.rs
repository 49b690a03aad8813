//! Files of made-up times for the fake backend (docs/fake-backend.md): which times a test is about, without what every such file says.
//! Used by `cargo xtask killed` and, by its path, by tests of the command line.

/// Whose times, with which levers (any, if none is named), and what its row says.
pub type Row<'a> = (&'a str, &'a str, &'a str);

/// The text of the file; the first row that fits a kernel is its.
pub fn file(rows: &[Row]) -> String {
    let mut text = "device = \"Made-up GPU\"\ntarget = \"sm_89\"\nnoise = 0.002\n".to_string();
    for (name, levers, says) in rows {
        text.push_str(&format!("[[subject]]\nname = \"{name}\"\n"));
        if !levers.is_empty() {
            text.push_str(&format!("levers = {{ {levers} }}\n"));
        }
        text.push_str(&format!("{says}\n"));
    }
    text
}
