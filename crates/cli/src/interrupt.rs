//! Ctrl-C: the first one ends the run in order, after the evaluation that is under way; the second ends it at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
#[derive(Debug)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

static FLAG: Flag = Flag(AtomicBool::new(false));
static INSTALLED: OnceLock<()> = OnceLock::new();

/// The exit code of a run that was ended by Ctrl-C, as shells have it.
pub const EXIT: i32 = 130;

/// The flag; the first call installs the handler.
pub fn flag() -> &'static Flag {
    INSTALLED.get_or_init(|| {
        // Where no handler can be installed Ctrl-C ends the process; the journal stays readable all the same.
        let _ = ctrlc::set_handler(|| {
            if FLAG.0.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT);
            }
            crate::output::err("ending after this evaluation; Ctrl-C again ends at once\n");
        });
    });
    &FLAG
}
