//! A TUN device in a network namespace, by which the host there has the wire as an interface.
//!
//! The kernel leaves what it would cut for the wire in one piece and leaves checksums undone, and takes the same back, so that a
//! packet costs a fraction of a system call.

use super::frame::VIRTIO;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The interface's name, in each namespace.
pub(crate) const INTERFACE: &str = "wire";

const OFFLOADS: u32 = libc::TUN_F_CSUM
    | libc::TUN_F_TSO4
    | libc::TUN_F_TSO6
    | libc::TUN_F_TSO_ECN
    | libc::TUN_F_USO4
    | libc::TUN_F_USO6;

#[derive(Debug)]
pub(super) struct Tun {
    file: File,
}

impl Tun {
    /// Makes the device in a namespace, given by its file.
    pub(super) fn new(namespace: &Path, offload: bool) -> Result<Self> {
        let namespace =
            File::open(namespace).with_context(|| format!("cannot open {}", namespace.display()))?;
        // The thread that enters a namespace stays there, so it is one of its own.
        let made = std::thread::spawn(move || {
            // SAFETY: the descriptor is open; the call changes the namespace of this thread only.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            if entered != 0 {
                return Err(io::Error::last_os_error()).context("cannot enter a network namespace");
            }
            Self::make(offload)
        });
        made.join().expect("making a device does not panic")
    }

    fn make(offload: bool) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .context("cannot open /dev/net/tun")?;
        // SAFETY: a structure of numbers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: the request is valid for as long as the call takes.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if made != 0 {
            return Err(io::Error::last_os_error()).context("cannot make a TUN device");
        }
        let offloads = if offload { OFFLOADS } else { 0 };
        // SAFETY: the argument is a number.
        let set = unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETOFFLOAD,
                libc::c_ulong::from(offloads),
            )
        };
        if set != 0 {
            return Err(io::Error::last_os_error())
                .context("the kernel leaves nothing in one piece (TUNSETOFFLOAD)");
        }
        Ok(Self { file })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The next frame; nothing if there is none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        use std::io::Read;
        let length = (&self.file).read(buffer).ok()?;
        (length > VIRTIO).then_some(length)
    }

    /// Whether the host took it.
    pub(super) fn write(&self, headers: &[u8], payload: &[u8]) -> bool {
        (&self.file)
            .write_vectored(&[IoSlice::new(headers), IoSlice::new(payload)])
            .is_ok()
    }
}
