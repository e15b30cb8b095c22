//! The holder of UDP port 4791 that keeps this process from it: whether it passes on what comes there.
//!
//! Processes of nonic do: those of one user share the port, and hand over what is for processes of another user. Any other
//! program, and the kernel's own RoCE driver, keeps packets to itself, and nothing can arrive here from other hosts. The
//! kernel's tables of sockets tell the two apart: nonic's processes have names at the address beside the port
//! ([`BlockName`](super::BlockName)).

use super::port::words;
use crate::netdev::LocalAddress;
use crate::socket::ROCE_PORT;
use std::net::IpAddr;

/// A socket at the port.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    uid: u32,
    /// Whether it has the port of all addresses, as nonic never does.
    everywhere: bool,
}

/// Whether a program other than nonic holds the port of an address that could not be joined. `is_ours` knows the names of
/// this process's blocks.
///
/// It does not find a program of another user that holds the port of this address alone while there are processes of nonic
/// beside it: it could be one of those.
pub(crate) fn is_foreign(address: LocalAddress, is_ours: impl Fn(&str) -> bool) -> bool {
    let read = |table| std::fs::read_to_string(table).unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    let holders = holders(&read("/proc/net/udp"), &read("/proc/net/udp6"), address.ip);
    // A process of nonic with our user would have let us join.
    if holders
        .iter()
        .any(|holder| holder.everywhere || holder.uid == own)
    {
        return true;
    }
    // Without a holder that can be seen it is taken nevertheless.
    holders.is_empty() || !has_other_process(&read("/proc/net/unix"), address, is_ours)
}

/// The sockets that have the port of an address, or that of all addresses.
fn holders(udp: &str, udp6: &str, ip: IpAddr) -> Vec<Holder> {
    let all_v6 = words(&[0; 16]);
    let (v4, v6) = match ip {
        IpAddr::V4(ip) => (Some((words(&ip.octets()), words(&[0; 4]))), ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (None, ip),
    };
    let of_v4 = v4.iter().flat_map(|(one, all)| in_table(udp, one, all));
    of_v4
        .chain(in_table(udp6, &words(&v6.octets()), &all_v6))
        .collect()
}

/// The sockets of a table with the port of `one` address or of `all`.
fn in_table(table: &str, one: &str, all: &str) -> Vec<Holder> {
    const LOCAL: usize = 1;
    const UID: usize = 7;
    let port = format!(":{ROCE_PORT:04X}");
    let sockets = table.lines().map(str::split_ascii_whitespace);
    sockets
        .filter_map(|fields| {
            let local = fields.clone().nth(LOCAL)?.strip_suffix(&port)?;
            let uid = fields.clone().nth(UID)?.parse().ok()?;
            (local == one || local == all).then_some(Holder {
                uid,
                everywhere: local == all,
            })
        })
        .collect()
}

/// Whether a process of nonic that is not this one has queue pair numbers at the address.
fn has_other_process(unix: &str, address: LocalAddress, is_ours: impl Fn(&str) -> bool) -> bool {
    let prefix = format!("nonic/3/{address}/block/");
    let names = unix
        .lines()
        .filter_map(|line| line.rsplit_once(" @").map(|(_, name)| name));
    // The kernel shows bytes that fill a name up as further signs.
    let names = names.map(|name| name.trim_end_matches('@'));
    names
        .filter(|name| name.starts_with(&prefix))
        .any(|name| !is_ours(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n";

    fn line(local: &str, uid: u32) -> String {
        format!(
            "{HEAD}  372: {local} 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid} 0 12 2 0 0\n"
        )
    }

    #[test]
    fn holders_of_the_address_and_of_all_addresses_are_found() {
        let ip: IpAddr = "10.0.0.1".parse().expect("an address");
        let found = |udp: &str, udp6: &str| {
            let found = holders(udp, udp6, ip).into_iter();
            found
                .map(|holder| (holder.uid, holder.everywhere))
                .collect::<Vec<_>>()
        };
        let own = format!("{}:12B7", words(&[10, 0, 0, 1]));
        assert_eq!(found(&line(&own, 7), ""), [(7, false)]);
        assert_eq!(found(&line("00000000:12B7", 8), ""), [(8, true)], "all addresses");
        let all = format!("{}:12B7", "0".repeat(32));
        assert_eq!(found("", &line(&all, 9)), [(9, true)], "all of both kinds");
        assert_eq!(found(&line("0200000A:12B7", 7), ""), [], "another address");
        assert_eq!(found(&line("00000000:0035", 7), ""), [], "another port");
    }

    #[test]
    fn a_program_that_does_not_share_is_foreign() {
        // An address that no device has, so that no process of nonic is there.
        let address = LocalAddress {
            ip: "127.0.78.1".parse().expect("an address"),
            scope_id: 0,
        };
        let socket = std::net::UdpSocket::bind(address.with_port(ROCE_PORT)).expect("nobody has it");
        assert!(is_foreign(address, |_| false));
        drop(socket);
    }

    #[test]
    fn other_processes_of_nonic_are_found_by_their_names() {
        let address = LocalAddress {
            ip: "10.0.0.1".parse().expect("an address"),
            scope_id: 0,
        };
        let unix = "Num RefCount Protocol Flags Type St Inode Path\n\
                    0000: 00000002 00000000 00010000 0005 01 77 @nonic/3/10.0.0.1/block/02a\n";
        assert!(has_other_process(unix, address, |_| false));
        assert!(!has_other_process(unix, address, |name| name == "nonic/3/10.0.0.1/block/02a"));
        let elsewhere = unix.replace("10.0.0.1", "10.0.0.2");
        assert!(!has_other_process(&elsewhere, address, |_| false));
    }
}
