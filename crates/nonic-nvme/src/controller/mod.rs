//! The controller: what the target does with a command, as a machine for each queue that is fed with capsules and the time.
//!
//! It moves no data and touches no disk. A command becomes a [`Step`] that says what must be done; the target does it,
//! comes back with the outcome and gets the [`Response`] to send. Every length and every block is checked here, before
//! the target allocates or reads anything, because all of it comes from the network.
//!
//! Read first: [`Queue::handle`], then [`Subsystem`], which the queues of all hosts share.

mod admin;
mod fabrics;
mod io;
mod subsystem;

pub use subsystem::{Controller, Limits, Place, Subsystem, SubsystemConfig};

use crate::wire::{CmRequest, Command, Completion, ControllerKind, KeyedSgl, Refusal, Sgl, Status};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a new connection may take to say Connect. Hosts do it as soon as they are connected.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// What to send to the host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The completion.
    pub completion: Completion,
    /// The key that the host wants to be revoked by it.
    pub invalidate: Option<u32>,
}

/// A command whose data or disk access is under way. It is given back to [`Queue`] with the outcome.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the host waits for an answer"]
pub struct Pending {
    command: Command,
    invalidate: Option<u32>,
}

/// Where the data is that a command brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// In the capsule, at these bytes.
    Capsule(Range<usize>),
    /// In the host's memory.
    Host(KeyedSgl),
}

/// What must be done for a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this.
    Respond(Response),
    /// Write `data` to the host's memory, then send the response.
    Transfer {
        /// What to write.
        data: Vec<u8>,
        /// Where; it has room.
        to: KeyedSgl,
        /// What to send then.
        response: Response,
    },
    /// Get the data of a Connect command, then call [`Queue::handle_connect_data`].
    Fetch {
        /// Where it is.
        from: Source,
        /// How much.
        length: usize,
        /// The command.
        pending: Pending,
    },
    /// Read the disk, write it to the host's memory, and send what [`Queue::finish`] says.
    DiskRead {
        /// From which byte of the disk.
        at: u64,
        /// How many bytes.
        length: usize,
        /// To where; it has room.
        to: KeyedSgl,
        /// The command.
        pending: Pending,
    },
    /// Get the data, write it to the disk, and send what [`Queue::finish`] says.
    DiskWrite {
        /// To which byte of the disk.
        at: u64,
        /// How many bytes.
        length: usize,
        /// Where the data is.
        from: Source,
        /// Whether it must be on stable storage before the answer.
        stable: bool,
        /// The command.
        pending: Pending,
    },
    /// Bring everything to stable storage, and send what [`Queue::finish`] says.
    DiskFlush {
        /// The command.
        pending: Pending,
    },
    /// Nothing, now: it is answered when there is an event, and there is none yet.
    Hold,
    /// End the connection: the host does not keep to the protocol.
    End(&'static str),
}

/// What a queue is, which it is told by Connect.
#[derive(Debug)]
enum Role {
    Unconnected { until: Instant },
    Admin(Arc<Controller>),
    Io(Arc<Controller>),
}

/// One queue of one host.
#[derive(Debug)]
pub struct Queue {
    subsystem: Arc<Subsystem>,
    place: Place,
    request: CmRequest,
    role: Role,
    /// The host's queue of commands, as it said by Connect.
    sq_entries: u16,
    sq_head: u16,
    /// Whether the host wants to be told the head.
    flow_control: bool,
    /// Requests for events that wait.
    held_events: u8,
}

impl Queue {
    /// A queue for a connection whose request said so, at an address of ours; or why it is not accepted.
    pub fn open(
        subsystem: &Arc<Subsystem>,
        place: Place,
        request: CmRequest,
        now: Instant,
    ) -> Result<Self, Refusal> {
        let longest = match request.qid {
            0 => Limits::ADMIN_ENTRIES,
            1..=Limits::IO_QUEUES => Limits::QUEUE_ENTRIES,
            _ => return Err(Refusal::InvalidQueueId),
        };
        if request.hsqsize == 0 || request.hsqsize >= longest {
            return Err(Refusal::InvalidQueueSize);
        }
        Ok(Queue {
            subsystem: Arc::clone(subsystem),
            place,
            request,
            role: Role::Unconnected {
                until: now + CONNECT_PATIENCE,
            },
            sq_entries: request.hsqsize + 1,
            sq_head: 0,
            flow_control: true,
            held_events: 0,
        })
    }

    /// Commands that the host may have under way.
    pub fn depth(&self) -> u16 {
        self.request.hsqsize + 1
    }

    /// Its number; 0 is the admin queue.
    pub fn qid(&self) -> u16 {
        self.request.qid
    }

    /// The controller that it belongs to, once it is connected.
    pub fn controller(&self) -> Option<&Arc<Controller>> {
        match &self.role {
            Role::Unconnected { .. } => None,
            Role::Admin(controller) | Role::Io(controller) => Some(controller),
        }
    }

    /// Bytes of the longest capsule that it takes.
    pub fn capsule_length(&self) -> usize {
        Limits::CAPSULE
    }

    /// A capsule has come.
    pub fn handle(&mut self, capsule: &[u8], now: Instant) -> Step {
        let Some(command) = Command::parse(capsule) else {
            return Step::End("a capsule is shorter than a command");
        };
        let sgl = Sgl::parse(&command.sgl);
        let pending = Pending {
            invalidate: sgl.ok().as_ref().and_then(Sgl::invalidate),
            command,
        };
        // Not fused with another, and data is described by a descriptor: there is nothing else over a fabric.
        if command.flags != 0x40 {
            return self.refuse(pending, Status::INVALID_FIELD);
        }
        let data = Data { sgl, capsule };
        match (&self.role, command.fabrics_type()) {
            (_, Some(kind)) => self.handle_fabrics(kind, pending, &data),
            (Role::Unconnected { .. }, None) => self.refuse(pending, Status::COMMAND_SEQUENCE_ERROR),
            (Role::Admin(controller), None) => {
                let controller = Arc::clone(controller);
                controller.touch(now);
                self.handle_admin(&controller, pending, &data, now)
            }
            (Role::Io(controller), None) if !controller.is_enabled() => {
                self.refuse(pending, Status::COMMAND_SEQUENCE_ERROR)
            }
            (Role::Io(_), None) => self.handle_io(pending, &data),
        }
    }

    /// A disk access has ended: with a status, if it failed.
    pub fn finish(&mut self, pending: Pending, outcome: Result<(), Status>) -> Response {
        let status = outcome.err().unwrap_or(Status::SUCCESS);
        self.response(&pending, status, 0)
    }

    /// When to call [`Queue::handle_timeout`]. Changes with every capsule.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.role {
            Role::Unconnected { until } => Some(*until),
            Role::Admin(controller) => controller.deadline(),
            Role::Io(_) => None,
        }
    }

    /// Time has passed. Why the connection must be ended, if so.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<&'static str> {
        let due = self.poll_timeout().is_some_and(|at| at <= now);
        match &self.role {
            _ if !due => None,
            Role::Unconnected { .. } => Some("the host did not say Connect"),
            _ => Some("the host sent no Keep Alive in time"),
        }
    }

    fn refuse(&mut self, pending: Pending, status: Status) -> Step {
        Step::Respond(self.response(&pending, status.finally(), 0))
    }

    fn succeed(&mut self, pending: &Pending, result: u64) -> Step {
        Step::Respond(self.response(pending, Status::SUCCESS, result))
    }

    fn response(&mut self, pending: &Pending, status: Status, result: u64) -> Response {
        if self.flow_control {
            self.sq_head = (self.sq_head + 1) % self.sq_entries;
        }
        Response {
            completion: Completion {
                result,
                sq_head: self.sq_head,
                sq_id: self.request.qid,
                cid: pending.command.cid,
                status,
            },
            invalidate: pending.invalidate,
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        match &self.role {
            Role::Unconnected { .. } => {}
            Role::Admin(controller) => self.subsystem.remove(controller.cntlid),
            Role::Io(controller) => controller.release(self.request.qid),
        }
    }
}

/// The data of a command, as far as the capsule tells.
struct Data<'a> {
    sgl: Result<Sgl, crate::wire::SglError>,
    capsule: &'a [u8],
}

impl Data<'_> {
    /// Memory of the host with room for `length` bytes.
    fn room(&self, length: usize) -> Result<KeyedSgl, Status> {
        match self.sgl {
            Ok(Sgl::Keyed(keyed)) if keyed.length as usize >= length => Ok(keyed),
            Ok(Sgl::Keyed(_)) => Err(Status::SGL_LENGTH_INVALID),
            // A capsule goes one way.
            Ok(Sgl::InCapsule { .. }) | Err(_) => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// Where `length` bytes come from.
    fn source(&self, length: usize) -> Result<Source, Status> {
        let sgl = self.sgl.map_err(|_| Status::SGL_TYPE_INVALID)?;
        if (sgl.length() as usize) < length {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        match sgl {
            Sgl::Keyed(keyed) => Ok(Source::Host(keyed)),
            Sgl::InCapsule { offset, .. } => {
                let start = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| offset.checked_add(crate::wire::COMMAND_LENGTH));
                let end = start.and_then(|start| start.checked_add(length));
                match (start, end) {
                    (Some(start), Some(end)) if end <= self.capsule.len() => Ok(Source::Capsule(start..end)),
                    _ => Err(Status::SGL_OFFSET_INVALID),
                }
            }
        }
    }
}

/// Whether a controller of this kind does I/O.
fn has_namespace(kind: ControllerKind) -> bool {
    kind == ControllerKind::Io
}
