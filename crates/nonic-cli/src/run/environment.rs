//! The environment of the program.
//!
//! It tells the loader where our libraries are, twice. `LD_LIBRARY_PATH` serves programs that ask for `libibverbs.so.1`
//! by its name. `LD_PRELOAD` serves Python wheels that carry a library under a name of their own, such as
//! `libibverbs-1de1263b.so.1`: what is loaded first is asked first for every function.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Machines with so few processors have none to spare for threads that only spin.
const FEW_PROCESSORS: usize = 4;

/// The file beside the libraries that is for valgrind.
const SUPPRESSIONS: &str = "nonic.supp";

/// Variables that programs get unless the user has set them; `nonic run --help` and docs/files.md list them.
pub(crate) fn defaults(verbs: &Path, processors: usize) -> Vec<(&'static str, OsString)> {
    let mut defaults = vec![
        // Open MPI takes UCX by itself only for devices whose driver is called mlx….
        ("OMPI_MCA_opal_common_ucx_devices", "any".into()),
        // NCCL and RCCL open the name without a number first, which is the system's library where it is for building with.
        ("NCCL_IBVERBS_LIB", verbs.into()),
    ];
    // Memcheck is told what to leave out of its reports, which are about the program.
    let suppressions = verbs.with_file_name(SUPPRESSIONS);
    // Its options are split at spaces.
    if suppressions.is_file() && !suppressions.as_os_str().as_bytes().contains(&b' ') {
        let mut option = OsString::from("--suppressions=");
        option.push(suppressions);
        defaults.push(("VALGRIND_OPTS", option));
    }
    if processors <= FEW_PROCESSORS {
        // Mooncake's transfer engine has two threads per device that hand work to each other and spin all the time. Where
        // they share a processor, each hand-over costs a slice of the scheduler's, 4 ms.
        defaults.push(("MC_WORKERS_PER_CTX", "1".into()));
    }
    defaults
}

/// What the runtime of a program that was built with AddressSanitizer is told besides what the user tells it: it need not be the first
/// library, since what is preloaded comes before it. Others do not read it.
pub(crate) fn asan_options(before: Option<&OsStr>) -> OsString {
    const NAME: &str = "verify_asan_link_order";
    let before = before.unwrap_or_default();
    let mut options = before.to_owned();
    let is_named = before
        .as_bytes()
        .windows(NAME.len())
        .any(|part| part == NAME.as_bytes());
    if !is_named {
        if !options.is_empty() {
            options.push(":");
        }
        options.push(format!("{NAME}=0"));
    }
    options
}

/// A list of the loader's with entries in front. None is in it twice, so that a program which runs a program on nonic
/// does not make it longer. An empty entry would mean the current folder, so none is left over.
pub(crate) fn with_first(first: &[PathBuf], before: Option<&OsStr>, separators: &[u8]) -> OsString {
    let mut list = OsString::new();
    let before = before.unwrap_or_default().as_bytes();
    let before = before
        .split(|byte| separators.contains(byte))
        .map(OsStr::from_bytes)
        .filter(|entry| !entry.is_empty() && !first.iter().any(|first| first == Path::new(entry)));
    for entry in first.iter().map(|path| path.as_os_str()).chain(before) {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(entry);
    }
    list
}

/// How the loader is told of a library. It takes spaces for the end of a name, and finds a bare one in `LD_LIBRARY_PATH`.
pub(crate) fn preloadable(library: PathBuf) -> PathBuf {
    let has_space = library.as_os_str().as_bytes().contains(&b' ');
    match library.file_name().filter(|_| has_space) {
        Some(name) => PathBuf::from(name),
        None => library,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_entries_come_first_and_only_once() {
        let ours = [PathBuf::from("/opt/nonic/lib")];
        let text = |before: Option<&str>| {
            let list = with_first(&ours, before.map(OsStr::new), b":");
            list.into_string().expect("it is text")
        };
        assert_eq!(text(None), "/opt/nonic/lib");
        assert_eq!(text(Some("")), "/opt/nonic/lib");
        assert_eq!(text(Some("/a:/b")), "/opt/nonic/lib:/a:/b");
        assert_eq!(text(Some("/a:/opt/nonic/lib::/b")), "/opt/nonic/lib:/a:/b");
        let list = with_first(&ours, Some(OsStr::new("/a /b:/c")), b": ");
        assert_eq!(list, "/opt/nonic/lib:/a:/b:/c");
    }

    #[test]
    fn asan_is_told_once_and_what_the_user_says_counts() {
        let told = |before: Option<&str>| asan_options(before.map(OsStr::new));
        assert_eq!(told(None), "verify_asan_link_order=0");
        assert_eq!(
            told(Some("detect_leaks=0")),
            "detect_leaks=0:verify_asan_link_order=0"
        );
        assert_eq!(told(Some("verify_asan_link_order=1")), "verify_asan_link_order=1");
    }

    #[test]
    fn valgrind_is_told_of_the_suppressions_that_are_installed() {
        let folder = tempfile::tempdir().expect("a folder");
        let verbs = folder.path().join("libibverbs.so.1");
        let told = || {
            let defaults = defaults(&verbs, 32);
            let option = defaults.into_iter().find(|(name, _)| *name == "VALGRIND_OPTS");
            option.map(|(_, value)| value.into_string().expect("it is text"))
        };
        assert_eq!(told(), None);
        let file = folder.path().join("nonic.supp");
        std::fs::write(&file, "").expect("it can be written");
        assert_eq!(told(), Some(format!("--suppressions={}", file.display())));
    }

    #[test]
    fn threads_that_spin_are_kept_apart_where_processors_are_few() {
        let has_it = |processors| {
            let defaults = defaults(Path::new("/lib/libibverbs.so.1"), processors);
            defaults.iter().any(|(name, _)| *name == "MC_WORKERS_PER_CTX")
        };
        assert!(has_it(2) && !has_it(32));
    }

    #[test]
    fn a_path_with_a_space_is_left_to_the_loader() {
        let plain = PathBuf::from("/opt/lib/libx.so");
        assert_eq!(preloadable(plain.clone()), plain);
        assert_eq!(preloadable("/my lib/libx.so".into()), Path::new("libx.so"));
    }
}
