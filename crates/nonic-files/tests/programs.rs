//! Programs of several kinds see the files of the devices, and notice nothing else.

#[path = "../../nonic-verbs/tests/support/build.rs"]
mod build;
#[path = "../../nonic-abi/tests/support/outcome.rs"]
#[allow(dead_code, reason = "each test uses what it needs")]
mod outcome;

use outcome::succeeded;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The library, and a folder of files for it.
struct Shown {
    folder: TempDir,
    library: PathBuf,
    files: PathBuf,
}

impl Shown {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Shown {
            library: build::file_of("nonic-files", "libnonic_files.so"),
            files: nonic_sysfs::place_in(&folder.path().join("files")).expect("it can be written"),
            folder,
        }
    }

    /// A command that runs with it, and ends within a minute.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["60", "env"])
            .arg(option("LD_PRELOAD=", &self.library))
            .arg(option("NONIC_FILES=", &self.files))
            .arg(program);
        command
    }

    /// The devices, as the folder has them.
    fn devices(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.files.join("sys/class/infiniband")).expect("it is there");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("it can be read")
                    .file_name()
                    .into_string()
                    .expect("it is text")
            })
            .collect();
        names.sort();
        assert!(!names.is_empty(), "there is always a loopback interface");
        names
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

#[test]
fn every_call_finds_the_files() {
    let shown = Shown::new();
    let program = build::compile(
        "calls",
        &["-D_FORTIFY_SOURCE=2", "-O2", "-ldl"],
        shown.folder.path(),
    );
    for device in shown.devices() {
        let real = shown
            .files
            .join("sys/class/infiniband")
            .join(&device)
            .join("device");
        let real = real.canonicalize().expect("it is there");
        let seen = Path::new("/").join(real.strip_prefix(&shown.files).expect("it is in the folder"));
        let uverbs = std::fs::read_dir(real.join("infiniband_verbs"))
            .expect("it is there")
            .next();
        let uverbs = uverbs.expect("there is one").expect("it can be read").file_name();
        let mut command = shown.command(&program);
        command.arg(&device).arg(uverbs).arg(seen);
        let output = command.output().expect("it starts");
        assert_eq!(succeeded(&output, &device), "as it should be\n");
    }
}

#[test]
fn python_finds_them() {
    let shown = Shown::new();
    let script = "import os, glob, pathlib\n\
                  devices = sorted(os.listdir('/sys/class/infiniband'))\n\
                  assert sorted(entry.name for entry in os.scandir('/sys/class/infiniband')) == devices\n\
                  assert len(glob.glob('/sys/class/infiniband/*/ports/1/state')) == len(devices)\n\
                  path = pathlib.Path('/sys/class/infiniband') / devices[0]\n\
                  assert str((path / 'device').resolve()).startswith('/sys/devices/nonic/')\n\
                  assert os.path.realpath(path / 'device').startswith('/sys/devices/nonic/')\n\
                  assert os.stat(path / 'node_guid').st_size == len((path / 'node_guid').read_text())\n\
                  print(*devices)";
    let output = shown
        .command("python3")
        .args(["-c", script])
        .output()
        .expect("it starts");
    let expected = format!("{}\n", shown.devices().join(" "));
    assert_eq!(succeeded(&output, "python3"), expected);
}

#[test]
fn tools_find_them() {
    let shown = Shown::new();
    let script = "cd /sys/class/infiniband && for device in *; do \
                  test -d $device/ports/1 -a -r $device/node_guid && cat $device/../../numa_node && ls -l /dev/infiniband; done";
    let output = shown
        .command("sh")
        .args(["-c", script])
        .output()
        .expect("it starts");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = succeeded(&output, "sh");
    assert!(
        printed.starts_with("-1\n") && printed.contains("rdma_cm"),
        "{printed}"
    );
}

#[test]
fn without_a_folder_nothing_changes() {
    let shown = Shown::new();
    let list = |command: &mut Command| {
        let output = command
            .args(["-c", "ls /sys/class/infiniband /dev/infiniband /sys/class/net"])
            .output();
        output.expect("it starts").stdout
    };
    let with = list(shown.command("env").args(["-u", "NONIC_FILES", "sh"]));
    assert_eq!(with, list(&mut Command::new("sh")));
}

/// A file of counters as a process leaves it: names of 32 bytes, each with its value behind it.
fn counted(values: &[(&str, u64)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, value) in values {
        let mut slot = [0; 40];
        slot[..name.len()].copy_from_slice(name.as_bytes());
        slot[32..].copy_from_slice(&value.to_ne_bytes());
        content.extend(slot);
    }
    content
}

/// Writes a file of counters.
fn leave(path: &Path, values: &[(&str, u64)]) {
    let folder = path.parent().expect("a file is in a folder");
    std::fs::create_dir_all(folder).expect("a folder can be made");
    std::fs::write(path, counted(values)).expect("it can be written");
}

#[test]
fn counters_are_those_of_all_processes() {
    let shown = Shown::new();
    let device = &shown.devices()[0];
    let folder = shown.files.join("counters").join(device);
    let port = format!("/sys/class/infiniband/{device}/ports/1");
    // By their whole path, from where they are, and by a stream.
    let script = format!(
        "cat {port}/counters/port_xmit_data; cd {port}/hw_counters; cat sent_pkts; \
         python3 -c 'print(open(\"{port}/counters/port_rcv_errors\").read(), end=\"\")'"
    );
    let read = || {
        let output = shown.command("sh").args(["-c", &script]).output();
        succeeded(&output.expect("it starts"), "sh")
    };
    assert_eq!(read(), "0\n0\n0\n");
    let (packets, many) = (7, u64::from(u32::MAX));
    leave(
        &folder.join("one"),
        &[("tx_bytes", 400), ("tx_packets", packets), ("rx_malformed", 2)],
    );
    leave(
        &folder.join("two"),
        &[("rx_icrc_errors", 3), ("tx_packets", many)],
    );
    leave(&folder.join(".unfinished"), &[("tx_packets", 1)]);
    assert_eq!(read(), format!("100\n{}\n5\n", packets + many));
}

/// perftest opens a counter before its run and reads it again afterwards.
#[test]
fn a_counter_that_is_kept_open_moves() {
    let shown = Shown::new();
    let device = &shown.devices()[0];
    let (before, after) = (
        shown.folder.path().join("before"),
        shown.folder.path().join("after"),
    );
    leave(&before, &[("rx_bytes", 4)]);
    leave(&after, &[("rx_bytes", 4 * 1234)]);
    let folder = shown.files.join("counters").join(device);
    std::fs::create_dir(&folder).expect("a folder can be made");
    let script = "import os, shutil, sys\n\
                  before, after, to, counter = sys.argv[1:]\n\
                  shutil.copy(before, to)\n\
                  kept = os.open(counter, os.O_RDONLY)\n\
                  first = os.read(kept, 99), os.lseek(kept, 0, os.SEEK_SET), os.pread(kept, 99, 0)\n\
                  shutil.copy(after, to)\n\
                  print(first, os.read(kept, 99), os.read(kept, 99), os.pread(kept, 99, 0))";
    let counter = format!("/sys/class/infiniband/{device}/ports/1/counters/port_rcv_data");
    let mut command = shown.command("python3");
    command
        .args(["-c", script])
        .arg(before)
        .arg(after)
        .arg(folder.join("one"));
    let output = command.arg(counter).output().expect("it starts");
    let expected = "(b'1\\n', 0, b'1\\n') b'1234\\n' b'' b'1234\\n'\n";
    assert_eq!(succeeded(&output, "python3"), expected);
}
