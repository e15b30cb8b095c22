//! One receive and one send without the batching machinery.
//!
//! `quinn-udp` prepares thirty-two message headers for every receive and a control message for every send.
//! For a lone small packet that is a tenth of the whole trip, so the latency path has its own three system
//! calls. They do what `quinn-udp` does, for sockets bound to a known address.
//!
//! They go to the kernel directly: libc's are cancellation points, and a thread that `pthread_cancel` ends here
//! would end holding the shard's lock.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use quinn_udp::{EcnCodepoint, RecvMeta};
use socket2::{SockAddr, SockAddrStorage};

/// Room for the two notes that arrive with a packet, each an integer with its header: the traffic class
/// and the segment size. Whatever else might come is cut off by the kernel.
const CONTROL_WORDS: usize = 6;

/// Sends one datagram. Without a control message the kernel takes the socket's traffic class.
pub(super) fn send(socket: &impl AsFd, destination: SocketAddr, contents: &[u8]) -> io::Result<()> {
    let destination = SockAddr::from(destination);
    retry(|| {
        // SAFETY: the descriptor is open for the length of the borrow; contents and address are readable for the
        // stated lengths.
        unsafe {
            libc::syscall(
                libc::SYS_sendto,
                socket.as_fd().as_raw_fd(),
                contents.as_ptr(),
                contents.len(),
                libc::MSG_DONTWAIT,
                destination.as_ptr(),
                destination.len(),
            )
        }
    })
    .map(drop)
}

/// Sends several datagrams of `segment_size` (the last may be shorter) as one batch.
pub(super) fn send_segments(
    socket: &impl AsFd,
    destination: SocketAddr,
    contents: &[u8],
    segment_size: u16,
) -> io::Result<()> {
    /// One note of two bytes with its header, in words for its alignment.
    const SEGMENT_WORDS: usize = 3;
    let destination = SockAddr::from(destination);
    let mut control = [0_u64; SEGMENT_WORDS];
    let mut slice = libc::iovec {
        iov_base: contents.as_ptr().cast_mut().cast(),
        iov_len: contents.len(),
    };
    // SAFETY: all-zero is a valid msghdr: no name, no buffers, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = destination.as_ptr().cast_mut().cast();
    header.msg_namelen = destination.len();
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the control buffer has room for one aligned header and two bytes, so the first header is not null
    // and its data lies within the buffer.
    unsafe {
        let note = libc::CMSG_FIRSTHDR(&raw const header);
        (*note).cmsg_level = libc::SOL_UDP;
        (*note).cmsg_type = libc::UDP_SEGMENT;
        (*note).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as _) as _;
        libc::CMSG_DATA(note).cast::<u16>().write_unaligned(segment_size);
    }
    retry(|| {
        // SAFETY: the descriptor is open for the length of the borrow; the header points to memory of the stated
        // lengths that outlives the call, of which the kernel only reads.
        unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                socket.as_fd().as_raw_fd(),
                &raw const header,
                libc::MSG_DONTWAIT,
            )
        }
    })
    .map(drop)
}

/// Receives one datagram, or several coalesced ones, into `buffer`.
pub(super) fn recv(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<RecvMeta> {
    let mut source = SockAddrStorage::zeroed();
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    let mut slice = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero is a valid msghdr: no name, no buffers, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut source).cast();
    header.msg_namelen = source.size_of();
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    let length = retry(|| {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the descriptor is open for the length of the borrow; name, buffer and control of the
        // header point to writable memory of the stated lengths that outlives the call.
        unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                socket.as_fd().as_raw_fd(),
                &raw mut header,
                libc::MSG_DONTWAIT,
            )
        }
    })?;
    // SAFETY: the kernel wrote an address of this length into the storage.
    let source = unsafe { SockAddr::new(source, header.msg_namelen) };
    let src = source
        .as_socket()
        .ok_or_else(|| io::Error::other("a packet from no Internet address"))?;
    let mut meta = RecvMeta::default();
    meta.addr = src;
    meta.len = length;
    meta.stride = length;
    read_notes(&header, &mut meta);
    Ok(meta)
}

/// Makes a system call until it is not interrupted.
#[inline]
pub(super) fn retry(mut call: impl FnMut() -> libc::c_long) -> io::Result<usize> {
    loop {
        if let Ok(result) = usize::try_from(call()) {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn read_notes(header: &libc::msghdr, meta: &mut RecvMeta) {
    // SAFETY: the kernel filled the control buffer, which is aligned for headers and still alive, and set
    // its length; the macros stay within that length.
    let mut note = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macros return null or a pointer to a whole header within the control buffer.
    while let Some(current) = unsafe { note.as_ref() } {
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(note) };
        match (current.cmsg_level, current.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                // SAFETY: the kernel attaches one byte to this note.
                meta.ecn = EcnCodepoint::from_bits(unsafe { data.read() });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // SAFETY: the kernel attaches an integer to this note.
                let class = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                meta.ecn = EcnCodepoint::from_bits(class as u8);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the kernel attaches an integer to this note.
                let stride = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                meta.stride = usize::try_from(stride).unwrap_or(meta.len);
            }
            _ => {}
        }
        // SAFETY: `note` came from these macros and this header.
        note = unsafe { libc::CMSG_NXTHDR(header, note) };
    }
}
