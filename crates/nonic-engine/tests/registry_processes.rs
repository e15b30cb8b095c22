//! Processes that share an address and die without warning.
//!
//! Children are this very test program, started again to run one of the ignored tests below; each says on
//! its output what it has become, and the parent kills it when it pleases.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nonic_engine::host::{
    Block, BlockClaim, BlockName, Delivery, InboxBuffer, Message, Outbox, Port, PortOwner, port_owner,
};
use nonic_engine::netdev::LocalAddress;
use nonic_engine::socket::{RecvBatch, WireSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const ADDRESS: &str = "NONIC_TEST_ADDRESS";
const PATIENCE: Duration = Duration::from_secs(20);

fn address(last: u8) -> LocalAddress {
    LocalAddress::from(IpAddr::from([127, 71, 20, last]))
}

/// Taken by each test: between fork and exec a child shares all sockets of this process, so a test that
/// starts one would keep open, for that moment, what another has just dropped.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child process, killed when dropped.
struct Process(Child);

impl Process {
    /// Starts the ignored test `role`; each line it says arrives as `(name, line)`.
    fn start(role: &str, name: usize, address: LocalAddress, said: &Sender<(usize, String)>) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args([
                "--exact",
                &format!("registry_processes::{role}"),
                "--ignored",
                "--nocapture",
            ])
            .env(ADDRESS, address.ip.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        let said = said.clone();
        std::thread::spawn(move || {
            // The harness talks as well; what a role says is marked, and may follow on the harness's line.
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, words)) = line.split_once("> ") {
                    let _ = said.send((name, words.to_owned()));
                }
            }
        });
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(words: &str) {
    println!("> {words}");
    let _ = std::io::stdout().flush();
}

/// The address a child works on; `None` when a user runs the ignored tests by hand.
fn own_address() -> Option<LocalAddress> {
    let ip: IpAddr = std::env::var(ADDRESS).ok()?.parse().ok()?;
    Some(LocalAddress::from(ip))
}

fn heard(said: &Receiver<(usize, String)>) -> (usize, String) {
    said.recv_timeout(PATIENCE)
        .expect("a child says something in time")
}

/// Role: join the port and say what arrives there. Ends by itself if the parent does not kill it.
#[test]
#[ignore = "a child process of the other tests"]
fn reader() {
    let Some(address) = own_address() else { return };
    let port = Port::join(address, 0);
    let socket = port.socket().expect("the port is this user's");
    say("joined");
    let mut batch = RecvBatch::new(1);
    let start = Instant::now();
    while start.elapsed() < 3 * PATIENCE {
        let patience = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).expect("poll works");
        while socket.recv(&mut batch).is_ok() {
            batch
                .iter()
                .for_each(|datagrams| say(&String::from_utf8_lossy(datagrams.bytes)));
        }
    }
}

/// Role: join the port and hand every packet to the block that its first two bytes name.
#[test]
#[ignore = "a child process of the other tests"]
fn porter() {
    let Some(address) = own_address() else { return };
    let port = Port::join(address, 0);
    let socket = port.socket().expect("the port is this user's");
    let mut outbox = Outbox::new().expect("an outbox");
    let mut batch = RecvBatch::new(1);
    say("joined");
    let start = Instant::now();
    while start.elapsed() < 3 * PATIENCE {
        let patience = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).expect("poll works");
        if socket.recv(&mut batch).is_err() {
            continue;
        }
        for datagrams in batch.iter() {
            let number = u16::from_be_bytes([datagrams.bytes[0], datagrams.bytes[1]]);
            let block = Block::new(number).expect("a block that can be claimed");
            let delivery = outbox.post(BlockName { address, block }, &Message::Handover(datagrams));
            say(&format!("{:?}", delivery.expect("post")));
        }
    }
}

/// Role: claim a block, say which, and wait to be killed.
#[test]
#[ignore = "a child process of the other tests"]
fn claimant() {
    let Some(address) = own_address() else { return };
    let claim = BlockClaim::claim(address).expect("a block");
    say(&claim.block().number().to_string());
    std::thread::sleep(3 * PATIENCE);
}

#[test]
fn while_a_process_is_left_the_port_has_a_reader_whoever_was_killed() {
    let _alone = alone();
    let (say, said) = channel();
    let mut children: Vec<Option<Process>> = (0..5)
        .map(|name| Some(Process::start("reader", name, address(1), &say)))
        .collect();
    children.iter().for_each(|_| assert_eq!(heard(&said).1, "joined"));
    let sender = WireSocket::bind(address(5).with_port(0)).expect("a free port");
    for round in 0..5 {
        let packet = format!("packet {round}");
        sender
            .send(address(1).with_port(4791), packet.as_bytes(), None)
            .expect("loopback takes it");
        let (name, words) = heard(&said);
        assert_eq!(words, packet);
        assert!(children[name].take().is_some(), "the dead do not read");
    }
    assert_eq!(
        port_owner(address(1)).expect("it can be bound"),
        PortOwner::Nobody
    );
}

#[test]
fn a_packet_for_another_process_is_handed_over() {
    let _alone = alone();
    let (say, said) = channel();
    let porter = Process::start("porter", 0, address(2), &say);
    assert_eq!(heard(&said).1, "joined");
    let mut claim = BlockClaim::claim(address(2)).expect("a block");
    let sender = WireSocket::bind(address(3).with_port(0)).expect("a free port");
    let mut contents = claim.block().number().to_be_bytes().to_vec();
    contents.resize(3 * 1000 - 10, 7);
    let port = SocketAddr::new(address(2).ip, 4791);
    sender
        .send(port, &contents, Some(1000))
        .expect("loopback takes it");

    assert_eq!(heard(&said).1, "Sent");
    let mut buffer = InboxBuffer::new();
    let Some(Message::Handover(datagrams)) = claim.inbox_mut().recv(&mut buffer).expect("recv") else {
        panic!("no handover");
    };
    assert_eq!(datagrams.src, sender.local_addr());
    assert_eq!(datagrams.dst_ip, address(2).ip);
    assert_eq!(datagrams.stride, 1000);
    assert_eq!(datagrams.bytes, contents);

    // The same for a block whose owner has gone.
    drop(claim);
    sender.send(port, &contents, None).expect("loopback takes it");
    assert_eq!(heard(&said).1, "Gone");
    drop(porter);
}

#[test]
fn a_killed_process_leaves_no_claim_behind() {
    let _alone = alone();
    let (say, said) = channel();
    let claimant = Process::start("claimant", 0, address(4), &say);
    let number: u16 = heard(&said).1.parse().expect("a block number");
    let name = BlockName {
        address: address(4),
        block: Block::new(number).expect("a block"),
    };
    let mut outbox = Outbox::new().expect("an outbox");
    let question = Message::WhereAreYou;
    assert_eq!(outbox.post(name, &question).expect("post"), Delivery::Sent);
    drop(claimant);
    assert_eq!(outbox.post(name, &question).expect("post"), Delivery::Gone);
}
