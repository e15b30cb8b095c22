//! The two kinds of sockets, as the table has them.

use super::datagram::DatagramSocket;
use super::options::{Value, int};
use super::protocol::Ending;
use super::socket::{ConnectionEvent, Socket};
use super::stream::{Phase, StreamSocket};
use super::vector::Vector;
use super::wait::Waitable;
use crate::refusal;
use libc::c_int;
use nonic_abi::errno::{Errno, of_system, refused};
use nonic_abi::librdmacm::SOL_RDMA;
use std::any::Any;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

impl Socket for StreamSocket {
    fn fd(&self) -> RawFd {
        StreamSocket::fd(self)
    }

    fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        StreamSocket::bind(self, local)
    }

    fn connect(&self, remote: SocketAddr) -> Result<(), Errno> {
        StreamSocket::connect(self, remote)
    }

    fn receive(&self, vector: &mut Vector<'_>, flags: c_int) -> Result<(usize, Option<SocketAddr>), Errno> {
        Ok((StreamSocket::receive(self, vector, flags)?, self.remote()))
    }

    fn send(&self, vector: &mut Vector<'_>, to: Option<SocketAddr>, flags: c_int) -> Result<usize, Errno> {
        match to {
            Some(_) => Err(refused(
                libc::EISCONN,
                "the socket is a stream, and a destination was named",
                "use rsend",
            )),
            None => StreamSocket::send(self, vector, flags),
        }
    }

    fn shut_down(&self, ending: Ending) -> Result<(), Errno> {
        StreamSocket::shut_down(self, ending)
    }

    fn close(&self) {
        StreamSocket::close(self);
    }

    fn local_name(&self) -> Result<SocketAddr, Errno> {
        Ok(self.local().unwrap_or(match self.is_v6() {
            true => (Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (Ipv4Addr::UNSPECIFIED, 0).into(),
        }))
    }

    fn remote_name(&self) -> Result<SocketAddr, Errno> {
        self.remote().ok_or_else(refusal::socket_not_connected)
    }

    fn set_option(&self, level: c_int, option: c_int, value: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        let has_queues = state.has_queues();
        match (level, option) {
            (SOL_RDMA, _) if has_queues => Err(refused(
                libc::EINVAL,
                "options of SOL_RDMA come too late: the queues have been made",
                "set them before rbind, rlisten and rconnect",
            )),
            (SOL_RDMA, _) => state.settings.set_rdma(option, value),
            // The buffers are there already, as large as they were wanted then.
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) if has_queues => int(value).map(drop),
            _ => state.settings.set(level, option, value),
        }
    }

    fn option(&self, level: c_int, option: c_int) -> Result<Value, Errno> {
        let mut state = self.lock();
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => Ok(Value::Int(std::mem::take(&mut state.error))),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(Value::Int(libc::SOCK_STREAM)),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                Ok(Value::Int(matches!(state.phase, Phase::Listening(_)).into()))
            }
            _ => state.settings.option(level, option),
        }
    }

    fn control(&self, command: c_int, argument: c_int) -> Result<c_int, Errno> {
        self.lock().settings.control(command, argument)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn handle(self: Arc<Self>, event: ConnectionEvent) {
        self.handle_event(event);
    }
}

impl Socket for DatagramSocket {
    fn fd(&self) -> RawFd {
        DatagramSocket::fd(self)
    }

    fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        DatagramSocket::bind(self, local)
    }

    fn connect(&self, remote: SocketAddr) -> Result<(), Errno> {
        DatagramSocket::connect(self, remote)
    }

    fn receive(&self, vector: &mut Vector<'_>, flags: c_int) -> Result<(usize, Option<SocketAddr>), Errno> {
        let (length, source) = DatagramSocket::receive(self, vector, flags)?;
        Ok((length, Some(source)))
    }

    fn send(&self, vector: &mut Vector<'_>, to: Option<SocketAddr>, flags: c_int) -> Result<usize, Errno> {
        DatagramSocket::send(self, vector, to, flags)
    }

    fn shut_down(&self, _ending: Ending) -> Result<(), Errno> {
        // There is no connection to end.
        Ok(())
    }

    fn close(&self) {
        DatagramSocket::close(self);
    }

    fn local_name(&self) -> Result<SocketAddr, Errno> {
        self.lock().udp.local()
    }

    fn remote_name(&self) -> Result<SocketAddr, Errno> {
        self.lock().udp.remote()
    }

    fn set_option(&self, level: c_int, option: c_int, value: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        if level == SOL_RDMA {
            return match state.has_queues() {
                true => Err(refused(
                    libc::EINVAL,
                    "options of SOL_RDMA come too late: the queues have been made",
                    "set them before rbind and the first message",
                )),
                false => state.settings.set_rdma(option, value),
            };
        }
        // SAFETY: the descriptor is open, and the value is as long as said.
        let code = unsafe {
            libc::setsockopt(
                self.fd(),
                level,
                option,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        };
        if code != 0 {
            return Err(of_system("setsockopt of the UDP socket"));
        }
        // What concerns RDMA as well; the rest was for the UDP socket alone.
        match state.settings.set(level, option, value) {
            Err(errno) if errno.is(libc::ENOTSUP) => Ok(()),
            result => result,
        }
    }

    fn option(&self, level: c_int, option: c_int) -> Result<Value, Errno> {
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => Ok(Value::Int(0)),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(Value::Int(libc::SOCK_DGRAM)),
            _ => self.lock().settings.option(level, option),
        }
    }

    fn control(&self, command: c_int, argument: c_int) -> Result<c_int, Errno> {
        self.lock().settings.control(command, argument)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn handle(self: Arc<Self>, _event: ConnectionEvent) {}
}
