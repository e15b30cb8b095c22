//! Confinement: what an administrator, a container or a program does to a process so that it cannot trace others, or be traced.

use std::str::FromStr;

/// One of these.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Confinement {
    /// A filter of system calls has these fail with this error.
    Filter {
        calls: &'static [libc::c_long],
        errno: i32,
    },
    /// The process is not to be dumped, nor to be traced without privilege. (So are all where Yama's `ptrace_scope` is 2.)
    Undumpable,
}

impl FromStr for Confinement {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (calls, errno): (&[libc::c_long], i32) = match word {
            "undumpable" => return Ok(Confinement::Undumpable),
            "both-eperm" => (
                &[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev],
                libc::EPERM,
            ),
            "both-enosys" => (
                &[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev],
                libc::ENOSYS,
            ),
            "write-eperm" => (&[libc::SYS_process_vm_writev], libc::EPERM),
            other => return Err(format!("there is no confinement called {other}")),
        };
        Ok(Confinement::Filter { calls, errno })
    }
}

impl Confinement {
    /// Confines this process, all its threads and those that it starts, for good.
    pub(crate) fn enter(self) {
        match self {
            Confinement::Undumpable => {
                // SAFETY: a number is given to the kernel.
                let outcome = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
                assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
            }
            Confinement::Filter { calls, errno } => filter(calls, errno),
        }
    }
}

fn filter(calls: &[libc::c_long], errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // The number of the call is the first word of what a filter sees.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        program.push(libc::sock_filter {
            // Another one: the next statement is passed over.
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32)
        });
        let fail = libc::SECCOMP_RET_ERRNO | errno as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, fail));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a number is given to the kernel; without it only root may install filters.
    let outcome = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the program is read during the call, and lives longer.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}
