//! Ways in which an RDMA program goes wrong: what nonic says of each names the cause and the next step.
//!
//! The table is `docs/errors.md`: every row that has something in its column for Rust has a test here, and what the row quotes must be said.

#[path = "explained/iwarp.rs"]
mod iwarp;

use crate::bench::{Bench, Ends, PATIENCE};
use nonic::{
    Access, AckTimeout, ConnectError, ConnectOptions, Device, Domain, Endpoint, Explanation, Listener,
    PathMtu, Psn, QpCapacity, Qpn, QueuePair, Rc, RemoteSlice, RequestFailed, Status, Ud, connect,
};
use std::time::{Duration, Instant};

/// A row of the table: what the program sees, and what must be said.
struct Row {
    case: String,
    rust: String,
    quotes: Vec<String>,
}

fn rows() -> Vec<Row> {
    let page = include_str!("../../../docs/errors.md");
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, _, rust, says, steps] = cells[..] else {
            return None;
        };
        let case = case.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let quotes = |cell: &str| -> Vec<String> {
            let parts = cell.split('“').skip(1);
            parts
                .filter_map(|part| part.split_once('”').map(|(quote, _)| quote.to_owned()))
                .collect()
        };
        let rust = rust.trim_matches('`').to_owned();
        let quotes = [quotes(says), quotes(steps)].concat();
        Some(Row { case, rust, quotes })
    };
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(row)
        .collect()
}

/// What nonic says must have what the table quotes, and the error must be the one of the table.
#[track_caller]
fn check(case: &str, rust: &str, said: &str) {
    let rows = rows();
    let row = rows
        .iter()
        .find(|row| row.case == case)
        .expect("a row of docs/errors.md");
    assert_eq!(row.rust, rust, "{case}");
    assert!(row.quotes.len() >= 2, "{case} quotes a cause and a step");
    for quote in &row.quotes {
        assert!(said.contains(quote), "{case}: {quote:?} is missing in: {said}");
    }
}

/// Every test here that is about a row.
const CASES: [&str; 26] = [
    "wrong_key",
    "revoked_key",
    "out_of_bounds",
    "no_remote_right",
    "other_protection_domain",
    "queue_pair_forbids",
    "unaligned_atomic",
    "receive_too_short",
    "no_receive",
    "shared_queue_empty",
    "wrong_q_key",
    "datagram_without_receive",
    "never_answers",
    "peer_gone",
    "different_path_mtu",
    "different_first_psn",
    "too_many_reads",
    "nobody_listens",
    "program_refuses",
    "peer_disconnects",
    "port_in_use",
    "iwarp_read_wrong_key",
    "iwarp_write_wrong_key",
    "iwarp_no_receive",
    "iwarp_receive_too_short",
    "iwarp_crc",
];

/// Those of one line, in one test.
const CALLS: [&str; 3] = ["inline_too_long", "wrong_gid_index", "queue_too_deep"];

#[test]
fn the_page_and_the_tests_have_the_same_cases() {
    let mut tested: Vec<&str> = CASES.into_iter().chain(CALLS).collect();
    let rows = rows();
    assert!(rows.len() >= 25, "{} rows", rows.len());
    let mut listed: Vec<&str> = rows
        .iter()
        .filter(|row| !row.rust.starts_with('—'))
        .map(|row| &*row.case)
        .collect();
    tested.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, tested);
}

fn quick() -> ConnectOptions {
    ConnectOptions {
        timeout: AckTimeout::at_least(Duration::from_millis(10)),
        retries: 2,
        rnr_retries: 1,
        ..ConnectOptions::default()
    }
}

/// Two queue pairs of one device, each connected to what `change` makes of the other's endpoint and options.
struct Two {
    device: Device,
    domain: Domain,
    near: QueuePair<Rc>,
    far: QueuePair<Rc>,
}

impl Two {
    fn new() -> Self {
        Two::with(|_, _, _| ())
    }

    /// `change` is given the far endpoint as the near side is told of it, the near options and the far ones.
    fn with(change: impl FnOnce(&mut Endpoint, &mut ConnectOptions, &mut ConnectOptions)) -> Self {
        let device = Device::open("roce_lo").expect("loopback is there");
        let domain = device.domain();
        let (near, far) = (
            domain.pair::<Rc>().expect("a queue pair"),
            domain.pair::<Rc>().expect("a queue pair"),
        );
        let (here, mut there) = (near.endpoint(), far.endpoint());
        let (mut near_options, mut far_options) = (quick(), quick());
        change(&mut there, &mut near_options, &mut far_options);
        Two {
            near: near.connect_with(&there, &near_options).expect("connected"),
            far: far.connect_with(&here, &far_options).expect("connected"),
            device,
            domain,
        }
    }

    fn shelf(&self, rights: Access) -> nonic::Exposed {
        let lease = self.domain.lease(4096).expect("memory");
        lease.expose(rights).expect("exposed")
    }

    fn failed_write(&self, remote: RemoteSlice) -> RequestFailed {
        let lease = self.domain.lease(remote.len as usize).expect("memory");
        let write = self.near.write(lease, remote).wait_within(PATIENCE);
        write.expect("it ends").expect_err("it fails")
    }

    /// What both sides say of a request that failed.
    fn said(&self, failed: &RequestFailed) -> String {
        let here = failed.explanation().expect("an explanation").to_string();
        assert!(
            format!("{failed:?}").contains("last events of the queue pair"),
            "{failed:?}"
        );
        let there = self.device.explain(self.far.endpoint().qpn, None);
        format!(
            "{here} {}",
            there.map(|there| there.to_string()).unwrap_or_default()
        )
    }

    #[track_caller]
    fn check(&self, case: &str, status: &str, failed: &RequestFailed) {
        assert!(format!("{:?}", failed.error).contains(status), "{failed:?}");
        check(case, status, &self.said(failed));
    }
}

const WRITABLE: Access = Access::REMOTE_WRITE;

#[test]
fn wrong_key() {
    let two = Two::new();
    let shelf = two.shelf(WRITABLE);
    let mut remote = shelf.remote().slice(..64);
    remote.rkey ^= 0x55;
    two.check("wrong_key", "RemoteAccess", &two.failed_write(remote));
}

#[test]
fn revoked_key() {
    let two = Two::new();
    let remote = two.shelf(WRITABLE).remote().slice(..64);
    two.check("revoked_key", "RemoteAccess", &two.failed_write(remote));
}

#[test]
fn out_of_bounds() {
    let two = Two::new();
    let shelf = two.shelf(WRITABLE);
    let mut remote = shelf.remote().slice(4086..);
    remote.len = 64;
    two.check("out_of_bounds", "RemoteAccess", &two.failed_write(remote));
}

#[test]
fn no_remote_right() {
    let two = Two::new();
    let shelf = two.shelf(Access::REMOTE_READ);
    two.check(
        "no_remote_right",
        "RemoteAccess",
        &two.failed_write(shelf.remote().slice(..64)),
    );
}

#[test]
fn other_protection_domain() {
    let two = Two::new();
    let lease = two.device.domain().lease(64).expect("memory");
    let shelf = lease.expose(WRITABLE).expect("exposed");
    two.check(
        "other_protection_domain",
        "RemoteAccess",
        &two.failed_write(shelf.remote()),
    );
}

#[test]
fn queue_pair_forbids() {
    let two = Two::with(|_, _, far| far.access = Access::REMOTE_READ);
    let shelf = two.shelf(WRITABLE);
    let failed = two.failed_write(shelf.remote().slice(..64));
    two.check("queue_pair_forbids", "RemoteInvalidRequest", &failed);
}

#[test]
fn unaligned_atomic() {
    let two = Two::new();
    let shelf = two.shelf(Access::REMOTE_ATOMIC);
    let fetch = two
        .near
        .fetch_add(shelf.remote().slice(4..12), 1)
        .expect("memory");
    let failed = fetch
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("it fails");
    two.check("unaligned_atomic", "RemoteInvalidRequest", &failed);
}

fn failed_send(two: &Two, length: usize) -> RequestFailed {
    let lease = two.domain.lease(length).expect("memory");
    let send = two.near.send(lease).wait_within(PATIENCE);
    send.expect("it ends").expect_err("it fails")
}

#[test]
fn receive_too_short() {
    let two = Two::new();
    let receive = two.far.recv(two.domain.lease(100).expect("memory"));
    let failed = failed_send(&two, 300);
    two.check("receive_too_short", "RemoteInvalidRequest", &failed);
    let received = receive
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("too short");
    check(
        "receive_too_short",
        "RemoteInvalidRequest",
        &received.explanation().expect("an explanation").to_string(),
    );
}

#[test]
fn no_receive() {
    let two = Two::new();
    let failed = failed_send(&two, 8);
    two.check("no_receive", "RnrRetryExceeded", &failed);
    // What comes after it is flushed, and says what came first.
    let flushed = failed_send(&two, 8);
    let said = flushed.explanation().expect("an explanation").to_string();
    assert!(
        said.contains("was flushed") && said.contains("The peer had no receive posted"),
        "{said}"
    );
}

#[test]
fn shared_queue_empty() {
    let bench = Bench::new();
    let srq = bench.domain.shared_receive_queue(&bench.queue, 4);
    let far = bench
        .domain
        .pair_builder::<Rc>()
        .shared_receives(&srq)
        .build()
        .expect("a queue pair");
    let near = bench.domain.pair::<Rc>().expect("a queue pair");
    let (here, there) = (near.endpoint(), far.endpoint());
    let two = Two {
        near: near.connect_with(&there, &quick()).expect("connected"),
        far: far.connect_with(&here, &quick()).expect("connected"),
        device: bench.device.clone(),
        domain: bench.domain.clone(),
    };
    two.check("shared_queue_empty", "RnrRetryExceeded", &failed_send(&two, 8));
}

/// Sends a datagram that is dropped. What the receiver says when it has counted it.
fn dropped_datagram(right_key: bool) -> String {
    let device = Device::open("roce_lo").expect("loopback is there");
    let domain = device.domain();
    let pair = || {
        let pair = domain.pair::<Ud>().expect("a queue pair");
        pair.activate().expect("active")
    };
    let (near, far) = (pair(), pair());
    let mut there = far.endpoint();
    there.qkey ^= u32::from(!right_key);
    let sent = near.send_to(domain.lease(8).expect("memory"), &there);
    drop(
        sent.wait_within(PATIENCE)
            .expect("it ends")
            .expect("a datagram is gone when it is sent"),
    );
    let deadline = Instant::now() + PATIENCE;
    let dropped = || {
        let (counters, _) = device.counters();
        counters.rx_dropped + counters.rx_qkey_violations
    };
    while dropped() == 0 {
        assert!(Instant::now() < deadline, "it never came");
        std::thread::yield_now();
    }
    let explanation = device.explain(there.qpn, None).expect("it dropped one");
    explanation.to_string()
}

#[test]
fn datagrams_that_are_dropped() {
    check("wrong_q_key", "success", &dropped_datagram(false));
    check("datagram_without_receive", "success", &dropped_datagram(true));
}

#[test]
fn never_answers() {
    let two = Two::with(|there, _, _| there.qpn = Qpn::new(there.qpn.value() ^ 1));
    let shelf = two.shelf(WRITABLE);
    two.check(
        "never_answers",
        "RetryExceeded",
        &two.failed_write(shelf.remote().slice(..64)),
    );
}

#[test]
fn peer_gone() {
    let two = Two::new();
    let shelf = two.shelf(WRITABLE);
    let remote = shelf.remote().slice(..64);
    let lease = two.domain.lease(64).expect("memory");
    let written = two
        .near
        .write(lease, remote)
        .wait_within(PATIENCE)
        .expect("it ends");
    drop(written.expect("the peer is there"));
    let Two {
        device,
        domain,
        near,
        far,
    } = two;
    drop(far);
    let lease = domain.lease(64).expect("memory");
    let failed = near
        .write(lease, remote)
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("it fails");
    check(
        "peer_gone",
        "RetryExceeded",
        &failed.explanation().expect("an explanation").to_string(),
    );
    drop(device);
}

/// Within a host, requests go without packets, and then the path MTU does not matter.
#[test]
fn different_path_mtu() {
    if std::env::var_os("NONIC_LANE").is_none() {
        let test = std::env::current_exe().expect("a test");
        let mut on_the_wire = std::process::Command::new(test);
        on_the_wire.args(["explained::different_path_mtu", "--exact"]);
        let run = on_the_wire.env("NONIC_LANE", "off").output().expect("it runs");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        return;
    }
    let two = Two::with(|_, near, far| {
        near.mtu = Some(PathMtu::Mtu1024);
        far.mtu = Some(PathMtu::Mtu512);
    });
    // A WRITE within a host may go without packets.
    let receive = two.far.recv(two.domain.lease(8192).expect("memory"));
    let failed = failed_send(&two, 4096);
    drop(receive);
    two.check("different_path_mtu", "RemoteInvalidRequest", &failed);
}

#[test]
fn different_first_psn() {
    let domain = Device::open("roce_lo").expect("loopback is there").domain();
    let (near, far) = (
        domain.pair::<Rc>().expect("a queue pair"),
        domain.pair::<Rc>().expect("a queue pair"),
    );
    let (mut here, there) = (near.endpoint(), far.endpoint());
    here.psn = Psn::new(here.psn.value() ^ 0x40_0000);
    let near = near.connect_with(&there, &quick()).expect("connected");
    let far = far.connect_with(&here, &quick()).expect("connected");
    let shelf = domain
        .lease(64)
        .expect("memory")
        .expose(WRITABLE)
        .expect("exposed");
    let write = near
        .write(domain.lease(64).expect("memory"), shelf.remote())
        .wait_within(PATIENCE);
    let failed = write.expect("it ends").expect_err("it fails");
    check(
        "different_first_psn",
        "RetryExceeded",
        &failed.explanation().expect("an explanation").to_string(),
    );
    drop(far);
}

#[test]
fn too_many_reads() {
    let two = Two::with(|_, _, far| far.fetches = 0);
    let shelf = two.shelf(Access::REMOTE_READ);
    let read = two
        .near
        .read(two.domain.lease(8).expect("memory"), shelf.remote().slice(..8));
    let failed = read
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("it fails");
    two.check("too_many_reads", "RemoteInvalidRequest", &failed);
}

#[test]
fn connections_that_are_refused() {
    let bench = Bench::new();
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&bench.device, address).expect("a port");
    let there = listener.local_addr();

    let error = Listener::bind(&bench.device, there).expect_err("it has a listener");
    check("port_in_use", "ListenError", &error.to_string());

    let connecting = connect(bench.domain.pair_builder::<Rc>(), there, b"").expect("asked");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    incoming.reject(b"version 2 is needed").expect("rejected");
    let error = connecting.wait_within(PATIENCE).expect_err("rejected");
    check("program_refuses", "Rejected", &explained(&error));

    drop(listener);
    let connecting = connect(bench.domain.pair_builder::<Rc>(), there, b"").expect("asked");
    let error = connecting.wait_within(PATIENCE).expect_err("nobody listens");
    check("nobody_listens", "Rejected", &explained(&error));
}

#[test]
fn a_peer_that_hangs_up_before_this_side_is_ready_is_named() {
    let bench = Bench::new();
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&bench.device, address).expect("a port");
    let builder = || bench.domain.pair_builder::<Rc>();
    let connecting = connect(builder(), listener.local_addr(), b"").expect("asked");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    let heard = || bench.device.counters().0.rx_packets;
    let before = heard();
    let server = incoming.accept(builder(), b"").expect("accepted");
    server.shutdown().expect("it is connected");
    // The program asks when both the acceptance and the goodbye have come.
    let deadline = Instant::now() + PATIENCE;
    while heard() < before + 2 {
        assert!(Instant::now() < deadline, "nothing comes");
        std::thread::yield_now();
    }
    let error = connecting.wait_within(PATIENCE).expect_err("it has ended");
    assert!(matches!(error, ConnectError::Ended(_)), "{error}");
    let said = explained(&error);
    assert!(said.contains("look at what the peer's program says"), "{said}");
}

fn explained(error: &ConnectError) -> String {
    error.explanation().expect("an explanation").to_string()
}

#[test]
fn peer_disconnects() {
    let Ends {
        domain,
        client,
        server,
    } = Ends::new("roce_lo");
    let receive = server.recv(domain.lease(64).expect("memory"));
    client.disconnect();
    let failed = receive
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("nothing was sent");
    assert!(format!("{:?}", failed.error).contains("Closed"), "{failed:?}");
    check(
        "peer_disconnects",
        "Closed",
        &failed.explanation().expect("an explanation").to_string(),
    );
}

#[test]
fn calls_that_are_refused() {
    let two = Two::new();
    let failed = two.near.send_bytes(&[0; 4096]).wait().expect_err("too long");
    check(
        "inline_too_long",
        "Refused",
        &failed.explanation().expect("an explanation").to_string(),
    );

    let builder = two.domain.pair_builder::<Rc>().gid_index(99);
    let error = builder.build().expect_err("there is no such index");
    check(
        "wrong_gid_index",
        "CreateError",
        &Explanation::of_create(error).to_string(),
    );

    let capacity = QpCapacity {
        max_send_wr: 1 << 30,
        ..QpCapacity::default()
    };
    let error = two
        .domain
        .pair_builder::<Rc>()
        .capacity(capacity)
        .build()
        .expect_err("too deep");
    check(
        "queue_too_deep",
        "CreateError",
        &Explanation::of_create(error).to_string(),
    );
}

#[test]
fn a_healthy_queue_pair_has_nothing_to_explain() {
    let two = Two::new();
    assert_eq!(two.device.explain(two.near.endpoint().qpn, None), None);
    let of_status = Explanation::of_status(Status::RnrRetryExceeded).to_string();
    assert!(of_status.contains("never had a receive posted"), "{of_status}");
}
