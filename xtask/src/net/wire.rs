//! The wire itself: a thread that reads what hosts send, asks the [`EmulatedLink`] of its direction for each packet's fate, and
//! writes it when it is due.
//!
//! Hosts are on two sides. What goes from one side to the other shares that direction with everything else that does, so several
//! hosts are behind one bottleneck; what stays on a side is passed on at once.

use super::frame::{Frame, VIRTIO};
use super::pool::Pool;
use super::tun::Tun;
use anyhow::{Context, Result};
use nonic_netem::{Arrival, EmulatedLink, LinkCounters, LinkSettings, PacketInfo, Schedule};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Frames read from one host before the others have their turn.
const BATCH: usize = 32;
/// As much as the kernel leaves in one piece, and virtio's header.
const MOST_FRAME: usize = VIRTIO + (1 << 16);
/// Pieces on their way before the schedule of a direction takes memory from the system again.
const SCHEDULED: usize = 4096;

/// Where packets come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A host at the wire.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) tun: Tun,
    pub(super) side: Side,
    pub(super) address: Ipv4Addr,
}

/// What happened in a direction.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) link: LinkCounters,
    /// Frames that a host did not take, or that there was no memory for; both directions together, told with the first.
    pub(crate) unwritten: u64,
}

/// A wire that runs until the value is dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    requests: Sender<Request>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

enum Request {
    /// What comes from a side has this from now on.
    Change(Side, LinkSettings),
    /// What happened so far, from left and from right; then counting starts over.
    Tell(Sender<[Counters; 2]>),
    Stop,
}

impl Wire {
    pub(super) fn start(ports: Vec<Port>, settings: [LinkSettings; 2], seed: u64) -> Result<Self> {
        // SAFETY: no pointer is passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error()).context("cannot make an eventfd");
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let wake = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let (requests, inbox) = channel();
        let [there, back] = settings;
        let mut loop_ = Loop {
            began: Instant::now(),
            ports,
            directions: [
                EmulatedLink::new(there, seed),
                EmulatedLink::new(back, seed ^ 0xbac4),
            ],
            schedules: [0; 2].map(|_| Schedule::with_capacity(SCHEDULED)),
            pool: Pool::new(),
            fates: Vec::with_capacity(1024),
            scratch: Vec::with_capacity(MOST_FRAME),
            unwritten: 0,
            inbox,
            wake: wake.try_clone()?,
        };
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || loop_.run())?;
        Ok(Self {
            requests,
            wake,
            thread: Some(thread),
        })
    }

    /// What comes from a side has this from now on.
    pub(crate) fn change(&self, from: Side, settings: LinkSettings) {
        self.ask(Request::Change(from, settings));
    }

    /// What happened since it was asked last, from left and from right.
    pub(crate) fn counters(&self) -> [Counters; 2] {
        let (answer, told) = channel();
        self.ask(Request::Tell(answer));
        told.recv().unwrap_or_default()
    }

    fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes are read from an array of eight.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Neighbours of one frame that arrive together.
#[derive(Copy, Clone, Debug)]
struct Piece {
    slot: u32,
    /// The host that gets it.
    port: u16,
    first: u16,
    count: u16,
    marked: bool,
    wrong_bit: Option<u64>,
}

impl Piece {
    fn is_whole(&self) -> bool {
        !self.marked && self.wrong_bit.is_none()
    }

    /// Takes another in, if it follows in the same frame.
    fn join(&mut self, next: &Piece) -> bool {
        let follows = self.slot == next.slot && self.first + self.count == next.first;
        let joins = follows && self.is_whole() && next.is_whole();
        if joins {
            self.count += next.count;
        }
        joins
    }
}

struct Loop {
    began: Instant,
    ports: Vec<Port>,
    directions: [EmulatedLink; 2],
    schedules: [Schedule<Piece>; 2],
    pool: Pool,
    /// Of the frame that was just read; kept for its memory.
    fates: Vec<(u64, Piece)>,
    /// For packets that are damaged.
    scratch: Vec<u8>,
    /// What hosts did not take.
    unwritten: u64,
    inbox: Receiver<Request>,
    wake: OwnedFd,
}

impl Loop {
    fn run(&mut self) {
        // SAFETY: the call changes this thread's timers only: they are as exact as they can be.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut buffer = vec![0; MOST_FRAME];
        let poll = |descriptor| libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled: Vec<libc::pollfd> = self
            .ports
            .iter()
            .map(|port| poll(port.tun.descriptor()))
            .collect();
        polled.push(poll(self.wake.as_raw_fd()));
        loop {
            self.wait(&mut polled);
            if polled[self.ports.len()].revents != 0 && !self.answer() {
                return;
            }
            for (port, polled) in polled.iter().enumerate().take(self.ports.len()) {
                if polled.revents != 0 {
                    self.read_from(port, &mut buffer);
                }
            }
            self.deliver();
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Until something is there to read, or due.
    fn wait(&self, polled: &mut [libc::pollfd]) {
        let due = self.schedules.iter().filter_map(Schedule::next_at).min();
        let timeout = due.map(|due| {
            let wait = due.saturating_sub(self.now_ns());
            libc::timespec {
                tv_sec: (wait / 1_000_000_000) as libc::time_t,
                tv_nsec: (wait % 1_000_000_000) as libc::c_long,
            }
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the time are valid for as long as the call takes.
        unsafe {
            libc::ppoll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                timeout,
                std::ptr::null(),
            )
        };
    }

    /// Does what was asked for; whether to go on.
    fn answer(&mut self) -> bool {
        let mut count = [0_u8; 8];
        // SAFETY: eight bytes are written to an array of eight.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        while let Ok(request) = self.inbox.try_recv() {
            match request {
                Request::Stop => return false,
                Request::Change(side, settings) => self.directions[side as usize].change(&settings),
                Request::Tell(answer) => {
                    let mut told = self.directions.each_mut().map(|direction| Counters {
                        link: direction.take_counters(),
                        unwritten: 0,
                    });
                    told[0].unwritten = std::mem::take(&mut self.unwritten);
                    let _ = answer.send(told);
                }
            }
        }
        true
    }

    fn read_from(&mut self, from: usize, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Some(length) = self.ports[from].tun.read(buffer) else {
                return;
            };
            let bytes = &buffer[..length];
            let Some(frame) = Frame::parse(bytes) else {
                continue;
            };
            let to = self
                .ports
                .iter()
                .position(|port| port.address == frame.destination);
            let Some(to) = to else { continue };
            let side = self.ports[from].side;
            if self.ports[to].side == side {
                self.ports[to].tun.write(bytes, &[]);
            } else {
                self.send(side as usize, to, bytes, frame);
            }
        }
    }

    /// Asks for the fate of each packet of a frame, and keeps what arrives until it does.
    fn send(&mut self, direction: usize, to: usize, bytes: &[u8], frame: Frame) {
        let now_ns = self.now_ns();
        self.fates.clear();
        for index in 0..frame.packets() {
            let packet = PacketInfo {
                length: frame.length(index),
                can_be_marked: frame.can_be_marked,
                peer: IpAddr::V4(frame.destination),
                roce: frame.roce(bytes, index),
            };
            let arrivals = self.directions[direction].accept(now_ns, &packet);
            for arrival in arrivals.into_iter().flatten() {
                self.add_fate(to, index, arrival);
            }
        }
        let schedule = &mut self.schedules[direction];
        let at_once = schedule.next_at().is_none() && self.fates.iter().all(|(due, _)| *due <= now_ns);
        if at_once {
            for (_, piece) in &self.fates {
                let written = write(&self.ports[to].tun, bytes, frame, piece, &mut self.scratch);
                self.unwritten += u64::from(!written);
            }
        } else if !self.fates.is_empty() {
            let Some(slot) = self.pool.keep(bytes, frame, self.fates.len() as u32) else {
                self.unwritten += 1;
                return;
            };
            for (due_ns, piece) in self.fates.drain(..) {
                schedule.push(due_ns, Piece { slot, ..piece });
            }
        }
    }

    /// Neighbours with the same time are one piece.
    fn add_fate(&mut self, to: usize, index: usize, arrival: Arrival) {
        let piece = Piece {
            slot: 0,
            port: to as u16,
            first: index as u16,
            count: 1,
            marked: arrival.marked,
            wrong_bit: arrival.wrong_bit,
        };
        let joins = self
            .fates
            .last_mut()
            .is_some_and(|(due, last)| *due == arrival.due_ns && last.join(&piece));
        if !joins {
            self.fates.push((arrival.due_ns, piece));
        }
    }

    /// Writes what is due. Neighbours that have become due go together, as hosts with a real card get them.
    fn deliver(&mut self) {
        for direction in 0..2 {
            let now_ns = self.now_ns();
            let mut joined: Option<Piece> = None;
            while let Some(piece) = self.schedules[direction].pop_due(now_ns) {
                if joined.as_mut().is_some_and(|joined| joined.join(&piece)) {
                    // Its reference goes; that of the piece it was joined to stays.
                    self.pool.release(piece.slot);
                } else if let Some(before) = joined.replace(piece) {
                    self.write_out(&before);
                }
            }
            if let Some(last) = joined {
                self.write_out(&last);
            }
        }
    }

    fn write_out(&mut self, piece: &Piece) {
        if let Some((bytes, frame)) = self.pool.frame(piece.slot) {
            let tun = &self.ports[usize::from(piece.port)].tun;
            let written = write(tun, bytes, frame, piece, &mut self.scratch);
            self.unwritten += u64::from(!written);
        }
        self.pool.release(piece.slot);
    }
}

fn write(tun: &Tun, bytes: &[u8], frame: Frame, piece: &Piece, scratch: &mut Vec<u8>) -> bool {
    let first = usize::from(piece.first);
    if let Some(bit) = piece.wrong_bit {
        frame.corrupt(bytes, first, piece.marked, bit, scratch);
        return tun.write(scratch, &[]);
    }
    let part = frame.part(bytes, first..first + usize::from(piece.count), piece.marked);
    tun.write(part.headers(), &bytes[part.payload.clone()])
}
