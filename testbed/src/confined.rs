//! A process as a container runtime's defaults leave it: a `/dev` of its own, no way to other namespaces or mounts.
//!
//! Programs that look for device files are served by a mount where that is allowed, and by nothing but a preloaded library
//! where it is not. Default Docker is such a place for an unprivileged user: its system call filter answers EPERM to
//! `mount`, `unshare` and their kin, whatever the kernel would say. This is a filter with the same answers, laid over the
//! command by bubblewrap, since no container engine is needed for that.
//!
//! It is no security boundary and does not imitate what programs cannot tell, such as another root folder.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;

/// System calls (x86-64) that Docker's defaults refuse to processes without capabilities.
const REFUSED: [u32; 48] = [
    // Namespaces and mounts: pivot_root, mount, umount2, unshare, setns, open_tree, move_mount, fsopen, fsconfig, fsmount,
    // fspick, mount_setattr.
    155, 165, 166, 272, 308, 428, 429, 430, 431, 432, 433, 442,
    // The machine: settimeofday, swapon, swapoff, reboot, sethostname, setdomainname, iopl, ioperm, init_module,
    // delete_module, quotactl, lookup_dcookie, clock_settime, kexec_load, finit_module, kexec_file_load, acct.
    164, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 212, 227, 246, 313, 320, 163,
    // Where memory is: mbind, set_mempolicy, get_mempolicy, move_pages, migrate_pages.
    237, 238, 239, 279, 256, // Keys: add_key, request_key, keyctl.
    248, 249, 250,
    // Ways around: perf_event_open, fanotify_init, name_to_handle_at, open_by_handle_at, bpf, userfaultfd, pidfd_getfd,
    // io_uring_setup, io_uring_enter, io_uring_register, kcmp.
    298, 300, 303, 304, 321, 323, 438, 425, 426, 427, 312,
];
const CLONE: u32 = 56;
const CLONE3: u32 = 435;
/// CLONE_NEWNS and every other namespace that `clone` can make.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// The command that confines another, and the filter it reads.
#[derive(Debug)]
pub struct Confinement {
    filter: PathBuf,
}

impl Confinement {
    /// Writes the filter, and installs the command if it is missing.
    pub fn new() -> Result<Self> {
        crate::packages::install(&[("/usr/bin/bwrap", "bubblewrap")])?;
        let filter = std::env::temp_dir().join(format!("nonic-filter-{}", std::process::id()));
        std::fs::write(&filter, filter_program())
            .with_context(|| format!("cannot write {}", filter.display()))?;
        Ok(Self { filter })
    }

    /// What comes before the command that root starts and that then becomes another user.
    pub fn words(&self) -> Vec<OsString> {
        let enter = "filter=$1; shift; exec bwrap --bind / / --dev /dev --bind /dev/shm /dev/shm --cap-add ALL \
                     --seccomp 9 -- \"$@\" 9<\"$filter\"";
        let mut words: Vec<OsString> = ["sh", "-c", enter, "sh"].map(OsString::from).into();
        words.push(self.filter.clone().into());
        words
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.filter);
    }
}

/// The filter as the kernel takes it: classic BPF over `struct seccomp_data`.
fn filter_program() -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_ANY_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const EPERM: u32 = 1;
    const ENOSYS: u32 = 38;
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const FIRST_ARGUMENT: u32 = 16;
    const X86_64: u32 = 0xc000_003e;

    let mut program = Vec::new();
    let mut add = |code: u16, if_so: u8, if_not: u8, operand: u32| {
        program.extend(code.to_ne_bytes());
        program.extend([if_so, if_not]);
        program.extend(operand.to_ne_bytes());
    };
    // Calls of another architecture have other numbers: all of them are refused.
    add(LOAD, 0, 0, ARCHITECTURE);
    add(JUMP_EQUAL, 1, 0, X86_64);
    add(RETURN, 0, 0, ERRNO | ENOSYS);
    add(LOAD, 0, 0, NUMBER);
    for number in REFUSED {
        add(JUMP_EQUAL, 0, 1, number);
        add(RETURN, 0, 0, ERRNO | EPERM);
    }
    // Its flags are behind a pointer, so the C library is sent back to `clone`.
    add(JUMP_EQUAL, 0, 1, CLONE3);
    add(RETURN, 0, 0, ERRNO | ENOSYS);
    add(JUMP_EQUAL, 0, 3, CLONE);
    add(LOAD, 0, 0, FIRST_ARGUMENT);
    add(JUMP_ANY_SET, 0, 1, NEW_NAMESPACES);
    add(RETURN, 0, 0, ERRNO | EPERM);
    add(RETURN, 0, 0, ALLOW);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn confined(confinement: &Confinement, command: &[&str]) -> bool {
        let mut words = confinement.words();
        words.extend(crate::run_as::AS_NOBODY.map(OsString::from));
        words.extend(command.iter().map(OsString::from));
        let output = Command::new(&words[0]).args(&words[1..]).output();
        output.expect("sh starts").status.success()
    }

    #[test]
    fn a_confined_process_runs_and_makes_neither_namespaces_nor_mounts() {
        if !crate::packages::is_root() {
            println!("skipped: only root can confine");
            return;
        }
        let confinement = Confinement::new().expect("bubblewrap is there");
        assert!(confined(&confinement, &["true"]));
        assert!(confined(
            &confinement,
            &["sh", "-c", "echo > /dev/null && test ! -e /dev/vda"]
        ));
        assert!(!confined(&confinement, &["unshare", "--user", "--mount", "true"]));
        assert!(!confined(&confinement, &["unshare", "--user", "true"]));
        assert!(!confined(&confinement, &["mount", "-t", "tmpfs", "none", "/mnt"]));
    }
}
