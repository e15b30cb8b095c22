//! A process that has no descriptor left for a waiting connection. Alone in its process: the limit is the whole process's.

use nonic::{Device, Listener};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Takes all descriptors from the process `$1`, asks it for a connection at port `$2`, measures the processor time that it uses
/// (in ticks of 10 ms) for half a second, gives it back its descriptors, and waits for an answer.
const PEER: &str = r#"
    set -e
    ticks() { read -r -a stat < /proc/$1/stat; echo $((stat[13] + stat[14])); }
    prlimit --pid $1 --nofile=3:
    exec 3<> /dev/tcp/127.0.0.1/$2
    printf 'MPA ID Req Frame\100\001\000\000' >&3
    sleep 0.2
    before=$(ticks $1); sleep 0.5; after=$(ticks $1)
    prlimit --pid $1 --nofile=1024:
    echo $((after - before))
    read -rt 20 -n 16 answer <&3
    [ "$answer" = "MPA ID Rep Frame" ]
"#;

#[test]
fn connections_that_wait_for_a_descriptor_cost_nothing_and_are_taken_later() {
    let device = Device::open("iwarp_lo").expect("a device");
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let peer = Command::new("bash")
        .args(["-c", PEER, "peer"])
        .args([
            std::process::id().to_string(),
            listener.local_addr().port().to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash starts");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    incoming.reject(b"").expect("rejected");
    let peer = peer.wait_with_output().expect("it ends");
    assert!(peer.status.success(), "it got its answer");
    let ticks: u32 = String::from_utf8_lossy(&peer.stdout)
        .trim()
        .parse()
        .expect("a number");
    assert!(ticks < 25, "{ticks} ticks of the processor were used to wait");
}
