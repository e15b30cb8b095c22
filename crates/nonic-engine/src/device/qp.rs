//! Queue pairs: creating, connecting, posting.

use super::{Device, HOME};
use crate::driver::Driver;
use crate::netdev::Wire;
use crate::shard::Effort;
use nonic_core::{
    CompletionQueue, CreateError, ModifyError, Nic, Path, PdId, PostError, Psn, QpAttributes, QpInit,
    QpState, Qpn, ReceiveQueue, RecvRequest, SendOp, SendRequest, Time, XrcDomain,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long connecting looks for the answer of a peer on this host again and again, before it leaves the processor to others.
const EAGER: Duration = Duration::from_millis(1);
/// How often it looks from then on.
const GLANCE: Duration = Duration::from_micros(200);

impl Device {
    /// Creates a queue pair in RESET.
    pub fn create_qp(&self, init: QpInit) -> Result<Qpn, CreateError> {
        let next = self.inner.next_shard.fetch_add(1, Ordering::Relaxed);
        let shard = next % self.inner.drivers.len();
        match self.inner.netdev.wire {
            Wire::Roce => self.create_with(shard, |nic| nic.create_qp(init.clone())),
            Wire::Iwarp => self.create_with(shard, |nic| nic.create_iwarp_qp(init.clone())),
        }
    }

    /// A fresh domain for extended reliable connections.
    pub fn alloc_xrc_domain(&self) -> XrcDomain {
        XrcDomain(self.inner.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a shared receive queue for the target queue pairs of a domain, which completes to `cq`; and
    /// the number by which peers name it.
    pub fn create_xrc_srq(
        &self,
        domain: XrcDomain,
        pd: PdId,
        cq: &Arc<CompletionQueue>,
        capacity: usize,
        max_sge: usize,
    ) -> Result<(Arc<ReceiveQueue>, u32), CreateError> {
        let srq = self.create_srq(pd, capacity, max_sge);
        if self.inner.netdev.wire != Wire::Roce {
            return Err(CreateError::Unsupported);
        }
        // Targets and their receive queues are all in the first shard, so that they find each other.
        let number = self
            .inner
            .home()
            .nic
            .add_xrc_srq(domain, Arc::clone(&srq), Arc::clone(cq))?;
        Ok((srq, number))
    }

    /// Ends the service of an XRC SRQ. Answers whether it was there.
    pub fn remove_xrc_srq(&self, number: u32) -> bool {
        self.inner.home().nic.remove_xrc_srq(number)
    }

    /// Creates the receiving half of an extended reliable connection, in RESET.
    pub fn create_xrc_target(&self, domain: XrcDomain) -> Result<Qpn, CreateError> {
        if self.inner.netdev.wire != Wire::Roce {
            return Err(CreateError::Unsupported);
        }
        self.create_with(HOME, |nic| nic.create_xrc_target(domain))
    }

    fn create_with(
        &self,
        shard: usize,
        create: impl Fn(&mut Nic) -> Result<Qpn, CreateError>,
    ) -> Result<Qpn, CreateError> {
        let mut turn = self.inner.drivers[shard].turn();
        match create(&mut turn.nic) {
            Err(CreateError::NoQpn) => {}
            result => return result,
        }
        // All our numbers are in use or rest: claim another block, or do with what there is.
        if turn.claim_block().is_err() {
            turn.nic.cut_rests_short();
        }
        create(&mut turn.nic)
    }

    /// Destroys a queue pair. Answers whether it existed.
    pub fn destroy_qp(&self, qpn: Qpn) -> bool {
        self.recall_qp(qpn);
        let mut turn = self.inner.turn_of(qpn);
        let now = turn.now();
        // What it still owes its peer leaves first, and what its peer did before counts.
        turn.flush_deferred(|| now);
        turn.finish_records(now);
        let existed = turn.nic.destroy_qp(now, qpn);
        turn.bid_farewell(now, qpn);
        turn.release_spare_blocks();
        existed
    }

    /// Changes a queue pair's attributes.
    pub fn modify_qp(&self, qpn: Qpn, set: &QpAttributes) -> Result<(), ModifyError> {
        if matches!(set.state, Some(QpState::Reset | QpState::Error)) {
            self.recall_qp(qpn);
        }
        let mut turn = self.inner.turn_of(qpn);
        let now = turn.now();
        turn.flush_deferred(|| now);
        if matches!(set.state, Some(QpState::Reset | QpState::Error)) {
            turn.finish_records(now);
        }
        turn.nic.modify_qp(now, qpn, set)?;
        if let (Some(QpState::Rtr), Some(path), Some(peer)) = (set.state, set.path, set.dest_qpn) {
            if let Some(presence) = turn.presence_mut(path.gid_index) {
                presence.expect_packets_from(now, path.remote);
                let asked = presence.find_way(now, path.remote, peer.value());
                drop(turn);
                if asked {
                    self.await_way(self.inner.driver_of(qpn), path, peer);
                }
            }
        }
        Ok(())
    }

    /// Takes back what the peer of a queue pair that is about to end may do by itself, and waits for accesses under way.
    /// This is done without the shard lock, so that a peer that was stopped in the middle does not delay other users of the
    /// shard. If the queue pair then does not end after all, its peer sends packets.
    fn recall_qp(&self, qpn: Qpn) {
        if let Some(publication) = &self.inner.publication {
            publication.recall_qp(qpn);
        }
    }

    /// Finds the way to a queue pair before the first datagram goes there.
    ///
    /// A connected queue pair does this when it is connected. Datagrams that set out before a same-host peer's answer take
    /// the detour over port 4791, where a burst of them overruns the inbox and no sender retransmits them.
    pub fn find_way(&self, gid_index: u8, remote: IpAddr, peer: Qpn) {
        if remote.is_multicast() {
            return;
        }
        for driver in &self.inner.drivers {
            let mut turn = driver.turn();
            let now = turn.now();
            let presence = turn.presence_mut(gid_index);
            let asked = presence.is_some_and(|presence| presence.find_way(now, remote, peer.value()));
            drop(turn);
            if asked {
                self.await_way(driver, Path { gid_index, remote }, peer);
            }
        }
    }

    /// Waits for a same-host peer's answers, so that packets never change their way. Ends: the link says how long they are worth
    /// waiting for.
    fn await_way(&self, driver: &Driver, path: Path, peer: Qpn) {
        let begun = Instant::now();
        loop {
            let mut turn = driver.turn();
            let now = turn.now();
            turn.drive(now, Effort::Full);
            let presence = turn.presence_mut(path.gid_index);
            let settled =
                presence.is_none_or(|presence| presence.way_is_settled(now, path.remote, peer.value()));
            if settled {
                return;
            }
            drop(turn);
            // A peer that is another shard of this process must get its turn too.
            self.progress();
            match begun.elapsed() < EAGER {
                true => std::thread::yield_now(),
                false => std::thread::sleep(GLANCE),
            }
        }
    }

    /// A queue pair's state.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.inner.turn_of(qpn).nic.qp_state(qpn)
    }

    /// A queue pair's attributes.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpAttributes> {
        self.inner.turn_of(qpn).nic.query_qp(qpn)
    }

    /// A starting PSN that no peer can guess.
    pub fn random_psn(&self) -> Psn {
        self.inner.home().nic.random_psn()
    }

    /// Posts a send request and sends what can be sent.
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(qpn, std::slice::from_ref(request))
            .map_err(|(_, error)| error)
    }

    /// Posts several send requests at once. On refusal, tells which one; those before it are posted.
    pub fn post_sends(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        self.post_each_send(qpn, |poster| {
            requests.iter().enumerate().try_for_each(|(index, request)| {
                let more = index + 1 < requests.len();
                poster.post(request, more).map_err(|error| (index, error))
            })
        })
    }

    /// Posts send requests as `post` produces them, in one turn, and sends what can be sent.
    pub fn post_each_send<T>(&self, qpn: Qpn, post: impl FnOnce(&mut SendPoster<'_>) -> T) -> T {
        let driver = self.inner.driver_of(qpn);
        let mut turn = driver.turn();
        // Nothing that posting itself does depends on the time.
        let now = turn.recent_time();
        let gathers = turn.may_gather(driver.polls());
        let mut poster = SendPoster {
            nic: &mut turn.nic,
            now,
            qpn,
            bytes: 0,
            gathers,
        };
        let result = post(&mut poster);
        let SendPoster { bytes, gathers, .. } = poster;
        if turn.posted(|| driver.now(), qpn, bytes, gathers) {
            turn.end_settled();
        }
        result
    }

    /// Posts receives to a queue pair's own queue as `post` produces them, in one turn.
    pub fn post_each_recv<T>(&self, qpn: Qpn, post: impl FnOnce(&mut RecvPoster<'_>) -> T) -> T {
        let mut turn = self.inner.turn_of(qpn);
        let nic = &mut turn.nic;
        post(&mut RecvPoster { nic, qpn })
    }

    /// Posts a receive to a queue pair's own queue.
    pub fn post_recv(&self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.inner.turn_of(qpn).nic.post_recv(qpn, request)
    }
}

/// Takes send requests for one queue pair; see [`Device::post_each_send`].
pub struct SendPoster<'a> {
    nic: &'a mut Nic,
    now: Time,
    qpn: Qpn,
    bytes: u64,
    /// All that was posted may wait to be executed together.
    gathers: bool,
}

impl SendPoster<'_> {
    /// How many more fit.
    pub fn room(&self) -> usize {
        self.nic.send_room(self.qpn).unwrap_or(0)
    }

    /// Posts one. If there is `more` to be posted, it may wait for that.
    pub fn post(&mut self, request: &SendRequest<'_>, more: bool) -> Result<(), PostError> {
        self.bytes += request.data.length();
        self.gathers &= matches!(request.op, SendOp::Write(_) | SendOp::Read(_));
        let more = more || self.gathers;
        self.nic.post_of_list(self.now, self.qpn, request, more)
    }
}

/// Takes receives for one queue pair; see [`Device::post_each_recv`].
pub struct RecvPoster<'a> {
    nic: &'a mut Nic,
    qpn: Qpn,
}

impl RecvPoster<'_> {
    /// Posts one.
    pub fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.nic.post_recv(self.qpn, request)
    }
}
