//! rdma-core judges us: its own tests, unchanged, on our library.
//!
//! The tests come with Debian's `rdma-core` package and use pyverbs, the Python binding of libibverbs. Those for
//! mlx5, efa and CUDA are left out: they drive one vendor's hardware. What the others need from the environment
//! (huge pages, and the device's network interface in `/sys`) is provided; a test is never edited. On iWARP, where a WRITE's completion
//! does not say that it is placed, `runner.py` lets a READ follow before the other side looks. Which tests skip is written in
//! `crates/nonic-verbs/conformance/skipped.txt`, with the reason, and the run fails if reality differs.
//!
//! Read first: [`run`], then [`report`].

mod report;

use crate::dist::{self, Dist};
use anyhow::{Context, Result, bail, ensure};
pub(crate) use report::{Outcome, Report, Skips};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::namespace::VethPair;
use testbed::packages::{install, is_root};
use testbed::run_as::RunAs;
use testbed::sysctl::Sysctl;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Run everything this often; every run must give the same.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Run only tests whose name contains this; the list of skips is then not compared.
    #[arg(long, default_value = "")]
    only: String,
    /// Run only in this place: `loopback`, `ethernet` or `iwarp`.
    #[arg(long)]
    place: Option<String>,
    /// Where rdma-core's tests are.
    #[arg(long, default_value = TESTS)]
    tests: PathBuf,
    /// For scripts.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// All of it once, on what is built.
    pub(crate) fn on(dist: &Dist) -> Self {
        Self {
            dist: dist::Chosen::folder(dist),
            repeat: 1,
            only: String::new(),
            place: None,
            tests: PathBuf::from(TESTS),
            json: false,
        }
    }
}

/// Where the tests run: a name, a device, and more arguments for them.
struct Topology<'a> {
    name: &'static str,
    run_as: RunAs<'a>,
    arguments: &'static [&'static str],
    /// Tests that are run first, and with more arguments.
    first: &'static [&'static str],
    arguments_of_first: &'static [&'static str],
    /// What is known to skip.
    skips: &'static str,
}

/// On iWARP a queue pair is connected by the connection manager only. Tests that are given no GID skip what they would connect by
/// themselves, and what they would not as well; these are given one. (The only GID is the hardware address, as it is for every such
/// device, and the tests take it for none.)
const BY_CONNECTION_MANAGER: [&str; 4] = [
    "test_rdmacm_sync_traffic",
    "test_rdmacm_async_read",
    "test_rdmacm_async_write",
    "test_rdmacm_async_reject_traffic",
];

/// Where Debian has rdma-core's tests.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// The interpreter pyverbs is packaged for, whatever `python3` means to the user.
const PYTHON: &str = "/usr/bin/python3";

/// How often the interpreter may be taken down by a test before we give up.
const CRASHES: usize = 25;

pub(crate) fn run(options: &Options) -> Result<()> {
    install(&[
        ("/usr/lib/python3/dist-packages/pyverbs", "python3-pyverbs"),
        (TESTS, "rdma-core"),
    ])?;
    let dist = options.dist.get()?;
    let scratch = dist.root.join("conformance");
    unpack(&options.tests, &scratch.join("tests"))?;
    let _huge_pages = huge_pages();
    let veth_pair = if is_root() { Some(VethPair::new()?) } else { None };
    // Where there is an Ethernet interface, programs are not shown `roce_lo` unless they ask for it.
    let on_loopback = [
        ("NONIC_LOOPBACK", "only".to_owned()),
        ("NONIC_WIRE", "iwarp".to_owned()),
    ];
    let mut differences = 0;
    for round in 1..=options.repeat {
        for topology in topologies(veth_pair.as_ref(), &on_loopback) {
            if options
                .place
                .as_ref()
                .is_some_and(|wanted| wanted != topology.name)
            {
                continue;
            }
            let skips = Skips::read(&given(topology.skips))?;
            let report = tests_at(&topology, &dist, &scratch, &options.only)?;
            differences += judge(&report, &skips, &topology, round, options)?;
        }
    }
    ensure!(
        differences == 0,
        "{differences} differences from what is expected"
    );
    Ok(())
}

/// Loopback, an Ethernet interface where we may make one, and iWARP. The environment is that of iWARP on loopback.
fn topologies<'a>(
    veth_pair: Option<&'a VethPair>,
    on_loopback: &'a [(&'static str, String)],
) -> Vec<Topology<'a>> {
    let run_as = RunAs {
        namespace: veth_pair.map(|veth_pair| &veth_pair.left),
        as_nobody: false,
        confinement: None,
        environment: &[],
    };
    let mut topologies = vec![Topology {
        name: "loopback",
        run_as: RunAs {
            environment: &on_loopback[..1],
            ..run_as
        },
        arguments: &["--dev", "roce_lo"],
        first: &[],
        arguments_of_first: &[],
        skips: "skipped.txt",
    }];
    if veth_pair.is_some() {
        topologies.push(Topology {
            name: "ethernet",
            run_as,
            arguments: &["--dev", "roce_veth", "--gid", "1"],
            first: &[],
            arguments_of_first: &[],
            skips: "skipped.txt",
        });
    }
    topologies.push(Topology {
        name: "iwarp",
        run_as: RunAs {
            environment: on_loopback,
            ..run_as
        },
        arguments: &["--dev", "iwarp_lo"],
        first: &BY_CONNECTION_MANAGER,
        arguments_of_first: &["--port", "1", "--gid", "0"],
        skips: "skipped-iwarp.txt",
    });
    topologies
}

/// Runs the tests until each has an outcome; a test that takes the interpreter down has failed.
fn tests_at(topology: &Topology<'_>, dist: &Dist, scratch: &Path, only: &str) -> Result<Report> {
    let path = scratch.join(format!("{}.jsonl", topology.name));
    let _ = std::fs::remove_file(&path);
    for test in topology.first.iter().filter(|test| test.contains(only)) {
        run_tests(topology, dist, scratch, test, topology.arguments_of_first)?;
    }
    // What has an outcome is not run again.
    run_tests(topology, dist, scratch, only, &[])
}

/// Runs the tests with this in their name.
fn run_tests(
    topology: &Topology<'_>,
    dist: &Dist,
    scratch: &Path,
    only: &str,
    arguments: &[&str],
) -> Result<Report> {
    let path = scratch.join(format!("{}.jsonl", topology.name));
    until_each_has_an_outcome(&path, || {
        let mut command = sees_devices(&topology.run_as);
        command
            .arg(dist.nonic())
            .args(["run", "--", PYTHON])
            .arg(given("runner.py"))
            .arg(scratch.join("tests"))
            .arg(&path)
            .arg(only)
            .args(topology.arguments)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    })
}

/// Starts the command, which runs `runner.py` and has it write to `path`, again after each test that takes it down.
pub(crate) fn until_each_has_an_outcome(path: &Path, command: impl Fn() -> Command) -> Result<Report> {
    let mut report = Report::default();
    for _ in 0..CRASHES {
        let errors = path.with_extension("stderr");
        let status = command()
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&errors)?)
            .status()
            .context("cannot start the tests")?;
        report = Report::read(path)?;
        let last_lines = std::fs::read_to_string(&errors).unwrap_or_default();
        if status.success() {
            // Tests with two processes do not mind if one of them is killed by a signal; we do.
            ensure!(
                !last_lines.contains("Fatal Python error"),
                "a test crashed: {last_lines}"
            );
            return Ok(report);
        }
        let Some(test) = report.unfinished() else {
            bail!("the tests do not start ({status}): {last_lines}");
        };
        Report::append(path, &test, &format!("{status}\n{last_lines}"))?;
    }
    Ok(report)
}

/// A command that runs its arguments where `/sys/class/infiniband` shows our devices, and nowhere else.
fn sees_devices(run_as: &RunAs<'_>) -> Command {
    let mut command = run_as.command(Path::new("unshare"));
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--mount").arg(given("sysfs.sh"));
    command
}

/// One of the files that belong to this chore.
pub(crate) fn given(name: &str) -> PathBuf {
    dist::workspace()
        .join("crates/nonic-verbs/conformance")
        .join(name)
}

/// Prints the outcomes; how many of them are not as they should be.
fn judge(
    report: &Report,
    skips: &Skips,
    topology: &Topology<'_>,
    round: usize,
    options: &Options,
) -> Result<usize> {
    let [passed, failed, skipped] =
        [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|outcome| report.count(outcome));
    let surprises = if options.only.is_empty() {
        skips.differences(report)
    } else {
        report.failures()
    };
    if options.json {
        let line = serde_json::json!({
            "place": topology.name, "round": round, "passed": passed, "failed": failed, "skipped": skipped,
            "differences": surprises, "tests": report.json(),
        });
        println!("{line}");
    } else {
        for surprise in &surprises {
            println!("{surprise}");
        }
        if !options.only.is_empty() {
            print!("{}", report.lines());
        }
        println!(
            "pyverbs: {passed} passed, {failed} failed, {skipped} skipped ({}, run {round} of {})",
            topology.name, options.repeat
        );
    }
    Ok(surprises.len())
}

/// Debian compresses the larger files of its documentation.
pub(crate) fn unpack(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let entries = std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .context("an entry has a name")?
            .to_string_lossy()
            .into_owned();
        match name.strip_suffix(".gz") {
            Some(plain) => {
                let status = Command::new("gzip")
                    .args(["-dc"])
                    .arg(&path)
                    .stdout(std::fs::File::create(to.join(plain))?)
                    .status()
                    .context("cannot start gzip")?;
                ensure!(status.success(), "{name} cannot be unpacked");
            }
            None if path.is_file() => drop(std::fs::copy(&path, to.join(&name))?),
            None => {}
        }
    }
    Ok(())
}

/// Some tests register huge pages: a few that are free, however many other processes of this machine use.
pub(crate) fn huge_pages() -> Sysctl {
    const WANTED: u64 = 32;
    let number = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let used = number("nr_hugepages") - number("free_hugepages").min(number("nr_hugepages"));
    Sysctl::at_least("/proc/sys/vm/nr_hugepages", used + WANTED)
}
