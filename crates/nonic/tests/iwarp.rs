//! iWARP devices: the same program by changing a name alone, and what is different about them.

use nonic::{
    Access, Completion, CompletionQueue, ConnectError, Connection, Device, Domain, ListenError, Listener, Rc,
    Status, connect,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const LENGTH: usize = 1 << 20;

fn completed(queue: &CompletionQueue) -> Completion {
    let completion = queue.wait(Some(PATIENCE)).expect("the queue is sound");
    completion.expect("in time")
}

/// Sends, writes, reads and adds, on whatever the device speaks.
fn talk(name: &str) {
    let device = Device::open(name).expect("a device");
    let (domain, queue) = (device.domain(), device.completion_queue(64).expect("a queue"));
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let connecting = connect(
        domain.queue_pair_builder::<Rc>(&queue),
        listener.local_addr(),
        b"hi",
    )
    .expect("asked");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    assert!(incoming.private_data().starts_with(b"hi"));
    let mut server = incoming
        .accept(domain.queue_pair_builder::<Rc>(&queue), b"welcome")
        .expect("accepted");
    let mut client = connecting.wait_within(PATIENCE).expect("connected");
    assert!(client.private_data().starts_with(b"welcome"));

    server
        .pair
        .rq
        .recv(1, domain.lease(64).expect("memory"))
        .expect("posted");
    client
        .pair
        .sq
        .send(2, domain.lease_from(b"hello").expect("memory"))
        .expect("posted");
    for _ in 0..2 {
        let completion = completed(&queue);
        completion.result.expect("it succeeds");
    }
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let shelf = domain.lease(LENGTH).expect("memory");
    let shelf = shelf.expose(rights).expect("a key");
    let pattern: Vec<u8> = (0..LENGTH).map(|i| (i * 7 % 251) as u8).collect();
    let lease = domain.lease_from(&pattern).expect("memory");
    client.pair.sq.write(3, lease, shelf.remote()).expect("posted");
    completed(&queue).result.expect("written");
    let lease = domain.lease(LENGTH).expect("memory");
    client.pair.sq.read(4, lease, shelf.remote()).expect("posted");
    let read = completed(&queue);
    assert_eq!(read.result, Ok(LENGTH));
    assert!(read.buffers[0][..] == pattern[..], "what was written is read");
    let lease = domain.lease(8).expect("memory");
    let counter = shelf.remote().slice(..8);
    client.pair.sq.fetch_add(5, lease, counter, 5).expect("posted");
    let fetched = completed(&queue);
    assert_eq!(fetched.result, Ok(8));
    assert_eq!(fetched.buffers[0][..], pattern[..8]);

    server.disconnect();
    assert!(client.wait_disconnected(Some(PATIENCE)), "the peer is told");
}

#[test]
fn a_program_runs_on_both_wires() {
    talk("roce_lo");
    talk("iwarp_lo");
}

#[test]
fn a_port_that_a_tcp_server_holds_is_in_use() {
    let device = Device::open("iwarp_lo").expect("a device");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = tcp.local_addr().expect("bound");
    let refused = Listener::bind(&device, address).expect_err("somebody has it");
    assert!(matches!(refused, ListenError::InUse), "{refused:?}");
}

#[test]
fn where_nobody_listens_the_connection_is_soon_refused() {
    let device = Device::open("iwarp_lo").expect("a device");
    let (domain, queue) = (device.domain(), device.completion_queue(4).expect("a queue"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let connecting = connect(domain.queue_pair_builder::<Rc>(&queue), address, b"").expect("asked");
    let refused = connecting.wait_within(PATIENCE).expect_err("nobody is there");
    assert!(matches!(refused, ConnectError::Rejected { .. }), "{refused:?}");
}

/// Two ends of a connection on one device, and the queue that both complete to.
struct Ends {
    domain: Domain,
    queue: CompletionQueue,
    server: Connection<Rc>,
    client: Connection<Rc>,
}

fn ends() -> Ends {
    let device = Device::open("iwarp_lo").expect("a device");
    let (domain, queue) = (device.domain(), device.completion_queue(512).expect("a queue"));
    let listener = Listener::bind(&device, "[::1]:0".parse().expect("an address")).expect("a port");
    let builder = || domain.queue_pair_builder::<Rc>(&queue);
    let connecting = connect(builder(), listener.local_addr(), b"").expect("asked");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    let server = incoming.accept(builder(), b"").expect("accepted");
    let client = connecting.wait_within(PATIENCE).expect("connected");
    Ends {
        domain,
        queue,
        server,
        client,
    }
}

#[test]
fn peers_that_do_not_speak_the_protocol_are_in_nobodys_way() {
    let device = Device::open("iwarp_lo").expect("a device");
    let (domain, queue) = (device.domain(), device.completion_queue(4).expect("a queue"));
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = listener.local_addr();
    let words: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"MPA ID Req Fram",
        b"MPA ID Req Frame\x50\x02\xff\xff",
        b"MPA ID Rep Frame\x50\x02\x00\x00",
        b"MPA ID Req Frame\x50\x01\x00\x00and more",
    ];
    let mut open = Vec::new();
    for word in words.iter().cycle().take(60) {
        let mut stranger = TcpStream::connect(address).expect("it listens");
        // The listener may have hung up already on those that it found out.
        let _ = stranger.write_all(word);
        open.push(stranger);
    }
    // Half of them are gone before the program accepts.
    open.truncate(30);
    let connecting = connect(domain.queue_pair_builder::<Rc>(&queue), address, b"me").expect("asked");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    assert_eq!(&incoming.private_data()[..], b"me", "strangers are not told of");
    let builder = domain.queue_pair_builder::<Rc>(&queue);
    incoming.accept(builder, b"").expect("accepted");
    connecting.wait_within(PATIENCE).expect("connected");
}

#[test]
fn a_peer_that_is_rejected_gets_the_time_to_read_why() {
    let device = Device::open("iwarp_lo").expect("a device");
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let mut peer = TcpStream::connect(listener.local_addr()).expect("connected");
    peer.write_all(b"MPA ID Req Frame\x40\x01\x00\x00").expect("sent");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    incoming.reject(b"not today").expect("rejected");
    let wanted = b"MPA ID Rep Frame\x60\x01\x00\x09not today";
    let mut reply = vec![0; wanted.len()];
    peer.read_exact(&mut reply).expect("a Reply");
    assert_eq!(reply, wanted);
    // If the other end had been closed, the first would be answered by a reset, and the second fail.
    peer.write_all(b"I").expect("sent");
    peer.write_all(b"see").expect("sent");
    peer.set_nonblocking(true).expect("set");
    let too_early = peer.read(&mut reply).map_err(|error| error.kind());
    assert_eq!(
        too_early,
        Err(std::io::ErrorKind::WouldBlock),
        "the peer may close first"
    );
    peer.set_nonblocking(false).expect("set");
    peer.shutdown(std::net::Shutdown::Write).expect("half closed");
    assert_eq!(peer.read(&mut reply).expect("the end"), 0);
}

#[test]
fn messages_wait_for_receives_and_come_in_order() {
    const MESSAGES: u64 = 64;
    const SIZE: usize = 256 << 10;
    let Ends {
        domain,
        queue,
        mut server,
        mut client,
    } = ends();
    for number in 0..MESSAGES {
        let mut lease = domain.lease(SIZE).expect("memory");
        lease.fill(number as u8);
        client.pair.sq.send(1000 + number, lease).expect("posted");
    }
    std::thread::sleep(Duration::from_millis(200));
    for number in 0..MESSAGES {
        let lease = domain.lease(SIZE).expect("memory");
        server.pair.rq.recv(number, lease).expect("posted");
    }
    let mut next = 0;
    for _ in 0..2 * MESSAGES {
        let completion = completed(&queue);
        completion.result.expect("it succeeds");
        if completion.id < MESSAGES {
            assert_eq!(completion.id, next, "receives are taken in order");
            let whole = completion.buffers[0].iter().all(|byte| u64::from(*byte) == next);
            assert!(whole, "message {next} is what was sent");
            next += 1;
        }
    }
    assert_eq!(next, MESSAGES);
}

#[test]
fn the_end_of_a_peer_ends_what_is_posted() {
    let Ends {
        domain,
        queue,
        server,
        mut client,
    } = ends();
    let lease = domain.lease(64).expect("memory");
    client.pair.rq.recv(7, lease).expect("posted");
    drop(server);
    let flushed = completed(&queue);
    assert_eq!((flushed.id, flushed.result), (7, Err(Status::Flushed)));
    assert!(client.wait_disconnected(Some(PATIENCE)));
}

#[test]
fn a_write_that_the_peer_does_not_allow_ends_the_connection() {
    let Ends {
        domain,
        queue,
        mut server,
        mut client,
    } = ends();
    server
        .pair
        .rq
        .recv(1, domain.lease(8).expect("memory"))
        .expect("posted");
    let shelf = domain.lease(4096).expect("memory");
    let shelf = shelf.expose(Access::REMOTE_READ).expect("a key");
    let lease = domain.lease_from(b"not allowed").expect("memory");
    // On this wire it completes when TCP has it; the peer's complaint comes later.
    client.pair.sq.write(2, lease, shelf.remote()).expect("posted");
    let mut results: Vec<_> = (0..2)
        .map(|_| completed(&queue))
        .map(|done| (done.id, done.result))
        .collect();
    results.sort_by_key(|(id, _)| *id);
    assert_eq!(results, [(1, Err(Status::Flushed)), (2, Ok(0))]);
    assert!(client.wait_disconnected(Some(PATIENCE)), "by a Terminate");
}
