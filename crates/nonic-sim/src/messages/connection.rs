//! A reliable connection as a queue pair shows it to its program: requests are executed in order and complete in order,
//! but late. At any step all of it can break, or one end be killed.
//!
//! It models what verbs promise, not packets: those are tested in [`crate::world`] and [`crate::streams`].

use nonic_message::protocol::{Frame, Kind, ReadId, Remote};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The memory that one side has offered, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    regions: Rc<RefCell<BTreeMap<u32, Vec<u8>>>>,
    next: u32,
}

/// A message as its sender's machine keeps it: memory that is offered stays so until this is dropped.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    offered: Option<(Memory, u32)>,
}

impl Payload {
    pub(super) fn plain(bytes: Vec<u8>) -> Self {
        Payload { bytes, offered: None }
    }
}

impl Memory {
    pub(super) fn offer(&mut self, bytes: Vec<u8>) -> (Payload, Remote) {
        self.next += 1;
        let key = self.next;
        self.regions.borrow_mut().insert(key, bytes.clone());
        let payload = Payload {
            bytes,
            offered: Some((self.clone(), key)),
        };
        (payload, Remote { va: 0, rkey: key })
    }

    fn read(&self, remote: Remote, length: u64) -> Option<Vec<u8>> {
        let regions = self.regions.borrow();
        let bytes = regions.get(&remote.rkey)?;
        (bytes.len() as u64 == length).then(|| bytes.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.regions.borrow().is_empty()
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some((memory, key)) = &self.offered {
            memory.regions.borrow_mut().remove(key);
        }
    }
}

/// A request in a send queue.
#[derive(Debug)]
pub(super) enum Request {
    Send(Vec<u8>),
    Read(ReadId, Remote, u64),
    ReadNothing,
}

impl Request {
    pub(super) fn frame(frame: &Frame, payload: Option<&[u8]>) -> Self {
        let mut bytes = vec![0; frame.bytes()];
        frame.emit(&mut bytes);
        bytes.extend_from_slice(payload.unwrap_or_default());
        Request::Send(bytes)
    }
}

/// What a program finds in its completion queue.
#[derive(Debug)]
pub(super) enum Completion {
    Received(Vec<u8>),
    Sent,
    Read(ReadId, Vec<u8>),
    Confirmed,
    /// The connection is gone.
    Broken,
}

/// One end of the connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) memory: Memory,
    posted: VecDeque<Request>,
    /// Completions that are on their way back, and those that are here.
    late: VecDeque<Completion>,
    pub(super) completed: VecDeque<Completion>,
    /// Receives that are posted.
    pub(super) receives: usize,
    pub(super) broken: bool,
    pub(super) killed: bool,
}

impl End {
    pub(super) fn new(receives: usize) -> Self {
        End {
            receives,
            ..End::default()
        }
    }

    pub(super) fn post(&mut self, request: Request) {
        if !self.broken {
            self.posted.push_back(request);
        }
    }

    /// Whether there is something that can happen to it.
    pub(super) fn is_busy(&self) -> bool {
        !self.posted.is_empty() || !self.late.is_empty()
    }

    /// Messages in frames that have arrived and that the program has not looked at.
    pub(super) fn unseen_messages(&self) -> usize {
        let is_message = |completion: &&Completion| match completion {
            Completion::Received(bytes) => Frame::parse(bytes).is_ok_and(|frame| frame.kind == Kind::Message),
            _ => false,
        };
        self.completed.iter().filter(is_message).count()
    }

    /// A completion comes back.
    pub(super) fn acknowledge(&mut self) -> bool {
        match self.late.pop_front() {
            Some(completion) => {
                self.completed.push_back(completion);
                true
            }
            None => false,
        }
    }

    /// It learns that the connection is gone; what was on its way is not coming.
    pub(super) fn break_off(&mut self) {
        if !self.broken {
            self.broken = true;
            self.posted.clear();
            self.late.clear();
            self.completed.push_back(Completion::Broken);
        }
    }
}

/// Executes the oldest request of one end at the other. Whether there was one; the error is a rule that was broken.
pub(super) fn execute(from: &mut End, to: &mut End) -> Result<bool, String> {
    if from.broken || to.broken || to.killed {
        return Ok(false);
    }
    let Some(request) = from.posted.pop_front() else {
        return Ok(false);
    };
    match request {
        Request::Send(bytes) => {
            let left = to.receives.checked_sub(1);
            to.receives = left.ok_or("a frame met no receive: the reserve is too small")?;
            to.completed.push_back(Completion::Received(bytes));
            from.late.push_back(Completion::Sent);
        }
        Request::Read(id, remote, length) => {
            let bytes = to.memory.read(remote, length);
            let bytes = bytes.ok_or("a READ of memory that was given back or never offered")?;
            from.late.push_back(Completion::Read(id, bytes));
        }
        Request::ReadNothing => from.late.push_back(Completion::Confirmed),
    }
    Ok(true)
}
