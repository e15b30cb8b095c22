//! Records a run as a ladder diagram: what was posted, sent, placed and completed, and what went wrong.
//!
//! The [`Recorder`] notes events as they happen and changes nothing: it draws no randomness and asks NICs nothing.

use super::World;
use super::model::Mark;
use super::placement::PlacementLog;
use crate::flight::Flight;
use crate::program::post::{RECEIVE, SHARED, from_wr_id};
use crate::program::request::{Change, Kind, Writing};
use nonic_core::{Completion, Service, Status};
use nonic_ladder::{Arrival, Event, EventKind, Ladder, Sequences, Tone, Verdict};

/// What happened so far.
#[derive(Default)]
pub(super) struct Recorder {
    events: Vec<Event>,
    sequences: Sequences<(usize, u32)>,
    pub(super) placements: PlacementLog,
}

impl World {
    /// Notes what happens from now on. To be called before anything does.
    pub(crate) fn record(&mut self) {
        self.recorder = Some(Recorder::default());
        self.fabric.set_recording(true);
    }

    /// What happened, as a ladder of NICs.
    pub(crate) fn take_ladder(&mut self) -> Option<Ladder> {
        self.note_network();
        let recorder = self.recorder.take()?;
        let mut ladder = Ladder {
            ends: (0..self.scenario.stations)
                .map(|station| self.scenario.ip(station).to_string())
                .collect(),
            events: recorder.events,
            start_ns: Some(0),
            ..Ladder::default()
        };
        ladder.sort();
        Some(ladder)
    }

    /// The peers of a queue pair, and itself: what its story is about.
    pub(crate) fn involved(&self, number: usize) -> Vec<usize> {
        let peer = self.model.programs.get(number).and_then(|program| program.peer);
        std::iter::once(number).chain(peer).collect()
    }

    fn note_local(&mut self, station: usize, qp: Option<usize>, tone: Tone, text: String) {
        let at_ns = self.fabric.now().as_ns();
        if let Some(recorder) = &mut self.recorder {
            let event = Event::local(at_ns, station, qp.map(|number| number as u32), text);
            recorder.events.push(Event { tone, ..event });
        }
    }

    /// Notes what was placed in memory and what was sent since the last time, in this order: an acknowledgement comes after
    /// what it is for.
    pub(super) fn note_network(&mut self) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        for placement in recorder.placements.take() {
            let station = self.hosts[self.model.arenas[placement.arena].host].station;
            let mut owners =
                (0..self.qps.len()).filter(|number| self.model.programs[*number].arena == placement.arena);
            let owner = owners.next().filter(|_| owners.next().is_none());
            let text = format!("{} B placed at {:#x}", placement.length, placement.offset);
            self.note_local(station, owner, Tone::Program, text);
        }
        for flight in self.fabric.take_flights() {
            self.note_flight(flight);
        }
    }

    fn note_flight(&mut self, flight: Flight) {
        let number_at = |station: usize, qpn: u32| {
            let host = *self.current.get(station)?;
            self.by_qpn.get(&(host, qpn)).copied()
        };
        let to_qp = flight
            .description
            .peer_qp
            .and_then(|qpn| number_at(flight.to, qpn));
        let from_qp = match flight.description.qp {
            Some(qpn) => number_at(flight.from, qpn),
            None => to_qp.and_then(|number| self.model.programs[number].peer),
        };
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let verdict = recorder
            .sequences
            .note((flight.to, flight.headers.bth.dest_qp.value()), &flight.headers);
        let mut marks: Vec<&str> = Vec::new();
        if matches!(verdict, Verdict::Again | Verdict::Late) {
            marks.push("again");
        }
        if flight.arrivals_ns.is_empty() {
            marks.push("lost");
        }
        if flight.damaged {
            marks.push("damaged");
        }
        let arrivals = match flight.arrivals_ns[..] {
            [] => vec![Arrival::Never],
            _ => flight
                .arrivals_ns
                .iter()
                .map(|at_ns| Arrival::At(*at_ns))
                .collect(),
        };
        for (copy, arrival) in arrivals.into_iter().enumerate() {
            if copy == 1 {
                marks.push("duplicate");
            }
            let tone = if marks.is_empty() {
                flight.description.tone
            } else {
                Tone::Trouble
            };
            recorder.events.push(Event {
                kind: EventKind::Packet {
                    to: flight.to,
                    arrival,
                },
                tone,
                mark: (!marks.is_empty()).then(|| marks.join(", ")),
                peer_qp: to_qp.map(|number| number as u32),
                ..Event::local(
                    flight.left_ns,
                    flight.from,
                    from_qp.map(|number| number as u32),
                    flight.description.text.clone(),
                )
            });
        }
    }

    /// Notes that a program posted a request.
    pub(super) fn note_posted(&mut self, number: usize, index: usize) {
        if self.recorder.is_none() {
            return;
        }
        let program = &self.model.programs[number];
        let op = &program.ops[index];
        let text = format!("posts request {index}: {} {} B", operation(op.kind), op.length);
        let station = self.hosts[program.host].station;
        self.note_local(station, Some(number), Tone::Program, text);
    }

    /// Notes that a program took a completion.
    pub(super) fn note_completed(&mut self, host: usize, completion: &Completion) {
        if self.recorder.is_none() {
            return;
        }
        let (owner, index) = from_wr_id(completion.wr_id);
        let is_receive = completion.wr_id & RECEIVE != 0;
        let qp = match completion.wr_id & SHARED == 0 {
            true => Some(owner),
            false => self.by_qpn.get(&(host, completion.qpn.value())).copied(),
        };
        let what = if is_receive {
            format!("receive {index}")
        } else {
            format!("request {index}")
        };
        let (tone, text) = match completion.status {
            Status::Success if is_receive => {
                (Tone::Program, format!("{what} done: {} B", completion.byte_len))
            }
            Status::Success => (Tone::Program, format!("{what} done")),
            Status::Flushed => (Tone::Program, format!("{what} flushed")),
            status => {
                // What stands behind the colon explains it to readers without a ladder.
                let text = status.to_string();
                let short = text.split(':').next().unwrap_or_default();
                (Tone::Trouble, format!("{what} failed: {short}"))
            }
        };
        self.note_local(self.hosts[host].station, qp, tone, text);
    }

    /// Notes what the workload does to NICs, links and queue pairs.
    pub(super) fn note_mark(&mut self, mark: Mark) {
        if self.recorder.is_none() {
            return;
        }
        let ms = |duration_ns: u64| duration_ns as f64 / 1e6;
        let of_qp = |number: usize| (self.hosts[self.model.programs[number].host].station, Some(number));
        let ((station, qp), text) = match mark {
            // What these lead to is noted itself.
            Mark::Post(_) | Mark::Receive(_) | Mark::SharedReceive(_) => return,
            Mark::Start(number) => (of_qp(number), "begins".to_owned()),
            Mark::Destroy(number) => (of_qp(number), "is destroyed".to_owned()),
            Mark::ToError(number) => (of_qp(number), "goes to ERR".to_owned()),
            Mark::Drain(number) => (of_qp(number), "drains".to_owned()),
            Mark::Undrain(number) => (of_qp(number), "goes on".to_owned()),
            Mark::Recover(number) => (of_qp(number), "recovers".to_owned()),
            Mark::Revoke(export) => {
                let host = self.model.arenas[self.model.exports[export].arena].host;
                ((self.hosts[host].station, None), format!("revokes key {export}"))
            }
            Mark::Crash { old, .. } => (
                (self.hosts[old].station, None),
                "the NIC dies; a new one begins".to_owned(),
            ),
            Mark::Partition { a, b, duration_ns } => {
                let peer = self.scenario.ip(b);
                (
                    (a, None),
                    format!("cut off from {peer} for {:.3} ms", ms(duration_ns)),
                )
            }
            Mark::Pause { station, duration_ns } => (
                (station, None),
                format!("no processor for {:.3} ms", ms(duration_ns)),
            ),
            Mark::Garbage { station } => ((station, None), "gets garbage".to_owned()),
        };
        let tone = match mark {
            Mark::Start(_) | Mark::Drain(_) | Mark::Undrain(_) | Mark::Recover(_) => Tone::Program,
            _ => Tone::Trouble,
        };
        self.note_local(station, qp, tone, text);
    }

    /// What the run is like, in a few lines.
    pub(super) fn introduction(&self) -> Vec<String> {
        let mut lines = vec![self.scenario.introduction()];
        for (number, (qp, program)) in self.qps.iter().zip(&self.model.programs).enumerate() {
            let service = match qp.service {
                Service::Rc => "RC",
                Service::Uc => "UC",
                Service::Ud => "UD",
                _ => "XRC",
            };
            let peer = program
                .peer
                .map_or(String::new(), |peer| format!(" with QP {peer}"));
            let (requests, receives) = (program.ops.len(), program.receives.len());
            lines.push(format!(
                "QP {number}: {service} at host {}{peer}, MTU {}, {requests} requests, {receives} receives",
                program.host,
                qp.terms.mtu.bytes()
            ));
        }
        lines
    }
}

/// An operation by the name that the verbs have for it.
fn operation(kind: Kind) -> &'static str {
    match kind {
        Kind::Send { immediate: None } => "SEND",
        Kind::Send { .. } => "SEND with immediate",
        Kind::SendInvalidate { .. } => "SEND with invalidate",
        Kind::Write { how, .. } => match how {
            Writing::Plain => "WRITE",
            Writing::WithImmediate(_) => "WRITE with immediate",
            Writing::Atomic => "ATOMIC WRITE",
        },
        Kind::Flush { .. } => "FLUSH",
        Kind::ReadPool { .. } | Kind::ReadCell { .. } => "READ",
        Kind::Atomic { change, .. } => match change {
            Change::Add(_) => "FETCH & ADD",
            Change::Swap { .. } => "COMPARE & SWAP",
        },
        Kind::BindWindow { .. } => "BIND",
        Kind::LocalInvalidate { .. } => "LOCAL INVALIDATE",
        Kind::Datagram { .. } => "SEND",
        Kind::Bad(_) => "(to be refused)",
    }
}
