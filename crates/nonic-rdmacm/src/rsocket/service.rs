//! The service thread, which takes the events of connections.
//!
//! All identifiers of a process's stream sockets have one event channel. The thread waits for its events, so that a
//! connection is made and ends whatever the program does meanwhile. It starts with the first socket and sleeps when
//! nothing happens.

use super::identifier::{Identifier, socket_of};
use super::socket::ConnectionEvent;
use super::table;
use crate::channel::Channel;
use crate::delivery;
use crate::descriptor::Audience;
use crate::event;
use crate::id::Pending;
use libc::c_int;
use nonic_abi::errno::{Errno, of_io};
use nonic_abi::fork::Birth;
use nonic_abi::rdma_cma::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why a peer refuses a queue pair that it remembers from an earlier connection (InfiniBand, chapter 12).
const STALE_CONNECTION: c_int = 10;

/// How often events are looked for once the program has closed the channel's descriptor.
const LOST_NAP: Duration = Duration::from_millis(100);

struct Service {
    channel: Arc<Channel<Pending>>,
    /// A child of fork does not inherit the thread.
    made_in: Birth,
}

static SERVICE: Mutex<Option<Service>> = Mutex::new(None);

/// Where the events of identifiers go. Starts the thread if there is none.
pub(crate) fn channel() -> Result<Arc<Channel<Pending>>, Errno> {
    let mut service = SERVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = service.as_ref().filter(|service| !service.made_in.is_elsewhere()) {
        return Ok(Arc::clone(&running.channel));
    }
    let channel = Channel::new(Audience::Library)?;
    start(Arc::clone(&channel))?;
    // The parent's, if there is one, is still in use there: its descriptor is all that could be closed here.
    std::mem::forget(service.replace(Service {
        channel: Arc::clone(&channel),
        made_in: Birth::now(),
    }));
    Ok(channel)
}

fn start(channel: Arc<Channel<Pending>>) -> Result<(), Errno> {
    let thread = std::thread::Builder::new().name("nonic-rsocket".into());
    let started = with_signals_blocked(|| thread.spawn(move || run(&channel)));
    started
        .map(drop)
        .map_err(|error| of_io("starting a thread", &error))
}

/// Signals are the program's: none may be taken by a thread it does not know of, but for those that its own instructions
/// cause. It drives the device, which relies on its handlers of these. A thread started by `start` inherits the mask.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are our variables; the mask is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for caused in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(&raw mut all, caused);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

fn run(channel: &Channel<Pending>) {
    loop {
        match delivery::wait(channel) {
            Ok(event) => handle(event),
            Err(errno) if errno.is(libc::EINTR) => {}
            // Without a descriptor to sleep on, it looks now and then.
            Err(_) if channel.is_lost() => {
                std::thread::sleep(LOST_NAP);
                while let Some(event) = delivery::take(channel) {
                    handle(event);
                }
            }
            // A queue pair could not be made ready: the event is gone, and its socket hears no more of it.
            Err(_) => {}
        }
    }
}

fn handle(event: *mut rdma_cm_event) {
    // SAFETY: the event is ours until it is acknowledged, and with it the identifiers it names. It is acknowledged
    // first: a thread that destroys an identifier waits for that, and may hold a lock we need below.
    let (socket, event) = unsafe {
        let c = &*event;
        let owner = match c.event {
            RDMA_CM_EVENT_CONNECT_REQUEST => c.listen_id,
            _ => c.id,
        };
        let told = (socket_of((*owner).context), event_of(c));
        event::acknowledge(event);
        told
    };
    // A request that no socket takes is refused by being dropped.
    if let (Some(socket), Some(event)) = (table::find(socket), event) {
        socket.handle(event);
    }
}

/// What an event means for a socket, if anything.
///
/// # Safety
///
/// The event was not acknowledged yet, and this is asked once: the identifier of a request is given away.
unsafe fn event_of(c: &rdma_cm_event) -> Option<ConnectionEvent> {
    let (id, status) = (c.id, c.status);
    // SAFETY: the private data is part of the event.
    let private_data = || unsafe {
        let parameters = c.param.conn;
        match parameters.private_data.is_null() {
            true => Vec::new(),
            false => {
                std::slice::from_raw_parts(parameters.private_data.cast(), parameters.private_data_len.into())
                    .to_vec()
            }
        }
    };
    Some(match c.event {
        RDMA_CM_EVENT_CONNECT_REQUEST => ConnectionEvent::Request {
            // SAFETY: made for this request, and nothing else knows of it.
            identifier: unsafe { Identifier::from_request(id) },
            private_data: private_data(),
        },
        RDMA_CM_EVENT_ESTABLISHED => ConnectionEvent::Established {
            id,
            private_data: private_data(),
        },
        RDMA_CM_EVENT_REJECTED if status == STALE_CONNECTION => ConnectionEvent::Stale { id },
        RDMA_CM_EVENT_REJECTED => ConnectionEvent::Failed {
            id,
            errno: libc::ECONNREFUSED,
        },
        RDMA_CM_EVENT_UNREACHABLE | RDMA_CM_EVENT_CONNECT_ERROR => ConnectionEvent::Failed {
            id,
            errno: status.abs(),
        },
        RDMA_CM_EVENT_DISCONNECTED => ConnectionEvent::Disconnected { id },
        _ => return None,
    })
}
