//! The stages: what the kernel must be able to do with the target, in order. Each goes on from where the last one left off.

use super::fio::{Job, Report};
use super::host::{ADDRESS, Host, NQN};
use anyhow::{Result, ensure};
use std::time::Duration;
use testbed::lab::fault_commands;

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

/// A file that fio writes.
const FIO_FILE: &str = "/tmp/mnt/fio";

/// How long the kernel waits for an answer where packets are lost, in ms; 30 s elsewhere.
///
/// When rxe must retransmit a packet it begins its send queue anew, and registers memory a second time that it has
/// registered already. That fails (`rxe_reg_fast_mr: … not free`), and it sends nothing more and reports no error.
/// nvme-rdma registers memory for each command, so about every hundredth command ends like this, and only the kernel's
/// timeout finds out and connects anew.
const LOSS_TIMEOUT_MS: u32 = 3000;
const TIMEOUT_MS: u32 = 30_000;

/// All of them; `quick` does the same for a shorter time.
pub(super) fn all(quick: bool) -> Vec<Stage> {
    let mut stages = vec![
        stage("discover", true, discover),
        stage("connect", true, connect),
        stage("partition, mkfs, mount", true, make_file_system),
        stage("a file is the same after it was unmounted", true, keep_a_file),
    ];
    let seconds = (!quick).then_some(60);
    let job = |blocks, round_mib| Job {
        blocks,
        round_mib,
        seconds,
    };
    let mixed = job("4k-1m", 64);
    stages.push(stage("fio 4 KiB to 1 MiB, depth 32", false, move |host| {
        verify(host, mixed)
    }));
    if !quick {
        let (short, long) = (job("4k-4k", 4), job("1m-1m", 64));
        stages.push(stage("fio 4 KiB, depth 32", false, move |host| {
            verify(host, short)
        }));
        stages.push(stage("fio 1 MiB, depth 32", false, move |host| {
            verify(host, long)
        }));
    }
    let lossy = job("4k-1m", 16);
    stages.push(stage(
        "fio 4 KiB to 1 MiB, depth 32, 1 % loss",
        false,
        move |host| verify_with_loss(host, lossy),
    ));
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

fn verify(host: &mut Host, job: Job) -> Result<String> {
    let patience = Duration::from_secs(3 * job.seconds.unwrap_or(0)) + 2 * SHORT;
    let report = Report::parse(&host.run(&job.line(FIO_FILE), patience)?)?;
    report.check(&job)?;
    Ok(report.summary())
}

fn verify_with_loss(host: &mut Host, job: Job) -> Result<String> {
    let connected = connections(host);
    set_timeout(host, LOSS_TIMEOUT_MS)?;
    host.run(&fault_commands(Some("loss 1%"), super::MTU), SHORT)?;
    let outcome = verify(host, job);
    let lost = host.run("tc -s qdisc show", SHORT)?;
    host.run(&fault_commands(None, super::MTU), SHORT)?;
    set_timeout(host, TIMEOUT_MS)?;
    let said = outcome?;
    let lost = dropped(&lost);
    ensure!(
        lost.len() == 2 && !lost.contains(&0),
        "packets lost in each direction: {lost:?}"
    );
    let anew = connections(host) - connected;
    Ok(format!(
        "{said}; {} and {} packets lost, {anew} times connected anew",
        lost[0], lost[1]
    ))
}

/// How often the host has connected since the target was started last.
fn connections(host: &Host) -> usize {
    host.target_said().matches("has connected").count()
}

/// The namespace of each path to it has a queue of requests, and a timeout.
fn set_timeout(host: &mut Host, ms: u32) -> Result<()> {
    let line =
        format!("for queue in /sys/block/nvme*c*n1/queue; do echo {ms} > $queue/io_timeout || exit; done");
    host.run(&line, SHORT).map(drop)
}

/// How many packets each netem has dropped, as in ` Sent 1 bytes 2 pkt (dropped 3, overlimits 0 requeues 0)`.
fn dropped(statistics: &str) -> Vec<u64> {
    let mut of_netem = false;
    let mut found = Vec::new();
    for line in statistics.lines() {
        if line.starts_with("qdisc ") {
            of_netem = line.starts_with("qdisc netem ");
        } else if let (true, Some((_, rest))) = (of_netem, line.split_once("(dropped ")) {
            let number = rest
                .split(',')
                .next()
                .and_then(|number| number.parse::<u64>().ok());
            found.extend(number);
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_are_counted_where_netem_loses_them() {
        let said = "qdisc noqueue 0: dev lo root refcnt 2\n \
            Sent 0 bytes 0 pkt (dropped 7, overlimits 0 requeues 0)\n\
            qdisc netem 8001: dev eth0 root refcnt 2 limit 10000 loss 1%\n \
            Sent 56 bytes 1 pkt (dropped 3, overlimits 0 requeues 0)\n backlog 0b 0p requeues 0\n\
            qdisc ingress ffff: dev eth0 parent ffff:fff1 ----------------\n \
            Sent 5 bytes 1 pkt (dropped 9, overlimits 0 requeues 0)\n\
            qdisc netem 8002: dev ifb0 root refcnt 2 limit 10000 loss 1%\n \
            Sent 0 bytes 0 pkt (dropped 12, overlimits 0 requeues 0)\n";
        assert_eq!(dropped(said), [3, 12]);
    }
}
