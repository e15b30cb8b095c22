//! Faults of the wire, made in a guest.

/// Commands for a guest: disturb what it sends and, through an intermediate device, what it receives, as netem says; or stop that.
pub fn fault_commands(fault: Option<&str>, mtu: u32) -> String {
    match fault {
        Some(fault) => format!(
            "tc qdisc add dev eth0 root netem {fault} limit 10000 && ip link set ifb0 mtu {mtu} up && \
             tc qdisc add dev ifb0 root netem {fault} limit 10000 && tc qdisc add dev eth0 ingress && \
             tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0"
        ),
        None => "tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root; tc qdisc del dev eth0 root; true"
            .to_owned(),
    }
}
