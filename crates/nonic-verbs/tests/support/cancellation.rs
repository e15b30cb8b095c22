//! What a shared object calls that ends a thread which was cancelled.

use super::outcome::succeeded;
use std::path::Path;
use std::process::Command;

/// Functions of glibc that end a thread which was cancelled, themselves or by what they call: those of pthreads(7) that
/// POSIX requires, those it allows and glibc has, and what Linux adds.
const ENDING: &str = "
    accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat creat64 epoll_pwait epoll_pwait2
    epoll_wait eventfd_read eventfd_write fallocate fallocate64 fcntl fcntl64 fdatasync fsync getentropy getrandom lockf
    lockf64 mq_receive mq_send mq_timedreceive mq_timedsend msgrcv msgsnd msync nanosleep open open64 open_by_handle_at
    openat openat64 pause poll posix_fallocate posix_fallocate64 ppoll pread pread64 preadv preadv2 preadv64 preadv64v2
    pselect pthread_clockjoin_np pthread_cond_clockwait pthread_cond_timedwait pthread_cond_wait pthread_join
    pthread_testcancel pthread_timedjoin_np pwrite pwrite64 pwritev pwritev2 pwritev64 pwritev64v2 read readv recv
    recvfrom recvmmsg recvmsg select sem_clockwait sem_timedwait sem_wait send sendmmsg sendmsg sendto sigpause
    sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range system tcdrain tee usleep vmsplice wait
    wait3 wait4 waitid waitpid write writev
    dprintf fclose fdopen fflush fgetc fgets fopen fopen64 fprintf fputc fputs fread freopen fscanf fwrite getc getdelim
    getline perror popen pclose printf putc puts scanf syslog vdprintf vfprintf vprintf vsyslog
    getaddrinfo gethostbyaddr gethostbyaddr_r gethostbyname gethostbyname2 gethostbyname2_r gethostbyname_r getifaddrs
    getgrgid getgrgid_r getgrnam getgrnam_r getnameinfo getpwnam getpwnam_r getpwuid getpwuid_r getservbyname
    getservbyport mkostemp mkstemp mkstemp64 tmpfile
";

/// What the library imports that ends threads and is not switched off by a wrapper. Names with two underscores in front
/// are other names of the same functions.
pub(crate) fn unguarded(library: &Path, guarded: &[&str]) -> Vec<String> {
    let output = Command::new("nm")
        .args(["--dynamic", "--undefined-only", "--format=just-symbols"])
        .arg(library)
        .output()
        .expect("nm runs");
    let imported = succeeded(&output, "nm");
    let names: Vec<&str> = imported
        .lines()
        .map(|line| line.split('@').next().unwrap_or_default())
        .collect();
    assert!(names.contains(&"read"), "everything reads: {names:?}");
    names
        .into_iter()
        .filter(|name| {
            ENDING
                .split_whitespace()
                .any(|ending| ending == name.trim_start_matches('_'))
                && !guarded.contains(name)
        })
        .map(str::to_owned)
        .collect()
}
