//! Mooncake: its transfer engine by our script and by its own benchmark, and its store with two clients.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use super::pairs::python_pair;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use testbed::process::{Process, Ready};
use testbed::temporary::Scratch;

const MOONCAKE: Program = Program {
    name: "Mooncake",
    version: "0.3.13",
    packages: &[
        ("/usr/lib/x86_64-linux-gnu/libnuma.so.1", "libnuma1"),
        ("/usr/lib/x86_64-linux-gnu/libcurl.so.4", "libcurl4"),
    ],
    wheels: &["mooncake-transfer-engine-non-cuda==0.3.13.post1", "numpy==2.4.6"],
};

/// Where the wheel has its programs; what it puts into `bin` are scripts that start these.
const PROGRAMS: &str = "{venv}/lib/python3.11/site-packages/mooncake";

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let case = |line: &str, script, moved_bytes| {
        Case::new(&MOONCAKE, line, Shape::Scripted(script), moved_bytes).at(&Place::IPV4)
    };
    vec![
        case(
            "python: TransferEngine, devices found by itself, reads and writes of 8 MiB verified",
            engine,
            16 << 20,
        )
        .core(&Place::IPV4),
        case(
            "transfer_engine_bench --operation=read --auto_discovery",
            |bench| compare(bench, "read"),
            64 << 20,
        ),
        case(
            "transfer_engine_bench --operation=write --auto_discovery",
            |bench| compare(bench, "write"),
            64 << 20,
        ),
        case("mooncake_master, and a store with two clients", store, 6 << 20).core(&[Place::TwoHosts]),
    ]
}

fn engine(bench: &Bench<'_>) -> Result<()> {
    let printed = python_pair(bench, include_str!("mooncake_engine.py"), "")?;
    ensure!(printed.contains("verified"), "the client says: {printed}");
    Ok(())
}

fn store(bench: &Bench<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let home = scratch.folder().display();
    let port = fresh_port();
    let mut command = bench.server(&format!(
        "HOME={home} {PROGRAMS}/mooncake_master --rpc_port={port} --metrics_port={}",
        fresh_port()
    ));
    let master = Process::start(&mut command)?;
    if let Err(error) = master.wait_until(Ready::Tcp(port), &bench.topology) {
        bail!("the master: {error:#}: {}", master.stop());
    }
    let place = format!("{{to}}:{port}");
    let printed = python_pair(bench, include_str!("mooncake_store.py"), &place)?;
    ensure!(printed.contains("verified"), "the client says: {printed}");
    Ok(())
}

/// How many times each of the two transports gets its turn.
const ROUNDS: usize = 3;

/// Its benchmark, by RDMA and by its own TCP in turns. On two processors which of them is faster changes from run to run,
/// with what the scheduler makes of Mooncake's spinning threads; less than half is not the scheduler.
fn compare(bench: &Bench<'_>, operation: &str) -> Result<()> {
    let mut best = [0.0_f64; 2];
    for _ in 0..ROUNDS {
        for (protocol, best) in ["rdma", "tcp"].into_iter().zip(&mut best) {
            let found = throughput(bench, operation, protocol).context(protocol)?;
            *best = best.max(found);
        }
    }
    let [rdma, tcp] = best;
    println!("  {operation}: {rdma:.2} GB/s by RDMA, {tcp:.2} GB/s by TCP");
    ensure!(
        2.0 * rdma >= tcp,
        "much slower than its TCP transport: {rdma:.2} GB/s against {tcp:.2}"
    );
    Ok(())
}

/// Gigabytes per second, once.
fn throughput(bench: &Bench<'_>, operation: &str, protocol: &str) -> Result<f64> {
    let scratch = Scratch::new()?;
    // The target tells on its standard error which port it has found, and we must look while it runs.
    let (wrapper, log) = (scratch.path("log-of.sh"), scratch.path("log"));
    scratch.write("log-of.sh", format!("exec \"$@\" 2>{}\n", log.display()))?;
    // With discovery it takes RDMA if it finds a device.
    let transport = match protocol {
        "rdma" => "--auto_discovery".to_owned(),
        other => format!("--protocol={other}"),
    };
    let options = format!(
        "--metadata_server=P2PHANDSHAKE {transport} --operation={operation} --buffer_size=67108864 --threads=2 \
         --batch_size=8 --block_size=65536 --duration=2"
    );
    let program = format!("{PROGRAMS}/transfer_engine_bench {options}");
    let home = scratch.folder().display().to_string();
    let mut command = bench.server(&format!(
        "HOME={home} sh {} {program} --mode=target --local_server_name={{to}} --log_dir={home}",
        wrapper.display()
    ));
    let target = Process::start(&mut command)?;
    let port = match listening_port(&target, &home, &log) {
        Ok(port) => port,
        Err(error) => bail!("the target: {error:#}: {}", target.stop()),
    };
    let mut command = bench.client(&format!(
        "HOME={home} {program} --mode=initiator --local_server_name={{from}} --segment_id={{to}}:{port}"
    ));
    let printed = match Process::start(&mut command)?.finish() {
        Ok(printed) => printed,
        Err(error) => bail!("the initiator: {error:#}; the target: {}", target.stop()),
    };
    let (_, rest) = printed
        .split_once("throughput ")
        .with_context(|| format!("it tells no throughput: {printed}"))?;
    let number = rest.split_whitespace().next().unwrap_or_default();
    number
        .parse()
        .with_context(|| format!("{number} is no throughput"))
}

/// The port that a target has found, once it waits for initiators. It listens before it has registered its memory, and an
/// initiator that comes that early finds a segment without buffers, and crashes.
fn listening_port(target: &Process, home: &str, log: &Path) -> Result<u16> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let line = text.lines().find_map(|line| line.split_once("listening on "));
        if let Some((_, address)) = line {
            if text.contains("DRAM is used") && sleeps(home) {
                let port = address.trim().rsplit(':').next().unwrap_or_default();
                return port.parse().with_context(|| format!("{address} has no port"));
            }
        }
        ensure!(target.runs(), "it ended: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("it never listens")
}

/// Whether the main thread of the target with that folder sleeps, as it does for a second at a time once all is ready.
fn sleeps(home: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut folders = processes.map(|process| process.path());
    let wanted = format!("--log_dir={home}");
    folders.any(|folder| {
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
        let is_target = String::from_utf8_lossy(&read("cmdline")).contains(&wanted);
        is_target && String::from_utf8_lossy(&read("wchan")).contains("nanosleep")
    })
}
