//! A link in memory, for tests: the test puts packets in, the link keeps what is sent, and has as much room as the test
//! says.

use super::lane::RECORDS_PER_CALL;
use super::{Datagrams, Deliver, ExecuteRecord, Link, LinkCounters, Notice, Presence, Sources};
use crate::host::demultiplex::{self, Owner};
use crate::host::{Block, ClaimError, PortState};
use crate::netdev::LocalAddress;
use nonic_core::cm::ListenerId;
use nonic_core::{Time, Transmit};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

/// The link. Clones are the same one.
#[derive(Clone)]
pub(crate) struct MemoryLink(Arc<Mutex<State>>, IpAddr);

#[derive(Default)]
struct State {
    arriving: VecDeque<(SocketAddr, usize, Vec<u8>)>,
    /// Records in a lane that leads here; no thread is woken for them, and they make no sense.
    in_lane: usize,
    sent: Vec<(Transmit, Vec<u8>)>,
    room: usize,
    blocks: Vec<Block>,
    /// Another process at the same port.
    neighbour: Option<MemoryLink>,
    lost: bool,
    counters: LinkCounters,
}

const PORT: u16 = 7000;

impl MemoryLink {
    /// A link at an address, with room for everything.
    pub(crate) fn new(ip: IpAddr) -> Self {
        let state = State {
            room: usize::MAX,
            ..State::default()
        };
        MemoryLink(Arc::new(Mutex::new(state)), ip)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    /// A datagram arrives from an arbitrary sender.
    pub(crate) fn arrive(&self, bytes: &[u8]) {
        self.arrive_from(SocketAddr::new(self.1, PORT), bytes.len().max(1), bytes);
    }

    /// A batch arrives.
    pub(crate) fn arrive_from(&self, src: SocketAddr, stride: usize, bytes: &[u8]) {
        self.state().arriving.push_back((src, stride, bytes.to_vec()));
    }

    /// So many records come through a lane.
    pub(crate) fn arrive_in_lane(&self, records: usize) {
        self.state().in_lane += records;
    }

    /// How many of them were not executed.
    pub(crate) fn left_in_lane(&self) -> usize {
        self.state().in_lane
    }

    /// Takes what was sent.
    pub(crate) fn take_sent(&self) -> Vec<(Transmit, Vec<u8>)> {
        std::mem::take(&mut self.state().sent)
    }

    /// From now on there is room for so many batches.
    pub(crate) fn set_room(&self, batches: usize) {
        self.state().room = batches;
    }

    /// The program closes one of its descriptors.
    pub(crate) fn lose_descriptor(&self) {
        self.state().lost = true;
    }

    /// Another process shares the port: what comes here and is for it is handed over.
    pub(crate) fn share_port_with(&self, neighbour: &MemoryLink) {
        self.state().neighbour = Some(neighbour.clone());
    }
}

impl Link for MemoryLink {
    fn max_segments(&self) -> usize {
        64
    }

    fn sources(&self) -> Sources {
        Sources { busy: 1, all: 1 }
    }

    fn receive(&mut self, _: Time, _: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        let arrived = self.state().arriving.pop_front();
        let (src, stride, bytes) = arrived.ok_or(io::ErrorKind::WouldBlock)?;
        self.state().counters.receives += 1;
        let datagrams = Datagrams {
            src,
            dst_ip: self.1,
            ecn: 0,
            stride,
            bytes: &bytes,
            sealed: true,
        };
        let neighbour = self.state().neighbour.clone();
        let pass_on = |owner, run: &Datagrams<'_>| match (owner, &neighbour) {
            (Owner::Block(block), Some(neighbour)) if neighbour.owns(block) => {
                neighbour.arrive_from(run.src, run.stride, run.bytes);
                self.state().counters.handed_over += 1;
                false
            }
            _ => true,
        };
        demultiplex::sort(&datagrams, pass_on, deliver);
        Ok(bytes.len())
    }

    fn receive_records(&mut self, execute: &mut ExecuteRecord<'_>) -> u64 {
        let waiting = self.left_in_lane().min(RECORDS_PER_CALL);
        self.state().in_lane -= waiting;
        for _ in 0..waiting {
            execute((self.1, self.1), &[0; 8], &mut []);
        }
        waiting as u64
    }

    fn send(&mut self, _: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.room = state.room.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        state.counters.sends += 1;
        state.sent.push((*transmit, bytes.to_vec()));
        Ok(())
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> LinkCounters {
        self.state().counters
    }

    fn sync(&mut self) {}

    fn presence(&self) -> &dyn Presence {
        self
    }

    fn presence_mut(&mut self) -> &mut dyn Presence {
        self
    }
}

impl Presence for MemoryLink {
    fn address(&self) -> LocalAddress {
        LocalAddress {
            ip: self.1,
            scope_id: 0,
        }
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn claim(&mut self, wanted: Option<Block>) -> Result<Block, ClaimError> {
        let neighbour = self.state().neighbour.clone();
        let is_taken = |block| neighbour.as_ref().is_some_and(|neighbour| neighbour.owns(block));
        let mut free = (1..).filter_map(Block::new).filter(|block| !is_taken(*block));
        let block = wanted.or_else(|| free.next()).expect("there are many");
        self.state().blocks.push(block);
        Ok(block)
    }

    fn release(&mut self, block: Block) {
        self.state().blocks.retain(|owned| *owned != block);
    }

    fn owns(&self, block: Block) -> bool {
        self.state().blocks.contains(&block)
    }

    fn listen(&mut self, _: ListenerId, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn unlisten(&mut self, _: ListenerId) {}

    fn join(&mut self, _: IpAddr) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, _: IpAddr) {}

    fn find_way(&mut self, _: Time, _: IpAddr, _: u32) -> bool {
        false
    }

    fn way_is_settled(&self, _: Time, _: IpAddr, _: u32) -> bool {
        true
    }

    fn expect_packets_from(&mut self, _: Time, _: IpAddr) {}

    fn is_steered(&self, _: Time) -> bool {
        true
    }

    fn attend(&mut self, _: Time) {}

    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    fn has_lost_descriptor(&self) -> bool {
        self.state().lost
    }

    fn retire(&mut self) {}

    fn port_state(&self) -> PortState {
        PortState::Joined
    }
}
