//! Runs on disk: an append-only journal, and what is derived from it.
//!
//! A run directory is complete and readable after a kill at any moment: it appears by rename together with its first
//! event, every event is one line appended and flushed, and `summary.json` is a fold over the journal that can be made
//! again at will. Nothing here knows how a kernel is judged, nor prints anything.
//! Limits: a journal line of at most 16 MiB; a torn last line (a kill in mid-write) is dropped on reading.

mod archive;
mod atomic;
mod folder;
mod index;
mod journal;
mod loaded;
mod log;
mod loop_dir;
mod run_dir;

pub use archive::{Archive, ArchiveError, MANIFEST, Manifest, ManifestFile, pack, sha256, unpack};
pub use atomic::write_atomic;
pub use folder::write_folder;
pub use index::{IndexNote, RunIndex, gpu_seconds};
pub use journal::{Event, JournalError, fold, read_journal};
pub use loaded::{Ended, LoadedRun, read_summary};
pub use log::{Log, LogError};
pub use loop_dir::{LoopDir, LoopDirError, hash as text_hash};
pub use run_dir::{RunDir, RunDirError, stamp_now, timestamp_now};
