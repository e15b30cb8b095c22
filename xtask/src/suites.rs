//! `cargo xtask suites`: perftest and rdma-core's own tests as Debian 12, 13 and testing ship them, under `nonic run`.
//!
//! Programs of a newer system bind to names that an older one's do not know. Each suite has a root folder with its
//! perftest, pyverbs and the tests, made once (`mmdebstrap`) below the target folder; what is built here is copied in.
//! The packages are unpacked, not installed: that is quick, and nothing here needs what their scripts would do. All of
//! it runs as the user nobody, in a network of its own that has only loopback. What skips is written in
//! `crates/nonic-verbs/conformance`: `skipped.txt`, and for the tests that a newer release of rdma-core has besides
//! `skipped-65.txt`.

use crate::conformance::{self, Outcome, Skips};
use crate::debian::{self, SUITES, Suite};
use crate::dist::{self, Dist, target_directory, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use testbed::command::output;
use testbed::packages::is_root;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Only this suite: `bookworm`, `trixie` or `forky`.
    #[arg(long)]
    suite: Option<String>,
    /// Run only tests whose name contains this; what skips or fails is then not compared.
    #[arg(long, default_value = "")]
    only: String,
    /// Make the root folders anew: testing changes.
    #[arg(long)]
    fresh: bool,
}

/// What the suites' root folders have.
const PACKAGES: &str = "--include=base-files,coreutils,dash,grep,ibverbs-providers,iproute2,mount,perftest,\
                        python3-pyverbs,util-linux";

/// Of the package rdma-core only the tests: it needs a whole init system.
const TESTS: &str = "--customize-hook=cd \"$1\"; APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download -qq rdma-core; \
                     dpkg-deb --fsys-tarfile rdma-core_*.deb | tar -x ./usr/share/doc/rdma-core/tests; \
                     rm rdma-core_*.deb";

/// A program that sends and one that waits for answers; both link libmlx5.
const PERFTEST: [&str; 2] = ["ib_write_bw", "ib_send_lat"];

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "root folders of other systems need root");
    let dist = options.dist.get()?;
    let _huge_pages = conformance::huge_pages();
    let wanted = |suite: &&Suite| options.suite.as_ref().is_none_or(|wanted| wanted == suite.name);
    let mut differences = Vec::new();
    for suite in SUITES.iter().filter(wanted) {
        let started = Instant::now();
        let root = Root::make(suite, &dist, options.fresh)?;
        println!(
            "{}: rdma-core {}, root folder {:.1} s",
            suite.release,
            root.release,
            started.elapsed().as_secs_f64()
        );
        for program in PERFTEST {
            let started = Instant::now();
            let printed = output(&mut root.enter(&["sh", "/check/perftest.sh", NONIC, program]))
                .with_context(|| format!("{}: {program}", suite.release))?;
            println!("  {program}: {:.1} s", started.elapsed().as_secs_f64());
            for line in printed.lines() {
                println!("    {}", line.trim());
            }
        }
        differences.extend(tests(&root, suite, &options.only)?);
    }
    for difference in &differences {
        println!("{difference}");
    }
    ensure!(
        differences.is_empty(),
        "{} differences from what is expected",
        differences.len()
    );
    Ok(())
}

/// Runs rdma-core's tests; what is not as expected.
fn tests(root: &Root, suite: &Suite, only: &str) -> Result<Vec<String>> {
    let started = Instant::now();
    let report = conformance::until_each_has_an_outcome(&root.folder.join("check/report.jsonl"), || {
        let path = "PATH=/check/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let words = [
            "env",
            path,
            "PYTHONDONTWRITEBYTECODE=1",
            NONIC,
            "run",
            "--",
            "/usr/bin/python3",
        ];
        let mut command = root.enter(&words);
        command
            .args(["/check/runner.py", "/check/tests", "/check/report.jsonl", only])
            .args(["--dev", "roce_lo"]);
        command
    })?;
    let [passed, failed, skipped] =
        [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|outcome| report.count(outcome));
    println!(
        "  rdma-core's tests: {passed} passed, {failed} failed, {skipped} skipped: {:.1} s",
        started.elapsed().as_secs_f64()
    );
    if !only.is_empty() {
        print!("{}", report.lines());
        return Ok(report.failures());
    }
    // What newer releases have besides has lists of its own.
    let newer = conformance::given(&format!("skipped-{}.txt", root.release));
    let skips = Skips::read(&conformance::given("skipped.txt"))?.and(&newer)?;
    let differences = skips.differences(&report).into_iter();
    Ok(differences
        .map(|difference| format!("{}: {difference}", suite.release))
        .collect())
}

/// Where the command is in a root folder.
const NONIC: &str = "/opt/nonic/bin/nonic";

/// A suite's root folder, with what is built here in it.
struct Root {
    folder: PathBuf,
    /// Of rdma-core: `56`.
    release: String,
}

impl Root {
    fn make(suite: &Suite, dist: &Dist, fresh: bool) -> Result<Self> {
        let folder = target_directory()?.join("suites").join(suite.name);
        if fresh && folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let arguments = [
            "--variant=extract",
            "--aptopt=Acquire::Languages \"none\"",
            PACKAGES,
            TESTS,
        ];
        debian::root(&folder, suite.name, &arguments)?;
        // The packages' scripts, which were not run, would have written these.
        let etc = folder.join("etc");
        fs::write(
            etc.join("passwd"),
            "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        )?;
        fs::write(etc.join("group"), "root:x:0:\nnogroup:x:65534:\n")?;
        let release = release(&folder)?;
        let root = Self { folder, release };
        root.bring(dist)?;
        Ok(root)
    }

    /// Copies in what is built, and what the programs are run with.
    fn bring(&self, dist: &Dist) -> Result<()> {
        let (check, nonic) = (self.folder.join("check"), self.folder.join("opt/nonic"));
        // The last has what `nonic run` wrote down of networks that are gone.
        for old in [&check, &nonic, &self.folder.join("tmp/nonic-65534")] {
            let _ = fs::remove_dir_all(old);
        }
        for new in ["check/bin", "opt/nonic/bin"] {
            fs::create_dir_all(self.folder.join(new))?;
        }
        output(
            Command::new("cp")
                .args(["--archive", "--reflink=auto"])
                .args([dist.root.join("lib"), nonic.join("lib")]),
        )?;
        fs::copy(dist.nonic(), nonic.join("bin/nonic"))?;
        let given = [
            (workspace().join("packaging/check/perftest.sh"), "perftest.sh"),
            (conformance::given("runner.py"), "runner.py"),
            (conformance::given("rdma"), "bin/rdma"),
        ];
        for (from, to) in given {
            fs::copy(&from, check.join(to)).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        conformance::unpack(
            &self.folder.join("usr/share/doc/rdma-core/tests"),
            &check.join("tests"),
        )?;
        // The user nobody writes the report here.
        fs::set_permissions(&check, fs::Permissions::from_mode(0o777))?;
        Ok(())
    }

    /// A command that runs another as the user nobody in the root folder.
    fn enter(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("240")
            .arg("sh")
            .arg(workspace().join("packaging/check/enter.sh"))
            .arg(&self.folder)
            .arg("nobody")
            .args(words);
        command
    }
}

/// Which rdma-core the root folder has, as its library's name tells: `libibverbs.so.1.14.56.1`.
fn release(folder: &Path) -> Result<String> {
    for lib in fs::read_dir(folder.join("usr/lib"))? {
        if let Ok(name) = fs::read_link(lib?.path().join("libibverbs.so.1")) {
            let name = name.to_string_lossy().into_owned();
            let release = name
                .split('.')
                .nth(4)
                .context("the library's name has a version")?;
            return Ok(release.to_owned());
        }
    }
    anyhow::bail!("no libibverbs in {}", folder.display())
}
