//! The programs everybody knows, on our library: rdma-core's examples, perftest and qperf.
//!
//! Each is run unchanged and unprivileged, on loopback and between two network namespaces, with every connection type
//! and the options people use. What runs is written in `docs/programs.md`; the chore fails if reality differs.
//!
//! Read first: [`cases`] (what is run), then [`pair`] (how).

mod cases;
mod pair;
mod table;

use crate::dist::{self, Dist};
use crate::place::{Cable, Place, Setting, install, is_root};
use anyhow::{Context, Result, ensure};
use cases::{Case, Shape};
use pair::Site;
use std::path::{Path, PathBuf};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    build: dist::Options,
    /// Only cases whose command line contains this; the documentation is then left alone.
    #[arg(long, default_value = "")]
    only: String,
    /// Write docs/programs.md instead of comparing with it.
    #[arg(long)]
    write: bool,
    /// Do not build; use this folder, as made by `dist`.
    #[arg(long = "dist", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// What became of a case, on loopback and between namespaces: the complaint, if any.
#[derive(Clone, Debug)]
struct Outcome {
    case: Case,
    complaints: [Option<String>; 2],
}

/// Runs a program of perftest with both ends on loopback; what its client printed.
pub(crate) fn perftest(nonic: &Path, program: &'static str, options: Vec<&'static str>) -> Result<String> {
    let site = Site {
        name: "loopback",
        device: "roce_lo",
        address: "127.0.0.1",
        gid_index: 0,
        server: Place::default(),
        client: Place::default(),
    };
    let case = Case {
        shape: Shape::Pair,
        program,
        service: "RC",
        options,
        limits: Vec::new(),
        excuse: None,
    };
    pair::both(&site, nonic, &case)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        is_root(),
        "only root can make network namespaces and become another user"
    );
    install(&[
        ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
        ("/usr/bin/ib_write_bw", "perftest"),
        ("/usr/bin/qperf", "qperf"),
    ])?;
    let built = match &options.folder {
        Some(root) => Dist { root: root.clone() },
        None => Dist::build(&options.build)?,
    };
    let readable = Readable::copy(&built)?;
    // UC and UD have no flow control: what the peer does not read in time must fit its socket buffer.
    let _buffers = Setting::at_least("/proc/sys/net/core/rmem_max", 4 << 20);
    // perftest leaves these behind; those of another user are in our way.
    for file in ["/tmp/xrc_domain_client", "/tmp/xrc_domain_server"] {
        let _ = std::fs::remove_file(file);
    }
    let cable = Cable::new()?;
    let place = |namespace| Place {
        namespace: Some(namespace),
        as_nobody: true,
    };
    let sites = [
        Site {
            name: "loopback",
            device: "roce_lo",
            address: "127.0.0.1",
            gid_index: 0,
            server: place(&cable.right),
            client: place(&cable.right),
        },
        Site {
            name: "namespaces",
            device: "roce_veth",
            address: "10.77.0.2",
            // The first is link-local.
            gid_index: 1,
            server: place(&cable.right),
            client: place(&cable.left),
        },
    ];
    let outcomes = everything(&sites, &readable.nonic(), &options.only)?;
    let bad: usize = outcomes
        .iter()
        .map(|outcome| outcome.complaints.iter().flatten().count())
        .sum();
    println!("programs: {} runs, {bad} failed", 2 * outcomes.len());
    if options.only.is_empty() {
        document(&outcomes, options.write)?;
    }
    let unexpected = outcomes
        .iter()
        .filter(|outcome| outcome.case.excuse.is_some() != outcome.complaints.iter().any(Option::is_some));
    let list: Vec<String> = unexpected.map(|outcome| outcome.case.line()).collect();
    ensure!(list.is_empty(), "not as expected: {}", list.join("; "));
    Ok(())
}

fn everything(sites: &[Site<'_>; 2], nonic: &Path, only: &str) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for case in cases::all() {
        if !case.line().contains(only) {
            continue;
        }
        let mut complaints = [None, None];
        for (site, complaint) in sites.iter().zip(&mut complaints) {
            *complaint = match case.shape {
                Shape::Alone => pair::alone(site, nonic, &case),
                Shape::Pair => pair::both(site, nonic, &case).map(drop),
                Shape::Qperf => pair::qperf(site, nonic, &case),
            }
            .err()
            .map(|error| format!("{error:#}"));
            if let Some(complaint) = complaint {
                println!("FAILED {} ({}): {complaint}", case.line(), site.name);
            }
        }
        outcomes.push(Outcome { case, complaints });
    }
    ensure!(!outcomes.is_empty(), "no case has that in its command line");
    Ok(outcomes)
}

/// Writes the table, or compares it with what is written.
fn document(outcomes: &[Outcome], write: bool) -> Result<()> {
    let path = dist::workspace().join("docs/programs.md");
    let text = table::markdown(outcomes);
    if write {
        return std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    ensure!(
        written == text,
        "docs/programs.md is not what was found; see `cargo xtask tools --write`"
    );
    Ok(())
}

/// A copy of what is installed that another user may read, wherever it was built.
struct Readable {
    folder: PathBuf,
}

impl Readable {
    fn copy(dist: &Dist) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("nonic-tools-{}", std::process::id()));
        let readable = Self { folder };
        for file in ["bin/nonic", "lib/libibverbs.so.1"] {
            let to = readable.folder.join(file);
            let parent = to.parent().context("a file is in a folder")?;
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            std::fs::copy(dist.root.join(file), &to).with_context(|| format!("cannot copy {file}"))?;
        }
        Ok(readable)
    }

    fn nonic(&self) -> PathBuf {
        self.folder.join("bin/nonic")
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
