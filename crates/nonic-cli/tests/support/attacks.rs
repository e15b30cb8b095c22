//! Attacks by another user of the host. Each attack is a process of its own, this very test program started again;
//! it says what it does in lines that begin with `> `, and is told what to do by lines of its standard input.
//!
//! It uses what any user can: abstract Unix sockets, UDP sockets and `/proc/net/unix`. Names and packets are made by
//! nonic's own code, so that an attack does not become harmless because a format has changed.

use super::lingering::Lingering;
use nonic_engine::host::{Block, BlockName};
use nonic_engine::netdev::LocalAddress;
use nonic_wire::cm::{CmMad, IpHeader, Message, PortSpace, PrivateData, Req, ReqPath, ServiceId, gid_of};
use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use nonic_wire::{Bth, Deth, Flow, Headers, ICRC_LEN, Opcode, Psn, Qpn, ROCE_PORT, icrc};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// What nonic's processes ask each other on a line, and how the answer begins.
pub(crate) const WHERE_ARE_YOU: [u8; 2] = [5, 2];
const I_AM: [u8; 2] = [5, 3];

/// An attack that the test does not end has ended after this long.
pub(crate) const LONGEST: Duration = Duration::from_secs(200);

/// Takes part in nothing: runs the attack of this name.
pub(crate) fn run(attack: &str, arguments: &[String]) {
    let commands = commands();
    match attack {
        "own every block of an address" => own_every_block(ip(&arguments[0]), &commands),
        "bind the port" => bind_the_port(ip(&arguments[0]), &commands),
        "open lines" => open_lines(ip(&arguments[0]), &commands),
        "squat" => squat(ip(&arguments[0]), &commands),
        "lie" => lie(
            address(&arguments[0]),
            arguments[1].parse().expect("a port"),
            arguments.get(2).is_some(),
            &commands,
        ),
        "forge requests" => forge_requests(ip(&arguments[0]), address(&arguments[1])),
        other => panic!("there is no attack called {other}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

pub(crate) fn say(words: &str) {
    println!("> {words}");
    let _ = std::io::stdout().flush();
}

/// What comes on standard input, line by line.
pub(crate) fn commands() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Does the same again and again until the test that gives the commands is gone. `answer` answers commands.
pub(crate) fn until_told<A>(
    attack: &mut A,
    commands: &Receiver<String>,
    mut step: impl FnMut(&mut A),
    mut answer: impl FnMut(&mut A, &str),
) {
    let started = Instant::now();
    while started.elapsed() < LONGEST {
        match commands.try_recv() {
            Ok(command) => answer(attack, &command),
            Err(TryRecvError::Empty) => step(attack),
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

/// Takes as many descriptors as the administrator allows.
pub(crate) fn raise_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("it is allowed");
}

pub(crate) fn new_line() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

pub(crate) fn unix_name(name: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short enough")
}

pub(crate) fn listen(name: &str, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::bind(&socket, &unix_name(name))?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

fn block_name(address: IpAddr, number: u16) -> Option<String> {
    let block = Block::new(number)?;
    let address = LocalAddress::from(address);
    Some(BlockName { address, block }.to_string())
}

/// The names that processes have at an address, as the kernel shows them to every user.
pub(crate) fn inboxes(address: IpAddr) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("everybody may read it");
    let name = block_name(address, 1).expect("a block");
    let (prefix, _) = name.rsplit_once("block").expect("it is one of a block");
    let words = table
        .lines()
        .filter_map(|line| line.split_once('@').map(|(_, name)| name));
    let mut names: Vec<String> = words
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Owns names, and answers processes that ask at them.
struct Owner {
    watch: OwnedFd,
    sockets: BTreeMap<u64, OwnedFd>,
    /// Those of them that are listened on; the others are lines.
    listeners: u64,
    next: u64,
    asked: usize,
    answer: u16,
    /// Attached to answers, if they are to take long to be dropped.
    attached: Option<Lingering>,
}

impl Owner {
    fn new(names: impl Iterator<Item = String>, answer: u16) -> Self {
        let mut owner = Owner {
            watch: epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll"),
            sockets: BTreeMap::new(),
            listeners: 0,
            next: 0,
            asked: 0,
            answer,
            attached: None,
        };
        for name in names {
            if let Ok(socket) = listen(&name, SocketType::SEQPACKET) {
                owner.add(socket);
            }
        }
        owner.listeners = owner.next;
        owner
    }

    fn add(&mut self, socket: OwnedFd) {
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&self.watch, &socket, data, epoll::EventFlags::IN).expect("room for one more");
        self.sockets.insert(self.next, socket);
        self.next += 1;
    }

    fn lines(&self) -> u64 {
        self.next - self.listeners
    }

    /// Lets in and answers, for a moment.
    fn attend(&mut self) {
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let mut events = Vec::with_capacity(64);
        let _ = epoll::wait(
            &self.watch,
            rustix::buffer::spare_capacity(&mut events),
            Some(&moment),
        );
        for number in events.iter().map(|event: &epoll::Event| event.data.u64()) {
            let Some(socket) = self.sockets.get(&number) else {
                continue;
            };
            if number < self.listeners {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                if let Ok(line) = rustix::net::accept_with(socket, flags) {
                    self.add(line);
                }
                continue;
            }
            let mut bytes = [0; 64];
            match rustix::net::recv(socket, &mut bytes[..], RecvFlags::TRUNC) {
                Ok((_, 2)) if bytes.starts_with(&WHERE_ARE_YOU) => {
                    self.asked += 1;
                    let i_am = self.i_am();
                    let _ = match &mut self.attached {
                        Some(attached) => attached.attach(socket, &i_am),
                        None => rustix::net::send(socket, &i_am, SendFlags::NOSIGNAL).map(drop),
                    };
                }
                Ok((_, 1..)) | Err(rustix::io::Errno::AGAIN) => {}
                _ => drop(self.sockets.remove(&number)),
            }
        }
    }

    fn i_am(&self) -> [u8; 4] {
        let [high, low] = self.answer.to_be_bytes();
        [I_AM[0], I_AM[1], high, low]
    }

    /// Says much more than it was asked for, for a while or until the peer hangs up.
    fn chatter(&self) {
        let i_am = self.i_am();
        let started = Instant::now();
        for line in self.sockets.range(self.listeners..).map(|(_, line)| line) {
            let says = || rustix::net::send(line, &i_am, SendFlags::NOSIGNAL);
            while started.elapsed() < Duration::from_millis(20) {
                match says() {
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
                    Err(_) => break,
                }
            }
        }
    }
}

/// Owns the names of all blocks of an address, which need not be one of this host, and answers all questions with a
/// port that no process has. Commands: `count` the lines; `close` everything.
fn own_every_block(address: IpAddr, commands: &Receiver<String>) {
    const DISCARD: u16 = 9;
    raise_limit();
    let names = (0..0xfff).filter_map(|number| block_name(address, number));
    let mut owner = Owner::new(names, DISCARD);
    say(&format!("owns {}", owner.listeners));
    until_told(&mut owner, commands, Owner::attend, |owner, command| {
        match command {
            "close" => owner.sockets.clear(),
            _ => owner.attend(),
        }
        say(&format!("{} lines", owner.lines()));
    });
}

/// Tries every way to have a socket at the port, of the address or of all. Command: `count` successes and attempts.
fn bind_the_port(address: IpAddr, commands: &Receiver<String>) {
    let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let ways: Vec<(IpAddr, bool, bool)> = [address, any]
        .into_iter()
        .flat_map(|ip| [(false, false), (true, false), (false, true), (true, true)].map(|(a, b)| (ip, a, b)))
        .collect();
    let mut counts = (0, 0);
    say("trying");
    let step = |(bound, attempts): &mut (usize, usize)| {
        for (ip, reuse_port, reuse_address) in &ways {
            *bound += usize::from(bind(*ip, *reuse_port, *reuse_address).is_ok());
            *attempts += 1;
        }
        // Others need a processor too.
        std::thread::sleep(Duration::from_micros(200));
    };
    until_told(&mut counts, commands, step, |(bound, attempts), _| {
        say(&format!("{bound} of {attempts}"));
    });
}

fn bind(ip: IpAddr, reuse_port: bool, reuse_address: bool) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, reuse_port)?;
    sockopt::set_socket_reuseaddr(&socket, reuse_address)?;
    rustix::net::bind(&socket, &SocketAddr::new(ip, ROCE_PORT))?;
    Ok(socket)
}

/// Opens thousands of lines to every inbox of an address, asks something on each and keeps it. Then waits.
fn open_lines(address: IpAddr, commands: &Receiver<String>) {
    const LINES: usize = 4000;
    raise_limit();
    let names = inboxes(address);
    say(&format!("{} inboxes", names.len()));
    let mut lines = Vec::new();
    let deadline = Instant::now() + LONGEST;
    while lines.len() < LINES && Instant::now() < deadline {
        for name in &names {
            let line = new_line();
            match rustix::net::connect(&line, &unix_name(name)) {
                Ok(()) => {
                    let _ = rustix::net::send(&line, &WHERE_ARE_YOU, SendFlags::NOSIGNAL);
                    lines.push(line);
                }
                // As many wait as may. The process that lets them in needs a moment.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    say(&format!("opened {}", lines.len()));
    // Until told, or until the test is gone.
    let _ = commands.recv_timeout(LONGEST);
}

/// Takes names that look as if they meant something. Command: `count` the processes that came.
fn squat(address: IpAddr, commands: &Receiver<String>) {
    let block = block_name(address, 1).expect("a block");
    let (prefix, _) = block.rsplit_once("/block").expect("it is one of a block");
    let suffixes = [
        "",
        "/",
        "/holder",
        "/port",
        "/4791",
        "/block",
        "/service",
        "/block/000",
        "/block/fff",
        "/block/1000",
    ];
    let mut listeners: Vec<OwnedFd> = Vec::new();
    for suffix in suffixes {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            listeners.extend(listen(&format!("{prefix}{suffix}"), kind));
        }
    }
    // The names of blocks themselves, by sockets of the wrong kind.
    for number in 0..0xfff {
        let name = block_name(address, number);
        listeners.extend(name.and_then(|name| listen(&name, SocketType::STREAM).ok()));
    }
    say(&format!("squats {}", listeners.len()));
    let step = |_: &mut usize| std::thread::sleep(Duration::from_millis(1));
    until_told(&mut 0, commands, step, |came, _| {
        let accepted = |listener: &&OwnedFd| rustix::net::accept(listener).is_ok();
        *came += listeners.iter().filter(accepted).count();
        say(&format!("{came} came"));
    });
}

/// Owns one block of a server's address, has the server ask where it listens, names a port that is another process's,
/// and does not stop talking; or attaches what takes long to close. Command: `count` questions.
fn lie(server: SocketAddr, port: u16, attaches: bool, commands: &Receiver<String>) {
    let taken = inboxes(server.ip());
    let free = |number: &u16| block_name(server.ip(), *number).is_some_and(|name| !taken.contains(&name));
    let block = (0x100..0x200).find(free).expect("few are taken");
    let mut owner = Owner::new(block_name(server.ip(), block).into_iter(), port);
    assert_eq!(owner.listeners, 1, "it was free");
    owner.attached = attaches.then(Lingering::new);
    let socket = UdpSocket::bind(SocketAddr::new(server.ip(), 0)).expect("any port");
    say("lies");
    let mut requests = 0;
    let mut last = Instant::now();
    let step = |owner: &mut Owner| {
        if requests == 0 || last.elapsed() > Duration::from_millis(50) {
            let number = u32::from(block) << 20 | requests & 0xf_ffff;
            let qpn = u32::from(block) << 12 | requests & 0xfff;
            request(&socket, server, number, qpn);
            (requests, last) = (requests + 1, Instant::now());
        }
        owner.attend();
        if !attaches {
            owner.chatter();
        }
    };
    until_told(&mut owner, commands, step, |owner, _| {
        say(&format!("{} asked", owner.asked));
    });
}

/// Asks a server on another host for a connection in the name of every queue pair that the processes here can have.
fn forge_requests(here: IpAddr, server: SocketAddr) {
    let socket = UdpSocket::bind(SocketAddr::new(here, 0)).expect("any port");
    let names = inboxes(here);
    let blocks: Vec<u32> = names
        .iter()
        .filter_map(|name| name.split_once("/block/"))
        .filter_map(|(_, digits)| u32::from_str_radix(digits, 16).ok())
        .collect();
    say(&format!("{} blocks", blocks.len()));
    for block in &blocks {
        for index in 0..Block::QPNS {
            request(&socket, server, 0x7ff0_0000 | index, block << 12 | index);
            // As fast as the receiver reads: what overflows its buffer would do no harm.
            if index % 64 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    say("forged");
}

/// A request to connect, sent from an ordinary socket.
fn request(socket: &UdpSocket, server: SocketAddr, comm_id: u32, qpn: u32) {
    let local = socket.local_addr().expect("it is bound");
    let flow = Flow {
        src: local.ip(),
        dst: server.ip(),
        src_port: local.port(),
        dst_port: ROCE_PORT,
    };
    let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, Qpn::new(1), Psn::new(0)));
    headers.deth = Deth {
        qkey: GSI_QKEY,
        src_qp: Qpn::new(1),
    };
    let mad = CmMad {
        transaction_id: u64::from(comm_id),
        message: Message::Req(req(&flow, server.port(), comm_id, qpn)),
    };
    let mut packet = vec![0; 512];
    let start = headers.emit(&mut packet);
    packet[start..start + MAD_LEN].copy_from_slice(&mad.emit());
    packet.truncate(start + MAD_LEN + ICRC_LEN);
    icrc::seal(&flow, 0, &mut packet);
    let _ = socket.send_to(&packet, SocketAddr::new(server.ip(), ROCE_PORT));
}

fn req(flow: &Flow, port: u16, comm_id: u32, qpn: u32) -> Req {
    let header = IpHeader {
        source_port: flow.src_port,
        source: flow.src,
        destination: flow.dst,
    };
    Req {
        local_comm_id: comm_id,
        service_id: ServiceId::from_port(PortSpace::Tcp, port),
        local_ca_guid: 1,
        local_qkey: 0,
        local_qpn: Qpn::new(qpn),
        responder_resources: 1,
        local_eecn: 0,
        initiator_depth: 1,
        remote_eecn: 0,
        remote_cm_response_timeout: 20,
        transport: 0,
        flow_control: true,
        starting_psn: Psn::new(0),
        local_cm_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 1,
        srq: false,
        extended_transport: 0,
        primary: ReqPath {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid_of(flow.src),
            remote_gid: gid_of(flow.dst),
            hop_limit: 64,
            local_ack_timeout: 16,
            ..ReqPath::default()
        },
        alternate: ReqPath::default(),
        private_data: PrivateData::new(&header.emit()).expect("there is room"),
    }
}
