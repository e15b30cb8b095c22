//! Long WRITEs on a wire that delays and loses: nonic with rxe, each way round, beside rxe with rxe, taking turns.
//!
//! Three guests, so that all have the same processors and the same wire: two with rxe, one with nonic, since both want
//! the same port. netem in the first, to which the others talk, disturbs both directions. An emulated processor is
//! slow: where the wire does not limit, only the ratios mean anything.

use super::comparison::{WAIT_FOR_SERVER, median, number, take_along};
use super::gids::gid_index;
use super::pair::disturb;
use crate::dist::Dist;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::lab::{Guest, Lab};
use testbed::process::last_lines;

/// Round trips that netem adds, in milliseconds, and losses in per cent, each way.
const DELAYS_MS: [u32; 4] = [0, 1, 10, 50];
const LOSSES: [&str; 4] = ["0", "0.1", "1", "5"];

/// What is neither: trips that differ by more than the time between packets, so that they overtake each other.
const REORDERING: &str = "delay 2ms 1ms";

const MTU: u32 = 1500;

/// perftest measures for the duration less the margin at both ends.
const OPTIONS: &str = "-F -s 65536 -D 4 -f 1";

/// Guests by their place: rxe on the disturbed end of the wire, another rxe, nonic.
const DRIVERS: [Driver; 3] = [Driver::Rxe, Driver::Rxe, Driver::Nonic];

/// Names, and which guest is client and which is server.
const PARTIES: [(&str, usize, usize); 3] =
    [("rxe → rxe", 1, 0), ("nonic → rxe", 2, 0), ("rxe → nonic", 0, 2)];

#[derive(Copy, Clone, PartialEq, Eq)]
enum Driver {
    Rxe,
    Nonic,
}

/// What was measured on one wire: medians in MB/s, in the order of [`PARTIES`]; none if most runs ended in an error.
struct Cell {
    fault: String,
    medians: [Option<f64>; 3],
}

/// A guest, and how perftest is called there.
struct Host {
    guest: Guest,
    driver: Driver,
    perftest: String,
}

impl Host {
    fn boot(lab: &Lab, dist: &Dist, place: usize) -> Result<Self> {
        let mut host = Self {
            guest: lab.boot(place as u8 + 1, 512, 1)?,
            driver: DRIVERS[place],
            perftest: String::new(),
        };
        host.set_up(dist)?;
        Ok(host)
    }

    /// Does in the guest what all cells need.
    fn set_up(&mut self, dist: &Dist) -> Result<()> {
        self.guest.run("ethtool -K eth0 gro off")?;
        let (runner, device) = match self.driver {
            Driver::Rxe => {
                self.guest.run("rdma link add rxe0 type rxe netdev eth0")?;
                ("", "rxe0")
            }
            Driver::Nonic => {
                // It keeps the port as long as it is loaded.
                self.guest.run("busybox rmmod rdma_rxe")?;
                take_along(dist, &mut self.guest)?;
                ("/tmp/nonic/bin/nonic run -- ", "roce_eth0")
            }
        };
        let text = self.guest.run(&format!("{runner}ibv_devinfo -v -d {device}"))?;
        let index = gid_index(&text, &format!("::ffff:{}", self.address()))?;
        self.perftest = format!("{runner}ib_write_bw -d {device} -x {index} {OPTIONS}");
        Ok(())
    }

    fn address(&self) -> String {
        format!("10.77.0.{}", self.guest.number())
    }
}

/// Measures every cell and prints it.
pub(super) fn run(dist: &Dist, only: &str, rounds: u32, for_script: bool) -> Result<()> {
    let lab = Lab::new(MTU)?;
    let hosts = (0..DRIVERS.len()).map(|place| Host::boot(&lab, dist, place));
    let mut hosts = hosts.collect::<Result<Vec<_>>>()?;
    let names = PARTIES.map(|(name, ..)| name);
    let heading = format!(
        "{:<28} {:>12} {:>12} {:>12}   (MB/s)",
        "64 KiB WRITEs, fault of the wire", names[0], names[1], names[2]
    );
    eprintln!("{heading}");
    let mut cells = Vec::new();
    for fault in faults().into_iter().filter(|fault| fault.contains(only)) {
        disturb(&mut hosts[0].guest, (!fault.is_empty()).then_some(&*fault), MTU)?;
        let medians = measure(&lab, dist, &mut hosts, &fault, rounds)?;
        disturb(&mut hosts[0].guest, None, MTU)?;
        let shown = medians.map(|median| median.map_or("failed".to_owned(), |rate| format!("{rate:.2}")));
        let line = format!(
            "{:<28} {:>12} {:>12} {:>12}",
            named(&fault),
            shown[0],
            shown[1],
            shown[2]
        );
        match for_script {
            true => eprintln!("{line}"),
            false => println!("{line}"),
        }
        cells.push(Cell { fault, medians });
    }
    if for_script {
        println!("{:#}", json(&cells, rounds));
    }
    Ok(())
}

/// What netem is told, for each cell; half of a round trip in each direction.
fn faults() -> Vec<String> {
    let cell = |delay: u32, loss: &str| {
        let delay = (delay > 0).then(|| format!("delay {}us", delay * 500));
        let loss = (loss != "0").then(|| format!("loss {loss}%"));
        delay.into_iter().chain(loss).collect::<Vec<_>>().join(" ")
    };
    let grid = DELAYS_MS
        .iter()
        .flat_map(|&delay| LOSSES.iter().map(move |&loss| cell(delay, loss)));
    grid.chain([REORDERING.to_owned()]).collect()
}

fn named(fault: &str) -> &str {
    if fault.is_empty() { "none" } else { fault }
}

/// All parties on one wire, taking turns.
fn measure(lab: &Lab, dist: &Dist, hosts: &mut [Host], fault: &str, rounds: u32) -> Result<[Option<f64>; 3]> {
    let mut found = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for ((_, client, server), found) in PARTIES.into_iter().zip(&mut found) {
            match once(hosts, client, server)? {
                Some(rate) => found.push(rate),
                None => revive(lab, dist, hosts, fault)?,
            }
        }
    }
    Ok(found.map(|rates| (2 * rates.len() > rounds as usize).then(|| median(rates))))
}

/// One run of perftest; none if it failed.
fn once(hosts: &mut [Host], client: usize, server: usize) -> Result<Option<f64>> {
    let serve = format!("timeout -s KILL 60 {} > /tmp/server 2>&1", hosts[server].perftest);
    let serving = hosts[server].guest.start(&serve)?;
    hosts[server].guest.run(WAIT_FOR_SERVER)?;
    let address = hosts[server].address();
    let ask = format!("timeout -s KILL 50 {} {address} 2>&1", hosts[client].perftest);
    let asking = hosts[client].guest.start(&ask)?;
    let asked = hosts[client].guest.wait(&asking, Duration::from_secs(70));
    let served = hosts[server].guest.wait(&serving, Duration::from_secs(70));
    match (asked, served) {
        (Ok(asked), Ok(_)) if asked.status == 0 => number(&asked.output, 3).map(Some),
        (Ok(asked), _) => {
            eprintln!("exit status {}: {}", asked.status, last_lines(&asked.output));
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// rxe's queue pairs sometimes stop for good, and their process cannot be ended: such a guest is replaced.
fn revive(lab: &Lab, dist: &Dist, hosts: &mut [Host], fault: &str) -> Result<()> {
    for (place, host) in hosts.iter_mut().enumerate() {
        if host.guest.prove().is_err() {
            eprintln!("guest {} broke down and is replaced", host.guest.number());
            lab.replace(&mut host.guest)?;
            host.set_up(dist)?;
            if place == 0 && !fault.is_empty() {
                disturb(&mut host.guest, Some(fault), MTU)?;
            }
        }
    }
    Ok(())
}

/// For scripts.
fn json(cells: &[Cell], rounds: u32) -> Value {
    let cell = |cell: &Cell| {
        let rates = PARTIES.iter().zip(cell.medians);
        let rates: serde_json::Map<String, Value> = rates
            .map(|((name, ..), rate)| ((*name).to_owned(), json!(rate)))
            .collect();
        json!({ "fault": named(&cell.fault), "megabytes_per_second": rates })
    };
    json!({ "rounds": rounds, "cells": cells.iter().map(cell).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_for_each_delay_and_loss_and_one_that_reorders() {
        let faults = faults();
        assert_eq!(faults.len(), 17);
        assert_eq!(faults[0], "");
        assert_eq!(faults[6], "delay 500us loss 1%");
        assert_eq!(faults[16], REORDERING);
    }
}
