//! Soaks, for what only shows after a while: the same again and again, or many at a time, for hours if need be.
//!
//! A soak goes on when a round fails, prints what failed, and ends with one line, `soak NAME: N rounds, F failed`; it
//! fails if any round did. All of it happens in network namespaces of its own ([`contained`]), so that processes
//! outside do not disturb it. [`CpuLoad`] keeps processors busy beside it, which is where races show that a quiet
//! machine hides.
//!
//! Read first: [`run`], then [`churn`].

mod churn;
mod contained;
mod repeated;
mod signals;
mod tally;

use crate::dist::{self, Dist};
use anyhow::{Result, ensure};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testbed::packages::{install, is_root};

/// What to do, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
    /// Keep so many processors busy beside it
    #[arg(long, value_name = "N", default_value_t = 0, global = true)]
    busy: usize,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// `nonic perf --loopback --connections 10000`: all opened, used, closed, and nothing left behind
    Connections {
        #[arg(long, default_value_t = 100)]
        times: usize,
    },
    /// iperf3 over rsockets, which closes descriptors that are not its own
    Iperf3 {
        #[arg(long, default_value_t = 200)]
        times: usize,
    },
    /// rdma-core's own tests (`cargo xtask conformance`)
    Conformance {
        #[arg(long, default_value_t = 50)]
        times: usize,
    },
    /// Threads cancelled inside the C libraries, so many times in each
    Cancel {
        #[arg(long, default_value_t = 10_000)]
        times: usize,
    },
    /// Two processes of one host, one of which is killed or stopped while they talk
    Signals {
        #[arg(long, default_value_t = 1000)]
        times: usize,
    },
    /// Clients of a server on a host where processes come and go, in good order or killed
    Churn {
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
    },
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "only root can make network namespaces");
    if !contained::is_contained() {
        install(&[
            ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
            ("/usr/bin/iperf3", "iperf3"),
        ])?;
        Dist::build(&dist::Options::default())?;
        return contained::again();
    }
    let dist = Dist::built(&dist::Options::default())?;
    let _busy = CpuLoad::start(options.busy);
    match &options.what {
        What::Connections { times } => repeated::connections(&dist, *times),
        What::Iperf3 { times } => repeated::iperf3(*times),
        What::Conformance { times } => repeated::conformance(&dist, *times),
        What::Cancel { times } => repeated::cancel(*times),
        What::Signals { times } => signals::run(&dist, *times),
        What::Churn { minutes } => churn::run(&dist, Duration::try_from_secs_f64(60.0 * minutes)?),
    }
}

/// A number that is another one each time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Threads that do nothing as fast as they can, until it is dropped.
#[derive(Debug)]
struct CpuLoad {
    enough: Arc<AtomicBool>,
}

impl CpuLoad {
    fn start(threads: usize) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let enough = Arc::clone(&enough);
            std::thread::spawn(move || while !enough.load(Ordering::Relaxed) {});
        }
        Self { enough }
    }
}

impl Drop for CpuLoad {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}
