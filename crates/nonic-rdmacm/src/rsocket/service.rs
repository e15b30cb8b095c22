//! The thread that hears of connections.
//!
//! All identifiers of a process's stream sockets have one event channel. The thread waits for its events, so that a
//! connection is made and ends whatever the program does meanwhile. It starts with the first socket and sleeps when
//! nothing happens.

use super::identifier::{Identifier, socket_of};
use super::table;
use crate::channel::Channel;
use crate::delivery;
use crate::descriptor::Audience;
use crate::event;
use crate::id::Pending;
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use nonic_abi::fork::Birth;
use nonic_abi::rdma_cma::*;
use std::os::fd::RawFd;
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
    // Signals are the program's: none may be taken by a thread it does not know of, but for those that its own
    // instructions cause. It drives the device, which relies on its handlers of these.
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
        let started = std::thread::Builder::new()
            .name("nonic-rsocket".into())
            .spawn(move || run(&channel));
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started.map(drop).map_err(|error| errno::of_io(&error))
    }
}

fn run(channel: &Channel<Pending>) {
    loop {
        match delivery::wait(channel) {
            Ok(event) => handle(event),
            Err(libc::EINTR) => {}
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

/// What is known of an event once it was given back.
struct Heard {
    kind: c_int,
    status: c_int,
    socket: RawFd,
    id: *mut rdma_cm_id,
    private_data: Vec<u8>,
}

fn handle(event: *mut rdma_cm_event) {
    // SAFETY: the event is ours until it is acknowledged, and with it the identifiers it names. It is given back
    // first: whoever destroys an identifier waits for that, and may hold a lock we need below.
    let heard = unsafe {
        let c = &*event;
        let owner = match c.event {
            RDMA_CM_EVENT_CONNECT_REQUEST => c.listen_id,
            _ => c.id,
        };
        let parameters = c.param.conn;
        let private_data = match parameters.private_data.is_null() {
            true => Vec::new(),
            false => {
                std::slice::from_raw_parts(parameters.private_data.cast(), parameters.private_data_len.into())
                    .to_vec()
            }
        };
        let heard = Heard {
            kind: c.event,
            status: c.status,
            socket: socket_of((*owner).context),
            id: c.id,
            private_data,
        };
        event::acknowledge(event);
        heard
    };
    dispatch(&heard);
}

fn dispatch(heard: &Heard) {
    let socket = table::stream(heard.socket);
    if heard.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
        // SAFETY: made for this request, and nobody else has heard of it.
        let identifier = unsafe { Identifier::from_request(heard.id) };
        // Nobody there: it is refused by being dropped.
        if let Some(listener) = socket {
            listener.handle_request(identifier, &heard.private_data);
        }
        return;
    }
    let Some(socket) = socket else {
        return;
    };
    match heard.kind {
        RDMA_CM_EVENT_ESTABLISHED => socket.handle_established(heard.id, &heard.private_data),
        RDMA_CM_EVENT_REJECTED if heard.status == STALE_CONNECTION && socket.ask_again(heard.id) => {}
        RDMA_CM_EVENT_REJECTED => socket.handle_failed(heard.id, libc::ECONNREFUSED),
        RDMA_CM_EVENT_UNREACHABLE => socket.handle_failed(heard.id, libc::ETIMEDOUT),
        RDMA_CM_EVENT_CONNECT_ERROR => socket.handle_failed(heard.id, heard.status.abs()),
        RDMA_CM_EVENT_DISCONNECTED => socket.handle_disconnected(heard.id),
        _ => {}
    }
}
