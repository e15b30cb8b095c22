//! Ceph: a cluster of one monitor and one object store that lives in memory, whose messenger is RDMA; `rados bench` writes
//! objects, reads them back and compares them.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use anyhow::{Context, Result, bail, ensure};
use testbed::process::Process;
use testbed::temporary::Scratch;

const CEPH: Program = Program {
    name: "Ceph",
    version: "16.2",
    packages: &[
        ("/usr/bin/ceph-mon", "ceph-mon"),
        ("/usr/bin/ceph-osd", "ceph-osd"),
        ("/usr/bin/rados", "ceph-common"),
    ],
    wheels: &[],
};

const CLUSTER: &str = "3f0a8c9e-5d3b-4a57-9d0e-0a1b2c3d4e5f";

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let line = "ceph-mon, ceph-osd and rados bench with ms_type = async+rdma, objects compared";
    vec![Case::new(&CEPH, line, Shape::Scripted(cluster), 8 << 20).at(&Place::IPV4)]
}

fn cluster(bench: &Bench<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.write("ceph.conf", configuration(bench, &scratch))?;
    let home = scratch.folder().display();
    let options = format!("-c {}", file.display());
    let server = |line: &str| Process::start(&mut bench.server(&format!("HOME={home} {line}")));
    let client = |line: &str| Process::start(&mut bench.client(&format!("HOME={home} {line}")))?.finish();
    server(&format!("mkdir {home}/mon {home}/osd"))?.finish()?;
    let format_monitor = format!("ceph-mon {options} --id a --mkfs --fsid {CLUSTER}");
    server(&format_monitor)?.finish().context("ceph-mon --mkfs")?;
    let monitor = server(&format!("ceph-mon {options} --id a -f"))?;
    // It waits for the monitor.
    let made = client(&format!("ceph {options} --connect-timeout 60 osd create"));
    if let Err(error) = made {
        bail!("ceph osd create: {error:#}; the monitor: {}", monitor.stop());
    }
    server(&format!("ceph-osd {options} --id 0 --mkfs"))?
        .finish()
        .context("ceph-osd --mkfs")?;
    let store = server(&format!("ceph-osd {options} --id 0 -f"))?;
    let used = benchmark(&options, &client);
    match used {
        Ok(()) => Ok(()),
        Err(error) => bail!(
            "{error:#}; the monitor: {}; the store: {}",
            monitor.stop(),
            store.stop()
        ),
    }
}

fn benchmark(options: &str, client: &dyn Fn(&str) -> Result<String>) -> Result<()> {
    client(&format!("ceph {options} osd pool create bench 8")).context("ceph osd pool create")?;
    // A new pool takes its time to be ready, and writing waits for it; the benchmark would have no time left.
    client(&format!("rados {options} -p bench create first")).context("rados create")?;
    let rados = format!("rados {options} -p bench bench");
    let written =
        client(&format!("{rados} 2 write -b 65536 -t 4 --no-cleanup")).context("rados bench write")?;
    ensure!(written.contains("Bandwidth (MB/sec):"), "it says: {written}");
    // Unless told otherwise it compares what it reads.
    let read = client(&format!("{rados} 2 seq -t 4")).context("rados bench seq")?;
    ensure!(read.contains("Bandwidth (MB/sec):"), "it says: {read}");
    Ok(())
}

/// Without passwords, and with one copy of everything. The device and the GID are named as with hardware: Ceph would take the
/// first of either.
fn configuration(bench: &Bench<'_>, scratch: &Scratch) -> String {
    let (address, device) = (bench.topology.address, bench.topology.device);
    let gid = bench.topology.gid_index;
    let folder = scratch.folder().display();
    format!(
        "[global]\n\
         fsid = {CLUSTER}\n\
         mon host = v2:{address}:3300\n\
         ms type = async+rdma\n\
         ms bind msgr1 = false\n\
         ms async rdma device name = {device}\n\
         ms async rdma gid idx = {gid}\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         run dir = {folder}\n\
         crash dir = {folder}\n\
         admin socket = {folder}/$name-$pid.asok\n\
         pid file = {folder}/$name.pid\n\
         log file = {folder}/$name.log\n\
         mon data = {folder}/mon\n\
         osd data = {folder}/osd\n\
         mon allow pool size one = true\n\
         mon data avail crit = 1\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd crush chooseleaf type = 0\n\
         osd objectstore = memstore\n\
         memstore device bytes = 8589934592\n\
         [mon.a]\n\
         public addr = {address}\n\
         [osd.0]\n\
         public addr = {address}\n"
    )
}
