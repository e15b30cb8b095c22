//! Driving the NIC from tokio's threads.

use crate::device::Device;
use nonic_engine::{RuntimeStep, RuntimeWatch};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// So often in a row it looks for packets before other tasks have their turn.
const STEPS: usize = 8;

/// Drives a device from tokio's threads: spawn it. Made by [`Device::drive_on_runtime`]. It ends when the device is closed.
///
/// Without, a packet wakes the background thread of the device, which wakes the thread of the runtime that has the task it is for.
/// With it, the runtime is woken at once. Dropping it, or the end of its runtime, leaves everything to the background thread again,
/// and so does a runtime whose threads are all busy with something else, for as long as they are.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let device = nonic::Device::open("roce_lo")?;
/// tokio::spawn(device.drive_on_runtime()?);
/// # let domain = device.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let receive = right.recv(domain.lease(64)?);
/// left.send_bytes(b"hello").await?;
/// assert_eq!(receive.await?.bytes(), b"hello");
/// # Ok(()) }) }
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited or spawned"]
pub struct DriveOnRuntime {
    watch: RuntimeWatch,
    fds: Vec<AsyncFd<OwnedFd>>,
    /// A descriptor has become readable, and not everything was looked at since.
    woken: bool,
}

impl Device {
    /// A task that drives the device from the threads of the tokio runtime this is called on.
    ///
    /// # Panics
    ///
    /// On a runtime without I/O, as all of tokio's sockets do.
    pub fn drive_on_runtime(&self) -> io::Result<DriveOnRuntime> {
        tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let (watch, fds) = self.engine.watch_from_runtime()?;
        let mut registered = Vec::with_capacity(fds.len());
        for fd in fds {
            // SAFETY: an owned descriptor always answers with the same number, and is open until the registration has ended.
            registered.push(unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)?);
        }
        Ok(DriveOnRuntime {
            watch,
            fds: registered,
            woken: true,
        })
    }

    /// Whether a task drives it.
    pub fn is_driven_on_runtime(&self) -> bool {
        self.engine.is_watched_from_runtime()
    }
}

impl DriveOnRuntime {
    /// Whether a descriptor has become readable. If none has, the task is woken when one does.
    fn poll_readable(&self, context: &mut Context<'_>) -> bool {
        let mut readable = false;
        for fd in &self.fds {
            match fd.poll_read_ready(context) {
                Poll::Ready(Ok(mut ready)) => {
                    // What comes from now on makes it ready again.
                    ready.clear_ready();
                    readable = true;
                }
                // The runtime is about to end.
                Poll::Ready(Err(_)) | Poll::Pending => {}
            }
        }
        readable
    }
}

impl Future for DriveOnRuntime {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.watch.subscribe(context.waker());
        for _ in 0..STEPS {
            match this.watch.step(this.woken) {
                RuntimeStep::Closed => return Poll::Ready(()),
                RuntimeStep::Worked => continue,
                RuntimeStep::Sleep => this.woken = false,
            }
            if !this.poll_readable(context) {
                return Poll::Pending;
            }
            this.woken = true;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
