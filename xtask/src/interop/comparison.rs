//! Side by side: nonic and rxe in the same guest, between two local addresses, by the same commands.
//!
//! An emulated processor says nothing about speed, but the same of both: only the ratios mean anything.

use super::gids::gid_index;
use crate::dist::Dist;
use crate::lab::{Guest, Lab, last_lines};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// What is measured: program, options, the column of perftest's table, and whether more is better.
const MEASURES: [(&str, &str, usize, bool); 8] = [
    ("ib_write_bw", "-s 65536 -n 200", 3, true),
    ("ib_read_bw", "-s 65536 -n 200", 3, true),
    ("ib_send_bw", "-s 65536 -n 200", 3, true),
    ("ib_write_bw", "-s 4096 -n 1000", 3, true),
    ("ib_send_lat", "-s 64 -n 500", 4, false),
    ("ib_write_lat", "-s 64 -n 500", 4, false),
    ("ib_read_lat", "-s 64 -n 500", 4, false),
    ("ib_atomic_lat", "-n 500", 4, false),
];

/// Until perftest's server listens.
const WAIT_FOR_SERVER: &str = "for i in {1..200}; do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; \
    sleep 0.05; done";

/// What nonic is profiled at: a stream of long messages, short ones there and back.
const PROFILED: [(&str, &str); 2] = [("ib_write_bw", "-s 65536"), ("ib_send_lat", "-s 64")];

/// Runs each three times on each, taking turns, and prints the medians and their ratio; then where nonic's time goes.
pub(super) fn run(dist: &Dist) -> Result<()> {
    let lab = Lab::new(4200)?;
    let mut guest = lab.boot(1, 1024, 2)?;
    // The folders of the guest's own temporary files hide ours.
    for file in ["bin/nonic", "lib/libibverbs.so.1", "lib/librdmacm.so.1"] {
        let to = guest.folder().join(file);
        std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        std::fs::copy(dist.root.join(file), to)?;
    }
    guest.run(
        "ip addr add 10.77.0.101/24 dev eth0 && rdma link add rxe0 type rxe netdev eth0 && \
         mkdir /tmp/nonic && cp -r /run/lab/bin /run/lab/lib /tmp/nonic/",
    )?;
    let theirs = guest.run("ibv_devinfo -v -d rxe0")?;
    let ours = guest.run("/tmp/nonic/bin/nonic run -- ibv_devinfo -v -d roce_eth0")?;
    let index = |text: &str| -> Result<[u32; 2]> {
        Ok([
            gid_index(text, "::ffff:10.77.0.1")?,
            gid_index(text, "::ffff:10.77.0.101")?,
        ])
    };
    let (ours, theirs) = (index(&ours)?, index(&theirs)?);
    println!(
        "{:<36} {:>10} {:>10} {:>14}",
        "between two local addresses", "nonic", "rxe", "nonic is ahead"
    );
    for (program, options, column, more_is_better) in MEASURES {
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            let mine = measure(
                &mut guest,
                "/tmp/nonic/bin/nonic run -- ",
                "roce_eth0",
                ours,
                (program, options),
            )?;
            found[0].push(number(&mine, column)?);
            let rival = measure(&mut guest, "", "rxe0", theirs, (program, options))?;
            found[1].push(number(&rival, column)?);
        }
        let [nonic, rxe] = found.map(median);
        let ratio = if more_is_better { nonic / rxe } else { rxe / nonic };
        let unit = if more_is_better { "MB/s" } else { "µs" };
        let name = format!("{program} {options} ({unit})");
        println!("{name:<36} {nonic:>10.2} {rxe:>10.2} {ratio:>13.2}×");
    }
    for what in PROFILED {
        profile(&mut guest, ours, what)?;
    }
    Ok(())
}

/// Where both sides together spend their time while a program of perftest is in full swing.
fn profile(guest: &mut Guest, gids: [u32; 2], what: (&str, &str)) -> Result<()> {
    let (program, options) = what;
    let side = |gid| format!("/tmp/nonic/bin/nonic run -- {program} -d roce_eth0 -F -D 8 {options} -x {gid}");
    let line = format!(
        "{} > /dev/null 2>&1 & {WAIT_FOR_SERVER}; timeout 60 {} 10.77.0.1 > /dev/null 2>&1 & sleep 4; \
         perf record -q -a -e cpu-clock -o /tmp/profile -- sleep 3 > /dev/null 2>&1; wait; \
         perf report -i /tmp/profile --stdio --no-children --sort sym -w 60 2> /dev/null",
        side(gids[0]),
        side(gids[1])
    );
    let task = guest.start(&line)?;
    let finished = guest.wait(&task, Duration::from_secs(150))?;
    println!("\nnonic's time in {program} {options}, both sides:");
    for line in shares(&finished.output) {
        println!("{line}");
    }
    Ok(())
}

/// The most important lines of `perf report`.
fn shares(report: &str) -> impl Iterator<Item = &str> {
    report
        .lines()
        .map(str::trim_end)
        .filter(|line| line.contains('%') && !line.starts_with('#'))
        .take(20)
}

fn measure(
    guest: &mut Guest,
    runner: &str,
    device: &str,
    gids: [u32; 2],
    what: (&str, &str),
) -> Result<String> {
    let (program, options) = what;
    let common = format!("{runner}{program} -d {device} -F {options}");
    let line = format!(
        "{common} -x {} > /tmp/server 2>&1 & {WAIT_FOR_SERVER}; timeout 100 {common} -x {} 10.77.0.1; status=$?; \
         [ $status = 0 ] || {{ kill %1; cat /tmp/server; }}; wait; exit $status",
        gids[0], gids[1]
    );
    let task = guest.start(&line)?;
    let finished = guest.wait(&task, Duration::from_secs(150))?;
    ensure!(
        finished.status == 0,
        "{common}: exit status {}: {}",
        finished.status,
        last_lines(&finished.output)
    );
    Ok(finished.output)
}

/// A number of the only line of perftest's table.
fn number(output: &str, column: usize) -> Result<f64> {
    let mut lines = output
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let row = lines.nth(1).context("perftest printed no table")?;
    let word = row
        .split_whitespace()
        .nth(column)
        .context("the table is too narrow")?;
    word.parse().with_context(|| format!("not a number: {word}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_in_perftests_table() {
        let output = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      65536      1000             6.00               5.25                 0.09\n";
        assert_eq!(number(output, 3).ok(), Some(5.25));
        assert!(number("nothing", 3).is_err());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
