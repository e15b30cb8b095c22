//! `nonic run`: the program takes the command's place and finds the library.

use std::path::Path;
use std::process::{Command, Output};

/// A folder that looks as if the library were in it. No program here is linked with it.
fn with_library() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("libibverbs.so.1"), "").expect("a file can be written");
    folder
}

fn nonic(lib: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nonic"));
    command.args(["run", "--lib"]).arg(lib).args(arguments);
    command
        .env("LD_LIBRARY_PATH", "/elsewhere")
        .env_remove("LD_PRELOAD")
        .env_remove("OMPI_MCA_opal_common_ucx_devices")
        .env_remove("NONIC_PCAP");
    command.output().expect("nonic starts")
}

#[test]
fn the_library_comes_first_and_the_rest_of_the_path_stays() {
    let folder = with_library();
    let output = nonic(folder.path(), &["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    let real = folder.path().canonicalize().expect("it exists");
    let expected = format!("{}:/elsewhere\n", real.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn the_exit_code_and_the_arguments_are_the_programs() {
    let folder = with_library();
    let output = nonic(
        folder.path(),
        &["--", "sh", "-c", "echo $1; exit 7", "sh", "--pcap"],
    );
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--pcap\n");
}

#[test]
fn a_capture_is_asked_for_by_its_full_name() {
    let folder = with_library();
    let output = nonic(
        folder.path(),
        &["--pcap", "x.pcapng", "--", "sh", "-c", "echo $NONIC_PCAP"],
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.starts_with('/') && printed.ends_with("/x.pcapng\n"),
        "{printed}"
    );
}

#[test]
fn sockets_are_carried_if_asked_for() {
    let folder = with_library();
    let words = ["--sockets", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let output = nonic(folder.path(), &words);
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("there is no rsocket/librspreload.so in"),
        "{complaint}"
    );

    let preloaded = folder.path().join("rsocket");
    std::fs::create_dir(&preloaded).expect("a folder can be made");
    std::fs::write(preloaded.join("librspreload.so"), "").expect("a file can be written");
    let output = nonic(folder.path(), &words);
    let real = folder.path().canonicalize().expect("it exists");
    let expected = format!(
        "{0}/rsocket/librspreload.so:{0}/libibverbs.so.1\n",
        real.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let output = nonic(folder.path(), &words[1..]);
    let expected = format!("{}/libibverbs.so.1\n", real.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn what_is_told_is_asked_for_by_an_option() {
    let folder = with_library();
    let output = nonic(
        folder.path(),
        &["--log", "warn,qp=debug", "--", "sh", "-c", "echo $NONIC_LOG"],
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "warn,qp=debug\n");
}

#[test]
fn files_are_shown_unless_they_are_not_wanted() {
    let folder = with_library();
    let words = ["--", "sh", "-c", "echo $LD_PRELOAD; echo $NONIC_FILES"];
    let output = nonic(folder.path(), &words);
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("there is no libnonic_files.so in"), "{note}");
    let output = nonic(folder.path(), &["--files=preload", "--", "true"]);
    assert!(!output.status.success(), "it was asked for");

    std::fs::write(folder.path().join("libnonic_files.so"), "").expect("a file can be written");
    let output = nonic(folder.path(), &words);
    let real = folder.path().canonicalize().expect("it exists");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (preloaded, files) = printed.split_once('\n').expect("two lines");
    let expected = format!("{0}/libnonic_files.so:{0}/libibverbs.so.1", real.display());
    assert_eq!(preloaded, expected);
    let devices = Path::new(files.trim_end()).join("sys/class/infiniband");
    assert!(devices.is_dir(), "{}", devices.display());

    let mut off = vec!["--files=off"];
    off.extend(words);
    let output = nonic(folder.path(), &off);
    let expected = format!("{}/libibverbs.so.1\n\n", real.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn what_the_user_has_said_of_other_programs_stays() {
    let folder = with_library();
    let said = "OMPI_MCA_opal_common_ucx_devices";
    let script = format!("echo ${said}");
    let words = ["--", "sh", "-c", &script];
    assert_eq!(
        String::from_utf8_lossy(&nonic(folder.path(), &words).stdout),
        "any\n"
    );
    let script = format!("{said}=mlx5_0 exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_nonic"), "run", "--lib"])
        .arg(folder.path())
        .args(words)
        .output()
        .expect("sh starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mlx5_0\n");
}

#[test]
fn a_missing_library_or_program_is_named() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let output = nonic(empty.path(), &["--", "true"]);
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("there is no libibverbs.so.1 in"),
        "{complaint}"
    );

    let output = nonic(with_library().path(), &["--", "no-such-program"]);
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("cannot run no-such-program"), "{complaint}");
}

#[test]
fn a_command_that_was_installed_alone_says_how_to_get_the_library() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder can be made");
    let alone = bin.join("nonic");
    std::fs::copy(env!("CARGO_BIN_EXE_nonic"), &alone).expect("it can be copied");
    let output = Command::new(&alone)
        .args(["run", "--", "true"])
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("cargo xtask install"), "{complaint}");

    let lib = folder.path().join("lib");
    std::fs::create_dir(&lib).expect("a folder can be made");
    std::fs::write(lib.join("libibverbs.so.1"), "").expect("a file can be written");
    let output = Command::new(&alone)
        .args(["run", "--", "true"])
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What processes count is in a file that others read: names of 32 bytes, each with its value behind it.
#[test]
fn what_a_program_counts_is_seen_by_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("counters")).expect("a folder can be made");
    let output = Command::new(env!("CARGO_BIN_EXE_nonic"))
        .args(["ping", "--loopback", "--count", "3"])
        .env("NONIC_FILES", folder.path())
        .output()
        .expect("nonic starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut sent = 0;
    for device in std::fs::read_dir(folder.path().join("counters")).expect("it is there") {
        let device = device.expect("it can be read").path();
        for file in std::fs::read_dir(device).expect("it is a folder") {
            let content = std::fs::read(file.expect("it can be read").path()).expect("it can be read");
            let slots = content.chunks_exact(40).map(|slot| slot.split_at(32));
            let values = slots.filter(|(name, _)| name.starts_with(b"tx_packets\0"));
            sent += values
                .map(|(_, value)| u64::from_ne_bytes(value.try_into().expect("eight bytes")))
                .sum::<u64>();
        }
    }
    assert!(sent >= 6, "{sent} packets");
}

const STATIC: &str = r#"
#include <stdio.h>
#include <sys/stat.h>
int main(void)
{
    struct stat found;
    if (stat("/dev/infiniband/rdma_cm", &found) || !S_ISCHR(found.st_mode))
        return 1;
    if (stat("/dev/null", &found) || stat("/sys/class/net/lo/mtu", &found))
        return 2;
    return stat("/sys/class/infiniband_verbs/abi_version", &found) ? 3 : 0;
}
"#;

#[test]
fn a_static_program_has_the_files_mounted() {
    let folder = with_library();
    std::fs::write(folder.path().join("libnonic_files.so"), "").expect("a file can be written");
    let (source, program) = (folder.path().join("static.c"), folder.path().join("static"));
    std::fs::write(&source, STATIC).expect("a file can be written");
    let compiled = Command::new("cc")
        .args(["-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(compiled.expect("cc starts").success());
    let allowed = Command::new("unshare")
        .args(["--user", "--mount", "true"])
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("NOT TESTED: this machine allows no user namespaces");
        return;
    }
    let program = program.to_str().expect("it is text");
    for files in ["--files=auto", "--files=mount"] {
        let output = nonic(folder.path(), &[files, "--", program]);
        assert_eq!(output.status.code(), Some(0), "{files}: {output:?}");
    }
    let output = nonic(folder.path(), &["--files=preload", "--", program]);
    assert_eq!(output.status.code(), Some(1), "it does not ask the C library");
}
