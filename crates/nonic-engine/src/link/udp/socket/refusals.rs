//! Refusals: hosts that refuse our datagrams because no process holds the RoCE port there.
//!
//! The kernel of such a host answers with an ICMP message. The socket is not connected, so our kernel keeps that to itself
//! unless asked not to (`IP_RECVERR`). Then every such message does two things: it waits in the socket's error queue, with
//! the destination it is about, and it makes the next send or receive fail, whatever that was for. So a caller whose call
//! fails reads the queue ([`Refusals::read`]) and makes the call again. Without ICMP messages there is no cost.
//!
//! Any host that knows our port can forge such a message: a refusal is only a hint.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use socket2::{SockAddr, SockAddrStorage};

use super::{ROCE_PORT, options, single};

/// Entries of the error queue read at a time. Should more wait, the next call fails again.
const READ_AT_A_TIME: usize = 64;
/// Hosts remembered until the caller polls. More are forgotten, and refuse again.
const MAX_HOSTS: usize = 64;
/// Room for the note about an error and the address of the host that reported it, in words for their alignment.
const CONTROL_WORDS: usize = 16;

/// What is known of refusals at one socket.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    enabled: bool,
    /// Whether there are hosts.
    heard: AtomicBool,
    hosts: Mutex<Vec<IpAddr>>,
}

impl Refusals {
    /// Asks the kernel for them.
    pub(super) fn enable(&mut self, socket: &impl AsFd, local_address: SocketAddr) -> io::Result<()> {
        options::report_errors(socket, local_address)?;
        self.enabled = true;
        Ok(())
    }

    /// Whether an error of a call may be about an earlier datagram; if so, the queue is read, and the call is worth
    /// making again.
    pub(super) fn read(&self, socket: &impl AsFd, error: &io::Error) -> bool {
        if !self.enabled || error.kind() == io::ErrorKind::WouldBlock {
            return false;
        }
        let mut reported = false;
        for _ in 0..READ_AT_A_TIME {
            // A queue that cannot be read is empty, or as good as.
            let Ok(report) = next_report(socket) else { break };
            reported |= report.from_network;
            if let Some(host) = report.refused_by {
                self.note(host);
            }
        }
        // With the receive buffer full the kernel drops the entry, and the call fails all the same.
        reported || error.kind() == io::ErrorKind::ConnectionRefused
    }

    /// The next host that refused.
    #[inline]
    pub(super) fn poll(&self) -> Option<IpAddr> {
        if !self.heard.load(Ordering::Relaxed) {
            return None;
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.pop();
        self.heard.store(!hosts.is_empty(), Ordering::Relaxed);
        host
    }

    fn note(&self, host: IpAddr) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() < MAX_HOSTS && !hosts.contains(&host) {
            hosts.push(host);
        }
        self.heard.store(true, Ordering::Relaxed);
    }
}

/// One entry of the error queue.
struct Report {
    /// Whether it came as an ICMP message, so that it made some other call fail.
    from_network: bool,
    /// The host at which no process holds the RoCE port, if it says that.
    refused_by: Option<IpAddr>,
}

fn next_report(socket: &impl AsFd) -> io::Result<Report> {
    let mut destination = SockAddrStorage::zeroed();
    let mut control = [0_u64; CONTROL_WORDS];
    let mut beginning = [0_u8; 1];
    let mut slice = libc::iovec {
        iov_base: beginning.as_mut_ptr().cast(),
        iov_len: beginning.len(),
    };
    // SAFETY: all-zero is a valid msghdr: no name, no buffers, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut destination).cast();
    header.msg_namelen = destination.size_of();
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    single::retry(|| {
        // SAFETY: the descriptor is open for the length of the borrow; name, buffer and control of the header point
        // to writable memory of the stated lengths that outlives the call.
        unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                socket.as_fd().as_raw_fd(),
                &raw mut header,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            )
        }
    })?;
    let error = extended_error(&header);
    let network = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6];
    let from_network = error.is_some_and(|error| network.contains(&error.ee_origin));
    let refused = from_network && error.is_some_and(|error| error.ee_errno == libc::ECONNREFUSED as u32);
    // SAFETY: the kernel wrote an address of this length into the storage.
    let destination = unsafe { SockAddr::new(destination, header.msg_namelen) };
    let destination = destination.as_socket();
    Ok(Report {
        from_network,
        refused_by: destination
            .filter(|destination| refused && destination.port() == ROCE_PORT)
            .map(|destination| destination.ip()),
    })
}

fn extended_error(header: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel filled the control buffer, which is aligned for headers and still alive, and set its length;
    // the macros stay within that length.
    let mut note = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macros return null or a pointer to a whole header within the control buffer.
    while let Some(current) = unsafe { note.as_ref() } {
        // SAFETY: the macro computes a length and touches nothing.
        let needed = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as _) };
        let kind = (current.cmsg_level, current.cmsg_type);
        let kinds = [
            (libc::IPPROTO_IP, libc::IP_RECVERR),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        ];
        if kinds.contains(&kind) && current.cmsg_len as u64 >= u64::from(needed) {
            // SAFETY: the note is long enough for this structure, any bit pattern of which is valid.
            return Some(unsafe {
                libc::CMSG_DATA(note)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned()
            });
        }
        // SAFETY: `note` came from these macros and this header.
        note = unsafe { libc::CMSG_NXTHDR(header, note) };
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::socket::{ROCE_PORT, RecvBatch, WireSocket};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::net::{IpAddr, SocketAddr, UdpSocket};

    fn wait(socket: &WireSocket, what: PollFlags) {
        let patience = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(socket, what)];
        let ready = poll(&mut fds, Some(&patience)).expect("poll works");
        assert_eq!(ready, 1, "nothing within five seconds");
    }

    /// A socket that hears of refusals, and another one of the same host.
    fn pair(ip: &str) -> (WireSocket, UdpSocket) {
        let ip: IpAddr = ip.parse().expect("an address");
        let mut socket = WireSocket::bind(SocketAddr::new(ip, 0)).expect("a free port");
        socket.hear_refusals().expect("the kernel knows the option");
        let other = UdpSocket::bind(SocketAddr::new(ip, 0)).expect("a free port");
        (socket, other)
    }

    /// An address of the loopback network of this process's own choice, so that no other process holds the port there.
    fn deserted() -> IpAddr {
        let id = std::process::id().to_be_bytes();
        IpAddr::from([127, 77 ^ id[1], id[2], id[3] | 1])
    }

    #[test]
    fn a_host_where_nobody_holds_the_port_is_heard_of_when_receiving() {
        let (socket, _) = pair("127.0.0.1");
        let nobody = SocketAddr::new(deserted(), ROCE_PORT);
        socket.send(nobody, b"anybody there?", None).expect("it is sent");
        wait(&socket, PollFlags::ERR);
        assert!(socket.recv(&mut RecvBatch::new(1)).is_err());
        assert_eq!(socket.poll_refusal(), Some(nobody.ip()));
        assert_eq!(socket.poll_refusal(), None);
    }

    #[test]
    fn a_refusal_costs_no_other_datagram() {
        for ip in ["127.0.0.1", "::1"] {
            let (socket, other) = pair(ip);
            // No socket will ever have it: a port that was free a moment ago, and is not RoCE's.
            let gone = UdpSocket::bind(SocketAddr::new(ip.parse().expect("an address"), 0)).expect("free");
            let nobody = gone.local_addr().expect("bound");
            drop(gone);
            let address = other.local_addr().expect("bound");
            for round in 0..100_u32 {
                socket.send(nobody, b"lost", None).expect("it is sent");
                wait(&socket, PollFlags::ERR);
                socket
                    .send(address, &round.to_be_bytes(), None)
                    .expect("sent all the same");
                let mut buffer = [0; 8];
                let (length, _) = other.recv_from(&mut buffer).expect("it arrives");
                assert_eq!(buffer[..length], round.to_be_bytes());
                // And the other way round: what waits is received although a refusal waits too.
                socket.send(nobody, b"lost", None).expect("it is sent");
                wait(&socket, PollFlags::ERR);
                other.send_to(b"hello", socket.local_addr()).expect("it is sent");
                wait(&socket, PollFlags::IN);
                let mut batch = RecvBatch::new(1);
                assert_eq!(socket.recv(&mut batch).expect("received all the same"), 1);
                assert_eq!(batch.iter().next().expect("one").bytes, b"hello");
            }
            // Refusals at ports that are not RoCE's are not reported.
            assert_eq!(socket.poll_refusal(), None);
        }
    }

    #[test]
    fn a_queue_that_was_read_does_not_wake_anybody() {
        let (socket, _) = pair("127.0.0.1");
        let nobody = SocketAddr::new(deserted(), ROCE_PORT);
        for _ in 0..1000 {
            // Every one is refused; the sends in between read the queue.
            socket.send(nobody, b"anybody there?", None).expect("it is sent");
        }
        wait(&socket, PollFlags::ERR);
        for _ in 0..100 {
            let outcome = socket.recv(&mut RecvBatch::new(1));
            let kind = outcome.expect_err("nobody sends us anything").kind();
            assert_eq!(kind, std::io::ErrorKind::WouldBlock);
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&now)).expect("poll works"), 0);
    }
}
