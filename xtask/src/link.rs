//! Linking: the static library of `nonic-verbs` becomes `libibverbs.so.1`, and that of `nonic-rdmacm` `librdmacm.so.1`.
//!
//! rustc exports a `cdylib`'s symbols without versions, and programs bind to versions. So the crate is built as an
//! archive, and the system's linker makes the shared object with a version script. The tests of both use
//! this file too.
//!
//! # Threads that are cancelled
//!
//! A thread that `pthread_cancel` ends inside the library would end holding its locks, and the unwinding would pass
//! through Rust frames, which abort. POSIX lets a thread end so only in certain functions of the C library (unless the
//! thread asked for asynchronous cancellation, with which nothing but `pthread_setcancelstate` and two others may be
//! called). So the guard is not where programs call in, in more than 200 functions, but where the library calls out:
//! the linker sends each call of such a function, be it ours, the standard library's or a dependency's, through a few
//! instructions that switch cancellation off and on again. Nothing is added to calls that make no system call.
//!
//! Verbs that wait for events end threads all the same, as with rdma-core: they wait by another name of the function,
//! in a frame that has nothing to undo (`nonic-abi/src/cancel`). A test compares what the libraries import with what
//! is known of the C library, so that nothing is forgotten when they begin to call something else.

use std::ffi::{OsStr, OsString};
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// What the libraries call that ends a thread which was cancelled, in itself or in what it calls.
pub(crate) const CANCELLATION_POINTS: [&str; 31] = [
    "accept4",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_wait",
    "eventfd_read",
    "eventfd_write",
    "fallocate64",
    "fcntl",
    "getaddrinfo",
    "getrandom",
    "open64",
    "pause",
    "poll",
    "ppoll",
    "pread64",
    "preadv2",
    "pthread_join",
    "pwrite64",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "write",
    "writev",
];

/// Links `archive` to the shared object `output`, replacing it in one step: programs may be running on the old one.
///
/// `needed` are shared objects it calls.
#[allow(
    dead_code,
    reason = "the tests of both libraries call it, the chores the other"
)]
pub(crate) fn link(
    archive: &Path,
    version_script: &Path,
    soname: &str,
    needed: &[&Path],
    output: &Path,
) -> Result<()> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    link_with(&compiler, archive, version_script, soname, needed, output)
}

/// The same with a given C compiler, which decides on which C library the shared object needs.
pub(crate) fn link_with(
    compiler: &OsStr,
    archive: &Path,
    version_script: &Path,
    soname: &str,
    needed: &[&Path],
    output: &Path,
) -> Result<()> {
    let unfinished = output.with_extension("unfinished");
    let wrappers = output.with_extension("cancellation.c");
    std::fs::write(&wrappers, uncancelled())?;
    let script = option("-Wl,--version-script=", version_script);
    let found = Command::new(compiler)
        .arg("-shared")
        .arg("-o")
        .arg(&unfinished)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .args(["-O2", "-fPIC", "-ffunction-sections"])
        .arg(&wrappers)
        .args(CANCELLATION_POINTS.map(|name| format!("-Wl,--wrap={name}")))
        .args(needed)
        .arg(script)
        .arg(format!("-Wl,-soname,{soname}"))
        // Calls from inside stay inside, whatever else the process has loaded.
        .arg("-Wl,-Bsymbolic")
        .arg("-Wl,--gc-sections")
        .arg("-Wl,-z,defs,-z,relro,-z,now")
        // Its threads run until the process ends; `dlclose` must not take their code away.
        .arg("-Wl,-z,nodelete")
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"])
        .output()?;
    std::fs::remove_file(&wrappers)?;
    if !found.status.success() {
        let complaint = String::from_utf8_lossy(&found.stderr);
        return Err(Error::other(format!("{soname} does not link: {complaint}")));
    }
    std::fs::rename(unfinished, output)
}

/// The wrappers, in C. They pass on as many arguments as registers hold, which is all that any of them has.
fn uncancelled() -> String {
    let mut source = String::from(
        "#include <pthread.h>\n\
         #define WRAP(name) \\\n\
         long __real_##name(long, long, long, long, long, long); \\\n\
         long __wrap_##name(long a, long b, long c, long d, long e, long f) \\\n\
         { \\\n\
         int before; \\\n\
         pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); \\\n\
         long answer = __real_##name(a, b, c, d, e, f); \\\n\
         pthread_setcancelstate(before, 0); \\\n\
         return answer; \\\n\
         }\n",
    );
    for name in CANCELLATION_POINTS {
        source.push_str(&format!("WRAP({name})\n"));
    }
    source
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}
