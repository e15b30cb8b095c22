//! Mounting the folder where programs look: for programs that do not go through the C library.
//!
//! This process leaves for a mount namespace of its own, and, if it may not have one, for a user namespace first; the
//! machine sees nothing of it. `/dev`, `/sys/class` and the like get an empty file system in front, into which everything
//! that was there is bound back, and then ours. Nothing is made in the file systems that are there: `/dev` may be the one of
//! the whole machine.
//!
//! It refuses to do it by halves: if anything fails, the process is not fit to run the program, and says so.
//!
//! Counters stand still when they are read this way, at zero: only the library in front of the C library adds them up.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where something of ours is added, and what.
const ADDED: [(&str, &[&str]); 4] = [
    ("/dev", &["infiniband"]),
    (
        "/sys/class",
        &["infiniband", "infiniband_verbs", "infiniband_mad"],
    ),
    ("/sys/devices", &["nonic"]),
    ("/sys/bus/pci/devices", &[]),
];

/// Why the files cannot be mounted.
#[derive(Debug)]
pub enum MountError {
    /// This process may not have namespaces of its own; nothing has changed.
    NotAllowed(io::Error),
    /// Something else failed; the process has left its namespaces and must end.
    Failed(PathBuf, io::Error),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::NotAllowed(_) => {
                formatter.write_str("this process may not have a mount namespace of its own")
            }
            MountError::Failed(path, _) => write!(formatter, "cannot mount at {}", path.display()),
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MountError::NotAllowed(error) | MountError::Failed(_, error) => Some(error),
        }
    }
}

/// Mounts the files of `tree` where they belong, for this process and those it starts. It must have one thread only.
pub fn mount(tree: &Path) -> Result<(), MountError> {
    leave().map_err(MountError::NotAllowed)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| MountError::Failed(path, error)
    };
    let root = Path::new("/");
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(root, private).map_err(|error| failed(root)(error.into()))?;
    for (folder, names) in ADDED {
        let folder = Path::new(folder);
        if folder.is_dir() {
            add(tree, folder, names).map_err(failed(folder))?;
        }
    }
    Ok(())
}

/// Whether [`mount`] would succeed, tried by a child: a process that has half left its namespaces cannot come back.
pub fn is_possible(tree: &Path) -> bool {
    // SAFETY: this process has one thread, so the child may do whatever it could.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(mount(tree).is_err());
        // SAFETY: it ends here, without what the parent has to do at its end.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: a child of ours and room for its end.
    let ended = child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
    ended && status == 0
}

/// Leaves for namespaces of this process's own.
fn leave() -> io::Result<()> {
    // SAFETY: only mounts are left, which no code of Rust's relies on.
    match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) } {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: as above; the rights that come with it are for mounts alone and end when the program starts.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    // Without that, a process without privileges may not map groups.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))
}

/// Puts an empty file system over a folder, binds back what was there, and adds ours.
fn add(tree: &Path, folder: &Path, names: &[&str]) -> io::Result<()> {
    let opened = rustix::fs::open(
        folder,
        OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let before = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let entries: Vec<_> = std::fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    let flags = MountFlags::NOSUID;
    rustix::mount::mount("nonic", folder, "tmpfs", flags, Some(c"mode=755"))?;
    let ours = tree.join(folder.strip_prefix("/").unwrap_or(folder));
    for entry in entries {
        let name = entry.file_name();
        if names.iter().any(|ours| name == *ours) {
            continue;
        }
        let (from, to) = (before.join(&name), folder.join(&name));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(std::fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            std::fs::create_dir(&to)?;
        } else {
            rustix::fs::openat(CWD, &to, OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR)?;
        }
        // A folder of the kernel's that vanished meanwhile is no loss.
        match rustix::mount::mount_bind_recursive(&from, &to) {
            Err(Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for entry in std::fs::read_dir(ours)? {
        let entry = entry?;
        let to = folder.join(entry.file_name());
        if entry.file_type()?.is_symlink() {
            symlink(std::fs::read_link(entry.path())?, to)?;
        } else {
            std::fs::create_dir(&to)?;
            rustix::mount::mount_bind_recursive(entry.path(), &to)?;
        }
    }
    Ok(())
}
