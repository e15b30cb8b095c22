//! `nonic devices`: what there is to open, and under which addresses.

use crate::local_gid::interfaces;
use crate::output;
use anyhow::{Context, Result};
use nonic::{Config, Device, GidEntry, LinkState, NetDevice, NicConfig, PortOwner, Wire};
use serde_json::{Value, json};

/// List the devices: one per network interface
///
/// Columns: the device and its interface, its state, the interface's MTU and the path MTU that fits it, and
/// each address with its GID index and the user whose processes have UDP port 4791 there.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also show how processes of this host are reached, and the limits of a device
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<()> {
    let devices = interfaces()?;
    let listed = Device::list().context("cannot list the devices")?;
    let is_listed = |device: &NetDevice| listed.iter().any(|other| other.index == device.index);
    if json {
        let devices: Vec<Value> = devices
            .iter()
            .map(|device| as_json(device, is_listed(device)))
            .collect();
        let (lane, direct) = nonic::roads(&Config::from_environment()?);
        let same_host = json!({
            "packets": lane.to_string(),
            "one_sided": direct.to_string(),
            "maps_memory": direct.maps_memory(),
        });
        return output::json(
            &json!({ "devices": devices, "same_host": same_host, "limits": limits_as_json() }),
        );
    }
    print_devices(&devices)?;
    for device in devices
        .iter()
        .filter(|device| device.loopback && !is_listed(device))
    {
        output::line(format_args!(
            "\n{} is not in the list that programs see; NONIC_LOOPBACK=on adds it, NONIC_LOOPBACK=only shows nothing else",
            device.device_name()
        ))?;
    }
    if arguments.verbose {
        print_details()?;
    }
    Ok(())
}

fn print_devices(devices: &[NetDevice]) -> Result<()> {
    let mut table = output::table([
        "DEVICE",
        "NETDEV",
        "STATE",
        "MTU",
        "PATH MTU",
        "GID",
        "ADDRESS",
        "PORT 4791",
    ]);
    for device in devices {
        let mut head = vec![
            device.device_name(),
            device.name.clone(),
            state(device).to_owned(),
            device.mtu.to_string(),
            device.path_mtu().to_string(),
        ];
        if device.gids.is_empty() {
            table.add_row(head.iter().map(String::as_str).chain(["-", "no address", "-"]));
        }
        for (position, entry) in device.gids.iter().enumerate() {
            let indices: Vec<String> = indices(device, position).map(|index| index.to_string()).collect();
            let port = match device.wire {
                Wire::Roce => port_state(entry),
                // Each connection has a TCP port of its own.
                Wire::Iwarp => "-".to_owned(),
            };
            let tail = [indices.join(", "), entry.address.to_string(), port];
            table.add_row(head.iter().cloned().chain(tail));
            // Further addresses of the same device stand below the first.
            head = vec![String::new(); head.len()];
        }
    }
    output::print_table(&table)
}

/// How processes of this host are reached, and limits.
fn print_details() -> Result<()> {
    output::line(
        "\neach interface is an iWARP device too, iwarp_NETDEV; `nonic run --wire` and NONIC_WIRE show those",
    )?;
    let (lane, direct) = nonic::roads(&Config::from_environment()?);
    output::line("\nto processes of the same user and host:")?;
    output::line(format_args!("{:<28} {lane}", "packets go"))?;
    output::line(format_args!("{:<28} {direct}", "WRITEs and READs are done"))?;
    let own = match direct.maps_memory() {
        true => "mapped by the requester, which does atomics as well",
        false => "reached like all other",
    };
    output::line(format_args!("{:<28} {own}", "memory nonic allocates is"))?;
    output::line("")?;
    for (name, value) in limits() {
        output::line(format_args!("{name:<28} {value}"))?;
    }
    Ok(())
}

/// Under which indices of the GID table an address stands.
fn indices(device: &NetDevice, position: usize) -> impl Iterator<Item = usize> {
    let table = nonic::verbs_gid_table(device.loopback, &device.gids).into_iter();
    let at_position = table.enumerate().filter(move |(_, found)| *found == position);
    at_position.map(|(index, _)| index)
}

fn state(device: &NetDevice) -> &'static str {
    match (device.up, device.link) {
        (true, LinkState::Up) => "up",
        (true, LinkState::Down) => "no carrier",
        (false, _) => "down",
    }
}

fn port_state(entry: &GidEntry) -> String {
    match nonic::port_owner(entry.address) {
        Ok(PortOwner::Nobody) => "free".to_owned(),
        Ok(PortOwner::User { uid }) => format!("user {uid}"),
        Ok(PortOwner::Other) => "taken by a foreign program".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn as_json(device: &NetDevice, listed: bool) -> Value {
    let gids: Vec<Value> = device
        .gids
        .iter()
        .enumerate()
        .map(|(position, entry)| {
            json!({
                "index": indices(device, position).next(),
                "gid": entry.gid.to_string(),
                "address": entry.address.to_string(),
                "port_4791": port_as_json(entry),
            })
        })
        .collect();
    json!({
        "device": device.device_name(),
        "netdev": device.name,
        "netdev_index": device.index,
        "state": state(device),
        "loopback": device.loopback,
        "listed": listed,
        "mtu": device.mtu,
        "path_mtu": device.path_mtu(),
        "gids": gids,
    })
}

fn port_as_json(entry: &GidEntry) -> Value {
    match nonic::port_owner(entry.address) {
        Ok(PortOwner::Nobody) => json!({ "state": "free" }),
        Ok(PortOwner::User { uid }) => json!({ "state": "shared", "uid": uid }),
        Ok(PortOwner::Other) => json!({ "state": "foreign" }),
        Err(error) => json!({ "state": "unavailable", "error": error.to_string() }),
    }
}

/// The limits that are the same for every device.
fn limits() -> [(&'static str, u64); 7] {
    let config = NicConfig::default();
    [
        ("max_wr", config.max_wr.into()),
        ("max_sge", config.max_sge.into()),
        ("max_inline_data", config.max_inline_data.into()),
        ("max_rd_atomic", config.max_rd_atomic.into()),
        ("max_message_bytes", 1 << 31),
        ("window_initial_bytes", config.window.initial.into()),
        ("window_max_bytes", config.window.max.into()),
    ]
}

fn limits_as_json() -> Value {
    limits()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
