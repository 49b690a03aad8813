//! What the worker needs of the system: its standard output for itself alone, and an end without delay.

use std::fs::File;
use std::io;

/// Takes the standard output away from everybody else in this process: what a kernel prints goes to `instead` from now on.
///
/// NOTE: only on Unix; elsewhere kernels that print garble the protocol, which ends their evaluation as a broken worker.
pub(crate) fn take_stdout(instead: &File) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: plain system calls on descriptors that are open; the duplicate belongs to nobody yet.
        unsafe {
            let own = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3);
            if own < 0 {
                return Err(io::Error::last_os_error());
            }
            let own = File::from_raw_fd(own);
            if libc::dup2(instead.as_raw_fd(), 1) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(own)
        }
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::AsHandle;
        let _ = instead;
        Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
    }
}

/// Writes out what the C library still holds of this process's output: the driver prints through it.
pub(crate) fn flush_c_output() {
    #[cfg(unix)]
    // SAFETY: null stands for all streams.
    unsafe {
        libc::fflush(std::ptr::null_mut());
    }
}

/// Ends this process now. No destructor runs: the driver's would wait for a kernel that does not end.
pub(crate) fn end_now(code: i32) -> ! {
    #[cfg(unix)]
    // SAFETY: it does not return.
    unsafe {
        libc::_exit(code)
    }
    #[cfg(not(unix))]
    {
        let _ = code;
        std::process::abort()
    }
}

/// Kills a process and those that it started, if it leads a group of its own. `id` is that of a child whose status was not taken yet.
pub(crate) fn kill_group(id: u32) {
    #[cfg(unix)]
    if let Ok(id @ 2..) = i32::try_from(id) {
        // SAFETY: a plain system call. The group is the child's: its number is not free while the child was not waited for.
        unsafe {
            libc::kill(-id, libc::SIGKILL);
        }
    }
    #[cfg(not(unix))]
    let _ = id;
}
