//! A host whose NICs have lanes to each other: records in queues that the test carries.

use super::Node;
use nonic_core::{Answered, LaneId, Lanes, Qpn, RecordAnswer, RecordTag};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Default)]
pub struct LaneHost(Arc<Mutex<LaneState>>);

#[derive(Default)]
pub struct LaneState {
    pub lanes: Vec<Lane>,
    /// Addresses that have no lane to each other.
    pub apart: Vec<(IpAddr, IpAddr)>,
    /// Records that fit in a lane.
    pub room: Option<usize>,
}

pub struct Lane {
    pub from: IpAddr,
    pub to: IpAddr,
    pub records: VecDeque<Record>,
}

#[derive(Clone, Debug)]
pub struct Record {
    pub bytes: Vec<u8>,
    pub request: usize,
    pub tag: RecordTag,
    pub answer: Option<RecordAnswer>,
}

impl LaneHost {
    /// The node's NIC has lanes to all others that join, from now on.
    pub fn join(&self, node: &mut Node) {
        node.nic.set_lanes(Box::new(Ways {
            host: self.clone(),
            ip: node.ip,
            writing: Vec::new(),
            taken: None,
        }));
    }

    pub fn state(&self) -> MutexGuard<'_, LaneState> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// How many records wait that were not executed, from one node to the other.
    pub fn waiting(&self, from: &Node) -> usize {
        let state = self.state();
        let lanes = state.lanes.iter().filter(|lane| lane.from == from.ip);
        lanes
            .map(|lane| {
                lane.records
                    .iter()
                    .filter(|record| record.answer.is_none())
                    .count()
            })
            .sum()
    }

    /// Executes the next record from one node at the other, if there is one. Its answer waits in the lane.
    pub fn deliver(&self, from: &Node, to: &mut Node) -> Option<RecordAnswer> {
        let (lane, at, mut record) = {
            let state = self.state();
            let leads = |lane: &Lane| lane.from == from.ip && lane.to == to.ip;
            let lane = state.lanes.iter().position(leads)?;
            let at = state.lanes[lane]
                .records
                .iter()
                .position(|record| record.answer.is_none())?;
            (lane, at, state.lanes[lane].records[at].clone())
        };
        let (request, room) = record.bytes.split_at_mut(record.request);
        let answer = to.nic.handle_record(to.now, (from.ip, to.ip), request, room);
        // As it goes through shared memory.
        record.answer = Some(RecordAnswer::from_words(answer.to_words()));
        self.state().lanes[lane].records[at] = record;
        Some(answer)
    }

    /// Gives a node the answers to its records. How many.
    pub fn answer(&self, node: &mut Node) -> usize {
        let now = node.now;
        node.nic.handle_answers(now, &|| now)
    }

    /// The process that a node's lanes lead to has ended.
    pub fn end_lanes(&self, node: &mut Node) {
        let count = self.state().lanes.len() as u32;
        let now = node.now;
        (0..count).for_each(|lane| node.nic.lane_ended(now, LaneId(lane)));
    }
}

struct Ways {
    host: LaneHost,
    ip: IpAddr,
    writing: Vec<u8>,
    taken: Option<Record>,
}

impl Lanes for Ways {
    fn find(&mut self, local: IpAddr, remote: IpAddr, _: Qpn) -> Option<LaneId> {
        assert_eq!(local, self.ip, "a NIC asks for lanes from its own address");
        let mut state = self.host.state();
        if state.apart.contains(&(self.ip, remote)) {
            return None;
        }
        let leads = |lane: &Lane| lane.from == self.ip && lane.to == remote;
        let known = state.lanes.iter().position(leads);
        let at = known.unwrap_or_else(|| {
            state.lanes.push(Lane {
                from: self.ip,
                to: remote,
                records: VecDeque::new(),
            });
            state.lanes.len() - 1
        });
        Some(LaneId(at as u32))
    }

    fn room(&mut self, lane: LaneId, bytes: usize) -> Option<&mut [u8]> {
        let state = self.host.state();
        let most = state.room;
        let lane = &state.lanes[lane.0 as usize];
        assert_eq!(lane.from, self.ip, "a NIC writes to its own lanes");
        if most.is_some_and(|most| lane.records.len() >= most) {
            return None;
        }
        drop(state);
        // What was there before.
        self.writing = vec![0xcc; bytes];
        Some(&mut self.writing)
    }

    fn publish(&mut self, lane: LaneId, request: usize, tag: RecordTag) {
        let bytes = std::mem::take(&mut self.writing);
        assert!(request <= bytes.len(), "a record is as long as its room");
        self.host.state().lanes[lane.0 as usize]
            .records
            .push_back(Record {
                bytes,
                request,
                tag,
                answer: None,
            });
    }

    fn take_answer(&mut self) -> Option<Answered<'_>> {
        let mut state = self.host.state();
        let mut own = state.lanes.iter_mut().filter(|lane| lane.from == self.ip);
        let answered = |record: &Record| record.answer.is_some();
        let lane = own.find(|lane| lane.records.front().is_some_and(answered))?;
        let record = self.taken.insert(lane.records.pop_front()?);
        Some(Answered {
            tag: record.tag,
            answer: record.answer?,
            bytes: &record.bytes[record.request..],
        })
    }

    fn close(&mut self, _: LaneId) {}
}
