//! Lanes in the simulator: records between NICs that are processes of one host.
//!
//! [`LaneHost`] holds the records that were written and not taken back. The fabric decides when a reader looks and when a writer finds
//! its answers. A lane may be full at any time. A process that dies leaves what it wrote; what was written for it is not executed.
//!
//! A NIC that breaks the contract of [`Lanes`] makes it panic, and so fails the run.

use nonic_core::{Answered, LaneId, Lanes, Nic, Qpn, RecordAnswer, RecordTag, Time};
use nonic_netem::Prng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which NICs have lanes, and how much fits in one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneProfile {
    /// How many pairs of addresses have a lane, each direction for itself, in percent.
    pub reach_percent: u64,
    /// How many records a lane has room for.
    pub room: usize,
    /// How many times out of a hundred a NIC that asks for a lane is told that there is none yet.
    pub late_percent: u64,
}

/// The lanes of a host.
#[derive(Clone)]
pub struct LaneHost(Arc<Mutex<Board>>);

struct Board {
    profile: LaneProfile,
    prng: Prng,
    /// Which address has a lane to which, as it was drawn at the first contact.
    reach: BTreeMap<(IpAddr, IpAddr), bool>,
    /// Which process has an address now.
    processes: HashMap<IpAddr, u64>,
    attached: u64,
    lanes: Vec<Lane>,
    records: u64,
}

/// One end of a lane.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct End {
    process: u64,
    ip: IpAddr,
}

struct Lane {
    from: End,
    to: End,
    records: VecDeque<Record>,
    /// How many of them are answered: the first ones.
    answered: usize,
    /// The reader is gone, and the writer was told.
    ended: bool,
}

struct Record {
    bytes: Vec<u8>,
    request: usize,
    tag: RecordTag,
    answer: RecordAnswer,
}

impl LaneHost {
    /// A host without processes.
    pub fn new(profile: LaneProfile, prng: Prng) -> Self {
        LaneHost(Arc::new(Mutex::new(Board {
            profile,
            prng,
            reach: BTreeMap::new(),
            processes: HashMap::new(),
            attached: 0,
            lanes: Vec::new(),
            records: 0,
        })))
    }

    /// The NIC is a process of this host from now until it is dropped.
    pub fn attach(&self, nic: &mut Nic) {
        let mut board = self.lock();
        board.attached += 1;
        let end = End {
            process: board.attached,
            ip: nic.endpoints()[0].ip,
        };
        board.processes.insert(end.ip, end.process);
        drop(board);
        nic.set_lanes(Box::new(Attached {
            host: self.clone(),
            end,
            writing: Vec::new(),
            taken: None,
        }));
    }

    /// How many records were executed.
    pub fn records(&self) -> u64 {
        self.lock().records
    }

    /// Has the process at an address execute at most so many records of each lane to it, and take its answers. Returns the addresses
    /// of processes that have something to do now.
    pub(crate) fn look(&self, ip: IpAddr, nic: &mut Nic, now: Time, most: usize) -> Vec<IpAddr> {
        let count = self.lock().lanes.len();
        let mut others = Vec::new();
        // A process that writes to itself finds the answers the next time, when its program has seen what came.
        nic.handle_answers(now, &|| now);
        for lane in 0..count {
            if self.takes_end(lane, ip) {
                nic.lane_ended(now, LaneId(lane as u32));
            }
            for _ in 0..most {
                let Some(writer) = self.execute(lane, ip, nic, now) else {
                    break;
                };
                others.push(writer);
            }
            if self.is_waiting(lane, ip) {
                others.push(ip);
            }
        }
        others
    }

    /// The addresses of processes for which there is something in a lane.
    pub(crate) fn awaited(&self) -> Vec<IpAddr> {
        let board = self.lock();
        let lanes = board.lanes.iter();
        let readers = lanes.filter(|lane| lane.answered < lane.records.len() && board.lives(lane.to));
        readers.map(|lane| lane.to.ip).collect()
    }

    /// Executes the next record of a lane, if it leads to this address. The address of its writer.
    fn execute(&self, lane: usize, ip: IpAddr, nic: &mut Nic, now: Time) -> Option<IpAddr> {
        let mut board = self.lock();
        let place = &board.lanes[lane];
        if place.to.ip != ip || !board.lives(place.to) {
            return None;
        }
        let (from, at) = (place.from, place.answered);
        let record = board.lanes[lane].records.get_mut(at)?;
        let mut bytes = std::mem::take(&mut record.bytes);
        let cut = record.request;
        // Executing it may write records, which takes the lock.
        drop(board);
        let (request, room) = bytes.split_at_mut(cut);
        let answer = nic.handle_record(now, (from.ip, ip), request, room);
        let mut board = self.lock();
        let place = &mut board.lanes[lane];
        place.records[at].bytes = bytes;
        place.records[at].answer = RecordAnswer::from_words(answer.to_words());
        place.answered += 1;
        board.records += 1;
        Some(from.ip)
    }

    fn is_waiting(&self, lane: usize, ip: IpAddr) -> bool {
        let board = self.lock();
        let place = &board.lanes[lane];
        place.to.ip == ip && board.lives(place.to) && place.answered < place.records.len()
    }

    /// Whether a lane of this address has ended. It says so once.
    fn takes_end(&self, lane: usize, ip: IpAddr) -> bool {
        let mut board = self.lock();
        let place = &board.lanes[lane];
        let own = place.from.ip == ip && board.lives(place.from);
        let ends = own && !board.lives(place.to) && !place.ended;
        board.lanes[lane].ended |= ends;
        ends
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn lives(&self, end: End) -> bool {
        self.processes.get(&end.ip) == Some(&end.process)
    }
}

/// A process's side of the host.
struct Attached {
    host: LaneHost,
    end: End,
    writing: Vec<u8>,
    taken: Option<Record>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut board = self.host.lock();
        if board.lives(self.end) {
            board.processes.remove(&self.end.ip);
        }
    }
}

impl Lanes for Attached {
    fn find(&mut self, local: IpAddr, remote: IpAddr, _: Qpn) -> Option<LaneId> {
        assert_eq!(local, self.end.ip, "a NIC asks for lanes from its own address");
        let mut board = self.host.lock();
        let process = *board.processes.get(&remote)?;
        let percent = board.profile.reach_percent;
        let between = (self.end.ip, remote);
        let reaches = match board.reach.get(&between) {
            Some(reaches) => *reaches,
            None => board.prng.percent(percent),
        };
        board.reach.insert(between, reaches);
        let late_percent = board.profile.late_percent;
        if !reaches || board.prng.percent(late_percent) {
            return None;
        }
        let to = End { process, ip: remote };
        let leads = |lane: &Lane| lane.from == self.end && lane.to == to;
        let known = board.lanes.iter().position(leads);
        let lane = known.unwrap_or_else(|| {
            board.lanes.push(Lane {
                from: self.end,
                to,
                records: VecDeque::new(),
                answered: 0,
                ended: false,
            });
            board.lanes.len() - 1
        });
        Some(LaneId(lane as u32))
    }

    fn room(&mut self, lane: LaneId, bytes: usize) -> Option<&mut [u8]> {
        let board = self.host.lock();
        let place = &board.lanes[lane.0 as usize];
        assert_eq!(place.from, self.end, "a NIC writes to its own lanes");
        if place.records.len() >= board.profile.room {
            return None;
        }
        drop(board);
        self.writing.clear();
        self.writing.resize(bytes, 0xcc);
        Some(&mut self.writing)
    }

    fn publish(&mut self, lane: LaneId, request: usize, tag: RecordTag) {
        let bytes = std::mem::take(&mut self.writing);
        assert!(
            request > 0 && request <= bytes.len(),
            "a record is written to its room"
        );
        let mut board = self.host.lock();
        board.lanes[lane.0 as usize].records.push_back(Record {
            bytes,
            request,
            tag,
            answer: RecordAnswer::Executed,
        });
    }

    fn take_answer(&mut self) -> Option<Answered<'_>> {
        let mut board = self.host.lock();
        let mut own = board.lanes.iter_mut().filter(|lane| lane.from == self.end);
        let lane = own.find(|lane| lane.answered > 0)?;
        lane.answered -= 1;
        let record = self.taken.insert(lane.records.pop_front()?);
        Some(Answered {
            tag: record.tag,
            answer: record.answer,
            bytes: &record.bytes[record.request..],
        })
    }

    fn close(&mut self, lane: LaneId) {
        let board = self.host.lock();
        let ended = board.lanes[lane.0 as usize].ended;
        assert!(ended, "only a lane that has ended is closed");
    }
}
