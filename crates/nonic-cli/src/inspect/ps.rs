//! `nonic ps`: the processes that have a device open, and what they hold.

use super::{Gathered, as_json, gather};
use crate::output;
use anyhow::Result;
use nonic::inspect::{Request, printable};
use serde_json::{Value, json};
use std::time::Duration;

/// A process that does not answer in this time is listed as silent.
const PATIENCE: Duration = Duration::from_secs(1);

/// List your processes that have a device open
///
/// Columns: the process and its devices, and how many queue pairs, memory keys, completion queues, connections and listeners each
/// has. Only processes of the same network namespace are asked, and only those of the same user, unless you are root; one that is
/// stopped is listed as silent.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, json: bool) -> Result<()> {
    let gathered = gather(Request::Devices, None, PATIENCE)?;
    if json {
        return output::json(&document(&gathered));
    }
    let mut table = output::table([
        "PID",
        "USER",
        "COMMAND",
        "DEVICE",
        "QPS",
        "MRS",
        "CQS",
        "CONNECTIONS",
        "LISTENERS",
        "STATE",
    ]);
    for (of, command, device) in gathered.records("device") {
        let count = |name| device.number(name).to_string();
        let state = if device.flag("failed") { "failed" } else { "open" };
        table.add_row([
            of.pid.to_string(),
            user_name(of.uid),
            output::cell(command),
            output::cell(device.text("device")),
            count("queue_pairs"),
            count("memory_keys"),
            count("completion_queues"),
            count("connections"),
            count("listeners"),
            state.to_owned(),
        ]);
    }
    for error in &gathered.silent {
        let dash = || "-".to_owned();
        table.add_row([
            error.pid().to_string(),
            dash(),
            command_name(error.pid()),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            dash(),
            "silent".to_owned(),
        ]);
    }
    output::print_table(&table)?;
    if gathered.others > 0 {
        output::line(format_args!("\nand {} of other users", gathered.others))?;
    }
    Ok(())
}

fn document(gathered: &Gathered) -> Value {
    let devices: Vec<Value> = gathered
        .records("device")
        .map(|(of, command, device)| as_json(of, command, device))
        .collect();
    let silent: Vec<Value> = gathered
        .silent
        .iter()
        .map(|error| json!({ "pid": error.pid(), "why": error.to_string() }))
        .collect();
    json!({ "devices": devices, "silent": silent, "other_users": gathered.others })
}

/// The name of a user, or the number of one that has none here.
fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| uid.to_string())
}

/// What the kernel calls a process that does not say it itself.
fn command_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process may give itself any name.
    printable(name.trim_end().to_owned())
}
