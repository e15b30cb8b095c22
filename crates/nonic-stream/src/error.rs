//! Errors of channels as programs written for TCP expect them: a kind that they know, and the sentence of the channel's
//! own error, which is inside and can be had by [`std::io::Error::downcast`].

use nonic::{CloseReason, ConnectError, ListenError, OpenError, Status};
use nonic_message::{Error, Lost};
use std::io::{self, ErrorKind};

/// What connecting, listening, accepting or reading says.
pub(crate) fn io_error(error: Error) -> io::Error {
    io::Error::new(kind(&error), error)
}

/// What writing says: a peer that is gone is a broken pipe there.
pub(crate) fn write_error(error: Error) -> io::Error {
    match kind(&error) {
        ErrorKind::ConnectionReset => io::Error::new(ErrorKind::BrokenPipe, error),
        kind => io::Error::new(kind, error),
    }
}

fn kind(error: &Error) -> ErrorKind {
    match error {
        Error::Lost(lost) => lost_kind(*lost),
        Error::Closed => ErrorKind::BrokenPipe,
        Error::Memory(_) => ErrorKind::OutOfMemory,
        Error::Connect(error) => connect_kind(error),
        Error::Greeting(_) => ErrorKind::InvalidData,
        Error::Listen(ListenError::InUse) => ErrorKind::AddrInUse,
        Error::Listen(ListenError::NoAddress(_)) => ErrorKind::AddrNotAvailable,
        Error::Listen(ListenError::Io(error)) => error.kind(),
        Error::Open(error) => open_kind(error),
        _ => ErrorKind::Other,
    }
}

fn lost_kind(lost: Lost) -> ErrorKind {
    match lost {
        Lost::Closed(CloseReason::Unreachable) | Lost::Silent => ErrorKind::TimedOut,
        Lost::Failed(Status::RetryExceeded | Status::RnrRetryExceeded) => ErrorKind::TimedOut,
        Lost::Closed(CloseReason::Local) => ErrorKind::NotConnected,
        Lost::Protocol(_) => ErrorKind::InvalidData,
        Lost::Exhausted => ErrorKind::OutOfMemory,
        _ => ErrorKind::ConnectionReset,
    }
}

fn connect_kind(error: &ConnectError) -> ErrorKind {
    match error {
        ConnectError::Rejected { .. } | ConnectError::PortUnreachable(_) => ErrorKind::ConnectionRefused,
        ConnectError::Unreachable(_) => ErrorKind::TimedOut,
        ConnectError::Ended(_) => ErrorKind::ConnectionReset,
        ConnectError::NoRoute(_) => ErrorKind::NetworkUnreachable,
        ConnectError::Io(error) => error.kind(),
        _ => ErrorKind::Other,
    }
}

fn open_kind(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NotFound { .. } | OpenError::NoAddress(_) => ErrorKind::AddrNotAvailable,
        OpenError::Io { error, .. } => error.kind(),
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_written_for_tcp_finds_the_kinds_it_knows() {
        let kinds = [
            (
                Error::Lost(Lost::Closed(CloseReason::Disconnected)),
                ErrorKind::ConnectionReset,
            ),
            (
                Error::Lost(Lost::Failed(Status::Flushed)),
                ErrorKind::ConnectionReset,
            ),
            (
                Error::Lost(Lost::Failed(Status::RetryExceeded)),
                ErrorKind::TimedOut,
            ),
            (Error::Lost(Lost::Silent), ErrorKind::TimedOut),
            (Error::Closed, ErrorKind::BrokenPipe),
            (
                Error::Connect(ConnectError::Unreachable(([192, 0, 2, 1], 1).into())),
                ErrorKind::TimedOut,
            ),
            (
                Error::Connect(ConnectError::PortUnreachable(([192, 0, 2, 1], 1).into())),
                ErrorKind::ConnectionRefused,
            ),
            (Error::Listen(ListenError::InUse), ErrorKind::AddrInUse),
        ];
        for (error, kind) in kinds {
            let sentence = error.to_string();
            let error = io_error(error);
            assert_eq!(error.kind(), kind, "{sentence}");
            assert_eq!(error.to_string(), sentence);
            assert!(error.downcast::<Error>().is_ok(), "{sentence}");
        }
        let gone = write_error(Error::Lost(Lost::Closed(CloseReason::Disconnected)));
        assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
    }
}
