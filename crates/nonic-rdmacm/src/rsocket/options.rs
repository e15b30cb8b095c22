//! Options and flags that programs set and ask about any socket, and their values as C has them.
//!
//! Options that mean nothing here but do no harm are accepted; those that would be a promise are refused.

use super::protocol::nearest_iomap_size;
use super::settings::Settings;
use libc::{c_int, linger, timeval};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::librdmacm::{RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_ROUTE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA};
use std::time::Duration;

/// A segment's size when there is no path to ask.
const SEGMENT: c_int = 2048;

/// An option's value as it goes out.
pub(crate) enum Value {
    Int(c_int),
    Linger(linger),
    Time(timeval),
    Nothing,
}

impl Value {
    /// Writes it where the program wants it, cut to the room there is.
    ///
    /// # Safety
    ///
    /// The pointers are the program's, and there is as much room as it says.
    pub(crate) unsafe fn store(&self, to: *mut libc::c_void, len: *mut libc::socklen_t) -> Result<(), Errno> {
        let (from, size): (*const u8, usize) = match self {
            Value::Int(value) => ((&raw const *value).cast(), size_of::<c_int>()),
            Value::Linger(value) => ((&raw const *value).cast(), size_of::<linger>()),
            Value::Time(value) => ((&raw const *value).cast(), size_of::<timeval>()),
            Value::Nothing => return Ok(()),
        };
        if to.is_null() || len.is_null() {
            return Err(refused(
                libc::EFAULT,
                "optval or optlen is NULL",
                "pass where to put the value",
            ));
        }
        // SAFETY: the caller's promise; the value is ours.
        unsafe {
            let size = size.min(*len as usize);
            std::ptr::copy_nonoverlapping(from, to.cast::<u8>(), size);
            *len = size as libc::socklen_t;
        }
        Ok(())
    }
}

/// The program's value as an integer; structures are read where they are used.
pub(super) fn int(value: &[u8]) -> Result<c_int, Errno> {
    match value {
        [a, b, c, d, ..] => Ok(c_int::from_ne_bytes([*a, *b, *c, *d])),
        [byte] => Ok((*byte).into()),
        _ => Err(refused(
            libc::EINVAL,
            format!("optlen is {}", value.len()),
            "pass an int",
        )),
    }
}

/// # Safety
///
/// All bit patterns are values of `T`.
unsafe fn structure<T: Copy>(value: &[u8]) -> Result<T, Errno> {
    if value.len() < size_of::<T>() {
        return Err(refused(
            libc::EINVAL,
            format!("optlen is {}, which is too short for the option", value.len()),
            "pass the structure that the option takes",
        ));
    }
    // SAFETY: long enough, and the caller's promise.
    Ok(unsafe { value.as_ptr().cast::<T>().read_unaligned() })
}

fn timeout(value: &[u8]) -> Result<Option<Duration>, Errno> {
    // SAFETY: two integers.
    let time: timeval = unsafe { structure(value) }?;
    let (Ok(seconds), Ok(micros)) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_usec)) else {
        return Err(refused(
            libc::EDOM,
            "the timeout is negative",
            "pass a timeout of 0 or more",
        ));
    };
    if micros >= 1_000_000 {
        return Err(refused(
            libc::EDOM,
            "tv_usec of the timeout is a second or more",
            "pass less than 1000000",
        ));
    }
    let timeout = Duration::from_secs(seconds) + Duration::from_micros(micros.into());
    Ok((!timeout.is_zero()).then_some(timeout))
}

fn time(timeout: Option<Duration>) -> Value {
    let timeout = timeout.unwrap_or_default();
    Value::Time(timeval {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_usec: timeout.subsec_micros().into(),
    })
}

/// Twice what was asked for, as Linux does; of a length that can be had.
fn buffer(value: &[u8]) -> Result<u32, Errno> {
    Ok((int(value)?.max(0) as u32).saturating_mul(2))
}

fn queue(value: &[u8]) -> Result<u16, Errno> {
    Ok(int(value)?.clamp(0, 0xfffe) as u16)
}

impl Settings {
    /// Options of any socket.
    pub(crate) fn set(&mut self, level: c_int, option: c_int, value: &[u8]) -> Result<(), Errno> {
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address = int(value)? != 0,
            // No other socket can have the port at the same time: accepted, without meaning.
            (libc::SOL_SOCKET, libc::SO_REUSEPORT | libc::SO_BROADCAST) => drop(int(value)?),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.receive_buffer = buffer(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.send_buffer = buffer(value)?,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.receive_timeout = timeout(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => self.send_timeout = timeout(value)?,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keepalive = int(value)? != 0,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline = int(value)? != 0,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                // SAFETY: two integers.
                let linger: linger = unsafe { structure(value) }?;
                let seconds = Duration::from_secs(linger.l_linger.max(0) as u64);
                self.linger = (linger.l_onoff != 0).then_some(seconds);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.type_of_service = int(value)?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => drop(int(value)?),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => match u32::try_from(int(value)?) {
                Ok(seconds @ 1..) => self.keepalive_idle_s = seconds,
                _ => {
                    return Err(refused(
                        libc::EINVAL,
                        "TCP_KEEPIDLE is 0 or negative",
                        "pass a number of seconds",
                    ));
                }
            },
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = int(value)? != 0,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => drop(int(value)?),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {}
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.own_family_only = int(value)? != 0,
            _ => {
                return Err(refused(
                    libc::ENOTSUP,
                    format!("the option {option} of level {level} is not offered"),
                    "do without it; docs/sockets.md lists those that are",
                ));
            }
        }
        Ok(())
    }

    /// Options of the device's, for sockets that have no queues yet.
    pub(crate) fn set_rdma(&mut self, option: c_int, value: &[u8]) -> Result<(), Errno> {
        match option {
            RDMA_SQSIZE => self.send_queue = queue(value)?,
            RDMA_RQSIZE => self.receive_queue = queue(value)?,
            RDMA_INLINE => self.inline = queue(value)?,
            RDMA_IOMAPSIZE => self.iomap_size = nearest_iomap_size(queue(value)?),
            // On Ethernet the address is all there is to a route.
            RDMA_ROUTE => {}
            _ => {
                return Err(refused(
                    libc::ENOTSUP,
                    format!("the option {option} of SOL_RDMA is not offered"),
                    "do without it; docs/sockets.md lists those that are",
                ));
            }
        }
        Ok(())
    }

    /// What was set.
    pub(crate) fn option(&self, level: c_int, option: c_int) -> Result<Value, Errno> {
        Ok(match (level, option) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => Value::Int(self.reuse_address.into()),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => Value::Int(self.keepalive.into()),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => Value::Int(self.out_of_band_inline.into()),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => Value::Int(self.receive_buffer as c_int),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => Value::Int(self.send_buffer as c_int),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => time(self.receive_timeout),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => time(self.send_timeout),
            (libc::SOL_SOCKET, libc::SO_LINGER) => Value::Linger(linger {
                l_onoff: self.linger.is_some().into(),
                l_linger: self.linger.unwrap_or_default().as_secs() as c_int,
            }),
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => Value::Int(0),
            (libc::IPPROTO_IP, libc::IP_TOS) => Value::Int(self.type_of_service),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_CONGESTION) => {
                Value::Int(1)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => Value::Int(self.keepalive_idle_s as c_int),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Value::Int(self.no_delay.into()),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Value::Int(SEGMENT),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Value::Int(self.own_family_only.into()),
            (SOL_RDMA, RDMA_SQSIZE) => Value::Int(self.send_queue.into()),
            (SOL_RDMA, RDMA_RQSIZE) => Value::Int(self.receive_queue.into()),
            (SOL_RDMA, RDMA_INLINE) => Value::Int(self.inline.into()),
            (SOL_RDMA, RDMA_IOMAPSIZE) => Value::Int(self.iomap_size.into()),
            (SOL_RDMA, RDMA_ROUTE) => Value::Nothing,
            _ => {
                return Err(refused(
                    libc::ENOTSUP,
                    format!("the option {option} of level {level} is not offered"),
                    "do without it; docs/sockets.md lists those that are",
                ));
            }
        })
    }

    /// As `fcntl`.
    pub(crate) fn control(&mut self, command: c_int, argument: c_int) -> Result<c_int, Errno> {
        match command {
            libc::F_GETFL => return Ok(self.file_flags),
            libc::F_SETFL => self.file_flags = argument,
            libc::F_GETFD => return Ok(self.descriptor_flags),
            libc::F_SETFD => self.descriptor_flags = argument,
            _ => {
                return Err(refused(
                    libc::ENOTSUP,
                    format!("the command {command} is not offered"),
                    "use F_GETFL, F_SETFL, F_GETFD or F_SETFD",
                ));
            }
        }
        Ok(0)
    }
}
