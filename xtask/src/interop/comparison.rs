//! Side by side: nonic and Linux's driver for the same wire, rxe or siw, in the same guest, between two local addresses, by the same
//! commands.
//!
//! An emulated processor says nothing about speed, but the same of both: only the ratios mean anything.

use super::case::Opposite;
use super::gids::gid_index;
use crate::dist::Dist;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use testbed::lab::{Guest, Lab, siw};
use testbed::process::last_lines;

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

/// How often each is run on each.
const ROUNDS: usize = 3;

/// Until perftest's server listens.
pub(super) const WAIT_FOR_SERVER: &str = "for i in {1..200}; do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; \
    sleep 0.05; done";

/// What nonic is profiled at: a stream of long messages, short ones there and back.
const PROFILED: [(&str, &str); 2] = [("ib_write_bw", "-s 65536"), ("ib_send_lat", "-s 64")];

/// A device in the guest, and how perftest is told of it.
struct Device {
    name: &'static str,
    /// Before the program's name.
    runner: &'static str,
    /// For the server and for the client.
    options: [String; 2],
}

/// One line of the table.
struct Row {
    command: String,
    unit: &'static str,
    more_is_better: bool,
    /// Medians of nonic and of Linux's driver.
    medians: [f64; 2],
}

impl Row {
    /// By how much nonic is ahead.
    fn ahead(&self) -> f64 {
        let [nonic, driver] = self.medians;
        if self.more_is_better {
            nonic / driver
        } else {
            driver / nonic
        }
    }
}

/// Runs each on each device several times, taking turns, and tells the medians and their ratios; then, unless it is for a
/// script, where nonic's time goes.
pub(super) fn run(dist: &Dist, opposite: Opposite, only: &str, for_script: bool) -> Result<()> {
    let lab = Lab::new(4200)?;
    let mut guest = lab.boot(1, 1024, 2)?;
    let devices = prepare(dist, opposite, &mut guest)?;
    let heading = format!(
        "{:<36} {:>10} {:>10} {:>14}",
        "between two local addresses",
        "nonic",
        opposite.driver(),
        "nonic is ahead"
    );
    let say = |line: &str| match for_script {
        true => eprintln!("{line}"),
        false => println!("{line}"),
    };
    say(&heading);
    let mut rows = Vec::new();
    for (program, options, column, more_is_better) in MEASURES {
        // siw has no atomics.
        if opposite == Opposite::Siw && program == "ib_atomic_lat" || !program.contains(only) {
            continue;
        }
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (device, found) in devices.iter().zip(&mut found) {
                let printed = measure(&mut guest, device, (program, options))?;
                found.push(number(&printed, column)?);
            }
        }
        let row = Row {
            command: format!("{program} {options}"),
            unit: if more_is_better { "MB/s" } else { "µs" },
            more_is_better,
            medians: found.map(median),
        };
        let name = format!("{} ({})", row.command, row.unit);
        let [nonic, driver] = row.medians;
        say(&format!(
            "{name:<36} {nonic:>10.2} {driver:>10.2} {:>13.2}×",
            row.ahead()
        ));
        rows.push(row);
    }
    if for_script {
        println!("{:#}", json(&rows, opposite));
        return Ok(());
    }
    for what in PROFILED.into_iter().filter(|(program, _)| program.contains(only)) {
        profile(&mut guest, &devices[0], what)?;
    }
    Ok(())
}

/// Copies nonic into the guest and makes the devices there.
fn prepare(dist: &Dist, opposite: Opposite, guest: &mut Guest) -> Result<[Device; 2]> {
    take_along(dist, guest)?;
    guest.run("ip addr add 10.77.0.101/24 dev eth0")?;
    if opposite == Opposite::Siw {
        siw::load(guest)?;
    }
    let (device, driver) = (opposite.device(), opposite.driver());
    guest.run(&format!("rdma link add {device} type {driver} netdev eth0"))?;
    let (runner, [ours, theirs]) = match opposite {
        Opposite::Rxe => (
            "/tmp/nonic/bin/nonic run -- ",
            [
                by_gid(guest, "/tmp/nonic/bin/nonic run -- ", "roce_eth0")?,
                by_gid(guest, "", device)?,
            ],
        ),
        Opposite::Siw => (
            "/tmp/nonic/bin/nonic run --wire iwarp -- ",
            [by_address("iwarp_eth0"), by_address(device)],
        ),
    };
    Ok([
        Device {
            name: "nonic",
            runner,
            options: ours,
        },
        Device {
            name: driver,
            runner: "",
            options: theirs,
        },
    ])
}

/// Copies what nonic installs into the guest, to `/tmp/nonic`.
pub(super) fn take_along(dist: &Dist, guest: &mut Guest) -> Result<()> {
    // The folders of the guest's own temporary files hide ours.
    for file in ["bin/nonic", "lib/libibverbs.so.1", "lib/librdmacm.so.1"] {
        let to = guest.folder().join(file);
        std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        std::fs::copy(dist.root.join(file), to)?;
    }
    guest.run("mkdir /tmp/nonic && cp -r /run/lab/bin /run/lab/lib /tmp/nonic/")?;
    Ok(())
}

/// perftest's options for server and client on a RoCE device: the addresses are GIDs.
fn by_gid(guest: &mut Guest, runner: &str, device: &str) -> Result<[String; 2]> {
    let text = guest.run(&format!("{runner}ibv_devinfo -v -d {device}"))?;
    let server = gid_index(&text, "::ffff:10.77.0.1")?;
    let client = gid_index(&text, "::ffff:10.77.0.101")?;
    Ok([server, client].map(|index| format!("-d {device} -x {index}")))
}

/// The same on iWARP, where only the connection manager connects.
fn by_address(device: &str) -> [String; 2] {
    [(), ()].map(|()| format!("-d {device} -R"))
}

/// For scripts, of which `bench` is one.
fn json(rows: &[Row], opposite: Opposite) -> Value {
    let row = |row: &Row| {
        json!({
            "command": row.command,
            "unit": row.unit,
            "nonic": row.medians[0],
            (opposite.driver()): row.medians[1],
            "nonic_is_ahead": row.ahead(),
        })
    };
    json!({ "rounds": ROUNDS, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

/// Where both sides together spend their time while a program of perftest is in full swing.
fn profile(guest: &mut Guest, device: &Device, what: (&str, &str)) -> Result<()> {
    let (program, options) = what;
    let side = |side: usize| {
        let which = &device.options[side];
        format!("{}{program} {which} -F -D 8 {options}", device.runner)
    };
    let line = format!(
        "{} > /dev/null 2>&1 & {WAIT_FOR_SERVER}; timeout 60 {} 10.77.0.1 > /dev/null 2>&1 & sleep 4; \
         perf record -q -a -e cpu-clock -o /tmp/profile -- sleep 3 > /dev/null 2>&1; wait; \
         perf report -i /tmp/profile --stdio --no-children --sort sym -w 60 2> /dev/null",
        side(0),
        side(1)
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

fn measure(guest: &mut Guest, device: &Device, what: (&str, &str)) -> Result<String> {
    let (program, options) = what;
    let side = |side: usize| {
        let which = &device.options[side];
        format!("{}{program} {which} -F {options}", device.runner)
    };
    let line = format!(
        "{} > /tmp/server 2>&1 & {WAIT_FOR_SERVER}; timeout 100 {} 10.77.0.1; status=$?; \
         [ $status = 0 ] || {{ kill %1; cat /tmp/server; }}; wait; exit $status",
        side(0),
        side(1)
    );
    let task = guest.start(&line)?;
    let finished = guest.wait(&task, Duration::from_secs(150))?;
    ensure!(
        finished.status == 0,
        "{} of {}: exit status {}: {}",
        side(1),
        device.name,
        finished.status,
        last_lines(&finished.output)
    );
    Ok(finished.output)
}

/// A number of the only line of perftest's table.
pub(super) fn number(output: &str, column: usize) -> Result<f64> {
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

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ahead_is_above_one_whether_more_or_less_is_better() {
        let mut row = Row {
            command: String::new(),
            unit: "MB/s",
            more_is_better: true,
            medians: [4.0, 2.0],
        };
        assert!((row.ahead() - 2.0).abs() < 1e-12);
        row.more_is_better = false;
        assert!((row.ahead() - 0.5).abs() < 1e-12);
    }

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
