//! The message workload: two ends of a channel of messages, on a connection that is slow, breaks and whose ends are
//! killed.
//!
//! The machines are those of `nonic-message`. Read [`Messages::run`] first. What must hold, at every step or at the end:
//! - every message arrives once, in order and byte for byte, or the connection has ended and says so;
//! - what had arrived before the end can be taken after it;
//! - no frame meets an empty receive queue, and no READ memory that its owner has back;
//! - an end that has arrived means that all messages before it have, whether the other program has looked or not;
//! - no credit is lost: when everything was taken, all are back; and no offered memory is left;
//! - it ends in bounded steps: no end waits for ever.

mod connection;

use crate::report::Report;
use connection::{Completion, End, Payload, Request, execute};
use nonic_message::protocol::{Action, Frame, Greeting, Machine, Role, Taken};
use nonic_netem::{Prng, mix};
use std::collections::VecDeque;

type Check = Result<(), String>;

/// A run that takes more steps than this does not end.
const MANY_STEPS: u64 = 200_000;
/// The longest message, in frames or read.
const LONGEST: u64 = 300;

/// Two sides and what each has sent.
pub(crate) struct Messages {
    prng: Prng,
    sides: [Side; 2],
    /// After so many steps the connection breaks or a side is killed, if ever.
    disaster: Option<(u64, Disaster)>,
    ended: bool,
    narrating: bool,
    steps: u64,
    frames: u64,
    hash: u64,
}

#[derive(Copy, Clone, Debug)]
enum Disaster {
    Break,
    Kill(usize),
}

struct Side {
    machine: Machine<Payload, Vec<u8>>,
    greeting: Greeting,
    end: End,
    /// Messages it will send, and has sent.
    to_send: u32,
    sent: u32,
    /// Sent and not taken by the other side.
    open: VecDeque<Vec<u8>>,
    taken: u32,
    finished: bool,
    /// How often its program looks at what has completed, in a hundred.
    diligence: u64,
}

impl Messages {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x6d65_7373_6167_6573);
        let mut greeting = || Greeting {
            credits: prng.pick(&[1, 2, 3, 4, 8, 32]),
            frame_bytes: prng.pick(&[32, 64, 128]),
            message_bytes: LONGEST,
        };
        let greetings = [greeting(), greeting()];
        let read_ahead = prng.pick(&[0, 100, 1000]);
        let sides = [0, 1].map(|index| {
            let role = [Role::Connector, Role::Acceptor][index];
            let (own, peer) = (greetings[index], greetings[1 - index]);
            let mut machine = Machine::new(role, own, peer, read_ahead);
            machine.set_cutoff(prng.pick(&[0, 10, 100]));
            let end = End::new(Machine::<Payload, Vec<u8>>::receives(own.credits));
            Side {
                machine,
                greeting: own,
                end,
                to_send: prng.below(60) as u32,
                sent: 0,
                open: VecDeque::new(),
                taken: 0,
                finished: false,
                diligence: prng.pick(&[5, 30, 100]),
            }
        });
        let disaster = match prng.below(4) {
            0 => Some(Disaster::Break),
            1 => Some(Disaster::Kill(prng.index(2))),
            _ => None,
        };
        let disaster = disaster.map(|disaster| (prng.below(2000), disaster));
        Messages {
            prng,
            sides,
            disaster,
            ended: false,
            narrating: false,
            steps: 0,
            frames: 0,
            hash: 0,
        }
    }

    pub(crate) fn narrate(&mut self, narrate: bool) {
        self.narrating = narrate;
    }

    pub(crate) fn run(&mut self) -> Check {
        while !self.is_over() {
            self.steps += 1;
            if self.steps > MANY_STEPS {
                return Err("it does not end: somebody waits for ever".into());
            }
            if let Some((at, disaster)) = self.disaster {
                if self.steps >= at {
                    self.disaster = None;
                    self.strike(disaster);
                }
            }
            let side = self.prng.index(2);
            match self.prng.below(6) {
                0 => self.send(side),
                1 => self.take(side)?,
                2 | 3 => self.execute(side)?,
                4 => {
                    self.sides[side].end.acknowledge();
                }
                _ => {
                    if self.prng.percent(self.sides[side].diligence) {
                        self.drive(side)?;
                    }
                }
            }
            self.check_arrived(side)?;
        }
        self.check_end()
    }

    pub(crate) fn report(&self, seed: u64) -> Report {
        let count = |of: fn(&Side) -> u32| self.sides.iter().map(|side| u64::from(of(side))).sum();
        let operations: u64 = count(|side| side.sent);
        let completions: u64 = count(|side| side.taken);
        Report {
            seed,
            trace_hash: self.hash,
            virtual_ns: self.steps,
            steps: self.steps,
            packets: self.frames,
            operations,
            completions,
            failures: operations.saturating_sub(completions),
            ..Report::default()
        }
    }

    fn note(&mut self, what: &str, side: usize, value: u64) {
        self.hash = mix(self.hash ^ mix(value ^ (side as u64) << 60 ^ (what.len() as u64) << 50));
        if self.narrating {
            eprintln!("{}: side {side} {what} {value}", self.steps);
        }
    }

    fn strike(&mut self, disaster: Disaster) {
        self.ended = true;
        match disaster {
            Disaster::Break => self.sides.iter_mut().for_each(|side| side.end.break_off()),
            Disaster::Kill(victim) => {
                self.sides[victim].end.killed = true;
                self.sides[victim].end.break_off();
            }
        }
    }

    fn execute(&mut self, side: usize) -> Check {
        let [left, right] = &mut self.sides;
        let (from, to) = match side {
            0 => (left, right),
            _ => (right, left),
        };
        if to.end.broken && !from.end.broken {
            // The peer does not answer: the retries are exhausted, or the peer's NIC says that it is gone. An end that
            // waits asks the peer, too.
            from.end.break_off();
            return Ok(());
        }
        execute(&mut from.end, &mut to.end)?;
        Ok(())
    }

    /// The program sends something, or says that it has sent everything.
    fn send(&mut self, index: usize) {
        let number = self.sides[index].sent;
        let length = match self.prng.below(3) {
            0 => self.prng.below(20),
            1 => self.prng.below(120),
            _ => self.prng.below(LONGEST + 1),
        };
        let bytes: Vec<u8> = (0..length)
            .map(|at| (at * 7 + u64::from(number) * 31 + index as u64) as u8)
            .collect();
        let side = &mut self.sides[index];
        if side.end.killed || side.finished {
            return;
        }
        if side.sent == side.to_send {
            side.machine.end();
            side.finished = true;
            return;
        }
        match side.machine.can_send(Some(length)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => {
                side.finished = true;
                return;
            }
        }
        if side.machine.is_eager(length) {
            side.machine.send(Payload::plain(bytes.clone()), length);
        } else {
            let (payload, remote) = side.end.memory.offer(bytes.clone());
            side.machine.offer(payload, remote, length);
        }
        side.sent += 1;
        side.open.push_back(bytes);
        self.note("sends", index, length);
    }

    fn take(&mut self, index: usize) -> Check {
        if self.sides[index].end.killed {
            return Ok(());
        }
        match self.sides[index].machine.take() {
            Taken::Message(bytes) => {
                let expected = self.sides[1 - index].open.pop_front();
                if expected.as_deref() != Some(&bytes[..]) {
                    return Err(format!(
                        "side {index} took what was not sent, or not now: {bytes:?}"
                    ));
                }
                self.sides[index].taken += 1;
                self.note("takes", index, bytes.len() as u64);
            }
            Taken::End if !self.sides[1 - index].open.is_empty() => {
                return Err(format!("side {index} was told the end before the last message"));
            }
            Taken::Lost if !self.ended => return Err("a connection was lost that nobody broke".into()),
            Taken::Nothing | Taken::End | Taken::Lost => {}
        }
        Ok(())
    }

    /// The program looks at what has completed, and the machine's requests are posted.
    fn drive(&mut self, index: usize) -> Check {
        if self.sides[index].end.killed {
            return Ok(());
        }
        let count = self.prng.range(1, 8);
        for _ in 0..count {
            let side = &mut self.sides[index];
            let Some(completion) = side.end.completed.pop_front() else {
                break;
            };
            match completion {
                Completion::Received(bytes) => {
                    side.end.receives += 1;
                    let frame = Frame::parse(&bytes).map_err(|error| error.to_string())?;
                    let payload = || bytes[frame.bytes()..].to_vec();
                    let received = side.machine.receive(&frame, payload);
                    received.map_err(|violation| format!("side {index}: {violation}"))?;
                    self.note("receives", index, frame.kind as u64);
                }
                Completion::Sent => side.machine.sent(),
                Completion::Confirmed => side.machine.confirmed(),
                Completion::Read(id, bytes) => side.machine.read_done(id, bytes),
                Completion::Broken => side.machine.close(),
            }
        }
        while let Some(action) = self.sides[index].machine.poll() {
            let side = &mut self.sides[index];
            match action {
                Action::Send { frame, payload } => {
                    let bytes = payload.as_ref().map(|payload| &payload.bytes[..]);
                    side.end.post(Request::frame(&frame, bytes));
                    self.frames += 1;
                }
                Action::Read { id, remote, length } => side.end.post(Request::Read(id, remote, length)),
                Action::Confirm => side.end.post(Request::ReadNothing),
            }
        }
        Ok(())
    }

    /// An end that has arrived: so has everything before it, taken, looked at or not.
    fn check_arrived(&self, index: usize) -> Check {
        let (side, peer) = (&self.sides[index], &self.sides[1 - index]);
        if side.finished && side.machine.is_end_arrived() && !side.machine.is_closed() {
            let arrived = peer.taken as usize + peer.machine.arrived() + peer.end.unseen_messages();
            if arrived != side.sent as usize {
                return Err(format!(
                    "side {index}'s end has arrived with {arrived} of {} messages",
                    side.sent
                ));
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.sides
            .iter()
            .zip(self.sides.iter().rev())
            .all(|(side, peer)| {
                let settled = side.machine.is_at_end() && side.end.completed.is_empty();
                let quiet = side.finished && side.machine.is_end_arrived() && !side.end.is_busy();
                side.end.killed
                    || (settled && (side.machine.is_closed() || (quiet && peer.machine.is_end_arrived())))
            })
    }

    fn check_end(&mut self) -> Check {
        for index in 0..2 {
            let (side, peer) = (&self.sides[index], &self.sides[1 - index]);
            if self.ended {
                let survivor_can_send = !side.end.killed && side.machine.can_send(Some(1)).is_ok();
                if survivor_can_send {
                    return Err(format!("side {index} believes in a connection that is gone"));
                }
                continue;
            }
            if !side.open.is_empty() || side.sent != side.to_send {
                return Err(format!(
                    "side {index}: {} of {} messages taken",
                    peer.taken, side.to_send
                ));
            }
            let credits = side.machine.credits() + peer.machine.owed();
            if credits != peer.greeting.credits {
                return Err(format!("side {index} has {credits} credits at the end"));
            }
            if !side.end.memory.is_empty() {
                return Err(format!("side {index} still offers memory"));
            }
        }
        Ok(())
    }
}
