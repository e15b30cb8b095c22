//! `nonic top` for scripts: a JSON object each interval.

use super::Arguments;
use super::model::{Model, Rates};
use super::sampler::Sampler;
use crate::inspect::fields_as_json;
use crate::output;
use anyhow::Result;
use nonic::inspect::Record;
use serde_json::{Map, Value, json};

/// Prints until it has printed as many as asked for, or its output has no reader.
pub(super) fn print(arguments: &Arguments) -> Result<()> {
    let sampler = Sampler::start(arguments.pid, arguments.interval)?;
    let mut model = Model::default();
    // The first sample has nothing before it to count from.
    model.update(sampler.wait()?);
    let mut left = arguments.count;
    while left != Some(0) {
        model.update(sampler.wait()?);
        output::json(&document(&model))?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn document(model: &Model) -> Value {
    let devices = model
        .devices
        .iter()
        .map(|row| entry(row.pid, &row.command, &row.record, &row.rates));
    let queue_pairs = model
        .rows()
        .map(|row| entry(row.pid, &row.command, &row.record, &row.rates));
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "qps": queue_pairs.collect::<Vec<_>>(),
        "silent": model.silent,
        "other_users": model.others,
    })
}

fn entry(pid: u32, command: &str, record: &Record, rates: &Rates) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("pid".to_owned(), pid.into());
    entry.insert("command".to_owned(), command.into());
    entry.extend(fields_as_json(record));
    for (name, rate) in [
        ("tx_bytes_per_second", rates.tx_bytes),
        ("rx_bytes_per_second", rates.rx_bytes),
        ("packets_per_second", rates.packets),
        ("sent_again_per_second", rates.retransmitted),
    ] {
        entry.insert(name.to_owned(), rate.into());
    }
    entry
}
