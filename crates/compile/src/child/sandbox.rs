//! Limits and fences by the system's own means: resource limits on Unix, Landlock on Linux. Elsewhere these do nothing, and the deadline
//! of the parent and the include resolver are what holds.
//!
//! Source: Landlock user-space API, Linux 5.13 to 6.12 (ABI 1 to 7); getrlimit(2).

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// Limits this process's address space and CPU time.
pub(super) fn limit_self(memory_bytes: u64, seconds: u64) -> Result<(), String> {
    #[cfg(unix)]
    unix::set(memory_bytes, seconds).map_err(|e| format!("no resource limits: {e}"))?;
    let _ = (memory_bytes, seconds);
    Ok(())
}

/// Gives a command the same limits from its first instruction on.
pub(crate) fn limit_command(command: &mut Command, memory_bytes: u64, seconds: u64) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        // SAFETY: between fork and exec only setrlimit is called, which is safe there.
        unsafe {
            command.pre_exec(move || unix::set(memory_bytes, seconds));
        }
    }
    let _ = (command, memory_bytes, seconds);
}

/// Whether the system ended the process because its CPU time was up.
pub(crate) fn is_cpu_limit(status: &ExitStatus) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::process::ExitStatusExt::signal(status) == Some(libc::SIGXCPU)
    }
    #[cfg(not(unix))]
    {
        let _ = status;
        false
    }
}

/// Has the system end this process when its parent dies, where it can.
pub(super) fn leave_with_parent() {
    #[cfg(target_os = "linux")]
    // SAFETY: a plain system call.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// From here on this process reads only the working folder and these, and writes nothing. Best effort: a kernel without Landlock, or one that
/// refuses, leaves the include resolver as the only fence.
pub(super) fn fence(readable: &[PathBuf]) {
    #[cfg(target_os = "linux")]
    landlock::restrict(readable);
    let _ = readable;
}

#[cfg(unix)]
mod unix {
    /// Address space, CPU seconds, no core files.
    pub fn set(memory_bytes: u64, seconds: u64) -> std::io::Result<()> {
        // macOS knows RLIMIT_AS but does not keep it; setting it does no harm.
        let limits = [
            (libc::RLIMIT_AS, memory_bytes, memory_bytes),
            (libc::RLIMIT_CPU, seconds.saturating_add(1), seconds.saturating_add(2)),
            (libc::RLIMIT_CORE, 0, 0),
        ];
        for (what, soft, hard) in limits {
            // SAFETY: plain system calls on live structs.
            unsafe {
                let mut now: libc::rlimit = std::mem::zeroed();
                if libc::getrlimit(what, &mut now) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // Never above what the user's own limits allow.
                let new = libc::rlimit {
                    rlim_cur: now.rlim_max.min(soft as libc::rlim_t),
                    rlim_max: now.rlim_max.min(hard as libc::rlim_t),
                };
                if libc::setrlimit(what, &new) != 0 && what != libc::RLIMIT_AS {
                    return Err(std::io::Error::last_os_error());
                }
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod landlock {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;
    /// What each ABI version knows to forbid in the file system: 13 rights in the first, then refer, truncate and ioctl.
    const FS_RIGHTS: [u64; 6] = [0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1];
    const RULE_PATH_BENEATH: libc::c_int = 1;
    const CREATE_VERSION: libc::c_uint = 1;

    #[repr(C)]
    struct RulesetAttr {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }

    #[repr(C, packed)]
    struct PathBeneathAttr {
        allowed_access: u64,
        parent_fd: i32,
    }

    pub fn restrict(readable: &[PathBuf]) {
        // SAFETY: system calls on live structs of the sizes given; every descriptor is closed or dies with the process.
        unsafe {
            let abi = libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, CREATE_VERSION);
            if abi < 1 {
                return;
            }
            let abi = abi as usize;
            let attr = RulesetAttr {
                handled_access_fs: FS_RIGHTS[abi.min(FS_RIGHTS.len() - 1)],
                // TCP bind and connect; abstract sockets and signals.
                handled_access_net: if abi >= 4 { 3 } else { 0 },
                scoped: if abi >= 6 { 3 } else { 0 },
            };
            let size: usize = if abi >= 6 {
                24
            } else if abi >= 4 {
                16
            } else {
                8
            };
            let ruleset = libc::syscall(libc::SYS_landlock_create_ruleset, &attr as *const RulesetAttr, size, 0u32);
            if ruleset < 0 {
                return;
            }
            for path in std::iter::once(Path::new(".")).chain(readable.iter().map(PathBuf::as_path)) {
                let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { continue };
                let fd = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
                if fd < 0 {
                    continue;
                }
                let rule = PathBeneathAttr { allowed_access: READ_FILE | READ_DIR, parent_fd: fd };
                libc::syscall(
                    libc::SYS_landlock_add_rule,
                    ruleset,
                    RULE_PATH_BENEATH,
                    &rule as *const PathBeneathAttr,
                    0u32,
                );
                libc::close(fd);
            }
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 {
                libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32);
            }
            libc::close(ruleset as libc::c_int);
        }
    }
}
