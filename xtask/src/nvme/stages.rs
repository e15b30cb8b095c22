//! What the kernel must be able to do with the target, in order: each stage goes on from where the last one left off.

use super::host::{ADDRESS, Host, NQN};
use crate::lab::fault_commands;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Does something with both sides; what is worth telling.
type Action = Box<dyn Fn(&mut Host) -> Result<String>>;

/// One thing to do.
pub(super) struct Stage {
    pub(super) name: String,
    /// Whether later ones depend on it.
    pub(super) always: bool,
    /// Does it; what is worth telling.
    pub(super) run: Action,
}

/// The namespace in the guest.
const DISK: &str = "/dev/nvme0n1";

/// Commands that only ask or set something, on a slow guest.
const SHORT: Duration = Duration::from_secs(120);

/// How a job of fio differs from others.
#[derive(Copy, Clone)]
struct Job {
    blocks: &'static str,
    seconds: u64,
    depth: u32,
}

impl Job {
    /// Writes at random, and reads and compares as it goes. Files are written by the file system; the raw disk is used where
    /// no file system is.
    fn line(&self) -> String {
        let Job {
            blocks,
            seconds,
            depth,
        } = self;
        format!(
            "fio --name=verify --filename=/mnt/fio --size=96M --ioengine=libaio --direct=1 --rw=randwrite \
             --bsrange={blocks} --iodepth={depth} --verify=crc32c --verify_fatal=1 --verify_backlog=16 \
             --time_based --runtime={seconds} --group_reporting --output-format=normal"
        )
    }
}

/// All of them; `quick` does the same for a shorter time.
pub(super) fn all(quick: bool) -> Vec<Stage> {
    let seconds = if quick { 5 } else { 60 };
    let mut stages = vec![
        stage("discover", true, discover),
        stage("connect", true, connect),
        stage("partition, mkfs, mount", true, make_file_system),
        stage("a file is the same after it was unmounted", true, keep_a_file),
    ];
    let depth = 32;
    let mut jobs = vec![("fio 4 KiB to 1 MiB, depth 32", "4k-1m", None)];
    if !quick {
        jobs.push(("fio 4 KiB, depth 32", "4k-4k", None));
        jobs.push(("fio 1 MiB, depth 32", "1m-1m", None));
    }
    jobs.push(("fio 4 KiB to 1 MiB, depth 32, 1 % loss", "4k-1m", Some("loss 1%")));
    for (name, blocks, fault) in jobs {
        let job = Job {
            blocks,
            seconds,
            depth,
        };
        stages.push(stage(name, false, move |host| verify(host, job, fault)));
    }
    stages.push(stage(
        "the target is killed, the kernel comes back",
        false,
        survive,
    ));
    stages.push(stage("disconnect", true, disconnect));
    stages
}

fn stage(name: &str, always: bool, run: impl Fn(&mut Host) -> Result<String> + 'static) -> Stage {
    Stage {
        name: name.to_owned(),
        always,
        run: Box::new(run),
    }
}

fn discover(host: &mut Host) -> Result<String> {
    host.start_target()?;
    let said = host.run(&format!("nvme discover -t rdma -a {ADDRESS} -s 4420"), SHORT)?;
    for wanted in [NQN, "rdma", ADDRESS, "rdma_cm"] {
        ensure!(
            said.contains(wanted),
            "{wanted} is not among what was found: {said}"
        );
    }
    Ok(String::new())
}

fn connect(host: &mut Host) -> Result<String> {
    host.run(
        &format!(
            "nvme connect -t rdma -a {ADDRESS} -s 4420 -n {NQN} --reconnect-delay=1 --ctrl-loss-tmo=300 \
             --keep-alive-tmo=15"
        ),
        SHORT,
    )?;
    host.wait_until(&format!("[ -b {DISK} ]"), SHORT)?;
    let said = host.run(&format!("nvme list; blockdev --getsize64 {DISK}"), SHORT)?;
    ensure!(said.contains("nonic"), "not listed: {said}");
    ensure!(said.trim_end().ends_with("268435456"), "of another size: {said}");
    Ok(String::new())
}

fn make_file_system(host: &mut Host) -> Result<String> {
    host.run(&format!("echo 'start=2048, type=83' | sfdisk -q {DISK}"), SHORT)?;
    host.wait_until(&format!("[ -b {DISK}p1 ]"), SHORT)?;
    host.run(
        &format!(
            "mkfs.ext4 -q -E lazy_itable_init=0 {DISK}p1 && mkdir -p /tmp/mnt && mount {DISK}p1 /tmp/mnt"
        ),
        2 * SHORT,
    )?;
    Ok(String::new())
}

fn keep_a_file(host: &mut Host) -> Result<String> {
    host.run(
        &format!(
            "head -c 20M /dev/urandom > /tmp/mnt/kept && sha256sum /tmp/mnt/kept > /tmp/sum && umount /tmp/mnt && \
             fsck.ext4 -f -n {DISK}p1 && mount {DISK}p1 /tmp/mnt && sha256sum -c /tmp/sum"
        ),
        2 * SHORT,
    )?;
    Ok(String::new())
}

fn verify(host: &mut Host, job: Job, fault: Option<&str>) -> Result<String> {
    if let Some(fault) = fault {
        host.run(&fault_commands(Some(fault), super::MTU), SHORT)?;
    }
    let patience = Duration::from_secs(job.seconds * 3) + 2 * SHORT;
    let outcome = host.run(&job.line().replace("/mnt/", "/tmp/mnt/"), patience);
    if fault.is_some() {
        host.run(&fault_commands(None, super::MTU), SHORT)?;
    }
    let said = outcome?;
    ensure!(said.contains("err= 0"), "fio found errors: {said}");
    ensure!(said.contains("READ: "), "fio has compared nothing: {said}");
    Ok(bandwidth(&said))
}

/// What fio says of speed, such as `WRITE: bw=12.3MiB/s`.
fn bandwidth(said: &str) -> String {
    let lines = said.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("READ: ") || line.starts_with("WRITE: "));
    let first = lines.map(|line| line.split(" (").next().unwrap_or(line).to_owned());
    first.collect::<Vec<_>>().join(", ")
}

fn survive(host: &mut Host) -> Result<String> {
    let state = "cat /sys/class/nvme/nvme0/state";
    host.run("echo before > /tmp/mnt/before; sync", SHORT)?;
    host.kill_target();
    host.wait_until(&format!("[ \"$({state})\" = connecting ]"), 2 * SHORT)?;
    host.start_target()?;
    host.wait_until(&format!("[ \"$({state})\" = live ]"), 3 * SHORT)?;
    host.run(
        &format!(
            "echo 3 > /proc/sys/vm/drop_caches; sha256sum -c /tmp/sum && grep before /tmp/mnt/before && \
             echo after > /tmp/mnt/after && umount /tmp/mnt && fsck.ext4 -f -n {DISK}p1 && mount {DISK}p1 /tmp/mnt && \
             grep after /tmp/mnt/after"
        ),
        2 * SHORT,
    )?;
    Ok(String::new())
}

fn disconnect(host: &mut Host) -> Result<String> {
    let said = host.run(&format!("umount /tmp/mnt; nvme disconnect -n {NQN}"), SHORT)?;
    ensure!(said.contains("disconnected 1"), "not disconnected: {said}");
    host.wait_until(&format!("[ ! -b {DISK} ]"), SHORT)?;
    Ok(String::new())
}
