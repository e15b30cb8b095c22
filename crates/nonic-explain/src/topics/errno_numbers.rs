//! Topics: errnos, whichever call returned them. All that the C libraries return, and those that they get from the
//! kernel.
//!
//! What a single verb means by one is in [`errnos`](super::errnos).

use super::{Kind, Topic};

/// An errno, and what `strerror` of the GNU C library makes of it.
pub(super) struct Errno {
    pub(super) topic: Topic,
    text: &'static str,
}

const fn errno(
    number: u32,
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
    steps: &'static [&'static str],
) -> Errno {
    let topic = Topic {
        kind: Kind::Errno,
        name,
        number: Some(number),
        meaning,
        causes,
        steps,
    };
    Errno { topic, text }
}

/// The text of an errno.
pub(super) fn text(topic: &Topic) -> Option<&'static str> {
    let found = ALL.iter().find(|errno| errno.topic.name == topic.name);
    found.map(|errno| errno.text)
}

/// In the order of their numbers.
pub(super) static ALL: [Errno; 41] = [
    errno(
        1,
        "EPERM",
        "Operation not permitted",
        "the rights do not allow it",
        &[
            "the memory is registered without the right that is asked for",
            "a filter of system calls (seccomp) or a lack of privileges forbids it",
        ],
        &["register the memory with that right"],
    ),
    errno(
        2,
        "ENOENT",
        "No such file or directory",
        "what is named is not there",
        &[
            "of ibv_start_poll and ibv_next_poll: the completion queue is empty, which is no failure",
            "a key that is not registered in this protection domain",
        ],
        &["poll again, or wait for an event of the completion queue"],
    ),
    errno(
        4,
        "EINTR",
        "Interrupted system call",
        "a signal came while the call waited",
        &["the program has a handler for a signal, or was stopped and continued"],
        &["call again"],
    ),
    errno(
        5,
        "EIO",
        "Input/output error",
        "the device has failed, or the kernel refused without a better reason",
        &["the interface or its address is gone"],
        &[
            "set NONIC_LOG=warn: it says which call",
            "look at `nonic show device`, then open the device again",
        ],
    ),
    errno(
        9,
        "EBADF",
        "Bad file descriptor",
        "the descriptor is none, or is closed",
        &["the rsocket was closed, or is not an rsocket"],
        &["use descriptors of rsocket with the functions that begin with r, such as rsend"],
    ),
    errno(
        11,
        "EAGAIN",
        "Resource temporarily unavailable",
        "there is nothing now, and the descriptor does not block",
        &["of rdma_get_cm_event, ibv_get_cq_event and rrecv: nothing has come yet"],
        &["wait with poll and call again"],
    ),
    errno(
        12,
        "ENOMEM",
        "Cannot allocate memory",
        "there is no memory, no room in a queue or no number left",
        &[
            "of ibv_post_send and ibv_post_recv: the queue is full",
            "of registration: no key is free, or NONIC_FAULTS=registration asks for it",
            "on hardware: the limit of locked memory is too low, of which nonic needs none",
        ],
        &[
            "poll completions; signal at least one request per queue length",
            "free what is not used (`nonic ps` counts it)",
        ],
    ),
    errno(
        13,
        "EACCES",
        "Permission denied",
        "the kernel forbids it",
        &[
            "a file that is to be written, such as that of NONIC_PCAP or NONIC_COUNTERS, is another user's",
            "a security module or a container forbids sockets",
        ],
        &["look at the rights of the file and try `nonic doctor`"],
    ),
    errno(
        14,
        "EFAULT",
        "Bad address",
        "there is no memory at that address, or not with those rights",
        &[
            "the range is not mapped, or only for reading",
            "a pointer that was passed is NULL or wild",
        ],
        &["register what is mapped, with the rights that it has"],
    ),
    errno(
        16,
        "EBUSY",
        "Device or resource busy",
        "it is still in use",
        &[
            "a queue pair uses the completion queue, the shared receive queue or the protection domain",
            "windows are bound to the region, or the queue pair is in a multicast group",
            "events were taken and not acknowledged",
        ],
        &["destroy queue pairs first, then completion queues and memory, then the protection domain"],
    ),
    errno(
        17,
        "EEXIST",
        "File exists",
        "it is there already",
        &["the descriptor is in the epoll set already"],
        &["change it with EPOLL_CTL_MOD"],
    ),
    errno(
        19,
        "ENODEV",
        "No such device",
        "there is no such device, or none leads to the address",
        &["the interface is down or has no address"],
        &["list the devices and their addresses: `nonic devices`"],
    ),
    errno(
        22,
        "EINVAL",
        "Invalid argument",
        "an argument or the state does not allow it",
        &[
            "a size is above what ibv_query_device says",
            "a queue pair is in another state than the call needs, or an attribute is missing in the mask",
            "an index or an address is of no use on this device: RoCE needs is_global and a GID",
        ],
        &[
            "set NONIC_LOG=warn: it names the argument",
            "look for the verb: `nonic explain ibv_modify_qp`",
        ],
    ),
    errno(
        23,
        "ENFILE",
        "Too many open files in system",
        "the host has no descriptors left",
        &["all processes together have too many files open"],
        &["raise fs.file-max, or end what leaks"],
    ),
    errno(
        24,
        "EMFILE",
        "Too many open files",
        "the process has no descriptors left",
        &[
            "each device has a few sockets, each completion channel and each identifier of rdma_cm a descriptor",
        ],
        &["raise `ulimit -n`"],
    ),
    errno(
        28,
        "ENOSPC",
        "No space left on device",
        "there is no room",
        &["the disk of a capture (NONIC_PCAP) or of shared memory is full"],
        &["make room, or write elsewhere"],
    ),
    errno(
        32,
        "EPIPE",
        "Broken pipe",
        "the other side reads no more",
        &["the peer closed the socket, or this side shut it down"],
        &["look at the peer first"],
    ),
    errno(
        33,
        "EDOM",
        "Numerical argument out of domain",
        "a time is not possible",
        &["of rsetsockopt: a timeout with negative seconds or a million microseconds or more"],
        &["pass a time that is one"],
    ),
    errno(
        36,
        "ENAMETOOLONG",
        "File name too long",
        "the path is too long to be shown",
        &["the folder of NONIC_FILES together with the path is above the kernel's limit"],
        &["use a shorter folder"],
    ),
    errno(
        38,
        "ENOSYS",
        "Function not implemented",
        "nonic does not have this function",
        &[
            "the program uses the interface of an older library (IBVERBS_1.0), or an option of InfiniBand's paths",
        ],
        &["look in docs/abi.md for what is there"],
    ),
    errno(
        61,
        "ENODATA",
        "No data available",
        "there is nothing of that kind",
        &[
            "a GID index beyond those of the device",
            "of ibv_export_buf_dmabuf_fd: the buffer is ordinary memory, which has no dma-buf",
        ],
        &["use an index of `nonic devices` or `ibv_devinfo -v`"],
    ),
    errno(
        71,
        "EPROTO",
        "Protocol error",
        "the peer speaks another protocol",
        &["the peer of an rsocket is not an rsocket, or of another version"],
        &["use rsockets on both sides"],
    ),
    errno(
        75,
        "EOVERFLOW",
        "Value too large for defined data type",
        "the completion queue overflowed: a completion was lost",
        &["more requests were outstanding than it has room for"],
        &["create it for all sends and receives of all its queue pairs, and poll more often"],
    ),
    errno(
        88,
        "ENOTSOCK",
        "Socket operation on non-socket",
        "the descriptor is no socket",
        &["a descriptor of a file was passed"],
        &["pass the one that socket or rsocket returned"],
    ),
    errno(
        89,
        "EDESTADDRREQ",
        "Destination address required",
        "nobody is named to send to",
        &["a datagram rsocket that is not connected, without an address"],
        &["use rsendto, or rconnect first"],
    ),
    errno(
        90,
        "EMSGSIZE",
        "Message too long",
        "a datagram is longer than the path carries",
        &["more bytes than the path MTU"],
        &["send less at once, or use a stream"],
    ),
    errno(
        93,
        "EPROTONOSUPPORT",
        "Protocol not supported",
        "there is no such port space",
        &[
            "of rdma_create_id: a port space other than RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB and RDMA_PS_IPOIB",
        ],
        &["use RDMA_PS_TCP for connections, RDMA_PS_UDP for datagrams"],
    ),
    errno(
        95,
        "EOPNOTSUPP",
        "Operation not supported",
        "the device does not offer this",
        &["a verb, an option or a type of queue pair that nonic does not have, or not on this wire"],
        &[
            "look in docs/abi.md and docs/differences.md for what is there",
            "set NONIC_LOG=warn: it says what was asked for",
        ],
    ),
    errno(
        97,
        "EAFNOSUPPORT",
        "Address family not supported by protocol",
        "the address is neither IPv4 nor IPv6",
        &["sa_family of the address is not set, or AF_IB"],
        &["set sa_family to AF_INET or AF_INET6"],
    ),
    errno(
        98,
        "EADDRINUSE",
        "Address already in use",
        "somebody listens on that port already",
        &["another process, or one of this program's that was not ended"],
        &["stop it (`nonic show connection` lists listeners), or use another port"],
    ),
    errno(
        99,
        "EADDRNOTAVAIL",
        "Cannot assign requested address",
        "the address is none of this host's",
        &["a typing error, or the address is of another network namespace"],
        &["use an address of `nonic devices`"],
    ),
    errno(
        101,
        "ENETUNREACH",
        "Network is unreachable",
        "no route leads there",
        &["the host has no route to the address"],
        &["try `ip route get ADDRESS`"],
    ),
    errno(
        104,
        "ECONNRESET",
        "Connection reset by peer",
        "the connection broke",
        &["the peer's process ended, or its queue pair failed"],
        &[
            "look at the peer first",
            "set NONIC_LOG=warn: it says what was seen of it",
        ],
    ),
    errno(
        105,
        "ENOBUFS",
        "No buffer space available",
        "the kernel has no memory for a socket's buffers",
        &["the host or the container is at its limit of memory"],
        &["free memory, or raise the limit of the process or its container"],
    ),
    errno(
        106,
        "EISCONN",
        "Transport endpoint is already connected",
        "it is connected already",
        &["rconnect was called twice"],
        &["close it and make another"],
    ),
    errno(
        107,
        "ENOTCONN",
        "Transport endpoint is not connected",
        "it is not connected",
        &["the connection was not made yet, or has ended"],
        &["wait until it is established"],
    ),
    errno(
        110,
        "ETIMEDOUT",
        "Connection timed out",
        "the peer does not answer",
        &["a firewall, a wrong address, or no RDMA program there"],
        &[
            "try `nonic ping` between the two addresses, and `nonic doctor` on both hosts",
            "open UDP port 4791 in both directions (iWARP: the TCP port)",
        ],
    ),
    errno(
        111,
        "ECONNREFUSED",
        "Connection refused",
        "the connection was rejected",
        &["nobody listens there, or the program refused"],
        &[
            "start the listener before connecting",
            "look up the status of the event, a reason: `nonic explain IB_CM_REJ`",
        ],
    ),
    errno(
        113,
        "EHOSTUNREACH",
        "No route to host",
        "the host cannot be reached",
        &["the host is down, or nobody in its network answers for the address"],
        &["try `ping` first, then `nonic ping`"],
    ),
    errno(
        114,
        "EALREADY",
        "Operation already in progress",
        "it is under way already",
        &["rconnect on a socket that is connecting"],
        &["wait with rpoll until it can be written"],
    ),
    errno(
        115,
        "EINPROGRESS",
        "Operation now in progress",
        "it goes on by itself: no failure",
        &["rconnect on a socket that does not block"],
        &["wait with rpoll until it can be written, then ask for SO_ERROR"],
    ),
];
