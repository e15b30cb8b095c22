//! Refusals: the one place where a refused call becomes what C programs see of it, and a line of the log.
//!
//! The code that refuses says which argument is at fault and what to do ([`nonic_abi::errno::refused`]); the exported
//! function hands that to [`ANSWER`] together with its name. The log is in `libibverbs.so.1`.

use libc::c_int;
use nonic_abi::errno::{Answers, Errno, refused};
use nonic_abi::libibverbs::nonic_tell_refusal;

/// How this library answers.
pub(crate) const ANSWER: Answers = Answers(tell);

fn tell(call: &str, number: c_int, what: &str, next: &str) {
    // SAFETY: texts with their lengths.
    unsafe {
        nonic_tell_refusal(
            call.as_ptr().cast(),
            call.len(),
            number,
            what.as_ptr().cast(),
            what.len(),
            next.as_ptr().cast(),
            next.len(),
        );
    }
}

/// What the connection manager answered, which is in `libibverbs.so.1` and says zero or an errno.
pub(crate) fn check_connection(code: c_int) -> Result<(), Errno> {
    let (what, next) = match code {
        0 => return Ok(()),
        libc::ENOTCONN => (
            "there is no such connection: it has ended, or was never begun",
            "expect it when a peer is faster; connect again with a new identifier",
        ),
        libc::EADDRINUSE => (
            "somebody listens on that port already",
            "stop the other listener, or choose another port (`nonic show connection` lists them)",
        ),
        libc::EADDRNOTAVAIL => (
            "the device does not have the address",
            "use an address that `nonic devices` lists",
        ),
        libc::ENOMEM => (
            "the device has as many connections or listeners as it can",
            "end some; docs/limits.md has the numbers",
        ),
        libc::EINVAL => (
            "the connection is in a state that does not permit it, or a parameter is out of range",
            "look at the order of calls, at private_data_len and at retry_count (7 at most)",
        ),
        _ => (
            "the connection manager could not do it",
            "see what `nonic doctor` says",
        ),
    };
    Err(refused(code, what, next))
}

/// A connection was not made, for the reason that an event gave.
pub(crate) fn not_connected(number: c_int) -> Errno {
    let (what, next) = match number {
        libc::ECONNREFUSED => (
            "the peer refused the connection",
            "start the listener at that address and port; `NONIC_LOG=warn` there says why it refuses",
        ),
        libc::ETIMEDOUT => (
            "the peer does not answer",
            "open UDP port 4791 (iWARP: the TCP port) in both directions, and see whether `nonic ping` reaches the address",
        ),
        libc::EPROTO => (
            "the peer accepted, and is no rsocket",
            "connect to a program that uses rsockets",
        ),
        libc::ECONNRESET => (
            "the peer hung up before the connection was made",
            "see what the peer says",
        ),
        _ => (
            "the call led to an event with this status",
            "see the lines before this one, and what the peer says",
        ),
    };
    refused(number, what, next)
}

/// A context without an operation that all contexts of nonic have.
pub(crate) fn no_such_operation() -> Errno {
    refused(
        libc::EOPNOTSUPP,
        "the device has no such operation",
        "use the libibverbs.so.1 that came with this librdmacm.so.1",
    )
}

/// A call that needs a connection, on an rsocket that has none.
pub(crate) fn socket_not_connected() -> Errno {
    refused(
        libc::ENOTCONN,
        "the socket is not connected",
        "connect it first (rconnect), or accept a connection",
    )
}

/// A call on an rsocket that another thread has closed.
pub(crate) fn socket_closed() -> Errno {
    refused(
        libc::EBADF,
        "the socket has been closed",
        "do not use it after rclose",
    )
}
